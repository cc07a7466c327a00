/* Stand-ins for the CUDA runtime's calls: errors, the device, memory and copies. The prototypes are
 * those of NVIDIA's headers. Device memory is the host's. */
#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <vector>

struct piece {
    size_t size;
    memory_kind kind;
    bool registered; /* the caller's own memory */
};

emu_options emu_now;
static std::map<const char *, piece> pieces;
static uint64_t device_held, random_state;
static int n_reports, is_quiet;
static std::string last_report;
static cudaError_t last_error, sticky_error;

/* A whole number of the environment; 0: not there */
static uint64_t setting(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : 0;
}

/* TOKEND_EMU_MEMORY: the device's memory in MiB */
static uint64_t device_bytes()
{
    static const uint64_t mib = setting("TOKEND_EMU_MEMORY");
    return mib ? mib << 20 : (uint64_t)EMU_DEVICE_BYTES;
}

/* TOKEND_EMU_MALLOC_FAULT=n: the device has no memory for the n-th piece. */
static bool allocation_fails()
{
    static uint64_t left = setting("TOKEND_EMU_MALLOC_FAULT");
    return left > 0 && --left == 0;
}

/* --- tests --- */

uint32_t emu_random() /* splitmix64 */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(z >> 32);
}

void emu_configure(const emu_options *o)
{
    emu_drain_streams();
    emu_now = *o;
    random_state = o->seed;
}

void emu_report(const std::string &text)
{
    n_reports++;
    last_report = text;
    if (!is_quiet)
        fprintf(stderr, "cuda_emu: %s\n", text.c_str());
}

int emu_reports(void)
{
    return n_reports;
}

const char *emu_last_report(void)
{
    return last_report.c_str();
}

void emu_quiet(int quiet)
{
    is_quiet = quiet;
}

void emu_forgive(void)
{
    emu_forgive_streams();
    n_reports = 0;
    last_report.clear();
    last_error = sticky_error = cudaSuccess;
}

uint64_t emu_memory_held(void)
{
    uint64_t held = 0;
    for (auto &p : pieces)
        held += p.second.size;
    return held;
}

/* --- errors --- */

cudaError_t runtime_error(cudaError_t e)
{
    if (e == cudaSuccess)
        return e;
    last_error = e;
    if (e == cudaErrorLaunchFailure)
        sticky_error = e;
    return e;
}

cudaError_t runtime_sticky()
{
    return sticky_error;
}

extern "C" {
cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = sticky_error;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaSuccess                         ? "cudaSuccess"
           : e == cudaErrorLaunchFailure            ? "cudaErrorLaunchFailure"
           : e == cudaErrorMemoryAllocation         ? "cudaErrorMemoryAllocation"
           : e == cudaErrorInvalidConfiguration     ? "cudaErrorInvalidConfiguration"
           : e == cudaErrorStreamCaptureUnsupported ? "cudaErrorStreamCaptureUnsupported"
           : e == cudaErrorStreamCaptureInvalidated ? "cudaErrorStreamCaptureInvalidated"
                                                    : "cudaErrorInvalidValue";
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess ? "no error" : "an error of the emulated device";
}

int emu_emulated(void)
{
    return 1;
}

/* --- the device --- */

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device ? runtime_error(cudaErrorInvalidDevice) : cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

static int capability = 90;

void emu_device(int c)
{
    capability = c;
}

static int shared_optin()
{
    return (capability < 80 ? 64 : capability < 90 ? 163 : 227) << 10;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device)
        return runtime_error(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated GPU");
    p->major = capability / 10;
    p->minor = capability % 10;
    p->multiProcessorCount = 4;
    p->totalGlobalMem = device_bytes();
    p->warpSize = 32;
    p->sharedMemPerBlock = EMU_SHARED_DEFAULT;
    p->sharedMemPerBlockOptin = (size_t)shared_optin();
    p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + (capability >= 80) * 1024;
    p->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value)
{
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || value > shared_optin())
        return runtime_error(cudaErrorInvalidValue);
    emu_allow_dynamic(kernel, (size_t)value);
    return cudaSuccess;
}

/* --- memory --- */

static void keep(const void *p, size_t size, memory_kind kind, bool registered)
{
    pieces[(const char *)p] = piece{size, kind, registered};
    if (kind == MEMORY_DEVICE)
        device_held += size;
}

