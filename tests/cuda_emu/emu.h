/* emu.h: what the emulator's own files give each other. */
#ifndef TOKEND_EMU_H
#define TOKEND_EMU_H

#include "cuda_emu.h"
#include "emu_control.h"

#include <string>

extern emu_options emu_now;

/* Random numbers from the seed */
uint32_t emu_random();
void emu_reseed(uint64_t);
void emu_report(const std::string &);

/* Runs all blocks of a launch; cudaSuccess, or what the launch failed with. */
cudaError_t emu_run_grid(const emu_launch &, const std::function<void()> &body);
cudaError_t emu_check_launch(const emu_launch &, size_t argument_bytes);
void emu_allow_dynamic(const void *kernel, size_t bytes);
void emu_drain_streams();
void emu_forgive_streams();

/* shared_memory.cpp; the block's memory is all NaN after shared_refill. */
void shared_open(size_t dynamic);
void shared_refill();
void shared_close();
/* async_copy.cpp: copies of the thread that runs */
void copies_reset(int n_threads);

/* hopper.cpp: barriers, copies and products of the block */
void hopper_reset();
/* The thread that runs waits, for `what`, until another wakes it. */
void emu_sleep(const char *what, emu_place);
void emu_wake(int thread);

/* The thread that runs, -1 outside of kernels */
int emu_thread();

/* --- memory and races: race.cpp, or no_race.cpp --- */

void *emu_memory_take(size_t, bool shared);
void emu_memory_give(void *, bool shared);
void race_launch(const char *kernel);
void race_block(int n_threads);
/* These threads have met: what each did before, all others see. */
void race_join(const int *threads, int n);
/* What the thread did before, those see who acquire of the same object later. */
void race_release(const void *object);
void race_acquire(const void *object);
void race_access(const void *, size_t, bool write, const void *pc);

enum { EMU_DEVICE_BYTES = 1 << 30, EMU_SHARED_DEFAULT = 48 << 10 };

#endif
