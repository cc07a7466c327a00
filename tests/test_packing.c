/* The file of packed weights: what is found in it, and that nothing is used which is not as it
 * was written. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "packed_form.h"
#include "packing.h"
#include "repack.h"
#include "temp_dir.h"
#include "test.h"

#define N_WEIGHTS 3
#define LARGE (3 * PACKED_CHUNK + 100)

static const struct packed_key key = {PACKED_LAYOUT, 42};

struct rig {
    struct temp_dir dir;
    char path[128];
    uint8_t *bytes;
    struct packed_weight weights[N_WEIGHTS]; /* the first, of several chunks; small ones */
    struct team *team;
};

static int setup(void **state)
{
    struct err e;
    struct rig *r = calloc(1, sizeof *r);
    temp_dir_open(&r->dir);
    snprintf(r->path, sizeof r->path, "%s/m.repacked", r->dir.path);
    r->bytes = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        r->bytes[i] = (uint8_t)(i * 131 >> 3 ^ i);
    r->weights[0] = (struct packed_weight){DTYPE_Q4_K, 16, 512, 7, r->bytes, LARGE};
    r->weights[1] = (struct packed_weight){DTYPE_F32, 1, 33, 8, r->bytes + 5, 192};
    r->weights[2] = (struct packed_weight){DTYPE_F16, 3, 8, 9, r->bytes + 7, 256};
    r->team = team_new(2, false, &e);
    *state = r;
    return r->team ? 0 : -1;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    temp_dir_close(&r->dir);
    team_free(r->team);
    free(r->bytes);
    free(r);
    return 0;
}

static void write_weights(const struct rig *r)
{
    struct err e = {0};
    const atomic_bool stop = false;
    if (!packed_write(r->path, &key, r->weights, N_WEIGHTS, &stop, &e))
        fail_msg("%s", e.msg);
}

static void poke(const struct rig *r, uint64_t at, uint8_t flip)
{
    uint8_t v;
    const int fd = open(r->path, O_RDWR);
    assert_int_equal(pread(fd, &v, 1, (off_t)at), 1);
    v ^= flip;
    assert_int_equal(pwrite(fd, &v, 1, (off_t)at), 1);
    close(fd);
}

static struct packed_header header_of(const struct rig *r)
{
    struct packed_header h;
    const int fd = open(r->path, O_RDONLY);
    assert_int_equal(pread(fd, &h, sizeof h, 0), sizeof h);
    close(fd);
    return h;
}

static void set_header(const struct rig *r, struct packed_header h)
{
    h.hash = packed_hash(&h, offsetof(struct packed_header, hash));
    const int fd = open(r->path, O_WRONLY);
    assert_int_equal(pwrite(fd, &h, sizeof h, 0), sizeof h);
    close(fd);
}

static void refused(const struct rig *r, const struct packed_key *k, const char *why)
{
    struct packed_file *f;
    struct err e = {0};
    assert_false(packed_open(&f, r->path, k, &e));
    assert_null(f);
    assert_contains(e.msg, why);
}

