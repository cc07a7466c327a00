/* limits.c: what this machine could do at most, for tests/bench/peers.py to hold speeds against.
 *
 *     limits [THREADS [MILLISECONDS]]     (threads: 1; milliseconds a sample: 50)
 *
 * One JSON object a line: memory read bandwidth, and the rate of register-only loops of the
 * multiply-add instructions that matrix products are made of, for each instruction set that the
 * machine has (others are not printed). A multiply-add is two operations. `best` is the limit:
 * other programs can only lower a sample. AMX is not measured. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

enum { SAMPLES = 7, MAX_THREADS = 1024, CHAINS = 10, READ_BLOCK = 512 };

/* Runs `rounds` rounds; a memory loop reads `bytes` at `data` in each. */
typedef void loop_fn(const char *data, size_t bytes, long rounds);

struct limit {
    const char *what, *set, *unit;
    loop_fn *loop;
    double per_round; /* operations of a thread; 0: the bytes that it reads */
    bool there;
};

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    const struct limit *limit;
    const char *data;
    size_t bytes;
    long rounds;
    int cpu; /* -1: anywhere */
    double seconds;
};

/* --- loops --- */

typedef uint64_t vec __attribute__((vector_size(64)));

/* Four streams of 64 bytes; the compiler makes of them what the target has. */
static inline __attribute__((always_inline)) void read_all(const char *data, size_t bytes,
                                                           long rounds)
{
    vec s[4] = {{0}};
    for (long r = 0; r < rounds; r++) {
        for (size_t i = 0; i < bytes; i += READ_BLOCK) {
            const vec *v = (const vec *)(const void *)(data + i);
            s[0] ^= v[0] ^ v[4];
            s[1] ^= v[1] ^ v[5];
            s[2] ^= v[2] ^ v[6];
            s[3] ^= v[3] ^ v[7];
        }
        __asm__ volatile("" ::: "memory");
    }
    const vec all = s[0] ^ s[1] ^ s[2] ^ s[3];
    __asm__ volatile("" ::"r"(all[0] ^ all[7]));
}

#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)

/* A loop of CHAINS independent instructions (latency times ports, and few enough for 16 registers):
 * `STEP(i)` advances the accumulator a<i> from x, y and `one`, with t as scratch. Assembler, so
 * that nothing is moved out of the loop. */
#define LOOP(NAME, TARGET, VEC, STEP)                                                              \
    static __attribute__((TARGET)) void NAME(const char *data, size_t bytes, long rounds)          \
    {                                                                                              \
        VEC x, y, one, t;                                                                          \
        (void)data;                                                                                \
        (void)bytes;                                                                               \
        memset(&x, 1, sizeof x);                                                                   \
        memset(&y, 1, sizeof y);                                                                   \
        memset(&one, 0, sizeof one);                                                               \
        memset(&t, 0, sizeof t);                                                                   \
        VEC a0 = t, a1 = t, a2 = t, a3 = t, a4 = t, a5 = t, a6 = t, a7 = t, a8 = t, a9 = t;        \
        for (long r = 0; r < rounds; r++) {                                                        \
            EACH(STEP)                                                                             \
        }                                                                                          \
        __asm__ volatile("" ::REG(a0), REG(a1), REG(a2), REG(a3), REG(a4), REG(a5), REG(a6),       \
                         REG(a7), REG(a8), REG(a9), REG(one), REG(t));                             \
    }

#if defined(__x86_64__)
static __attribute__((target("avx2"))) void read_avx2(const char *d, size_t n, long r)
{
    read_all(d, n, r);
}

static __attribute__((target("avx512f"))) void read_avx512(const char *d, size_t n, long r)
{
    read_all(d, n, r);
}

#define REG(a) "v"(a)
#define FMA(i) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));
#define DPBF16(i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));
#define DPBUSD(i) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));
#define DPBUSD_VEX(i) __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(a##i) : "x"(x), "x"(y));
#define MADDUBS_ADD16(i)                                                                           \
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"                                  \
                     : "+v"(a##i), "=&v"(t)                                                        \
                     : "v"(x), "v"(y));
