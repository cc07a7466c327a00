/* Stand-ins for streams, events and graphs. A stream is a queue, done at once, when something waits
 * for it, or bit by bit at any call: a missing event or wait shows. */
#include "runtime.h"

#include <cstdlib>
#include <deque>
#include <set>
#include <vector>

typedef std::function<cudaError_t()> work;
struct CUgraph_st {
    std::vector<work> works; /* as captured: an order that all dependencies allow */
    bool invalid;            /* something was called that a capture does not allow */
};
struct CUgraphExec_st {
    std::vector<work> works;
};
struct CUstream_st {
    std::deque<work> queue;
    CUgraph_st *graph; /* that captures it */
    bool origin;       /* its capture began here */
    bool blocking;     /* waits for the default stream and is waited for */
    bool loose;        /* what it captured last, no other stream waits for */
};
struct CUevent_st {
    CUstream_st *stream; /* where it was recorded */
    CUgraph_st *graph;   /* while that captured */
    uint64_t recorded, done; /* how often */
};

static CUstream_st default_stream = {{}, nullptr, false, true, false};
static std::set<CUstream_st *> streams = {&default_stream};
static emu_graph_counts graph_counts;
static int captures_fail;

static CUstream_st *stream_of(cudaStream_t s)
{
    return !s || s == cudaStreamLegacy || s == cudaStreamPerThread ? &default_stream : s;
}

static bool do_one(CUstream_st *s)
{
    if (s->queue.empty())
        return false;
    work w = s->queue.front();
    s->queue.pop_front();
    if (!runtime_sticky())
        runtime_error(w());
    return true;
}

static void drain(CUstream_st *s)
{
    while (do_one(s))
        ;
}

void stream_drain(cudaStream_t s)
{
    drain(stream_of(s));
}

void emu_drain_streams()
{
    for (CUstream_st *s : streams)
        drain(s);
}

void emu_forgive_streams()
{
    for (CUstream_st *s : streams) {
        s->queue.clear();
        if (s->origin)
            delete s->graph;
        s->graph = nullptr;
        s->origin = s->loose = false;
    }
}

bool stream_captures(cudaStream_t s)
{
    return stream_of(s)->graph;
}

bool runtime_may(const char *call)
{
    bool may = true;
    for (CUstream_st *s : streams)
        if (s->graph) {
            s->graph->invalid = true;
            may = false;
        }
    if (!may)
        emu_report(std::string(call) + " while a stream captures");
    return may;
}

void emu_fail_captures(int fail)
{
    captures_fail = fail;
}

emu_graph_counts emu_count_graphs(void)
{
    return graph_counts;
}

/* The default stream and blocking ones wait for each other. */
static void order_with_default(CUstream_st *s)
{
    if (s != &default_stream) {
        if (s->blocking)
            drain(&default_stream);
        return;
    }
    for (CUstream_st *other : streams)
        if (other->blocking && other != s)
            drain(other);
}

static void run_some(CUstream_st *s)
{
    if (emu_now.streams == EMU_EAGER)
        drain(s);
    if (emu_now.streams != EMU_MIXED)
        return;
    for (uint32_t n = emu_random() % 4; n > 0; n--) {
        auto it = streams.begin();
        std::advance(it, emu_random() % streams.size());
        do_one(*it);
    }
}

