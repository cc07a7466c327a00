/* Swap space of a backend: pages have what was last put there, after any history of writes, copies,
 * swaps out and in. Compiled for the CPU backend and, with SWAP_EMULATED, for the CUDA backend on
 * the emulated device, whose streams then work in every order. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "random.h"
#include "reference.h"
#ifdef SWAP_EMULATED
#include "backend_module.h"
#include "emu_control.h"
#endif

#include "test.h"

enum {
    BLOCK = 16,
    DIM = 16,
    PAGES = 6,
    HOST_PAGES = 5,
    TOKENS = 64,
    MOST_VERSIONS = 150,
    STEPS = 150
};

struct swapper {
    struct backend *b;
    struct weight *keys, *values;
    struct activation *q, *k, *v, *out;
};

static struct backend *open_backend(void)
{
    const struct backend_config c = {2, BLOCK, 1, 1, BLOCK};
    struct err e;
#ifdef SWAP_EMULATED
    struct backend *b = backend_module_of()->open(&c, &e);
#else
    struct backend *b = backend_cpu_open(&c, &e);
#endif
    if (!b)
        fail_msg("%s", e.msg);
    return b;
}

static struct weight *table_of(struct backend *b, uint64_t seed)
{
    struct err e;
    struct ref_matrix m = ref_matrix_new(DTYPE_F32, TOKENS, DIM, 1, &seed);
    struct weight *w = b->ops->weight_load(b, m.type, m.rows, m.cols, m.bytes, &e);
    ref_matrix_free(&m);
    assert_non_null(w);
    return w;
}

static void swapper_open(struct swapper *s, int n_pages, int n_host_pages)
{
    struct err e;
    struct backend *b = s->b = open_backend();
    const struct kv_config kv = {1, 1, DIM, BLOCK, n_pages, DTYPE_F32, 1};
    s->keys = table_of(b, 1);
    s->values = table_of(b, 2);
    if (b->ops->weights_loaded)
        b->ops->weights_loaded(b);
    struct activation **all[] = {&s->q, &s->k, &s->v, &s->out};
    for (int i = 0; i < 4; i++)
        assert_non_null(*all[i] = b->ops->activation_new(b, DIM, NULL, i == 3, &e));
    if (!b->ops->kv_open(b, &kv, &e) || (n_host_pages && !b->ops->swap_open(b, n_host_pages, &e)))
        fail_msg("%s", e.msg);
}

/* --- one page --- */

static struct step_inputs *begin(struct swapper *s, int page, int first, int n)
{
    struct step_inputs *in = s->b->ops->step_begin(s->b);
    in->n_rows = in->n_logits = n;
    in->n_seqs = 1;
    in->seqs[0] = (struct step_seq){0, n, first};
    in->page_tables[0] = page;
    for (int i = 0; i < n; i++) {
        in->positions[i] = first + i;
        in->kv_slots[i] = page * BLOCK + first + i;
        in->adapters[i] = -1;
        in->logit_rows[i] = i;
    }
    return in;
}

/* Token i of a version */
static int32_t token(int version, int i)
{
    return (int32_t)((version * 7 + i * 5 + version / TOKENS) % TOKENS);
}

static void submit(struct swapper *s, bool read)
{
    const struct attention_config a = {1, 1, DIM, 0.25f, 0, 0};
    const struct backend_ops *ops = s->b->ops;
    struct err e;
    ops->embed(s->b, s->q, s->keys, 1);
    ops->embed(s->b, s->k, s->keys, 1);
    ops->embed(s->b, s->v, s->values, 1);
    ops->rope_write_kv(s->b, 0, NULL, NULL, 1, s->q, s->k, s->v);
    if (read) {
        ops->attention(s->b, 0, &a, NULL, s->k, s->q);
        ops->norm_logit_rows(s->b, s->out, s->k, NULL);
    }
    if (!ops->submit(s->b, &e))
        fail_msg("%s", e.msg);
}

static void write_page(struct swapper *s, int page, int version)
{
    struct step_inputs *in = begin(s, page, 0, BLOCK);
    for (int i = 0; i < BLOCK; i++)
        in->ids[i] = token(version, i);
    submit(s, false);
}

