#include "metrics.h"

#include <string.h>

static const double seconds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                 0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
static const double token_gap[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                   0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5,   10};
static const double long_seconds[] = {0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                      10,   15,  20,  30,  40,  50, 60,  120, 240, 480};
static const double step_sizes[] = {1,   8,    16,   32,   64,   128,  256, 512,
                                    768, 1024, 1280, 1536, 2048, 4096, 8192};
static const double token_counts[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double few[] = {1, 2, 5, 10, 20};

#define WITH_BOUNDS(b) ((struct histogram){.bounds = (b), .n = (int)(sizeof(b) / sizeof *(b))})

void metrics_init(struct metrics *m)
{
    *m = (struct metrics){
        .ttft = WITH_BOUNDS(seconds),
        .itl = WITH_BOUNDS(token_gap),
        .e2e = WITH_BOUNDS(long_seconds),
        .queue = WITH_BOUNDS(long_seconds),
        .prefill = WITH_BOUNDS(long_seconds),
        .decode = WITH_BOUNDS(long_seconds),
        .inference = WITH_BOUNDS(long_seconds),
        .step_tokens = WITH_BOUNDS(step_sizes),
        .prompt_tokens = WITH_BOUNDS(token_counts),
        .generation_tokens = WITH_BOUNDS(token_counts),
        .n = WITH_BOUNDS(few),
        .max_tokens = WITH_BOUNDS(token_counts),
    };
}

static enum metric_end end_of(int finish)
{
    switch (finish) {
    case FINISH_STOP:
        return END_STOP;
    case FINISH_LENGTH:
        return END_LENGTH;
    case FINISH_ERROR:
        return END_ERROR;
    default:
        return END_ABORT;
    }
}

static void request_times(struct metrics *m, const struct request *r)
{
    histogram_add(&m->e2e, r->t_ended - r->t_submitted, 1);
    if (r->t_scheduled <= 0)
        return; /* it left the queue only by being cancelled */
    histogram_add(&m->queue, r->t_scheduled - r->t_submitted, 1);
    histogram_add(&m->inference, r->t_ended - r->t_scheduled, 1);
    if (r->t_first_token <= 0)
        return;
    histogram_add(&m->prefill, r->t_first_token - r->t_scheduled, 1);
    histogram_add(&m->decode, r->t_ended - r->t_first_token, 1);
}

void metrics_request(struct metrics *m, const struct request *r)
{
    for (int i = 0; i < r->n_choices; i++) {
        m->ends[end_of(atomic_load(&r->choices[i].finish))]++;
        histogram_add(&m->generation_tokens, atomic_load(&r->choices[i].n_tokens), 1);
    }
    histogram_add(&m->prompt_tokens, r->n_prompt, 1);
    histogram_add(&m->n, r->n_choices, 1);
    histogram_add(&m->max_tokens, r->params.max_tokens, 1);
    request_times(m, r);
}

void metrics_steps(struct metrics *m, const struct engine_stats *s)
{
    uint64_t steps = s->steps - m->last.steps;
    uint64_t tokens = s->computed_tokens - m->last.computed_tokens;
    if (steps > 0)
        histogram_add(&m->step_tokens, (double)tokens / (double)steps, steps);
    m->last = *s;
}

struct writer {
    struct buf *out;
    const char *labels; /* model_name and engine */
};

static void gauge(const struct writer *w, const char *name, double value)
{
    buf_addf(w->out, "# TYPE %s gauge\n%s{%s} %.9g\n", name, name, w->labels, value);
}

static void counter(const struct writer *w, const char *name, uint64_t value)
{
    buf_addf(w->out, "# TYPE %s counter\n%s{%s} %llu\n", name, name, w->labels,
             (unsigned long long)value);
}

/* A label value: backslash, quote and newline are escaped. */
static void add_label(struct buf *out, const char *name, const char *value)
{
    buf_addf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            buf_add_byte(out, '\\');
        if (*value == '\n')
            buf_add_str(out, "\\n");
        else
            buf_add_byte(out, *value);
    }
    buf_add_byte(out, '"');
}

