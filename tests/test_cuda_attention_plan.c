/* The host's plan of a step's attention: what is split, what sequences share, and that all is there
 * once. */
#include "cuda_rig.h"
#include "reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

static struct cuda_attention open_shape(int n_heads, int n_kv_heads, int head_dim)
{
    const struct cuda_kv kv = {NULL, DTYPE_F16, 1, n_kv_heads, head_dim, 16};
    struct cuda_attention a;
    cuda_ok(cuda_attention_open(&a, n_heads, &kv));
    return a;
}

static void long_sequences_are_split_until_the_buffer_is_full(void **state)
{
    (void)state;
    struct cuda_attention a = open_shape(8, 2, 64);
    enum { ROWS = 200 };
    const struct step_seq seqs[] = {{0, 1, 5000}, {1, 1, 100}, {2, 100, 900}, {102, 1, 5000}};
    struct cuda_attention_plan *plan = malloc(cuda_attention_plan_bytes(&a, ROWS, 4));
    size_t one = 68 * sizeof(float); /* 5,001 tokens: 20 segments of 8 heads */
    cuda_attention_plan_make(&a, plan, ROWS, 4, seqs, 4, NULL, 0, 160 * one);
    const struct cuda_attention_tile *narrow = (void *)((char *)plan + plan->tiles_at[0]);
    const struct cuda_attention_tile *wide = (void *)((char *)plan + plan->tiles_at[1]);
    assert_int_equal(plan->n_partials, 160);
    assert_int_equal(plan->n_tiles[0], 3);
    assert_int_equal(plan->n_units[0], 2 * (20 + 1 + 1));
    assert_true(narrow[0].split && !narrow[1].split && !narrow[2].split);
    int rows = 16 * a.kinds[CUDA_WIDE].warps, n = (100 * 4 + rows - 1) / rows;
    assert_int_equal(plan->n_tiles[1], n);
    const struct cuda_attention_member *members = (void *)((char *)plan + plan->members_at);
    assert_int_equal(members[wide[0].member].row + wide[0].n_rows / 4, 102); /* the last first */
    assert_int_equal(members[wide[n - 1].member].row, 2);
    assert_int_equal(members[wide[n - 1].member].position, 900);
    assert_int_equal(wide[n - 1].low, 900);
    cuda_attention_plan_make(&a, plan, ROWS, 4, seqs, 4, NULL, 700, 400 * one);
    assert_int_equal(narrow[0].segment, (5000 - 699) / 256);
    assert_int_equal(narrow[0].n_segments, 5000 / 256 - (5000 - 699) / 256 + 1);
    free(plan);
}

/* Random sequences whose page tables are one's up to some token, and then another's */
enum { TREE_SEQS = 40, TREE_PAGES = 130, TREE_ROWS = TREE_SEQS * 40 };
struct tree {
    int n, block_size, window;
    struct step_seq seqs[TREE_SEQS];
    int32_t tables[TREE_SEQS * TREE_PAGES];
    uint8_t covered[TREE_ROWS][8][TREE_PAGES]; /* [row][head of a KV head][segment] */
};

static int below(uint64_t *seed, int n)
{
    return (int)((ref_random(seed) + 1) / 2 * (float)n) % n;
}

static void grow_tree(struct tree *t, uint64_t *seed)
{
    static const int sizes[] = {16, 48, 64, 256, 512}, windows[] = {0, 0, 100, 700};
    int rows = 0;
    t->n = 1 + below(seed, TREE_SEQS);
    t->block_size = sizes[below(seed, 5)];
    t->window = windows[below(seed, 4)];
    for (int i = 0; i < t->n; i++) {
        int n = below(seed, 5) ? 1 + below(seed, 3) : 20 + below(seed, 20);
        t->seqs[i] = (struct step_seq){rows, n, below(seed, 1600)};
        rows += n;
        int from = below(seed, i + 1), upto = below(seed, TREE_PAGES * 16 / t->block_size + 1);
        for (int p = 0; p < TREE_PAGES; p++)
            t->tables[i * TREE_PAGES + p] =
                from < i && p < upto ? t->tables[from * TREE_PAGES + p] : i * TREE_PAGES + p;
    }
}

/* Counts a tile's segments for its rows, which must find their own pages there. */
static void cover(struct tree *t, const struct cuda_attention_tile *tile,
                  const struct cuda_attention_member *members, int group)
{
    for (int r = 0; r < tile->n_rows; r++) {
        const struct cuda_attention_member m = members[tile->member + (tile->head + r) / group];
        int seq = 0;
        while (m.row >= t->seqs[seq].row + t->seqs[seq].n_rows)
            seq++;
        assert_int_equal(m.position, t->seqs[seq].start + m.row - t->seqs[seq].row);
        assert_in_range(m.position, tile->low, tile->high);
        for (int i = tile->segment; i < tile->segment + tile->n_segments; i++) {
            t->covered[m.row][(tile->head + r) % group][i]++;
            for (int key = i * 256; key < i * 256 + 256 && key <= m.position; key += 16)
                assert_int_equal(t->tables[tile->seq * TREE_PAGES + key / t->block_size],
                                 t->tables[seq * TREE_PAGES + key / t->block_size]);
        }
    }
}

