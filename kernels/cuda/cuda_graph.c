/* cuda_graph.c: decode steps as CUDA graphs: one launch for all of a step's kernels.
 *
 * The first step of a shape is launched kernel by kernel. Then the same launches are captured, and
 * the graph is kept for later steps of the shape. So a capture that fails costs no more than speed,
 * and what is loaded or chosen at a kernel's first launch has been before a capture begins.
 *
 * A graph is run again only where all is equal that launches depend on, byte for byte: the recorded
 * operations (a walk of the model), and the step's shape with the addresses of its inputs. What is
 * behind the addresses may differ. A walk has graphs from the second time on that it is seen, so
 * that one which differs in each step costs a comparison. */
#include "cuda_backend.h"
#include "log.h"

#include <assert.h>
#include <string.h>

enum {
    MAX_GRAPHS = 256, /* sizes up to CUDA_MOST_GRAPH_ROWS, each in up to three kinds a window */
    MAX_WALKS = 4,
    LEAST_FREE = 64 << 20, /* bytes of the device that no graph takes, … */
    LEAST_SHARE = 16,      /* … or this part of a small one's */
};

struct walk {
    struct record *plan;
    int n; /* 0: none */
};
struct cuda_graph {
    cudaGraphExec_t exec; /* NULL: none */
    struct cuda_step step;
    uint64_t used;  /* the step that used it last */
    uint64_t bytes; /* of the device, as far as it can be told */
    int walk;
};
struct cuda_graphs {
    struct walk walks[MAX_WALKS];
    struct cuda_graph all[MAX_GRAPHS];
    int n, next_walk;
    bool no_more; /* making one failed: those that there are do */
    uint64_t n_steps;
};

bool cuda_graphs_open(struct cuda_backend *b, struct err *e)
{
    static const char what[] = "graphs";
    if (b->config.enforce_eager)
        return true;
    struct cuda_graphs *g = blocks_take(&b->blocks, 1, sizeof *g, what, NULL, e);
    for (int i = 0; g && i < MAX_WALKS; i++)
        if (!(g->walks[i].plan =
                  blocks_take(&b->blocks, (size_t)b->max_plan, sizeof *b->plan, what, NULL, e)))
            return false;
    b->graphs = g;
    return g;
}

static void destroy(struct cuda_backend *b, struct cuda_graph *graph)
{
    cudaStreamSynchronize(b->stream); /* it may be running */
    cudaGraphExecDestroy(graph->exec);
    *graph = (struct cuda_graph){0};
    b->graphs->n--;
}

void cuda_graphs_forget(struct cuda_backend *b)
{
    for (int i = 0; b->graphs && b->graphs->n > 0 && i < MAX_GRAPHS; i++)
        if (b->graphs->all[i].exec)
            destroy(b, &b->graphs->all[i]);
}

bool cuda_graphs_wanted(const struct cuda_backend *b)
{
    return b->graphs && !(b->graphs->no_more && b->graphs->n == 0);
}

uint64_t cuda_graphs_bytes(const struct cuda_backend *b)
{
    uint64_t bytes = 0;
    for (int i = 0; b->graphs && i < MAX_GRAPHS; i++)
        bytes += b->graphs->all[i].bytes;
    return bytes;
}

/* --- which one --- */

static int find_walk(const struct cuda_backend *b)
{
    const size_t bytes = (size_t)b->n_plan * sizeof *b->plan;
    for (int i = 0; i < MAX_WALKS; i++)
        if (b->graphs->walks[i].n == b->n_plan &&
            memcmp(b->graphs->walks[i].plan, b->plan, bytes) == 0)
            return i;
    return -1;
}