static cudaError_t give(void *p, memory_kind kind, bool registered, const char *call)
{
    if (!p)
        return cudaSuccess;
    if (!runtime_may(call))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    auto it = pieces.find((const char *)p);
    if (it == pieces.end() || it->second.kind != kind || it->second.registered != registered) {
        emu_report(std::string(call) + " of what is not its memory");
        return runtime_error(cudaErrorInvalidValue);
    }
    emu_drain_streams();
    if (kind == MEMORY_DEVICE)
        device_held -= it->second.size;
    pieces.erase(it);
    if (!registered)
        emu_memory_give(p, false);
    return cudaSuccess;
}

static cudaError_t take(void **p, size_t size, memory_kind kind, const char *call)
{
    if (!runtime_may(call))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    if (kind == MEMORY_DEVICE && (allocation_fails() || size > device_bytes() - device_held))
        return runtime_error(cudaErrorMemoryAllocation);
    *p = emu_memory_take(size, false);
    memset(*p, 0xff, size); /* NaN: what nobody wrote is nobody's */
    keep(*p, size, kind, false);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t size)
{
    return take(p, size, MEMORY_DEVICE, "cudaMalloc");
}

cudaError_t cudaFree(void *p)
{
    return give(p, MEMORY_DEVICE, false, "cudaFree");
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned)
{
    return take(p, size, MEMORY_PINNED, "cudaHostAlloc");
}

cudaError_t cudaFreeHost(void *p)
{
    return give(p, MEMORY_PINNED, false, "cudaFreeHost");
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned)
{
    keep(p, size, MEMORY_PINNED, true);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    return give(p, MEMORY_PINNED, true, "cudaHostUnregister");
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *total = device_bytes();
    *free = device_bytes() - device_held;
    return cudaSuccess;
}
}

/* TOKEND_EMU_KERNEL_MEMORY: KiB of the device that a kernel takes when it first runs, as the driver
 * loads it then */
bool runtime_load_kernel(const void *kernel)
{
    static const uint64_t bytes = setting("TOKEND_EMU_KERNEL_MEMORY") << 10;
    static std::set<const void *> loaded;
    if (bytes == 0 || loaded.count(kernel))
        return true;
    if (bytes > device_bytes() - device_held)
        return false;
    loaded.insert(kernel);
    device_held += bytes;
    return true;
}

memory_kind memory_at(const void *p, size_t size, bool *whole)
{
    const char *at = (const char *)p;
    auto it = pieces.upper_bound(at);
    *whole = true;
    if (it == pieces.begin())
        return MEMORY_HOST;
    --it;
    size_t offset = (size_t)(at - it->first);
    if (offset >= it->second.size)
        return MEMORY_HOST;
    *whole = size <= it->second.size - offset;
    return it->second.kind;
}

/* --- copies --- */

static bool is_device(const void *p, size_t size, bool wanted, const char *call)
{
    bool whole;
    bool device = memory_at(p, size, &whole) == MEMORY_DEVICE;
    if (device == wanted && whole)
        return true;
    emu_report(std::string(call) +
               (whole ? ": memory of the wrong side" : ": past the memory's end"));
    return false;
}

extern "C" {
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool whole;
    if (size && kind != cudaMemcpyDefault &&
        (!is_device(to, size, to_device, "cudaMemcpy") ||
         !is_device(from, size, from_device, "cudaMemcpy")))
        return runtime_error(cudaErrorInvalidValue);
    bool pageable =
        memory_at(to, size, &whole) == MEMORY_HOST || memory_at(from, size, &whole) == MEMORY_HOST;
    if (pageable && stream_captures(s)) {
        emu_report("cudaMemcpyAsync of pageable memory during capture");
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    }
    cudaError_t e = runtime_enqueue(s, [to, from, size] {
        memmove(to, from, size);
        return cudaSuccess;
    });
    if (pageable) /* a GPU stages these or waits */
        stream_drain(s);
    return e;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    if (!runtime_may("cudaMemcpy"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    cudaError_t e = cudaMemcpyAsync(to, from, size, kind, nullptr);
    stream_drain(nullptr);
    return e;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t s)
{
    if (size && !is_device(to, size, true, "cudaMemset"))
        return runtime_error(cudaErrorInvalidValue);
    return runtime_enqueue(s, [to, value, size] {
        memset(to, value, size);
        return cudaSuccess;
    });
}

cudaError_t cudaMemset(void *to, int value, size_t size)
{
    if (!runtime_may("cudaMemset"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    return cudaMemsetAsync(to, value, size, nullptr);
}
}