/* Every row and head has each segment that it sees once, no segment twice; reads are counted. */
static int check_cover(struct tree *t, const struct cuda_attention_plan *plan, int group)
{
    int n_read = 0;
    memset(t->covered, 0, sizeof t->covered);
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++)
        for (int i = 0, unit = 0; i < plan->n_tiles[k]; i++) {
            const struct cuda_attention_tile *tile =
                (const void *)((const char *)plan + plan->tiles_at[k]);
            assert_int_equal(tile[i].unit, unit);
            unit += tile[i].split ? 2 * tile[i].n_segments : 2; /* KV heads */
            n_read += tile[i].n_segments;
            cover(t, tile + i, (const void *)((const char *)plan + plan->members_at), group);
        }
    for (int i = 0; i < t->n; i++)
        for (int r = 0; r < t->seqs[i].n_rows; r++)
            for (int h = 0; h < group; h++) {
                int position = t->seqs[i].start + r;
                int first = t->window && position >= t->window ? position - t->window + 1 : 0;
                for (int s = 0; s <= position / 256; s++) {
                    int n = t->covered[t->seqs[i].row + r][h][s];
                    assert_in_range(n, s >= first / 256, 1);
                }
            }
    return n_read;
}

static void plans_cover_every_row_and_segment_once(void **state)
{
    (void)state;
    static struct tree t;
    uint64_t seed = 77, read = 0, read_alone = 0;
    for (int i = 0; i < 300; i++) {
        int group = 1 + below(&seed, 8);
        struct cuda_attention a = open_shape(2 * group, 2, 64);
        grow_tree(&t, &seed);
        int rows = t.seqs[t.n - 1].row + t.seqs[t.n - 1].n_rows;
        struct cuda_attention_plan *plan = malloc(cuda_attention_plan_bytes(&a, rows, t.n));
        const struct cuda_attention_pages pages = {t.tables, TREE_PAGES, t.block_size};
        size_t partials = (size_t)below(&seed, 4) << 20;
        cuda_attention_plan_make(&a, plan, rows, t.n, t.seqs, t.n, &pages, t.window, partials);
        read += (uint64_t)check_cover(&t, plan, group);
        assert_true((size_t)plan->n_partials * 68 * sizeof(float) <= partials);
        cuda_attention_plan_make(&a, plan, rows, t.n, t.seqs, t.n, NULL, t.window, partials);
        read_alone += (uint64_t)check_cover(&t, plan, group);
        free(plan);
    }
    printf("    %" PRIu64 " segments are read instead of %" PRIu64 "\n", read, read_alone);
    assert_true(read < read_alone * 9 / 10);
}

/* 256 sequences of 4,000 tokens that share 2,000, in the time of a step */
static void groups_are_found_quickly(void **state)
{
    (void)state;
    enum { SEQS = 256, PAGES = 250, TIMES = 20 };
    static struct step_seq seqs[SEQS];
    static int32_t tables[SEQS * PAGES];
    struct cuda_attention a = open_shape(32, 8, 128);
    struct timespec t0, t1;
    double best = 1e9;
    struct cuda_attention_plan *plan = malloc(cuda_attention_plan_bytes(&a, SEQS, SEQS));
    const struct cuda_attention_pages pages = {tables, PAGES, 16};
    for (int i = 0; i < SEQS; i++) {
        seqs[i] = (struct step_seq){i, 1, PAGES * 16 - 1 - i};
        for (int p = 0; p < PAGES; p++)
            tables[i * PAGES + p] = p < 125 ? p : 1000 + i * PAGES + p;
    }
    for (int i = 0; i < TIMES; i++) {
        clock_gettime(CLOCK_MONOTONIC, &t0);
        cuda_attention_plan_make(&a, plan, SEQS, SEQS, seqs, SEQS, &pages, 0, (size_t)1 << 30);
        clock_gettime(CLOCK_MONOTONIC, &t1);
        best = fmin(best, (double)(t1.tv_sec - t0.tv_sec) * 1e6 +
                              (double)(t1.tv_nsec - t0.tv_nsec) / 1e3);
    }
    const int rows = 16 * a.kinds[CUDA_WIDE].warps;
    assert_int_equal(plan->n_tiles[CUDA_WIDE], SEQS * 4 / rows); /* the shared ones */
    printf("    %.0f microseconds\n", best);
    assert_true(best < 2000); /* of a sanitizer on a busy machine */
    free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_sequences_are_split_until_the_buffer_is_full),
        cmocka_unit_test(plans_cover_every_row_and_segment_once),
        cmocka_unit_test(groups_are_found_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
