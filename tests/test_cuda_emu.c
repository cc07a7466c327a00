/* The wrappers of device.cuh against plain arithmetic, and the emulator that runs them: what it
 * lets pass and what it must not. */
#include "cuda_rig.h"
#include "reference.h"
#include "wrappers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* --- instructions --- */

static void product_case(enum dtype t, int m, int n, int k)
{
    uint64_t seed = (uint64_t)(m + n + k);
    struct ref_matrix a = ref_matrix_new(t, m, k, 1, &seed), b = ref_matrix_new(t, n, k, 1, &seed);
    double *want = malloc(sizeof *want * (size_t)(m * n));
    float *got = malloc(sizeof *got * (size_t)(m * n)),
          *c = rig_device(sizeof *c * (size_t)(m * n));
    for (int i = 0; i < m; i++)
        ref_linear(&b, a.values + i * k, want + i * n);
    cuda_ok(wrap_product(NULL, t, c, rig_upload(a.bytes, 2 * (size_t)(m * k)),
                         rig_upload(b.bytes, 2 * (size_t)(n * k)), m, n, k));
    rig_download(got, c, sizeof *got * (size_t)(m * n));
    rig_near("product", got, want, m * n, 1e-5, 1e-5);
    free(want);
    free(got);
    ref_matrix_free(&a);
    ref_matrix_free(&b);
}

static void products(void)
{
    product_case(DTYPE_F16, 32, 16, 16);
    product_case(DTYPE_BF16, 37, 19, 72);
    product_case(DTYPE_F16, 5, 33, 104);
}

static void a_tiled_product_is_right(void **state)
{
    (void)state;
    rig_in_all_orders(products);
}

static void trans_product(void)
{
    uint64_t seed = 2;
    struct ref_matrix a = ref_matrix_new(DTYPE_F16, 16, 16, 1, &seed);
    struct ref_matrix b = ref_matrix_new(DTYPE_F16, 16, 8, 1, &seed);
    double want[16 * 8] = {0};
    float got[16 * 8], *c = rig_device(sizeof got);
    for (int i = 0; i < 16 * 8; i++)
        for (int k = 0; k < 16; k++)
            want[i] += a.values[i / 8 * 16 + k] * b.values[k * 8 + i % 8];
    cuda_ok(wrap_product_trans(NULL, c, rig_upload(a.bytes, 512), rig_upload(b.bytes, 256)));
    rig_download(got, c, sizeof got);
    rig_near("transposed product", got, want, 16 * 8, 1e-5, 1e-5);
    ref_matrix_free(&a);
    ref_matrix_free(&b);
}

static void matrices_are_read_transposed(void **state)
{
    (void)state;
    rig_in_all_orders(trans_product);
}

static void int8_product(void)
{
    uint64_t seed = 3;
    int8_t a[16 * 32], b[8 * 32];
    int32_t got[16 * 8], *c = rig_device(sizeof got);
    for (int i = 0; i < 16 * 32; i++)
        a[i] = (int8_t)(ref_random(&seed) * 128);
    for (int i = 0; i < 8 * 32; i++)
        b[i] = (int8_t)(ref_random(&seed) * 128);
    for (int way = WRAP_S8; way <= WRAP_S8_ROWS; way++) {
        cuda_ok(wrap_product_s8(NULL, c, rig_upload(a, sizeof a), rig_upload(b, sizeof b),
                                (enum wrap_s8)way));
        rig_download(got, c, sizeof got);
        for (int i = 0; i < 16 * 8; i++) {
            int want = 0;
            for (int k = 0; k < 32; k++)
                want += a[i / 8 * 32 + k] * b[i % 8 * 32 + k];
            assert_int_equal(got[i], want);
        }
    }
}

static void int8_products_are_exact(void **state)
{
    (void)state;
    rig_in_all_orders(int8_product);
}

