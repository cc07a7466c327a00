/* Which instruction sets were compiled in, and which one to use. */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

extern const struct kernels kernels_generic;
#ifdef HAVE_AVX2
extern const struct kernels kernels_avx2;
#endif
#ifdef HAVE_AVX512
extern const struct kernels kernels_avx512;
#endif
#ifdef HAVE_VNNI
extern const struct kernels kernels_vnni;
#endif
#ifdef HAVE_BF16
extern const struct kernels kernels_bf16;
#endif
#ifdef HAVE_NEON
extern const struct kernels kernels_neon, kernels_dotprod, kernels_i8mm;
#endif
#ifdef HAVE_AVXVNNI
extern const struct kernels kernels_avxvnni;
#endif
#ifdef HAVE_AMX
extern const struct kernels kernels_amx;
#endif
#ifdef HAVE_VNNI256
extern const struct kernels kernels_vnni256, kernels_amx_emulated;
#endif

static bool always(void)
{
    return true;
}

#ifdef HAVE_AVX2
static bool has_avx2(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return false;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

#ifdef HAVE_AVX512
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
#endif

#ifdef HAVE_BF16
static bool has_bf16(void)
{
    unsigned a, b, c, d;
    return has_vnni() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
#endif

#ifdef HAVE_NEON
static bool has_dotprod(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

static bool has_i8mm(void)
{
    return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
}
#endif

#ifdef HAVE_AVXVNNI
static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

#ifdef HAVE_AMX
/* The system keeps the state of tile registers, and this process may use them. Asking holds for the
 * threads that come later, too. */
static bool may_use_tiles(void)
{
    enum { TILE_STATES = 3 << 17, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATES) == TILE_STATES &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static bool has_amx(void)
{
    enum { AMX_BF16_TILE_INT8 = 13 << 22 };
    unsigned a, b, c, d;
    return has_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (d & AMX_BF16_TILE_INT8) == AMX_BF16_TILE_INT8 && may_use_tiles();
}
#endif

/* Best first. vnni256 and amx_emulated are for tests: a machine that has them has vnni. */
static const struct {
    const struct kernels *kernels;
    bool (*usable)(void);
} sets[] = {
#ifdef HAVE_AMX
    {&kernels_amx, has_amx},
#endif
#ifdef HAVE_BF16
    {&kernels_bf16, has_bf16},
#endif
#ifdef HAVE_VNNI
    {&kernels_vnni, has_vnni},
#endif
#ifdef HAVE_AVX512
    {&kernels_avx512, has_avx512},
#endif
#ifdef HAVE_VNNI256
    {&kernels_vnni256, has_vnni},
    {&kernels_amx_emulated, has_vnni},
#endif
#ifdef HAVE_AVXVNNI
    {&kernels_avxvnni, has_avxvnni},
#endif
#ifdef HAVE_AVX2
    {&kernels_avx2, has_avx2},
#endif
#ifdef HAVE_NEON
    {&kernels_i8mm, has_i8mm},
    {&kernels_dotprod, has_dotprod},
    {&kernels_neon, always},
#endif
    {&kernels_generic, always},
};

const struct kernels *kernels_compiled(int i, bool *usable)
{
    if (i < 0 || (size_t)i >= sizeof sets / sizeof *sets)
        return NULL;
    *usable = sets[i].usable();
    return sets[i].kernels;
}

static void usable_names(char *out, size_t n)
{
    size_t at = 0;
    bool usable;
    const struct kernels *k;
    for (int i = 0; (k = kernels_compiled(i, &usable)) && at < n; i++)
        if (usable)
            at += (size_t)snprintf(out + at, n - at, at ? ", %s" : "%s", k->name);
}

const struct kernels *kernels_choose(struct err *e)
{
    const char *wanted = getenv("TOKEND_ISA");
    bool usable;
    const struct kernels *k;
    for (int i = 0; (k = kernels_compiled(i, &usable)); i++)
        if (usable && (!wanted || !*wanted || strcmp(wanted, k->name) == 0))
            return k;
    char names[128] = "";
    usable_names(names, sizeof names);
    err_set(e, ERR_UNSUPPORTED, "TOKEND_ISA=%s: this machine and build have %s", wanted, names);
    return NULL;
}