static void format_pages(const struct writer *w, const struct metrics_view *v)
{
    const struct engine_stats *s = v->stats;
    double total = s->pages_total ? s->pages_total : 1;
    gauge(w, "vllm:kv_cache_usage_perc", s->pages_in_use / total);
    buf_add_str(w->out, "# TYPE tokend:pages gauge\n");
    buf_addf(w->out, "tokend:pages{%s,state=\"free\"} %d\n", w->labels, s->pages_free);
    buf_addf(w->out, "tokend:pages{%s,state=\"cached\"} %d\n", w->labels, s->pages_cached);
    buf_addf(w->out, "tokend:pages{%s,state=\"in_use\"} %d\n", w->labels, s->pages_in_use);
    gauge(w, "tokend:kv_waste_ratio",
          s->slots_in_use ? (double)(s->slots_in_use - s->slots_written) / (double)s->slots_in_use
                          : 0);
    buf_addf(w->out,
             "# TYPE vllm:cache_config_info gauge\n"
             "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n",
             w->labels, v->info ? v->info->block_size : 0, v->info ? v->info->n_pages : 0);
}

static void format_engine(const struct writer *w, const struct engine_stats *s)
{
    gauge(w, "vllm:num_requests_running", s->n_running);
    gauge(w, "vllm:num_requests_waiting", s->n_waiting);
    gauge(w, "tokend:engine_heartbeat_age_seconds", s->heartbeat_age);
    counter(w, "vllm:prompt_tokens_total", s->prompt_tokens);
    counter(w, "vllm:generation_tokens_total", s->generated_tokens);
    counter(w, "vllm:prefix_cache_queries_total", s->prefix_queried_tokens);
    counter(w, "vllm:prefix_cache_hits_total", s->prefix_hit_tokens);
    counter(w, "vllm:num_preemptions_total", s->preemptions);
    counter(w, "vllm:corrupted_requests_total", s->corrupted_requests);
    counter(w, "tokend:engine_steps_total", s->steps);
    counter(w, "tokend:computed_tokens_total", s->computed_tokens);
}

static void format_ends(const struct writer *w, const struct metrics *m)
{
    static const char *const names[N_METRIC_ENDS] = {"stop", "length", "abort", "error"};
    buf_add_str(w->out, "# TYPE vllm:request_success_total counter\n");
    for (int i = 0; i < N_METRIC_ENDS; i++)
        buf_addf(w->out, "vllm:request_success_total{%s,finished_reason=\"%s\"} %llu\n", w->labels,
                 names[i], (unsigned long long)m->ends[i]);
}

static void format_histograms(const struct writer *w, const struct metrics *m)
{
    const struct {
        const char *name;
        const struct histogram *h;
    } all[] = {
        {"vllm:time_to_first_token_seconds", &m->ttft},
        {"vllm:inter_token_latency_seconds", &m->itl},
        {"vllm:e2e_request_latency_seconds", &m->e2e},
        {"vllm:request_queue_time_seconds", &m->queue},
        {"vllm:request_prefill_time_seconds", &m->prefill},
        {"vllm:request_decode_time_seconds", &m->decode},
        {"vllm:request_inference_time_seconds", &m->inference},
        {"vllm:iteration_tokens_total", &m->step_tokens},
        {"vllm:request_prompt_tokens", &m->prompt_tokens},
        {"vllm:request_generation_tokens", &m->generation_tokens},
        {"vllm:request_params_n", &m->n},
        {"vllm:request_params_max_tokens", &m->max_tokens},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        histogram_format(w->out, all[i].name, w->labels, all[i].h);
}

void metrics_format(struct buf *out, const struct metrics *m, const struct metrics_view *v)
{
    struct buf labels = {0};
    add_label(&labels, "model_name", v->model);
    buf_add_str(&labels, ",engine=\"0\"");
    struct writer w = {.out = out, .labels = labels.failed ? "engine=\"0\"" : labels.data};
    format_engine(&w, v->stats);
    format_pages(&w, v);
    format_ends(&w, m);
    format_histograms(&w, m);
    counter(&w, "http_requests_total", v->http->requests);
    counter(&w, "tokend:http_refused_total", v->http->refused);
    counter(&w, "tokend:slow_readers_cut_total", v->http->slow_readers_cut);
    gauge(&w, "tokend:http_connections_open", (double)v->http->connections_open);
    buf_free(&labels);
}
