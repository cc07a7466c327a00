/* Clients of any kind against the server's own HTTP and API code, in one thread: what is sent
 * back is well formed, every request ends, nothing stays behind, and a good request is answered
 * as before. The engine is a fake that makes tokens when the input says so.
 *
 * The input is what clients send, with steps between, each a backquote and a letter:
 *   `0 to `3  go on with that connection (opened when first used)
 *   `t        a turn of the loop            `w   the oldest work of the pool is done
 *   `e        the engine makes a token for each choice
 *   `s        this connection reads no more
 *   `h  `c  `r  it half-closes, closes, resets
 *   ``        a backquote
 * Run it: tests/fuzz/run.sh http [SECONDS] */
#include "api.h"
#include "http_check.h"
#include "http_impl.h"
#include "log.h"
#include "vocab_build.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int __wrap_uv_queue_work(uv_loop_t *, uv_work_t *, uv_work_cb, uv_after_work_cb);

static void fail(const char *what)
{
    fprintf(stderr, "fuzz_http: %s\n", what);
    abort();
}

/* ---- the pool: work is done when the input says so, in order ---- */

enum { MAX_WORK = 256 };
static struct {
    struct {
        uv_work_t *work;
        uv_work_cb run;
        uv_after_work_cb done;
    } all[MAX_WORK];
    int n;
} pool;

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb run, uv_after_work_cb done)
{
    if (pool.n == MAX_WORK)
        fail("too much work for the pool");
    pool.all[pool.n].work = work;
    pool.all[pool.n].run = run;
    pool.all[pool.n++].done = done;
    return 0;
}

static bool pool_step(void)
{
    if (pool.n == 0)
        return false;
    const uv_work_cb run = pool.all[0].run;
    const uv_after_work_cb done = pool.all[0].done;
    uv_work_t *work = pool.all[0].work;
    memmove(pool.all, pool.all + 1, (size_t)--pool.n * sizeof *pool.all);
    run(work);
    done(work, 0);
    return true;
}

/* ---- the engine ---- */

enum { MAX_REQUESTS = 64 };
struct engine {
    struct engine_info info;
    struct request *live[MAX_REQUESTS];
    int n;
    struct request *news[MAX_REQUESTS];
    int n_news;
};
static struct engine engine = {
    .info = {.max_model_len = 200, .max_num_seqs = 8, .backend = "fake", .block_size = 16}};

const struct engine_info *engine_get_info(const struct engine *e)
{
    return &e->info;
}
void engine_get_stats(struct engine *e, struct engine_stats *out)
{
    *out = (struct engine_stats){.n_running = e->n, .pages_total = 100, .pages_free = 100};
}
bool engine_submit(struct engine *e, struct request *r, struct err *err)
{
    if (r->n_prompt >= e->info.max_model_len)
        return err_set(err, ERR_INVALID, "the prompt is too long");
    if (e->n == MAX_REQUESTS)
        fail("more sequences than may wait");
    e->live[e->n++] = r;
    return true;
}
void engine_cancel(struct engine *e, struct request *r)
{
    atomic_store(&r->cancel_asked, true);
}
void engine_stop_choice(struct engine *e, struct request *r, int choice)
{
    atomic_store(&r->choices[choice].stop_asked, true);
}
void engine_reset_prefix_cache(struct engine *e)
{
}
struct request *engine_poll(struct engine *e)
{
    return e->n_news ? e->news[--e->n_news] : NULL;
}

static void finish(struct choice *c, enum finish_reason why)
{
    if (atomic_load(&c->finish) == FINISH_NONE)
        atomic_store(&c->finish, why);
}

