#include "x86_trap.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* As ldtilecfg reads it (Intel's manual, LDTILECFG) */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Global, because a signal handler has no argument of its own. */
static struct {
    struct sigaction before;
    long n;
    struct tile_config shapes; /* palette 0: none */
    uint8_t tile[8][16][64];
} trap;

/* A VEX instruction of the map 0F38: opcode /reg, rm */
struct instruction {
    int prefix, opcode; /* prefix: 0, 0x66, 0xf3, 0xf2 */
    bool wide;          /* 256 bits */
    int reg, second, rm;
    bool memory;
    uint8_t *base; /* with displacement, without index */
    int64_t index; /* scaled */
    int length;
};

static int64_t general(const ucontext_t *u, int n)
{
    static const int at[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
    return u->uc_mcontext.gregs[at[n]];
}

/* The operand in memory, from the ModRM byte on; `high`: bits 3 of base and index */
static void decode_memory(const ucontext_t *u, const uint8_t *p, const int high[2],
                          struct instruction *out)
{
    const int mod = *p >> 6, rm = *p & 7;
    int64_t base = 0;
    int32_t far = 0;
    bool far_only = false;
    p++;
    if (rm == 4) {
        const int index = (*p >> 3 & 7) | high[1];
        far_only = mod == 0 && (*p & 7) == 5;
        base = far_only ? 0 : general(u, (*p & 7) | high[0]);
        out->index = index == 4 ? 0 : general(u, index) * (1 << (*p >> 6));
        p++;
    } else if (mod == 0 && rm == 5) {
        far_only = true;
        base = u->uc_mcontext.gregs[REG_RIP] + 9; /* of the next instruction */
    } else {
        base = general(u, rm | high[0]);
    }
    if (mod == 1) {
        far = (int8_t)*p++;
    } else if (mod == 2 || far_only) {
        memcpy(&far, p, 4);
        p += 4;
    }
    out->memory = true;
    out->base = (uint8_t *)(base + far);
    out->length = (int)(p - (const uint8_t *)u->uc_mcontext.gregs[REG_RIP]);
}

static bool decode(const ucontext_t *u, struct instruction *out)
{
    static const int prefixes[4] = {0, 0x66, 0xf3, 0xf2};
    const uint8_t *p = (const uint8_t *)u->uc_mcontext.gregs[REG_RIP];
    if (p[0] != 0xc4 || (p[1] & 31) != 2 || p[2] & 0x80)
        return false;
    const int high[2] = {p[1] & 0x20 ? 0 : 8, p[1] & 0x40 ? 0 : 8};
    *out = (struct instruction){.prefix = prefixes[p[2] & 3],
                                .opcode = p[3],
                                .wide = p[2] & 4,
                                .reg = (p[4] >> 3 & 7) | (p[1] & 0x80 ? 0 : 8),
                                .second = ~p[2] >> 3 & 15,
                                .rm = (p[4] & 7) | high[0],
                                .length = 5};
    if (p[4] >> 6 != 3)
        decode_memory(u, p + 4, high, out);
    return true;
}

/* Halves of a 256-bit register in the frame of a signal: legacy area and XSAVE's standard form */
static uint8_t *vector_half(const ucontext_t *u, int n, int half)
{
    uint8_t *frame = (uint8_t *)u->uc_mcontext.fpregs;
    return frame + (half ? 576 : 160) + n * 16;
}

static void read_vector(const ucontext_t *u, int n, uint8_t *out)
{
    memcpy(out, vector_half(u, n, 0), 16);
    memcpy(out + 16, vector_half(u, n, 1), 16);
}

static bool vpdpbusd(const ucontext_t *u, const struct instruction *i)
{
    uint8_t a[32];
    int8_t b[32];
    int32_t sum[8];
    read_vector(u, i->reg, (uint8_t *)sum);
    read_vector(u, i->second, a);
    if (i->memory)
        memcpy(b, i->base + i->index, 32);
    else
        read_vector(u, i->rm, (uint8_t *)b);
    for (int k = 0; k < 32; k++)
        sum[k / 4] += a[k] * b[k];
    memcpy(vector_half(u, i->reg, 0), sum, 16);
    memcpy(vector_half(u, i->reg, 1), sum + 4, 16);
    return true;
}

static bool tile_config(const struct instruction *i)
{
    memset(trap.tile, 0, sizeof trap.tile);
    memset(&trap.shapes, 0, sizeof trap.shapes);
    if (!i->memory) /* tilerelease */
        return i->rm == 0 && i->reg == 0;
    memcpy(&trap.shapes, i->base + i->index, sizeof trap.shapes);
    if (trap.shapes.palette != 1 || trap.shapes.start_row != 0)
        return false;
    for (int t = 0; t < 8; t++)
        if (trap.shapes.rows[t] > 16 || trap.shapes.row_bytes[t] > 64)
            return false;
    return true;
}

static bool has_shape(int t)
{
    return t < 8 && trap.shapes.palette == 1 && trap.shapes.rows[t] > 0;
}

static bool tile_move(const struct instruction *i)
{
    if (!has_shape(i->reg) || !i->memory)
        return false;
    const size_t bytes = trap.shapes.row_bytes[i->reg];
    if (i->prefix == 0xf2)
        memset(trap.tile[i->reg], 0, sizeof *trap.tile);
    for (int row = 0; row < trap.shapes.rows[i->reg]; row++) {
        uint8_t *at = i->base + row * i->index, *tile = trap.tile[i->reg][row];
        if (i->prefix == 0xf2)
            memcpy(tile, at, bytes);
        else
            memcpy(at, tile, bytes);
    }
    return true;
}

/* Of a product: reg += rm times the second */
static bool fit(const struct instruction *i)
{
    const uint8_t *rows = trap.shapes.rows;
    const uint16_t *bytes = trap.shapes.row_bytes;
    const int to = i->reg, a = i->rm, b = i->second;
    if (!has_shape(to) || !has_shape(a) || !has_shape(b) || to == a || to == b || a == b)
        return false;
    return rows[a] == rows[to] && bytes[b] == bytes[to] && bytes[a] == rows[b] * 4;
}

/* tdpbsud: the rows of rm are signed, those of the second unsigned */
static bool tile_dot(const struct instruction *i)
{
    const uint8_t *rows = trap.shapes.rows;
    const uint16_t *bytes = trap.shapes.row_bytes;
    const int to = i->reg, a = i->rm, b = i->second;
    if (!fit(i))
        return false;
    for (int m = 0; m < rows[to]; m++)
        for (int n = 0; n < bytes[to] / 4; n++) {
            int32_t sum;
            memcpy(&sum, &trap.tile[to][m][n * 4], 4);
            for (int k = 0; k < bytes[a]; k++)
                sum += (int8_t)trap.tile[a][m][k] * trap.tile[b][k / 4][n * 4 + k % 4];
            memcpy(&trap.tile[to][m][n * 4], &sum, 4);
        }
    return true;
}

static float bf16(const uint8_t *row, int k)
{
    float f = 0;
    memcpy((uint8_t *)&f + 2, row + k * 2, 2);
    return f;
}

/* tdpbf16ps: even and odd k by themselves, subnormal numbers being zeros. A product is exact where
 * it is not subnormal itself, so that no fma is needed. */
static bool tile_dot_bf16(const struct instruction *i)
{
    const uint8_t *rows = trap.shapes.rows;
    const uint16_t *bytes = trap.shapes.row_bytes;
    const int to = i->reg, a = i->rm, b = i->second;
    if (!fit(i))
        return false;
    _mm_setcsr(_mm_getcsr() | 0x8040); /* the handler's own */
    for (int m = 0; m < rows[to]; m++)
        for (int n = 0; n < bytes[to] / 4; n++) {
            float sum, part[2] = {0, 0};
            memcpy(&sum, &trap.tile[to][m][n * 4], 4);
            for (int k = 0; k < bytes[a] / 2; k++)
                part[k % 2] += bf16(trap.tile[a][m], k) * bf16(trap.tile[b][k / 2], n * 2 + k % 2);
            sum += part[0] + part[1];
            memcpy(&trap.tile[to][m][n * 4], &sum, 4);
        }
    return true;
}

static bool run(const ucontext_t *u, const struct instruction *i)
{
    if (i->opcode == 0x50 && i->prefix == 0x66 && i->wide)
        return vpdpbusd(u, i);
    if (i->wide)
        return false;
    if (i->opcode == 0x49 && i->prefix == 0)
        return tile_config(i);
    if (i->opcode == 0x4b && (i->prefix == 0xf2 || i->prefix == 0xf3))
        return tile_move(i);
    if (i->opcode == 0x5e && i->prefix == 0xf3 && !i->memory)
        return tile_dot(i);
    if (i->opcode == 0x5c && i->prefix == 0xf3 && !i->memory)
        return tile_dot_bf16(i);
    if (i->opcode == 0x49 && i->prefix == 0xf2 && !i->memory && has_shape(i->reg)) {
        memset(trap.tile[i->reg], 0, sizeof *trap.tile);
        return true;
    }
    return false;
}

static void on_illegal(int signal, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    struct instruction i;
    if (decode(u, &i) && run(u, &i)) {
        u->uc_mcontext.gregs[REG_RIP] += i.length;
        trap.n++;
    } else {
        sigaction(SIGILL, &trap.before, NULL); /* it comes again, and ends the program */
    }
}

void x86_trap_begin(void)
{
    struct sigaction act = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigemptyset(&act.sa_mask);
    trap.n = 0;
    sigaction(SIGILL, &act, &trap.before);
}

long x86_trap_end(void)
{
    sigaction(SIGILL, &trap.before, NULL);
    return trap.n;
}

#else

void x86_trap_begin(void)
{
}

long x86_trap_end(void)
{
    return 0;
}

#endif