/* What a token at the last position sees of the page, which depends on all of it; it writes there.
 */
static void read_page(struct swapper *s, int page, float out[DIM])
{
    begin(s, page, BLOCK - 1, 1)->ids[0] = 0;
    submit(s, true);
    memcpy(out, s->b->ops->read(s->b, s->out, 0), DIM * sizeof *out);
}

/* --- a history --- */

struct history {
    struct swapper real, plain;      /* plain: a page for each version, and no copies */
    int at[PAGES], host[HOST_PAGES]; /* the version that lies there; -1: none */
    int n_versions;
    uint64_t seed;
};

static int below(struct history *h, int n)
{
    return (int)(random_next(&h->seed) % (uint64_t)n);
}

static void shuffle(struct history *h, int32_t *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = i;
    for (int i = n - 1; i > 0; i--) {
        const int j = below(h, i + 1);
        const int32_t t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

static void do_swap(struct history *h, bool out)
{
    int32_t pages[PAGES], hosts[HOST_PAGES];
    shuffle(h, pages, PAGES);
    shuffle(h, hosts, HOST_PAGES);
    const int n = below(h, HOST_PAGES) + 1;
    for (int i = 0; i < n; i++) {
        int *from = out ? &h->at[pages[i]] : &h->host[hosts[i]];
        int *to = out ? &h->host[hosts[i]] : &h->at[pages[i]];
        *to = *from;
    }
    const struct backend_ops *ops = h->real.b->ops;
    (out ? ops->swap_out : ops->swap_in)(h->real.b, pages, hosts, n);
}

static void do_copy(struct history *h)
{
    const int from = below(h, PAGES), to = below(h, PAGES);
    if (from == to)
        return;
    h->real.b->ops->page_copy(h->real.b, from, to);
    h->at[to] = h->at[from];
}

static void do_write(struct history *h)
{
    const int page = below(h, PAGES);
    if (h->n_versions == MOST_VERSIONS)
        return;
    h->at[page] = h->n_versions++;
    write_page(&h->real, page, h->at[page]);
    write_page(&h->plain, h->at[page], h->at[page]);
}

static void do_read(struct history *h, int page)
{
    float got[DIM], want[DIM];
    if (h->at[page] < 0)
        return;
    read_page(&h->real, page, got);
    read_page(&h->plain, h->at[page], want);
    if (memcmp(got, want, sizeof got) != 0)
        fail_msg("page %d has not what version %d has: %g, expected %g", page, h->at[page], got[0],
                 want[0]);
}

static void run_history(uint64_t seed)
{
    struct history h = {.seed = seed};
    memset(h.at, 0xFF, sizeof h.at);
    memset(h.host, 0xFF, sizeof h.host);
    swapper_open(&h.real, PAGES, HOST_PAGES);
    swapper_open(&h.plain, MOST_VERSIONS, 0);
    for (int i = 0; i < STEPS; i++) {
        switch (below(&h, 6)) {
        case 0:
            do_swap(&h, true);
            break;
        case 1:
            do_swap(&h, false);
            break;
        case 2:
            do_copy(&h); /* which a GPU may not have begun when the next thing is asked for */
            do_swap(&h, below(&h, 2));
            break;
        case 3:
            do_read(&h, below(&h, PAGES));
            break;
        default:
            do_write(&h);
        }
    }
    for (int i = 0; i < PAGES; i++)
        do_read(&h, i);
    h.real.b->ops->close(h.real.b);
    h.plain.b->ops->close(h.plain.b);
}

static void pages_have_what_was_last_put_there(void **state)
{
    uint64_t seed = random_seed("swaps");
    (void)state;
#ifdef SWAP_EMULATED
    for (int i = 0; i < 12; i++) {
        const struct emu_options o = {EMU_FIFO, EMU_LATE, i < 2 ? (enum emu_streams)i : EMU_MIXED,
                                      random_next(&seed)};
        emu_configure(&o);
        run_history(random_next(&seed));
        assert_int_equal(emu_reports(), 0);
        assert_int_equal(emu_memory_held(), 0);
    }
#else
    for (int i = 0; i < 8; i++)
        run_history(random_next(&seed));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_have_what_was_last_put_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