/* Bytes of all kinds, broken UTF-8 among them. */
static void make_token(struct engine *e, struct request *r, struct choice *c)
{
    const int i = atomic_load(&c->n_tokens);
    const int32_t id = (r->prompt[r->n_prompt - 1] * 7 + i * 31) % e->info.spec.n_vocab;
    c->tokens[i] = id;
    if (c->logprobs)
        c->logprobs[i] = -0.5f;
    for (int k = 0; c->tops && k < r->params.n_logprobs; k++)
        c->tops[i * r->params.n_logprobs + k] = (struct top_logprob){k, -1};
    atomic_store(&c->n_tokens, i + 1);
    if (i + 1 >= r->params.max_tokens || r->n_prompt + i + 1 >= e->info.max_model_len)
        finish(c, FINISH_LENGTH);
}

static void make_prompt_logprobs(struct request *r)
{
    const int k = r->params.n_prompt_logprobs;
    for (int i = 1; r->prompt_logprobs && i < r->n_prompt; i++)
        r->prompt_logprobs[i] = -2;
    for (int i = k; r->prompt_tops && i < r->n_prompt * k; i++)
        r->prompt_tops[i] = (struct top_logprob){i % k, -3};
}

static bool step_request(struct engine *e, struct request *r)
{
    bool open = false;
    make_prompt_logprobs(r);
    for (int i = 0; i < r->n_choices; i++) {
        struct choice *c = &r->choices[i];
        if (atomic_load(&r->cancel_asked))
            finish(c, FINISH_CANCELLED);
        else if (atomic_load(&c->stop_asked))
            finish(c, FINISH_STOP);
        else if (r->params.max_tokens == 0) /* the prompt's log probabilities are all it wants */
            finish(c, FINISH_LENGTH);
        else if (atomic_load(&c->finish) == FINISH_NONE)
            make_token(e, r, c);
        open |= atomic_load(&c->finish) == FINISH_NONE;
    }
    return open;
}

static void engine_step(struct api *api)
{
    int kept = 0;
    for (int i = 0; i < engine.n; i++) {
        struct request *r = engine.live[i];
        if (step_request(&engine, r))
            engine.live[kept++] = r;
        else
            atomic_store(&r->ended, true);
        engine.news[engine.n_news++] = r;
    }
    engine.n = kept;
    api_poll_engine(api);
}

/* ---- the server ---- */

static struct {
    uv_loop_t loop;
    struct api *api;
    struct http_server *http;
    char good[8192]; /* the answer to the good request, ids and times blanked */
} rig;

static struct tokenizer *make_tokenizer(void)
{
    struct vocab_build v = {0};
    struct err e;
    vocab_start(&v);
    vocab_token(&v, "<|start|>", T_CONTROL);
    engine.info.spec.n_vocab = vocab_token(&v, "<|end|>", T_CONTROL) + 1;
    struct tokenizer *t = vocab_open(&v, "gpt-2", &e);
    if (!t)
        fail(e.msg);
    return t;
}

static struct template *make_template(void)
{
    static const char source[] = "{% for m in messages %}<|start|>{{ m.role }} {{ m.content }}"
                                 "<|end|>{% endfor %}";
    struct err e;
    struct template *t = template_parse(source, sizeof source - 1, &e);
    if (!t)
        fail(e.msg);
    return t;
}

static void open_server(void)
{
    static const char *const names[] = {"m", NULL};
    const struct api_config a = {
        .model_names = names, .has_seed = true, .max_queue_len = 8, .stall_limit_s = 60};
    const struct http_config h = {.host = "127.0.0.1",
                                  .max_body = 8192,
                                  .max_connections = 100,
                                  .idle_timeout_s = 120,
                                  .header_deadline_ms = 20000,
                                  .body_deadline_ms = 20000,
                                  .max_stream_queue = 2048,
                                  .max_replies = 1 << 20,
                                  .slow_reader_ms = 60000};
    struct err e;
    uv_loop_init(&rig.loop);
    rig.api = api_open(&rig.loop, &a, &e);
    rig.http = rig.api ? http_server_open(&rig.loop, &h, api_routes(), rig.api, &e) : NULL;
    if (!rig.http)
        fail(e.msg);
    rig.http->idle.period = 5; /* ms; the server looks every 2 s for clients that left unnoticed */
    api_set_http(rig.api, rig.http);
    api_set_engine(rig.api, &engine,
                   &(struct api_model){.tokenizer = make_tokenizer(), .template = make_template()});
}

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&rig.loop, UV_RUN_NOWAIT);
}