static void turing_product(enum dtype t)
{
    uint64_t seed = 4;
    struct ref_matrix a = ref_matrix_new(t, 16, 16, 1, &seed),
                      b = ref_matrix_new(t, 8, 16, 1, &seed);
    double want[16 * 8] = {0};
    float got[16 * 8], *c = rig_device(sizeof got);
    for (int i = 0; i < 16 * 8; i++)
        for (int k = 0; k < 16; k++)
            want[i] += a.values[i / 8 * 16 + k] * b.values[i % 8 * 16 + k];
    cuda_ok(wrap_product_turing(NULL, t, c, rig_upload(a.bytes, 512), rig_upload(b.bytes, 256)));
    rig_download(got, c, sizeof got);
    rig_near("product as on 7.5", got, want, 16 * 8, 1e-5, 1e-5);
    ref_matrix_free(&a);
    ref_matrix_free(&b);
}

static void turing_copy(bool turing)
{
    uint8_t from[16], got[16], *to = rig_device(sizeof got);
    for (int i = 0; i < 16; i++)
        from[i] = (uint8_t)(i + 1);
    for (int n = 0; n <= 16; n++) {
        cuda_ok(wrap_copy16(NULL, to, rig_upload(from, sizeof from), n, turing));
        rig_download(got, to, sizeof got);
        for (int i = 0; i < 16; i++)
            assert_int_equal(got[i], i < n ? from[i] : 0);
    }
}

static void turing(void)
{
    turing_product(DTYPE_F16);
    turing_product(DTYPE_BF16);
    turing_copy(false);
    turing_copy(true);
}

static void what_capability_7_5_lacks_is_made_of_what_it_has(void **state)
{
    (void)state;
    rig_in_all_orders(turing);
}

static int dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}

static void warp_operations(void)
{
    int32_t x[32], out[WARP_RESULTS][32], *device = rig_device(sizeof out);
    unsigned odd = 0;
    for (int i = 0; i < 32; i++) {
        x[i] = (int32_t)((unsigned)i * 2654435761u) ^ i << 3;
        odd |= (unsigned)(x[i] & 1) << i;
    }
    cuda_ok(wrap_warp(NULL, device, rig_upload(x, sizeof x)));
    rig_download(out, device, sizeof out);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(out[0][i], x[3]);
        assert_int_equal(out[1][i], x[i / 8 * 8 + (i + 5) % 8]);
        assert_int_equal(out[2][i], x[i ^ 17]);
        assert_int_equal(out[3][i], x[i < 29 ? i + 3 : i]);
        assert_int_equal(out[4][i], x[i % 16 < 2 ? i : i - 2]);
        assert_int_equal((unsigned)out[5][i], odd);
        assert_true(out[6][i] && !out[7][i]);
        assert_int_equal(out[8][i], dp4a(x[i], x[31 - i], 7));
        assert_int_equal(out[9][i], i < 16 ? x[15 - i] : -1);
        const uint64_t both = (uint64_t)(uint32_t)x[31 - i] << 32 | (uint32_t)x[i];
        uint32_t bytes = (uint32_t)(both >> 8 * (i & 7) & 255) | (uint32_t)(both >> 24 & 0xff00) |
                         (uint32_t)(both << 8 & 0xff0000) | (uint32_t)(both >> 24 & 0xff000000);
        assert_int_equal((unsigned)out[10][i], bytes);
    }
}

static void lanes_exchange_values(void **state)
{
    (void)state;
    rig_in_all_orders(warp_operations);
}

static void powers_of_two_are_near_and_exact_where_they_must_be(void **state)
{
    (void)state;
    float x[32] = {-INFINITY, -150, -127, -126, -0.0f, 0, 1, 127, 128, INFINITY, NAN}, got[32];
    double want[32];
    for (int i = 11; i < 32; i++)
        x[i] = (float)(i - 21) * 1.37f;
    for (int i = 0; i < 32; i++)
        want[i] = x[i] < -126 ? 0 : x[i] < 128 ? exp2(x[i]) : isnan(x[i]) ? NAN : INFINITY;
    float *device = rig_upload(x, sizeof x);
    cuda_ok(wrap_exp2(NULL, device));
    rig_download(got, device, sizeof got);
    for (int i = 0; i < 32; i++)
        if (isinf(want[i]))
            assert_true(got[i] == INFINITY);
        else
            rig_near("power of two", got + i, want + i, 1, 0, 0x1p-22);
    assert_true(got[4] == 1 && got[5] == 1 && got[6] == 2);
    rig_free_all();
}

