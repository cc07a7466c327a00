/* x86_trap.h: AMX and AVX-VNNI on a machine that lacks them, so that the very code of those sets
 * runs in tests: a handler of SIGILL does what the instruction would have done.
 *
 * What the sets use: vpdpbusd of 256 bits in its VEX form; ldtilecfg, tilerelease, tilezero,
 * tileloadd, tilestored, tdpbsud and tdpbf16ps. Checked as by a processor: shapes, and that there are any. For
 * one thread. On another machine than x86-64 nothing is ever trapped. */
#ifndef TOKEND_X86_TRAP_H
#define TOKEND_X86_TRAP_H

void x86_trap_begin(void);
/* How many instructions were trapped since begin. */
long x86_trap_end(void);

#endif