static int n_files(const struct rig *r)
{
    struct temp_dir d = r->dir;
    char command[160];
    int n = -1;
    snprintf(command, sizeof command, "ls -A %s | wc -l", d.path);
    FILE *f = popen(command, "r");
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static void weights_are_found_as_they_were_written(void **state)
{
    const struct rig *r = *state;
    struct packed_file *f;
    struct err e;
    write_weights(r);
    assert_true(packed_open(&f, r->path, &key, &e));
    assert_int_equal(packed_n(f), N_WEIGHTS);
    for (int i = 0; i < N_WEIGHTS; i++) {
        const void *data = packed_find(f, (size_t)i, &r->weights[i], r->team, &e);
        assert_non_null(data);
        assert_int_equal((uintptr_t)data % 64, 0);
        assert_memory_equal(data, r->weights[i].data, r->weights[i].bytes);
    }
    assert_null(packed_find(f, N_WEIGHTS, &r->weights[0], r->team, &e));
    packed_close(f);
    assert_int_equal(n_files(r), 1);
}

static void another_weight_is_not_taken_for_it(void **state)
{
    const struct rig *r = *state;
    struct packed_file *f;
    struct err e;
    write_weights(r);
    assert_true(packed_open(&f, r->path, &key, &e));
    for (int field = 0; field < 5; field++) {
        struct packed_weight w = r->weights[0];
        w.type = field == 0 ? DTYPE_Q5_K : w.type;
        w.rows += field == 1;
        w.cols += field == 2;
        w.source += field == 3;
        w.bytes -= field == 4;
        assert_null(packed_find(f, 0, &w, r->team, &e));
        assert_contains(e.msg, "another");
    }
    packed_close(f);
}

static void every_damaged_byte_of_header_and_table_is_noticed(void **state)
{
    const struct rig *r = *state;
    struct packed_file *f;
    struct err e;
    write_weights(r);
    const uint64_t n = sizeof(struct packed_header) + N_WEIGHTS * sizeof(struct packed_entry);
    for (uint64_t at = 0; at < n; at++) {
        poke(r, at, 0x40);
        assert_false(packed_open(&f, r->path, &key, &e));
        poke(r, at, 0x40);
    }
    assert_true(packed_open(&f, r->path, &key, &e));
    packed_close(f);
}

static void a_damaged_weight_is_refused_and_the_others_are_not(void **state)
{
    const struct rig *r = *state;
    struct packed_file *f;
    struct err e;
    write_weights(r);
    const uint64_t data = header_of(r).data_at;
    const uint64_t places[] = {0, 63, PACKED_CHUNK, LARGE / 2, LARGE - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        poke(r, data + places[i], 1);
        assert_true(packed_open(&f, r->path, &key, &e));
        assert_null(packed_find(f, 0, &r->weights[0], r->team, &e));
        assert_contains(e.msg, "damaged");
        assert_non_null(packed_find(f, 1, &r->weights[1], r->team, &e));
        assert_non_null(packed_find(f, 2, &r->weights[2], r->team, &e));
        packed_close(f);
        poke(r, data + places[i], 1);
    }
}

static void a_file_of_another_length_is_refused(void **state)
{
    const struct rig *r = *state;
    write_weights(r);
    const struct packed_header h = header_of(r);
    const uint64_t lengths[] = {h.file_bytes + 1, h.file_bytes - 1, h.data_at, sizeof h + 20,
                                sizeof h,         sizeof h - 1,     1,         0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(truncate(r->path, (off_t)lengths[i]), 0);
        refused(r, &key, lengths[i] < sizeof h ? "cut short" : "expected");
    }
}

static void another_model_layout_or_version_is_refused(void **state)
{
    const struct rig *r = *state;
    write_weights(r);
    refused(r, &(struct packed_key){PACKED_LAYOUT, 43}, "another model");
    refused(r, &(struct packed_key){"panels of 32, 1", 42}, "layout");
    struct packed_header h = header_of(r);
    h.order = 0x04030201;
    set_header(r, h);
    refused(r, &key, "another version");
}

/* As from somebody who knows the hash */
static void a_header_that_contradicts_itself_is_refused(void **state)
{
    const struct rig *r = *state;
    write_weights(r);
    const struct packed_header good = header_of(r);
    for (int i = 0; i < 4; i++) {
        struct packed_header h = good;
        h.n = i == 0 ? UINT64_MAX / sizeof(struct packed_entry) : i == 1 ? 1 << 20 : h.n;
        h.data_at = i == 2 ? h.data_at + 64 : i == 3 ? h.data_at * 64 : h.data_at;
        set_header(r, h);
        refused(r, &key, "contradicts");
    }
}

static void what_is_no_file_is_refused(void **state)
{
    struct rig *r = *state;
    struct packed_file *f;
    struct err e;
    assert_false(packed_open(&f, r->path, &key, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(mkfifo(r->path, 0600), 0);
    refused(r, &key, "regular");
    unlink(r->path);
    symlink("/dev/zero", r->path);
    refused(r, &key, "regular");
}

static void a_write_that_fails_or_is_stopped_leaves_nothing(void **state)
{
    const struct rig *r = *state;
    struct err e;
    struct rlimit before, limit;
    const atomic_bool go = false, stop = true;
    assert_false(packed_write(r->path, &key, r->weights, N_WEIGHTS, &stop, &e));
    assert_int_equal(n_files(r), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){1 << 20, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool written = packed_write(r->path, &key, r->weights, N_WEIGHTS, &go, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_false(written);
    assert_contains(e.msg, "cannot write");
    assert_int_equal(n_files(r), 0);
}

static void one_of_several_processes_writes_and_a_leftover_is_written_over(void **state)
{
    const struct rig *r = *state;
    char part[160];
    struct err e;
    struct packed_file *f;
    const atomic_bool stop = false;
    snprintf(part, sizeof part, "%s.part", r->path);
    const int fd = open(part, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "left over", 9), 9);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_false(packed_write(r->path, &key, r->weights, N_WEIGHTS, &stop, &e));
    assert_contains(e.msg, "another process");
    assert_int_equal(access(part, F_OK), 0);
    close(fd);
    write_weights(r);
    assert_true(packed_open(&f, r->path, &key, &e));
    packed_close(f);
    assert_int_equal(n_files(r), 1);
}

/* Loads as the backend does; how many weights came from the file. */
static int load(const struct rig *r, const struct packed_key *k)
{
    struct err e;
    int found = 0;
    struct packing *p = packing_open(r->path, k, &e);
    assert_non_null(p);
    for (int i = 0; i < N_WEIGHTS; i++) {
        struct packed_weight w = r->weights[i];
        const void *data = packing_find(p, &w, r->team);
        found += data != NULL;
        w.data = data ? data : w.data;
        assert_memory_equal(w.data, r->weights[i].data, w.bytes);
        packing_note(p, &w);
    }
    packing_done(p);
    packing_wait(p);
    packing_close(p);
    return found;
}

static void what_is_missing_or_damaged_is_written_anew(void **state)
{
    const struct rig *r = *state;
    const struct packed_key changed = {PACKED_LAYOUT, 43};
    assert_int_equal(load(r, &key), 0);
    assert_int_equal(load(r, &key), N_WEIGHTS);
    poke(r, header_of(r).data_at + 1, 1);
    assert_int_equal(load(r, &key), N_WEIGHTS - 1);
    assert_int_equal(load(r, &key), N_WEIGHTS);
    assert_int_equal(load(r, &changed), 0);
    assert_int_equal(load(r, &changed), N_WEIGHTS);
    truncate(r->path, 100);
    assert_int_equal(load(r, &changed), 0);
    assert_int_equal(load(r, &changed), N_WEIGHTS);
    assert_int_equal(n_files(r), 1);
}

static void samples_see_both_ends(void **state)
{
    uint8_t bytes[4096] = {0};
    const uint64_t zeros = packed_sample(bytes, sizeof bytes);
    assert_true(packed_sample(bytes, sizeof bytes - 1) != zeros);
    for (size_t at = 0; at < sizeof bytes; at += sizeof bytes - 1) {
        bytes[at] = 1;
        assert_true(packed_sample(bytes, sizeof bytes) != zeros);
        bytes[at] = 0;
    }
}

/* If this fails because panels have changed, old files must not be read: give PACKED_LAYOUT its
 * next number, and then set `expected` to what is said here. */
static void the_layout_is_the_one_that_its_number_stands_for(void **state)
{
    enum { ROWS = 19, COLS = 256 };
    const uint64_t expected = 0x088657ACCB060261;
    uint64_t all = 0;
    for (int t = 0; t < DTYPE_COUNT; t++) {
        struct weight w = {.type = panel_type(t), .rows = ROWS, .cols = COLS, .panels = 2};
        const size_t n = dtype_row_bytes(t, COLS) * ROWS;
        uint8_t *src = malloc(n);
        for (size_t i = 0; i < n; i++)
            src[i] = (uint8_t)(i * 2654435761u >> 13);
        w.panel_bytes = repack_panel_bytes(w.type, COLS);
        w.data = calloc(2, w.panel_bytes);
        repack_panel(&w, 0, t, src);
        repack_panel(&w, 1, t, src);
        all = all * 31 + packed_hash(w.data, 2 * w.panel_bytes);
        free(w.data);
        free(src);
    }
    if (all != expected)
        fail_msg("%s: 0x%016llX", PACKED_LAYOUT, (unsigned long long)all);
}

#define RIGGED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIGGED(weights_are_found_as_they_were_written),
        RIGGED(another_weight_is_not_taken_for_it),
        RIGGED(every_damaged_byte_of_header_and_table_is_noticed),
        RIGGED(a_damaged_weight_is_refused_and_the_others_are_not),
        RIGGED(a_file_of_another_length_is_refused),
        RIGGED(another_model_layout_or_version_is_refused),
        RIGGED(a_header_that_contradicts_itself_is_refused),
        RIGGED(what_is_no_file_is_refused),
        RIGGED(a_write_that_fails_or_is_stopped_leaves_nothing),
        RIGGED(one_of_several_processes_writes_and_a_leftover_is_written_over),
        RIGGED(what_is_missing_or_damaged_is_written_anew),
        cmocka_unit_test(samples_see_both_ends),
        cmocka_unit_test(the_layout_is_the_one_that_its_number_stands_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