/* The new walk takes the place of the oldest one, whose graphs go. */
static void add_walk(struct cuda_backend *b)
{
    struct cuda_graphs *g = b->graphs;
    const int walk = g->next_walk;
    for (int i = 0; i < MAX_GRAPHS; i++)
        if (g->all[i].exec && g->all[i].walk == walk)
            destroy(b, &g->all[i]);
    g->next_walk = (walk + 1) % MAX_WALKS;
    g->walks[walk].n = b->n_plan;
    memcpy(g->walks[walk].plan, b->plan, (size_t)b->n_plan * sizeof *b->plan);
}

static struct cuda_graph *find(struct cuda_backend *b)
{
    struct cuda_graphs *g = b->graphs;
    const int walk = find_walk(b);
    for (int i = 0; walk >= 0 && i < MAX_GRAPHS; i++) {
        struct cuda_graph *graph = &g->all[i];
        if (graph->exec && graph->walk == walk &&
            memcmp(&graph->step, &b->step, sizeof b->step) == 0)
            return graph;
    }
    return NULL;
}

bool cuda_graph_launch(struct cuda_backend *b, cudaError_t *code)
{
    struct cuda_graph *graph = b->step.fixed ? find(b) : NULL;
    if (!graph)
        return false;
    graph->used = ++b->graphs->n_steps;
    *code = cudaGraphLaunch(graph->exec, b->stream);
    return true;
}

/* --- a new one --- */

/* A free place; else that of the one which was not used for longest */
static struct cuda_graph *place(struct cuda_backend *b)
{
    struct cuda_graphs *g = b->graphs;
    struct cuda_graph *oldest = &g->all[0];
    for (int i = 0; i < MAX_GRAPHS; i++) {
        if (!g->all[i].exec)
            return &g->all[i];
        if (g->all[i].used < oldest->used)
            oldest = &g->all[i];
    }
    destroy(b, oldest);
    return oldest;
}

/* The launches of the step, without what they do */
static cudaError_t capture(struct cuda_backend *b, cudaGraph_t *graph)
{
    int failed;
    cudaError_t code = cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    if (code != cudaSuccess)
        return code;
    code = cuda_run_plan(b, &failed);
    const cudaError_t end = cudaStreamEndCapture(b->stream, graph);
    return code == cudaSuccess ? end : code;
}

static cudaError_t make(struct cuda_backend *b, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    cudaError_t code = capture(b, &graph);
    if (code == cudaSuccess)
        code = cudaGraphInstantiate(exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (code != cudaSuccess)
        return code;
    code = cudaGraphUpload(*exec, b->stream);
    if (code != cudaSuccess)
        cudaGraphExecDestroy(*exec);
    return code;
}

static void give_up(struct cuda_backend *b, const char *why)
{
    b->graphs->no_more = true;
    log_warn("no CUDA graph of decode steps of %d sequences, nor of others from now on: %s. These "
             "steps are launched kernel by kernel, which is slower where the model is small",
             b->step.n_rows, why);
}

void cuda_graph_keep(struct cuda_backend *b)
{
    struct cuda_graphs *g = b->graphs;
    cudaGraphExec_t exec = NULL;
    size_t before = 0, after = 0, total;
    if (!b->step.fixed || g->no_more)
        return;
    const int walk = find_walk(b);
    if (walk < 0) {
        add_walk(b);
        return;
    }
    if (cudaMemGetInfo(&before, &total) != cudaSuccess ||
        (before < LEAST_FREE && before < total / LEAST_SHARE)) {
        give_up(b, "the GPU's memory is full");
        return;
    }
    struct cuda_graph *to = place(b);
    const cudaError_t code = make(b, &exec);
    if (code != cudaSuccess) {
        cudaGetLastError(); /* of no step: that one has been launched already */
        give_up(b, cudaGetErrorString(code));
        return;
    }
    *to = (struct cuda_graph){.exec = exec, .used = g->n_steps, .walk = walk};
    if (cudaMemGetInfo(&after, &total) == cudaSuccess && after < before)
        to->bytes = before - after;
    memcpy(&to->step, &b->step, sizeof to->step); /* whole, as it is compared */
    g->n++;
}