#define MADDUBS_MADD(i)                                                                            \
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"           \
                     : "+v"(a##i), "=&v"(t)                                                        \
                     : "v"(x), "v"(y), "v"(one));

LOOP(fma_avx2, target("avx2,fma"), __m256i, FMA)
LOOP(fma_avx512, target("avx512f"), __m512i, FMA)
LOOP(bf16_avx512, target("avx512f,avx512bf16"), __m512i, DPBF16)
LOOP(add16_avx2, target("avx2"), __m256i, MADDUBS_ADD16)
LOOP(madd_avx2, target("avx2"), __m256i, MADDUBS_MADD)
LOOP(add16_avx512, target("avx512f,avx512bw"), __m512i, MADDUBS_ADD16)
LOOP(vnni_avx512, target("avx512f,avx512vnni"), __m512i, DPBUSD)
LOOP(vnni_vex, target("avx2"), __m256i, DPBUSD_VEX)

/* AVX-VNNI, which __builtin_cpu_supports does not know in every compiler. */
static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

static int list_limits(struct limit *out)
{
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = avx2 && __builtin_cpu_supports("avx512f");
    const bool bytes = wide && __builtin_cpu_supports("avx512bw");
    const bool vnni = wide && __builtin_cpu_supports("avx512vnni");
    const struct limit all[] = {
        {"read", "avx512", "GB/s", read_avx512, 0, wide},
        {"read", "avx2", "GB/s", read_avx2, 0, avx2 && !wide},
        {"read", "any", "GB/s", read_all, 0, !avx2},
        {"fma", "avx2", "GFLOP/s", fma_avx2, CHAINS * 8 * 2, avx2},
        {"fma", "avx512", "GFLOP/s", fma_avx512, CHAINS * 16 * 2, wide},
        {"bf16", "avx512 dpbf16", "GFLOP/s", bf16_avx512, CHAINS * 32 * 2,
         wide && has_avx512_bf16()},
        {"int8", "avx2 maddubs+madd+add32", "GOP/s", madd_avx2, CHAINS * 32 * 2, avx2},
        {"int8", "avx2 maddubs+add16", "GOP/s", add16_avx2, CHAINS * 32 * 2, avx2},
        {"int8", "avx512 maddubs+add16", "GOP/s", add16_avx512, CHAINS * 64 * 2, bytes},
        {"int8", "avx-vnni dpbusd", "GOP/s", vnni_vex, CHAINS * 32 * 2, avx2 && has_avx_vnni()},
        {"int8", "avx512-vnni dpbusd", "GOP/s", vnni_avx512, CHAINS * 64 * 2, vnni},
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}
#elif defined(__aarch64__)
#define REG(a) "w"(a)
#define FMA(i) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(a##i) : "w"(x), "w"(y));
#define SDOT(i) __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(a##i) : "w"(x), "w"(y));
#define SMMLA(i) __asm__ volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(a##i) : "w"(x), "w"(y));

LOOP(fma_neon, target("arch=armv8.2-a"), int8x16_t, FMA)
LOOP(sdot_neon, target("arch=armv8.2-a+dotprod"), int8x16_t, SDOT)
LOOP(smmla_neon, target("arch=armv8.2-a+i8mm"), int8x16_t, SMMLA)

static int list_limits(struct limit *out)
{
    const bool dot = getauxval(AT_HWCAP) >> 20 & 1, i8mm = getauxval(AT_HWCAP2) >> 13 & 1;
    const struct limit all[] = {
        {"read", "neon", "GB/s", read_all, 0, true},
        {"fma", "neon", "GFLOP/s", fma_neon, CHAINS * 4 * 2, true},
        {"int8", "neon sdot", "GOP/s", sdot_neon, CHAINS * 16 * 2, dot},
        {"int8", "neon smmla", "GOP/s", smmla_neon, CHAINS * 32 * 2, i8mm},
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}
#else
static int list_limits(struct limit *out)
{
    out[0] = (struct limit){"read", "any", "GB/s", read_all, 0, true};
    return 1;
}
#endif

/* --- measuring --- */

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A loop in registers is timed by its thread's own processor time, which a neighbour on the same
 * core does not lengthen. Memory is shared: its loops are timed by the clock on the wall. */
static void *work(void *arg)
{
    struct worker *w = arg;
    const bool in_registers = w->limit->per_round > 0;
    if (w->cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)w->cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    pthread_barrier_wait(w->barrier);
    const clockid_t clock = in_registers ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double start = now(clock);
    w->limit->loop(w->data, w->bytes, w->rounds);
    if (!in_registers)
        pthread_barrier_wait(w->barrier);
    w->seconds = now(clock) - start;
    return NULL;
}

/* Seconds that the slowest of the threads takes for its rounds. */
static double run(const struct limit *l, int threads, const char *data, size_t bytes, long rounds)
{
    static struct worker w[MAX_THREADS];
    pthread_barrier_t barrier;
    cpu_set_t may;
    double seconds = 0;
    int cpu = -1;
    sched_getaffinity(0, sizeof may, &may);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    const size_t share = bytes / (size_t)threads / READ_BLOCK * READ_BLOCK;
    for (int i = 0; i < threads; i++) {
        if (threads <= CPU_COUNT(&may))
            do
                cpu++;
            while (!CPU_ISSET((size_t)cpu, &may));
        w[i] = (struct worker){.barrier = &barrier,
                               .limit = l,
                               .data = data + share * (size_t)i,
                               .bytes = share,
                               .rounds = rounds,
                               .cpu = cpu};
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0) {
            fprintf(stderr, "limits: cannot start thread %d\n", i);
            exit(1);
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(w[i].thread, NULL);
        seconds = w[i].seconds > seconds ? w[i].seconds : seconds;
    }
    pthread_barrier_destroy(&barrier);
    return seconds;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(const struct limit *l, int threads, const char *data, size_t bytes, double want)
{
    long rounds = l->per_round > 0 ? 1 << 14 : 1;
    double v[SAMPLES];
    const double work_done =
        l->per_round > 0
            ? l->per_round * threads
            : (double)(bytes / (size_t)threads / READ_BLOCK * READ_BLOCK * (size_t)threads);
    while (run(l, threads, data, bytes, rounds) < want)
        rounds *= 2;
    for (int i = 0; i < SAMPLES; i++)
        v[i] = work_done * (double)rounds / run(l, threads, data, bytes, rounds) * 1e-9;
    qsort(v, SAMPLES, sizeof *v, compare);
    printf("{\"what\": \"%s\", \"set\": \"%s\", \"threads\": %d, \"unit\": \"%s\", "
           "\"least\": %.2f, \"median\": %.2f, \"best\": %.2f}\n",
           l->what, l->set, threads, l->unit, v[0], v[SAMPLES / 2], v[SAMPLES - 1]);
    fflush(stdout);
}

/* Far larger than the last cache, in huge pages where there are some, and written to: untouched
 * pages would all be one page of zeros. */
static char *make_data(size_t *bytes)
{
    const size_t huge = 2 << 20, least = 256 << 20, most = 2048u << 20;
    long cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    size_t n = cache > 0 ? 4 * (size_t)cache : 0;
    n = n < least ? least : n > most ? most : n / huge * huge;
    char *p = mmap(NULL, n + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    p += (huge - (uintptr_t)p % huge) % huge;
    madvise(p, n, MADV_HUGEPAGE);
    memset(p, 1, n);
    *bytes = n;
    return p;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const double want = (argc > 2 ? atoi(argv[2]) : 50) * 1e-3;
    struct limit limits[16];
    size_t bytes = 0;
    if (threads < 1 || threads > MAX_THREADS || want <= 0) {
        fprintf(stderr, "usage: limits [THREADS (1 to %d) [MILLISECONDS]]\n", MAX_THREADS);
        return 2;
    }
    const char *data = make_data(&bytes);
    if (!data) {
        fprintf(stderr, "limits: no memory to read from\n");
        return 1;
    }
    const int n = list_limits(limits);
    for (int i = 0; i < n; i++)
        if (limits[i].there)
            measure(&limits[i], threads, data, bytes, want);
    return 0;
}
