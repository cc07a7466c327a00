#include "metrics.h"

#include <time.h>

struct writer {
    struct buf *out;
    const char *labels; /* model_name and engine */
};

static void head(const struct writer *w, const char *name, const char *type, const char *help)
{
    buf_addf(w->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(const struct writer *w, const char *name, double value, const char *help)
{
    head(w, name, "gauge", help);
    buf_addf(w->out, "%s{%s} %.9g\n", name, w->labels, value);
}

static void counter(const struct writer *w, const char *name, uint64_t value, const char *help)
{
    head(w, name, "counter", help);
    buf_addf(w->out, "%s{%s} %llu\n", name, w->labels, (unsigned long long)value);
}

static void histogram(const struct writer *w, const char *name, const struct histogram *h,
                      const char *help)
{
    head(w, name, "histogram", help);
    histogram_format(w->out, name, w->labels, h);
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
    gauge(w, "vllm:kv_cache_usage_perc", s->pages_in_use / total,
          "Share of the KV pages that sequences use, 0 to 1.");
    head(w, "tokend:pages", "gauge",
         "KV pages: free, cached (nobody uses them, reclaimed when needed), or in use.");
    buf_addf(w->out, "tokend:pages{%s,state=\"free\"} %d\n", w->labels, s->pages_free);
    buf_addf(w->out, "tokend:pages{%s,state=\"cached\"} %d\n", w->labels, s->pages_cached);
    buf_addf(w->out, "tokend:pages{%s,state=\"in_use\"} %d\n", w->labels, s->pages_in_use);
    gauge(w, "tokend:pages_touched", s->pages_touched,
          "KV pages that were ever used: those that take memory.");
    gauge(w, "tokend:kv_waste_ratio",
          s->slots_in_use ? (double)(s->slots_in_use - s->slots_written) / (double)s->slots_in_use
                          : 0,
          "Share of the token slots of pages in use that hold nothing, 0 to 1.");
    head(w, "vllm:cache_config_info", "gauge", "Geometry of the KV cache, in labels.");
    buf_addf(w->out, "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n",
             w->labels, v->info ? v->info->block_size : 0, v->info ? v->info->n_pages : 0);
}

static void format_engine(const struct writer *w, const struct engine_stats *s)
{
    gauge(w, "vllm:num_requests_running", s->n_running, "Sequences that run.");
    gauge(w, "vllm:num_requests_waiting", s->n_waiting, "Sequences that wait to run.");
    gauge(w, "tokend:engine_heartbeat_age_seconds", s->heartbeat_age,
          "Time since the engine thread last said that it lives.");
    counter(w, "vllm:prompt_tokens_total", s->prompt_tokens,
            "Tokens of prompts that were read to their end, cached ones too.");
    counter(w, "vllm:generation_tokens_total", s->generated_tokens, "Tokens generated.");
    counter(w, "vllm:prefix_cache_queries_total", s->prefix_queried_tokens,
            "Prompt tokens looked up in the prefix cache.");
    counter(w, "vllm:prefix_cache_hits_total", s->prefix_hit_tokens,
            "Prompt tokens found in the prefix cache.");
    counter(w, "vllm:num_preemptions_total", s->preemptions,
            "Times a sequence lost its pages to another and was queued again.");
    counter(w, "vllm:corrupted_requests_total", s->corrupted_requests,
            "Requests ended by a NaN or infinity in their logits.");
    counter(w, "tokend:engine_steps_total", s->steps, "Steps of the engine.");
    counter(w, "tokend:computed_tokens_total", s->computed_tokens,
            "Tokens computed in all steps, prompts and generated ones.");
    counter(w, "tokend:limited_steps_total", s->limited_steps,
            "Steps that took less of a prompt than they could, for running streams' targets.");
}

/* What routers and dashboards look for, of features that are not there. */
static void format_absent(const struct writer *w)
{
    counter(w, "vllm:spec_decode_num_drafts_total", 0, "Speculative drafts (none are made).");
    counter(w, "vllm:spec_decode_num_draft_tokens_total", 0, "Tokens drafted (none are).");
    counter(w, "vllm:spec_decode_num_accepted_tokens_total", 0, "Drafted tokens accepted.");
    head(w, "vllm:lora_requests_info", "gauge",
         "Adapters in use, in labels (none are served); the value is the time, Unix seconds.");
    buf_addf(w->out,
             "vllm:lora_requests_info{%s,max_lora=\"0\",running_lora_adapters=\"\","
             "waiting_lora_adapters=\"\"} %lld\n",
             w->labels, (long long)time(NULL));
}

static void format_ends(const struct writer *w, const struct metrics *m)
{
    static const char *const names[N_METRIC_ENDS] = {"stop", "length", "abort", "error"};
    head(w, "vllm:request_success_total", "counter",
         "Ended choices by reason: stop, length, abort (cancelled), error.");
    for (int i = 0; i < N_METRIC_ENDS; i++)
        buf_addf(w->out, "vllm:request_success_total{%s,finished_reason=\"%s\"} %llu\n", w->labels,
                 names[i], (unsigned long long)m->ends[i]);
}

static void format_times(const struct writer *w, const struct metrics *m)
{
    histogram(w, "vllm:time_to_first_token_seconds", &m->ttft,
              "From a request's arrival to its first token.");
    histogram(w, "vllm:inter_token_latency_seconds", &m->itl,
              "Between two tokens of a request, per token where several came at once.");
    histogram(w, "vllm:time_per_output_token_seconds", &m->itl,
              "Older name of vllm:inter_token_latency_seconds.");
    histogram(w, "vllm:e2e_request_latency_seconds", &m->e2e,
              "From a request's submission to its end.");
    histogram(w, "vllm:request_queue_time_seconds", &m->queue,
              "From a request's submission to its first step.");
    histogram(w, "vllm:request_prefill_time_seconds", &m->prefill,
              "From a request's first step to its first token.");
    histogram(w, "vllm:request_decode_time_seconds", &m->decode,
              "From a request's first token to its end.");
    histogram(w, "vllm:request_inference_time_seconds", &m->inference,
              "From a request's first step to its end.");
}

static void format_sizes(const struct writer *w, const struct metrics *m)
{
    histogram(w, "vllm:iteration_tokens_total", &m->step_tokens,
              "Tokens computed in a step (the mean of those between two looks).");
    histogram(w, "vllm:request_prompt_tokens", &m->prompt_tokens, "Prompt tokens of a request.");
    histogram(w, "vllm:request_generation_tokens", &m->generation_tokens,
              "Tokens generated for a choice.");
    histogram(w, "vllm:request_params_n", &m->n, "The parameter n of a request.");
    histogram(w, "vllm:request_params_max_tokens", &m->max_tokens,
              "The parameter max_tokens of a request, or what it could become.");
}

static void format_http(const struct writer *w, const struct http_stats *s)
{
    counter(w, "http_requests_total", s->requests, "HTTP requests.");
    counter(w, "tokend:http_refused_total", s->refused,
            "Connections told 503: the limit was reached.");
    counter(w, "tokend:slow_readers_cut_total", s->slow_readers_cut,
            "Connections closed because their client took nothing.");
    gauge(w, "tokend:http_connections_open", (double)s->connections_open, "Open HTTP connections.");
}

void metrics_format(struct buf *out, const struct metrics *m, const struct metrics_view *v)
{
    struct buf labels = {0};
    add_label(&labels, "model_name", v->model);
    buf_add_str(&labels, ",engine=\"0\"");
    struct writer w = {.out = out, .labels = labels.failed ? "engine=\"0\"" : labels.data};
    format_engine(&w, v->stats);
    format_pages(&w, v);
    format_absent(&w);
    format_ends(&w, m);
    format_times(&w, m);
    format_sizes(&w, m);
    format_http(&w, v->http);
    buf_free(&labels);
}