cudaError_t runtime_enqueue(cudaStream_t stream, work w)
{
    CUstream_st *s = stream_of(stream);
    if (runtime_sticky())
        return runtime_sticky();
    if (s->graph) {
        s->graph->works.push_back(w);
        s->loose = true;
        return cudaSuccess;
    }
    if (s == &default_stream && !runtime_may("work on the default stream"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    order_with_default(s);
    s->queue.push_back(w);
    run_some(s);
    return runtime_sticky();
}

/* TOKEND_EMU_FAULT=n in the environment: the n-th launch fails, as a faulty kernel's does. */
static bool is_to_fail()
{
    static const char *text = getenv("TOKEND_EMU_FAULT");
    static long left = text ? atol(text) : 0;
    return left > 0 && --left == 0;
}

void emu_enqueue_launch(const emu_launch &l, size_t argument_bytes, std::function<void()> body)
{
    cudaError_t e = emu_check_launch(l, argument_bytes);
    const bool captured = stream_captures(l.stream); /* launched by the graph, each time */
    if (!e && !captured && is_to_fail())
        e = cudaErrorLaunchFailure;
    if (!e && !runtime_load_kernel(l.kernel))
        e = cudaErrorMemoryAllocation;
    if (!e)
        e = runtime_enqueue(l.stream, [l, body, captured] {
            return captured && is_to_fail() ? cudaErrorLaunchFailure : emu_run_grid(l, body);
        });
    runtime_error(e);
}

extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    *s = new CUstream_st{{}, nullptr, false, !(flags & cudaStreamNonBlocking), false};
    streams.insert(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (!streams.count(s) || s == &default_stream)
        return runtime_error(cudaErrorInvalidResourceHandle);
    drain(s);
    streams.erase(s);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (!runtime_may("cudaStreamSynchronize"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    stream_drain(s);
    return runtime_sticky();
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (stream_captures(s) && !runtime_may("cudaStreamQuery"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    do_one(stream_of(s));
    return runtime_sticky()              ? runtime_sticky()
           : stream_of(s)->queue.empty() ? cudaSuccess
                                         : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (!runtime_may("cudaDeviceSynchronize"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    emu_drain_streams();
    return runtime_sticky();
}

/* --- events --- */

/* Until the n-th record is done: later ones do not matter to who waited before them. */
static void wait_for(CUevent_st *e, uint64_t n)
{
    while (e->done < n && e->stream && do_one(e->stream))
        ;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new CUevent_st{};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    wait_for(e, e->recorded);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream)
{
    CUstream_st *s = stream_of(stream);
    e->graph = s->graph;
    e->stream = s;
    if (s->graph)
        return cudaSuccess;
    e->recorded++;
    return runtime_enqueue(stream, [e] {
        e->done++;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned)
{
    CUstream_st *s = stream_of(stream);
    if (e->graph) { /* the stream joins the capture */
        s->graph = e->graph;
        s->loose = true; /* until another waits for it */
        e->stream->loose = false;
        return cudaSuccess;
    }
    if (s->graph) {
        s->graph->invalid = true;
        emu_report("cudaStreamWaitEvent of a stream that captures: the event was recorded before");
        return runtime_error(cudaErrorStreamCaptureIsolation);
    }
    return runtime_enqueue(stream, [e, n = e->recorded] {
        wait_for(e, n);
        return cudaSuccess;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    if (!runtime_may("cudaEventSynchronize"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    wait_for(e, e->recorded);
    return runtime_sticky();
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    if (e->done < e->recorded && e->stream)
        do_one(e->stream);
    return e->done < e->recorded ? cudaErrorNotReady : runtime_sticky();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
    return runtime_enqueue(s, [fn, arg] {
        fn(arg);
        return cudaSuccess;
    });
}

/* --- graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    CUstream_st *s = stream_of(stream);
    if (s == &default_stream || s->graph)
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    s->graph = new CUgraph_st{};
    s->graph->invalid = captures_fail;
    s->origin = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *g)
{
    CUstream_st *s = stream_of(stream);
    *g = nullptr;
    if (!s->graph || !s->origin) {
        emu_report("cudaStreamEndCapture of a stream whose capture did not begin there");
        return runtime_error(cudaErrorIllegalState);
    }
    *g = s->graph;
    for (CUstream_st *other : streams) {
        if (other->graph != *g)
            continue;
        if (other != s && other->loose) {
            (*g)->invalid = true;
            emu_report(
                "cudaStreamEndCapture: a stream joined the capture and nothing waits for it");
        }
        other->graph = nullptr;
        other->loose = false;
    }
    s->origin = false;
    if (!(*g)->invalid)
        return cudaSuccess;
    delete *g;
    *g = nullptr;
    return runtime_error(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long)
{
    if (!runtime_may("cudaGraphInstantiate"))
        return runtime_error(cudaErrorStreamCaptureUnsupported);
    *exec = new CUgraphExec_st{g->works};
    graph_counts.made++;
    graph_counts.held++;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t s)
{
    return runtime_enqueue(s, [] { return cudaSuccess; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    std::vector<work> works = exec->works;
    graph_counts.launched++;
    return runtime_enqueue(s, [works] {
        cudaError_t e = cudaSuccess;
        for (size_t i = 0; i < works.size() && !e; i++)
            e = works[i]();
        return e;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    emu_drain_streams();
    graph_counts.held--;
    delete exec;
    return cudaSuccess;
}
}
