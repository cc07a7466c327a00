/* engine.h: the engine thread, seen from the loop.
 *
 * One thread owns the device, the sequences, the scheduler, the pages and the prefix cache.
 * The loop submits requests and cancels them through a lock-free inbox; the engine writes
 * what it makes into arrays that belong to the request, publishes counts with release stores,
 * and puts the request on the outbox list. One wake-up a step, however many tokens it made.
 *
 * Life of a request: the submitter makes it with request_new, fills it, and gives it to
 * engine_submit; from then on it is shared until engine_poll hands it back with `ended` set
 * (exactly once: finished, cancelled or failed), after which only the submitter has it and
 * frees it with request_free. No field of a shared request is written by the submitter.
 * One thread, the loop, submits, cancels, polls and closes. */
#ifndef TOKEND_ENGINE_H
#define TOKEND_ENGINE_H

#include "err.h"
#include "model_file.h"
#include "sampling.h"

#include <stdatomic.h>

struct engine;

struct engine_config {
    int max_model_len; /* 0: the model's, shrunk to what the pool holds */
    int max_num_seqs;
    int max_num_batched_tokens;
    int block_size;
    int threads;                  /* 0: as many as may run at once */
    bool pin_threads;             /* each to a processor of its own */
    uint64_t kv_cache_memory;     /* bytes; 0: the default rule */
    double gpu_memory_share;      /* of a GPU's memory that may be used; 0: 0.9 */
    bool enforce_eager;           /* of a GPU: no graphs, kernels are launched one by one */
    uint64_t prefix_cache_memory; /* bytes of cached pages that are kept before memory never used is
                                     taken (scheduler.h); 0: half of the pool */
    enum dtype kv_dtype;
    bool kv_dtype_auto;  /* f32 for F32 models, else f16 */
    int activation_bits; /* of what quantised matrices read: 8 or 16, where BF16 ones read bf16 or
                            float32 (CPU); 0: 16 where there are experts, which rounding may swap,
                            or matrices are widened, else 8 */
    bool prefix_caching;
    bool batch_invariant;  /* on a GPU, too: nothing that is faster and not so */
    bool async_scheduling; /* steps run ahead of their results where the backend draws tokens */
    double target_itl; /* seconds between tokens of a running stream that prefill of others leaves,
                          where a request wishes nothing else; 0: none */
    const char *repack_cache; /* "beside" or a directory (repack_cache.h); NULL: none */
    bool widen;               /* quantised matrices to float32 while loading */
    bool quantise;            /* float matrices while loading (weights_quantised.h), … */
    enum dtype quantise_to;   /* … to this type */

    /* Opens the device; NULL: backend_cpu_open. */
    struct backend *(*open_backend)(const struct backend_config *, struct err *e);
    /* Tests: fill pages with NaN before they are first written; recount all pages when idle. */
    bool check_pages;
};

/* What engine_open found out and decided; printed at start, served by /v1/models. */
struct engine_info {
    struct model_spec spec;
    const char *backend; /* "cpu: generic, 2 threads" */
    int threads;
    int max_model_len;
    int max_num_seqs, max_num_batched_tokens, block_size;
    enum dtype kv_dtype, weight_dtype; /* weight_dtype: of most weights */
    uint64_t weight_bytes, kv_bytes, activation_bytes, kv_bytes_per_token;
    int n_pages, max_cached_pages;
    int activation_bits;
    bool batch_dependent; /* an answer's last bits depend on what else runs */
    const char *warning;  /* of the backend: what it does without, and what that costs; or NULL */
};

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR };

/* Output of one choice. tokens[0 … n_tokens) and their logprobs are final once published. */
struct choice {
    int32_t *tokens;          /* [max_tokens] */
    float *logprobs;          /* [max_tokens] or NULL */
    struct top_logprob *tops; /* [max_tokens][n_logprobs], best first, or NULL */
    _Atomic int n_tokens;     /* published (release); a stop token is counted */
    _Atomic int finish;       /* enum finish_reason, published after the last token */
    int32_t stop_id;          /* the token that stopped it, or -1 */
    _Atomic bool stop_asked;  /* by engine_stop_choice */
};