static void barriers_and_atomics(void)
{
    int32_t x[128], out[128], *device = rig_device(sizeof out), zero = 0;
    int32_t *sum = rig_upload(&zero, sizeof zero);
    for (int i = 0; i < 128; i++)
        x[i] = i * 3;
    cuda_ok(wrap_halves(NULL, device, rig_upload(x, sizeof x)));
    rig_download(out, device, sizeof out);
    for (int i = 0; i < 128; i++)
        assert_int_equal(out[i], x[i ^ 32]);
    cuda_ok(wrap_atomic_sum(NULL, sum, 100));
    rig_download(&zero, sum, sizeof zero);
    assert_int_equal(zero, 5050);
}

static void halves_of_a_block_wait_for_themselves_and_atomics_add_up(void **state)
{
    (void)state;
    rig_in_all_orders(barriers_and_atomics);
}

/* --- what the emulator must not let pass --- */

static void start(enum emu_streams streams)
{
    struct emu_options o = {EMU_FIFO, EMU_LATE, streams, 1};
    emu_forgive();
    emu_configure(&o);
    emu_quiet(1);
}

static void refused(cudaError_t got, cudaError_t want, const char *report)
{
    assert_int_equal(got, want);
    assert_contains(emu_last_report(), report);
    emu_forgive();
}

static void launches_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    start(EMU_EAGER);
    const dim3 one = {1, 1, 1};
    refused(wrap_shape(NULL, one, (dim3){1025, 1, 1}), cudaErrorInvalidConfiguration,
            "1,024 threads");
    refused(wrap_shape(NULL, one, (dim3){1, 1, 65}), cudaErrorInvalidConfiguration, "64 deep");
    refused(wrap_shape(NULL, one, (dim3){0, 1, 1}), cudaErrorInvalidConfiguration, "threads");
    refused(wrap_shape(NULL, (dim3){1, 65536, 1}, one), cudaErrorInvalidConfiguration, "65,535");
    refused(wrap_shape(NULL, (dim3){0, 1, 1}, one), cudaErrorInvalidConfiguration, "grid");
    cuda_ok(wrap_shape(NULL, (dim3){3, 2, 2}, (dim3){8, 4, 2}));
}

static void dynamic_shared_memory_over_48_KiB_wants_permission(void **state)
{
    (void)state;
    enum { N = 13000 };
    start(EMU_EAGER);
    float *out = rig_device(N * sizeof *out), got[N];
    refused(wrap_dynamic(NULL, out, N), cudaErrorInvalidValue, "dynamic shared memory");
    assert_int_equal(wrap_allow_dynamic((227 << 10) + 1), cudaErrorInvalidValue);
    cudaGetLastError();
    cuda_ok(wrap_allow_dynamic(N * sizeof *out));
    cuda_ok(wrap_dynamic(NULL, out, N));
    rig_download(got, out, sizeof got);
    for (int i = 0; i < N; i++)
        assert_true(got[i] == (float)i);
    rig_free_all();
}

static void a_faulty_kernel_breaks_the_device_for_good(void **state)
{
    (void)state;
    start(EMU_EAGER);
    int32_t *x = rig_device(64 * sizeof *x);
    assert_int_equal(wrap_diverge(NULL), cudaErrorLaunchFailure);
    assert_contains(emu_last_report(), "32 threads barrier at wrappers.cu:");
    assert_int_equal(wrap_add(NULL, x, 64, 1), cudaErrorLaunchFailure);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    emu_forgive();
    cuda_ok(wrap_add(NULL, x, 64, 1));
    rig_free_all();
}

