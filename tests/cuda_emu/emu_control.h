/* emu_control.h: what tests say to the emulator of a GPU, and ask it.
 *
 * The emulator runs CUDA kernels on the host, every CUDA thread a fiber of one OS thread; which
 * of them runs next is chosen by the order set here, so a kernel whose result depends on it is
 * found. One OS thread may use it. */
#ifndef TOKEND_EMU_CONTROL_H
#define TOKEND_EMU_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum emu_order {
    EMU_FIFO,   /* threads and blocks ascending */
    EMU_LIFO,   /* descending */
    EMU_RANDOM, /* any thread at each switch */
    EMU_WARP,   /* one warp runs as far ahead as barriers let it */
};
/* When the bytes of an asynchronous copy arrive */
enum emu_landing {
    EMU_LATE,  /* at the wait */
    EMU_EARLY, /* at once */
    EMU_EITHER,
};
/* When the work of a stream is done */
enum emu_streams {
    EMU_EAGER, /* at once */
    EMU_LAZY,  /* when something waits for it */
    EMU_MIXED, /* some of it at any call */
};
struct emu_options {
    enum emu_order order;
    enum emu_landing landing;
    enum emu_streams streams;
    uint64_t seed; /* of all random choices */
};

/* Whether this is the emulator, and not a GPU, on which all of the below does nothing
 * (tests/gpu/real_device.c) */
int emu_emulated(void);
/* From now on. Waits for all streams before. */
void emu_configure(const struct emu_options *);
/* From now on the device says that it has this compute capability, 75, 80 or 90 (at first 90), and
 * shared memory as such a one has. Kernels are compiled as for 80 or later all the same. */
void emu_device(int capability);
/* Faults found since the last emu_forgive, and the text of the last one ("" if none) */
int emu_reports(void);
const char *emu_last_report(void);
/* Reports go to stderr unless quiet. */
void emu_quiet(int quiet);
/* Forgets reports and errors, sticky ones too. */
void emu_forgive(void);
/* Bytes of device and pinned memory that were not freed */
uint64_t emu_memory_held(void);
/* Graphs since the start, and those that were not destroyed */
struct emu_graph_counts {
    int made, launched, held;
};
struct emu_graph_counts emu_count_graphs(void);
/* While set, every capture ends as one that something invalidated. */
void emu_fail_captures(int fail);
/* Whether this build finds races */
int emu_finds_races(void);

/* The stand-in for cuBLASLt: what fails from now on */
struct emu_cublas_options {
    int missing; /* there is no such library */
    int no_way;  /* it supports no product */
    int fail_at; /* the product that fails when it is called, the next being 1; 0: none */
};
void emu_cublas(const struct emu_cublas_options *);
/* Products called for since then; the library's objects that were not destroyed */
int emu_cublas_products(void);
int emu_cublas_alive(void);

#ifdef __cplusplus
}
#endif
#endif
