/* runtime.h: what the files that stand in for the CUDA runtime share. */
#ifndef TOKEND_EMU_RUNTIME_H
#define TOKEND_EMU_RUNTIME_H

#include "emu.h"

/* Remembers an error as cudaGetLastError gives it; a launch failure stays (sticky). */
cudaError_t runtime_error(cudaError_t);
cudaError_t runtime_sticky();
/* Puts work at the end of a stream, or into the graph that it captures. */
cudaError_t runtime_enqueue(cudaStream_t, std::function<cudaError_t()>);
/* What may not be called while a stream captures: false, and a report */
bool runtime_may(const char *call);
bool stream_captures(cudaStream_t);
void stream_drain(cudaStream_t);
/* Whether the device has memory for the kernel's code, which it takes at the first call */
bool runtime_load_kernel(const void *kernel);
/* What is known of memory at p */
enum memory_kind { MEMORY_HOST, MEMORY_PINNED, MEMORY_DEVICE };
enum memory_kind memory_at(const void *p, size_t size, bool *whole);

#endif