/* ---- clients ---- */

enum { MAX_CLIENTS = 4, MAX_REPLY = 1 << 20 };
struct client {
    int fd; /* -1: not open */
    bool used, left, deaf;
    uint32_t last; /* bytes that it sent */
    bool asked_head;
    size_t n;
    char *got; /* [MAX_REPLY] */
};
static struct client clients[MAX_CLIENTS];

/* Each from an address of its own: ports in TIME_WAIT do not run out. */
static void client_open(struct client *c)
{
    static uint32_t n_opened;
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)http_server_port(rig.http)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr = {htonl(0x7F000002u + n_opened++ % 0xFFFF00u)}};
    const int small = 2048;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (c->fd < 0 || bind(c->fd, (const struct sockaddr *)&from, sizeof from) ||
        (connect(c->fd, (const struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS))
        fail(strerror(errno));
    c->used = true;
}

static bool client_read(struct client *c)
{
    bool some = false;
    if (c->fd < 0 || c->deaf)
        return false;
    for (;;) {
        if (c->n == MAX_REPLY)
            fail("an endless reply");
        const ssize_t n = recv(c->fd, c->got + c->n, MAX_REPLY - c->n, 0);
        if (n <= 0)
            return some;
        some = true;
        c->n += (size_t)n;
    }
}

static bool read_all(void)
{
    bool some = false;
    for (int i = 0; i < MAX_CLIENTS; i++)
        some |= client_read(&clients[i]);
    return some;
}

/* Several clients may send before the server's next turn. */
static void client_send(struct client *c, const char *s, size_t n)
{
    for (int tries = 0; n && c->fd >= 0 && !c->left && tries < 3;) {
        const ssize_t sent = send(c->fd, s, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return; /* refused and closed */
        for (ssize_t i = 0; i < sent; i++) {
            c->last = c->last << 8 | (unsigned char)s[i];
            c->asked_head |= c->last == 0x48454144; /* HEAD */
        }
        if (sent < 0) { /* the server takes no more, for now or for good */
            tries++;
            turn();
            read_all();
            continue;
        }
        s += sent;
        n -= (size_t)sent;
    }
}

static void client_reset(struct client *c)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (c->fd < 0)
        return;
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(c->fd);
    c->fd = -1;
    c->left = true;
}

static const char *wrong_with(struct client *c)
{
    struct http_check check = {
        .at = c->got, .end = c->got + c->n, .cut_ok = c->left || c->deaf, .head_ok = c->asked_head};
    return http_check_replies(&check);
}

/* What the kernel still holds for a small window takes it some time. */
static void client_check(struct client *c)
{
    const char *why = wrong_with(c);
    for (int i = 0; why && i < 1000; i++) {
        usleep(1000);
        turn();
        if (client_read(c))
            why = wrong_with(c);
    }
    if (why) {
        fwrite(c->got, 1, c->n, stderr);
        fail(why);
    }
}

/* ---- the good request ---- */

/* Digits and hexadecimal ids become dots. */
static void blank(char *s)
{
    for (; *s; s++)
        if ((*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'f'))
            *s = '.';
}

static void check_good_answer(void)
{
    static const char good[] =
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 38\r\n\r\n"
        "{\"prompt\":\"a good one\",\"max_tokens\":3}";
    struct client *c = &clients[0];
    client_open(c);
    client_send(c, good, sizeof good - 1);
    for (int i = 0; i < 2000 && !memmem(c->got, c->n, "usage", 5); i++) {
        turn();
        pool_step();
        engine_step(rig.api);
        client_read(c);
        if (i > 50)
            usleep(1000);
    }
    client_check(c);
    c->got[c->n < sizeof rig.good ? c->n : 0] = '\0';
    const char *body = strstr(c->got, "\"choices\"");
    if (!body || strncmp(c->got, "HTTP/1.1 200 ", 13) != 0)
        fail("no answer to a good request");
    memmove(c->got, body, strlen(body) + 1);
    blank(c->got);
    if (!rig.good[0])
        strcpy(rig.good, c->got);
    if (strcmp(rig.good, c->got) != 0)
        fail("another answer to the good request");
    client_reset(c);
}

/* ---- one input ---- */

static bool nothing_is_left(void)
{
    struct http_stats st;
    http_get_stats(rig.http, &st);
    return st.connections_open == 0 && http_server_n_requests(rig.http) == 0 &&
           api_n_in_flight(rig.api) == 0 && rig.http->body_bytes == 0 &&
           rig.http->reply_bytes == 0 && rig.http->n_lingering == 0;
}

/* Whether all requests that someone waits for have got what they asked. */
static bool all_answered(void)
{
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (clients[i].deaf)
            return true; /* what it does not read stays */
    return api_n_in_flight(rig.api) == 0 && http_server_n_requests(rig.http) == 0;
}

/* Whose clients have all closed are over, without a word of the engine or the pool. */
static void check_leaving(void)
{
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (clients[i].fd >= 0)
            return;
    for (int i = 0; http_server_n_requests(rig.http) > 0; i++) {
        turn();
        if (i > 20)
            usleep(1000);
        if (i > 2000)
            fail("a client that left is not noticed");
    }
}

static void go_on_until(bool (*done)(void), const char *otherwise)
{
    int idle = 0;
    while (idle < 3 || !done()) {
        bool some = read_all();
        some |= pool_step();
        if (engine.n)
            engine_step(rig.api);
        turn();
        idle = some ? 0 : idle + 1;
        if (idle > 200)
            usleep(1000);
        if (idle > 5000)
            fail(otherwise);
    }
}

static void step(struct client **at, char what)
{
    struct client *c = *at;
    if (what >= '0' && what < '0' + MAX_CLIENTS)
        *at = &clients[what - '0'];
    else if (what == 't')
        turn();
    else if (what == 'w')
        pool_step();
    else if (what == 'e')
        engine_step(rig.api);
    else if (what == 's')
        c->deaf = true;
    else if (what == 'h' && c->fd >= 0)
        shutdown(c->fd, SHUT_WR);
    else if (what == 'r' || what == 'c') {
        if (what == 'c' && c->fd >= 0) {
            client_read(c);
            close(c->fd);
            c->fd = -1;
        }
        client_reset(c);
    }
    c->left |= what == 'h' || what == 'c' || what == 'r';
    if (!clients[*at - clients].used)
        client_open(*at);
}

static void run_script(const char *s, size_t n)
{
    struct client *at = &clients[0];
    client_open(at);
    for (const char *end = s + n; s < end;) {
        const char *mark = memchr(s, '`', (size_t)(end - s));
        const bool doubled = mark && mark + 1 < end && mark[1] == '`';
        client_send(at, s, (size_t)((mark ? mark + doubled : end) - s));
        if (!mark || mark + 1 == end)
            return;
        if (!doubled)
            step(&at, mark[1]);
        s = mark + 2;
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    signal(SIGPIPE, SIG_IGN);
    log_setup(LOG_ERROR, LOG_TEXT);
    open_server();
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (!(clients[i].got = malloc(MAX_REPLY)))
            fail("out of memory");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (int i = 0; i < MAX_CLIENTS; i++)
        clients[i] = (struct client){.fd = -1, .got = clients[i].got};
    run_script((const char *)data, n);
    check_leaving();
    go_on_until(all_answered, "a request is not answered");
    for (int i = 0; i < MAX_CLIENTS; i++) {
        client_check(&clients[i]);
        client_reset(&clients[i]);
    }
    go_on_until(nothing_is_left, "something is left of clients that have gone");
    clients[0] = (struct client){.fd = -1, .got = clients[0].got};
    check_good_answer();
    go_on_until(nothing_is_left, "something is left of a good request");
    return 0;
}