static void blocks_that_write_one_value_race(void **state)
{
    (void)state;
    start(EMU_EAGER);
    int32_t *x = rig_device(sizeof *x);
    cuda_ok(wrap_collide(NULL, x));
    assert_int_equal(emu_reports(), emu_finds_races());
    if (emu_finds_races())
        assert_contains(emu_last_report(), "another block");
    emu_forgive();
    rig_free_all();
}

static void memory_of_the_wrong_side_is_refused(void **state)
{
    (void)state;
    start(EMU_EAGER);
    int32_t host[4] = {0}, *x = rig_device(sizeof host);
    void *huge;
    refused(cudaMemcpy(host, x, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue, "wrong side");
    refused(cudaMemcpy(x, host, 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue, "past");
    refused(cudaMemset(host, 0, 16), cudaErrorInvalidValue, "wrong side");
    refused(cudaFree(host), cudaErrorInvalidValue, "not its memory");
    refused(cudaFree(x + 1), cudaErrorInvalidValue, "not its memory");
    assert_int_equal(cudaMalloc(&huge, (size_t)1 << 40), cudaErrorMemoryAllocation);
    emu_forgive();
    rig_free_all();
    assert_int_equal(emu_memory_held(), 0);
}

/* --- streams --- */

/* Adds on one stream, copies on another; the other waits for an event or does not. */
static int32_t added_then_copied(enum emu_streams mode, int with_event)
{
    cudaStream_t adds, copies;
    cudaEvent_t event;
    int32_t zero = 0, *x = rig_upload(&zero, sizeof zero), *out, got;
    start(mode);
    cuda_ok(cudaHostAlloc((void **)&out, sizeof *out, 0));
    cuda_ok(cudaStreamCreateWithFlags(&adds, cudaStreamNonBlocking));
    cuda_ok(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    cuda_ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cuda_ok(wrap_add(adds, x, 1, 5));
    cuda_ok(cudaEventRecord(event, adds));
    if (with_event)
        cuda_ok(cudaStreamWaitEvent(copies, event, 0));
    cuda_ok(cudaMemcpyAsync(out, x, sizeof *out, cudaMemcpyDeviceToHost, copies));
    cuda_ok(cudaStreamSynchronize(copies));
    got = *out;
    cuda_ok(cudaEventDestroy(event));
    cuda_ok(cudaStreamDestroy(adds));
    cuda_ok(cudaStreamDestroy(copies));
    cuda_ok(cudaFreeHost(out));
    rig_free_all();
    return got;
}

static void a_missing_event_shows_where_streams_are_lazy(void **state)
{
    (void)state;
    for (int mode = EMU_EAGER; mode <= EMU_MIXED; mode++)
        assert_int_equal(added_then_copied((enum emu_streams)mode, 1), 5);
    assert_int_equal(added_then_copied(EMU_LAZY, 0), 0);
}

static void count_call(void *arg)
{
    ++*(int *)arg;
}

static void a_graph_replays_what_was_captured(void **state)
{
    (void)state;
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int32_t values[40] = {0}, *x = rig_upload(values, sizeof values);
    int calls = 0;
    start(EMU_LAZY);
    cuda_ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    cuda_ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    cuda_ok(wrap_add(s, x, 40, 2));
    cuda_ok(cudaLaunchHostFunc(s, count_call, &calls));
    refused(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported, "captures");
    start(EMU_LAZY); /* the misuse has ended that capture */
    cuda_ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    cuda_ok(wrap_add(s, x, 40, 2));
    cuda_ok(cudaLaunchHostFunc(s, count_call, &calls));
    cuda_ok(cudaStreamEndCapture(s, &graph));
    cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
    cuda_ok(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        cuda_ok(cudaGraphLaunch(exec, s));
    cuda_ok(cudaStreamSynchronize(s));
    rig_download(values, x, sizeof values);
    assert_int_equal(values[39], 6);
    assert_int_equal(calls, 3);
    cuda_ok(cudaGraphExecDestroy(exec));
    cuda_ok(cudaStreamDestroy(s));
    rig_free_all();
}

static void what_cannot_be_captured_is_refused(void **state)
{
    (void)state;
    cudaStream_t s;
    cudaGraph_t graph;
    int32_t host = 0, *x = rig_device(sizeof host);
    void *more;
    start(EMU_EAGER);
    cuda_ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    const char *calls[] = {"cudaMalloc", "cudaFree", "cudaMemcpy", "pageable", "default stream"};
    for (int i = 0; i < 5; i++) {
        cuda_ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        cudaError_t e = i == 0   ? cudaMalloc(&more, 16)
                        : i == 1 ? cudaFree(x)
                        : i == 2 ? cudaMemcpy(x, &host, 4, cudaMemcpyHostToDevice)
                        : i == 3 ? cudaMemcpyAsync(x, &host, 4, cudaMemcpyHostToDevice, s)
                                 : wrap_add(NULL, x, 1, 1);
        refused(e, cudaErrorStreamCaptureUnsupported, calls[i]);
    }
    assert_int_equal(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
    emu_forgive();
    cuda_ok(cudaStreamDestroy(s));
    rig_free_all();
}

/* A side stream joins by an event of the capture, and must be waited for; an event of before does
 * not reach into a graph. */
static void a_capture_knows_its_streams(void **state)
{
    (void)state;
    cudaStream_t s, side;
    cudaEvent_t event;
    cudaGraph_t graph;
    int32_t *x = rig_device(sizeof *x);
    start(EMU_LAZY);
    cuda_ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    cuda_ok(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    cuda_ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int joined = 0; joined < 2; joined++) {
        cuda_ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        cuda_ok(cudaEventRecord(event, s));
        cuda_ok(cudaStreamWaitEvent(side, event, 0));
        cuda_ok(wrap_add(side, x, 1, 1));
        cuda_ok(cudaEventRecord(event, side));
        if (joined) {
            cuda_ok(cudaStreamWaitEvent(s, event, 0));
            cuda_ok(cudaStreamEndCapture(s, &graph));
            cuda_ok(cudaGraphDestroy(graph));
        } else {
            refused(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated,
                    "nothing waits for it");
        }
    }
    cuda_ok(cudaEventRecord(event, side));
    cuda_ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    refused(cudaStreamWaitEvent(s, event, 0), cudaErrorStreamCaptureIsolation, "before");
    cuda_ok(cudaEventDestroy(event));
    cuda_ok(cudaStreamDestroy(side));
    cuda_ok(cudaStreamDestroy(s));
    rig_free_all();
}

int main(int argc, char **argv)
{
    /* on a GPU, too */
    const struct CMUnitTest wrappers[] = {
        cmocka_unit_test(a_tiled_product_is_right),
        cmocka_unit_test(matrices_are_read_transposed),
        cmocka_unit_test(int8_products_are_exact),
        cmocka_unit_test(what_capability_7_5_lacks_is_made_of_what_it_has),
        cmocka_unit_test(lanes_exchange_values),
        cmocka_unit_test(powers_of_two_are_near_and_exact_where_they_must_be),
        cmocka_unit_test(halves_of_a_block_wait_for_themselves_and_atomics_add_up),
    };
    const struct CMUnitTest emulator[] = {
        cmocka_unit_test(launches_beyond_the_limits_are_refused),
        cmocka_unit_test(dynamic_shared_memory_over_48_KiB_wants_permission),
        cmocka_unit_test(a_faulty_kernel_breaks_the_device_for_good),
        cmocka_unit_test(blocks_that_write_one_value_race),
        cmocka_unit_test(memory_of_the_wrong_side_is_refused),
        cmocka_unit_test(a_missing_event_shows_where_streams_are_lazy),
        cmocka_unit_test(a_graph_replays_what_was_captured),
        cmocka_unit_test(what_cannot_be_captured_is_refused),
        cmocka_unit_test(a_capture_knows_its_streams),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = cmocka_run_group_tests(wrappers, NULL, NULL);
    if (emu_emulated())
        failed += cmocka_run_group_tests(emulator, NULL, NULL);
    return failed;
}
