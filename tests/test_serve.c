/* `tokend serve` over a fake engine: what it refuses at start, and its exit status. */
#include "api.h"
#include "commands.h"
#include "loaded_model.h"
#include "model_names.h"
#include "temp_dir.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* ---- fake engine ---- */

enum fate { LIVES, DIES_IDLE, DIES_DRAINING };

struct engine {
    struct engine_info info;
    enum fate fate;
    _Atomic bool dead;
    struct request *_Atomic news;
    void (*wake)(void *arg);
    void *arg;
};
static struct engine engine = {
    .info = {.max_model_len = 100, .max_num_seqs = 2, .backend = "fake", .spec = {.n_vocab = 9}}};

static void die(void)
{
    atomic_store(&engine.dead, true);
    engine.wake(engine.arg);
}

bool loaded_model_open(struct loaded_model *m, const struct settings *s, void (*wake)(void *arg),
                       void *arg, struct err *e)
{
    engine.wake = wake;
    engine.arg = arg;
    m->engine = &engine;
    return true;
}
/* The last thing that serve does before it takes requests. */
void loaded_model_log(const struct loaded_model *m)
{
    if (engine.fate == LIVES)
        raise(SIGTERM);
    else if (engine.fate == DIES_IDLE)
        die();
}
void loaded_model_free(struct loaded_model *m)
{
}
const struct engine_info *engine_get_info(const struct engine *e)
{
    return &e->info;
}
void engine_get_stats(struct engine *e, struct engine_stats *out)
{
    *out = (struct engine_stats){.dead = atomic_load(&e->dead)};
}
static void *die_later(void *request)
{
    struct request *r = request;
    usleep(100 * 1000); /* the signal comes first */
    err_set(&r->error, ERR_DEVICE, "the device failed");
    atomic_store(&r->choices[0].finish, FINISH_ERROR);
    atomic_store(&r->ended, true);
    atomic_store(&engine.news, r);
    die();
    return NULL;
}
/* A drain begins while the request runs; then the device fails. */
bool engine_submit(struct engine *e, struct request *r, struct err *err)
{
    pthread_t thread;
    raise(SIGTERM);
    pthread_create(&thread, NULL, die_later, r);
    pthread_detach(thread);
    return true;
}
void engine_cancel(struct engine *e, struct request *r)
{
}
void engine_stop_choice(struct engine *e, struct request *r, int choice)
{
}
void engine_reset_prefix_cache(struct engine *e)
{
}
struct request *engine_poll(struct engine *e)
{
    return atomic_exchange(&e->news, NULL);
}
void engine_close(struct engine *e)
{
}
struct request *request_new(int32_t *prompt, int n_prompt, int n_choices,
                            const struct sampling_params *p)
{
    struct request *r = calloc(1, sizeof *r);
    r->prompt = prompt;
    r->n_prompt = n_prompt;
    r->n_choices = n_choices;
    r->params = *p;
    r->choices = calloc((size_t)n_choices, sizeof *r->choices);
    return r;
}
void request_free(struct request *r)
{
    free(r->choices);
    free(r->prompt);
    free(r);
}

/* ---- a serve of its own process ---- */

static char port[8];

static int bound_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
    return fd;
}

static pid_t start_serve(enum fate fate, const char *model, const char *names)
{
    close(bound_socket());
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {"serve", (char *)model,         "--port",
                        port,    "--served-model-name", (char *)names};
        engine.fate = fate;
        alarm(20);
        _exit(cmd_serve(names ? 6 : 4, argv));
    }
    return pid;
}

static int exit_status(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void ask_for_tokens(void)
{
    static const char request[] = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                                  "Connection: close\r\nContent-Length: 14\r\n\r\n"
                                  "{\"prompt\":[1]}";
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)atoi(port)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    char reply[4096];
    for (int tries = 0; tries < 500; tries++) { /* until it listens and has its model */
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        ssize_t n = 0;
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
            send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0)
            n = recv(fd, reply, sizeof reply - 1, 0);
        close(fd);
        reply[n > 0 ? n : 0] = '\0';
        if (n > 0 && !strstr(reply, "model_loading"))
            break;
        usleep(10 * 1000);
    }
    assert_contains(reply, "the device failed");
}