struct request {
    /* filled by the submitter */
    int32_t *prompt; /* [n_prompt], freed with the request */
    int n_prompt;
    int n_choices;
    int priority;
    double target_itl;   /* seconds between its tokens, at most; 0: the engine's */
    uint64_t cache_salt; /* 0: none; equal numbers must mean equal salts */
    struct sampling_params params;
    void *user;

    /* filled by the engine */
    struct choice *choices;          /* [n_choices] */
    float *prompt_logprobs;          /* [n_prompt], the first is NaN; or NULL */
    struct top_logprob *prompt_tops; /* [n_prompt][n_prompt_logprobs] or NULL */
    _Atomic int n_cached;            /* prompt tokens that came from the prefix cache */
    _Atomic bool ended;              /* set by engine_poll: the engine has let go of it */
    struct err error; /* of FINISH_ERROR; ERR_DEVICE "numerical_error" for bad logits */
    /* seconds on CLOCK_MONOTONIC, valid once ended (first_token once a token is there); 0: never */
    double t_submitted, t_scheduled, t_first_token, t_ended;

    /* the engine's own */
    struct request *inbox_next, *outbox_next;
    _Atomic int outbox_state; /* enum outbox_state of mailbox.h */
    _Atomic bool cancel_asked;
    struct request_run *run;
};

/* Allocates the output arrays too (untouched pages cost nothing). bias is copied. The prompt
 * becomes the request's. n_prompt and n_choices are at least 1. NULL: out of memory; the prompt
 * stays the caller's then. */
struct request *request_new(int32_t *prompt, int n_prompt, int n_choices,
                            const struct sampling_params *params);
void request_free(struct request *);

/* Loads the model onto a backend, opens the pool, and starts the thread; the model file may be
 * closed afterwards. `wake(arg)` is called on the engine
 * thread when the outbox gets its first entry, or the engine dies; it must only signal. */
struct engine *engine_open(const struct engine_config *, const struct model_file *,
                           void (*wake)(void *arg), void *arg, struct err *e);
/* Stops after the current step. Requests in flight end as cancelled: when it returns, `ended`
 * is set on every request that was submitted and not freed. NULL is fine. */
void engine_close(struct engine *);
const struct engine_info *engine_get_info(const struct engine *);

/* False and *e when the request can never run: prompt + 1 tokens over max_model_len (an answer
 * ends as FINISH_LENGTH at max_model_len), an id out of the vocabulary, wrong parameters, a
 * dead device. The request stays the caller's then. */
bool engine_submit(struct engine *, struct request *, struct err *e);
/* Ends it within a step as cancelled; it still comes back through engine_poll. */
void engine_cancel(struct engine *, struct request *);
/* Ends one choice within a step (the loop found a stop string); finish = FINISH_STOP. */
void engine_stop_choice(struct engine *, struct request *, int choice);

/* Empties the prefix cache before the next step: what is submitted later finds nothing that was
 * computed before. Requests in flight keep what they have. */
void engine_reset_prefix_cache(struct engine *);

/* The next request with news since its last poll, or NULL. Loop thread only. */
struct request *engine_poll(struct engine *);

/* Any thread. Numbers of one moment, for /metrics. */
struct engine_stats {
    int n_waiting, n_running;
    int pages_total, pages_free, pages_cached, pages_in_use;
    int pages_touched; /* ever used: those that take memory */
    uint64_t slots_in_use, slots_written;
    uint64_t preemptions, prefix_queried_tokens, prefix_hit_tokens;
    uint64_t prompt_tokens, generated_tokens, steps;
    uint64_t computed_tokens;    /* rows of all steps */
    uint64_t limited_steps;      /* whose prefill was cut for running streams' targets */
    double heartbeat_age;        /* seconds since the engine thread last said that it lives; it does
                                    so every step and at least twice a second when idle */
    bool dead;                   /* the device failed; nothing runs any more */
    uint64_t corrupted_requests; /* ended because of a NaN or infinity in their logits */
};
void engine_get_stats(struct engine *, struct engine_stats *out);

#endif