/* ---- */

static void a_drain_with_nothing_to_do_ends_well(void **state)
{
    assert_int_equal(exit_status(start_serve(LIVES, "m.gguf", NULL)), 0);
}

static void an_engine_that_dies_ends_the_process_as_failed(void **state)
{
    assert_int_equal(exit_status(start_serve(DIES_IDLE, "m.gguf", NULL)), 1);
}

static void an_engine_that_dies_while_draining_too(void **state)
{
    pid_t pid = start_serve(DIES_DRAINING, "m.gguf", NULL);
    ask_for_tokens();
    assert_int_equal(exit_status(pid), 1);
}

static void names_that_cannot_be_served_are_a_wrong_command_line(void **state)
{
    static const char *const wrong[] = {"a,b\xff", "\xC0\xAF", "\xED\xA0\x80", ",",
                                        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(exit_status(start_serve(LIVES, "m.gguf", wrong[i])), 2);
    assert_int_equal(
        exit_status(start_serve(LIVES, "m.gguf", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16")), 0);
}

static void names_are_split_and_errors_say_where(void **state)
{
    struct model_names n;
    struct err e;
    assert_true(model_names_read(&n, "org/a,b\xC3\xA9", "x.gguf", &e));
    assert_string_equal(n.list[0], "org/a");
    assert_string_equal(n.list[1], "b\xC3\xA9");
    assert_null(n.list[2]);
    model_names_free(&n);
    assert_true(model_names_read(&n, "a,b,a,,b,a", "x.gguf", &e)); /* each once */
    assert_string_equal(n.list[1], "b");
    assert_null(n.list[2]);
    model_names_free(&n);
    assert_false(model_names_read(&n, "a,b\xff", "x.gguf", &e));
    assert_contains(e.msg, "--served-model-name: expected UTF-8, byte 3 is not");
}

static void a_files_name_is_made_utf8(void **state)
{
    static const char *const cases[][2] = {
        {"/a/b.c.gguf", "b.c"},
        {"bad\xff.gguf", "bad\xEF\xBF\xBD"},
        {"\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"dir\xff/", "dir\xEF\xBF\xBD"},
        {"/models/Qwen3-1B//", "Qwen3-1B"},
        {"/", "model"},
        {"org/name.of-hub", "org/name.of-hub"},
        {"org/file.gguf", "file"},
        {"\xC3\xA9\xC3", "\xC3\xA9\xEF\xBF\xBD"},
        {".gguf", ".gguf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_names n;
        struct err e;
        assert_true(model_names_read(&n, NULL, cases[i][0], &e));
        assert_string_equal(n.list[0], cases[i][1]);
        assert_null(n.list[1]);
        model_names_free(&n);
    }
}

static void a_path_of_dots_is_called_what_it_is(void **state)
{
    static const char *const paths[] = {".", "./", "../here", "../here/.", "../here/../here/"};
    struct temp_dir d;
    char here[512];
    temp_dir_open(&d);
    snprintf(here, sizeof here, "%s/here", d.path);
    assert_int_equal(mkdir(here, 0700), 0);
    assert_int_equal(chdir(here), 0);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct model_names n;
        struct err e;
        assert_true(model_names_read(&n, NULL, paths[i], &e));
        assert_string_equal(n.list[0], "here");
        model_names_free(&n);
    }
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(here), 0);
    temp_dir_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drain_with_nothing_to_do_ends_well),
        cmocka_unit_test(an_engine_that_dies_ends_the_process_as_failed),
        cmocka_unit_test(an_engine_that_dies_while_draining_too),
        cmocka_unit_test(names_that_cannot_be_served_are_a_wrong_command_line),
        cmocka_unit_test(names_are_split_and_errors_say_where),
        cmocka_unit_test(a_files_name_is_made_utf8),
        cmocka_unit_test(a_path_of_dots_is_called_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
