/* The routes that generate nothing, between the same fakes. */
#include "test.h"

#include "api_rig.h"
#include "call.h"

/* ---- what is taken ---- */

static void finish_all(struct http_request **h, int n)
{
    for (int i = 0; i < engine.n; i++)
        end_request(engine.all[i], FINISH_LENGTH);
    for (int i = 0; i < n; i++)
        end(h[i], false);
}

static void only_so_many_sequences_are_taken_at_once(void **state)
{
    api->max_queue_len = 1;
    struct http_request *h[3];
    for (int i = 0; i < 3; i++)
        h[i] = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *late = post(completions_handle, "{\"prompt\":\"p\"}");
    assert_true(late->retry_after >= 1);
    assert_error(late, 429, "queue_full");
    finish_all(h, 3);
    assert_int_equal(api->n_sequences, 0);
}

static void a_request_counts_as_its_prompts_times_n(void **state)
{
    api->max_queue_len = 2;
    struct http_request *h[2];
    h[0] = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *late = posted(completions_handle, "{\"prompt\":[\"p\",\"q\"],\"n\":2}");
    assert_contains(late->out.data, "1 sequences run, 0 wait, and this request has 4");
    assert_error(late, 429, "queue_full");
    h[1] = posted(completions_handle, "{\"prompt\":\"p\",\"n\":3}");
    assert_error(post(completions_handle, "{\"prompt\":\"p\"}"), 429, "queue_full");
    finish_all(h, 2);
}

static void a_request_that_can_never_fit_is_not_told_to_come_back(void **state)
{
    api->max_queue_len = 2;
    assert_error(posted(completions_handle, "{\"prompt\":\"p\",\"n\":5}"), 400, "invalid_value");
    assert_int_equal(engine.n, 0);
}

static void bodies_on_the_pool_count_when_they_will_generate(void **state)
{
    api->max_queue_len = 0;
    struct http_request *h[6];
    for (int i = 0; i < 4; i++)
        h[i] = post(tokenize_handle, "{\"prompt\":\"ab\"}");
    for (int i = 4; i < 6; i++)
        h[i] = post(completions_handle, "{\"prompt\":\"p\"}");
    assert_error(post(completions_handle, "{\"prompt\":\"p\"}"), 429, "queue_full");
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(engine.n, 2);
    finish_all(h, 6);
}

static void a_refused_or_left_body_gives_its_place_back(void **state)
{
    assert_error(posted(completions_handle, "{"), 400, "invalid_json");
    struct http_request *h = post(completions_handle, "{\"prompt\":\"p\"}");
    assert_int_equal(api->n_sequences, 1);
    end(h, true);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(api->n_sequences, 0);
}

/* A request that was taken goes on when the drain begins while it is parsed. */
static void a_body_on_the_pool_survives_the_beginning_of_a_drain(void **state)
{
    struct http_request *h = post(completions_handle, "{\"prompt\":\"p\"}");
    api_set_draining(api, true);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(engine.n, 1);
    finish_all(&h, 1);
}

static void health_tells_the_truth(void **state)
{
    struct http_request *h = post(health_handle, "");
    assert_int_equal(h->status, 200);
    end(h, false);
    engine.stats.heartbeat_age = 61;
    assert_error(post(health_handle, ""), 503, "engine_stalled");
    engine.stats.dead = true;
    assert_error(post(health_handle, ""), 503, "engine_dead");
    assert_error(post(chat_handle, "{}"), 503, "engine_dead");
    engine.stats = (struct engine_stats){0};
    api_set_draining(api, true);
    assert_error(post(health_handle, ""), 503, "draining");
    assert_error(post(completions_handle, "{}"), 503, "draining");
    api_set_draining(api, false);
}

/* ---- the other routes ---- */

static void tokenize_and_detokenize_are_inverse(void **state)
{
    struct http_request *h = posted(tokenize_handle, "{\"prompt\":\"ab\"}");
    json_t *o = reply_of(h);
    assert_int_equal(json_integer_value(json_object_get(o, "count")), 2);
    assert_int_equal(json_integer_value(json_object_get(o, "max_model_len")), 100);
    json_decref(o);
    end(h, false);
    h = posted(detokenize_handle, "{\"tokens\":[97,0,98]}");
    o = reply_of(h);
    assert_int_equal(json_string_length(json_object_get(o, "prompt")), 3);
    json_decref(o);
    end(h, false);
    assert_error(posted(detokenize_handle, "{\"tokens\":[-1]}"), 400, "invalid_value");
    assert_error(posted(tokenize_handle, "{}"), 400, "missing_field");
}

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void replies(void (*handle)(struct http_request *, void *), const char *body,
                    const char *want)
{
    struct http_request *h = posted(handle, body);
    assert_int_equal(h->status, 200);
    assert_non_null(strstr(h->out.data, want));
    end(h, false);
}

static void special_tokens_of_a_chat_are_the_templates_unless_asked_for(void **state)
{
    tokenizer = (struct tokenizer){{'B', BOS}, {EOS}, 2, 1};
    replies(tokenize_handle, "{\"prompt\":\"hi\"}", "[66,256,104,105,257]");
    replies(tokenize_handle, "{\"prompt\":\"hi\",\"add_special_tokens\":false}", "[104,105]");
    replies(tokenize_handle, "{\"content\":\"hi\"}", "[104,105]");
    replies(tokenize_handle, "{\"content\":\"hi\",\"add_special\":true}", "[66,256,104,105,257]");
    replies(tokenize_handle, "{" HI "}", "[104,105]");
    replies(tokenize_handle, "{" HI ",\"add_special_tokens\":true}", "[66,256,104,105,257]");
    replies(chat_render_handle, "{" HI "}", "[104,105]");
    replies(chat_render_handle, "{" HI ",\"add_special_tokens\":true}", "[66,256,104,105,257]");
    tokenizer = (struct tokenizer){.prefix = {'h'}, .n_prefix = 1}; /* of the template's own */
    replies(chat_render_handle, "{" HI ",\"add_special_tokens\":true}", "[104,105]");
    assert_error(posted(tokenize_handle, "{" HI ",\"add_special_tokens\":1}"), 400, "invalid_type");
}

static void rendering_gives_the_ids_and_generates_nothing(void **state)
{
    tokenizer = (struct tokenizer){.prefix = {BOS}, .n_prefix = 1};
    struct http_request *h =
        posted(completions_render_handle, "{\"prompt\":[[7,8],\"a\"],\"n\":2,\"max_tokens\":900}");
    assert_string_equal(h->out.data, "[{\"token_ids\":[7,8]},{\"token_ids\":[256,97]}]");
    end(h, false);
    h = posted(chat_render_handle,
               "{\"model\":\"alias\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
               "\"tools\":null,\"documents\":null,\"chat_template\":null,"
               "\"add_generation_prompt\":true,\"continue_final_message\":false,"
               "\"chat_template_kwargs\":{}}");
    assert_string_equal(h->out.data, "{\"token_ids\":[104,105]}");
    end(h, false);
    assert_int_equal(engine.n, 0);
    assert_int_equal(api->n_sequences, 0);
    assert_error(posted(chat_render_handle, "{\"messages\":[]}"), 400, "invalid_value");
    assert_error(posted(chat_render_handle, "{\"model\":\"gpt\"}"), 404, "model_not_found");
    assert_error(posted(completions_render_handle, "{}"), 400, "missing_field");
}

#define EFFORT(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]," more "}"

/* The fake template writes it behind the message. */
static void reasoning_effort_is_a_variable_of_the_template(void **state)
{
    static const char *const low[] = {
        EFFORT("\"reasoning_effort\":\"low\""),
        EFFORT("\"chat_template_kwargs\":{\"reasoning_effort\":\"low\"}"),
        EFFORT("\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"reasoning_effort\":"
               "\"high\"}"),
    };
    for (size_t i = 0; i < sizeof low / sizeof *low; i++) {
        struct http_request *h = posted(chat_render_handle, low[i]);
        assert_string_equal(h->out.data, "{\"token_ids\":[97,108,111,119]}");
        end(h, false);
    }
    struct http_request *h = posted(chat_render_handle, EFFORT("\"reasoning_effort\":\"lots\""));
    assert_contains(h->out.data, "expected none, minimal, low");
    assert_error(h, 400, "invalid_value");
    assert_error(posted(chat_handle, EFFORT("\"reasoning_effort\":1")), 400, "invalid_type");
}

#define LAST(content, more)                                                                        \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"" content "\"}],"                             \
    "\"continue_final_message\":true" more "}"

/* The fake template writes the first message and nothing else. */
static void a_final_message_is_continued_only_instead_of_a_new_one(void **state)
{
    struct http_request *h = posted(
        chat_render_handle,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"},{\"role\":\"assistant\","
        "\"content\":\" b \"}],\"continue_final_message\":true,\"add_generation_prompt\":false}");
    assert_string_equal(h->out.data, "{\"token_ids\":[97,98]}");
    end(h, false);
    h = posted(tokenize_handle, LAST("hi", ",\"add_generation_prompt\":false"));
    assert_contains(h->out.data, "\"tokens\":[104,105]");
    end(h, false);
    h = posted(chat_handle, LAST("hi", ""));
    assert_contains(h->out.data, "continue_final_message goes on with the last message");
    assert_error(h, 400, "invalid_value");
    h = posted(
        chat_render_handle,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"},{\"role\":\"user\",\"content\":"
        "\"d\"}],\"continue_final_message\":true,\"add_generation_prompt\":false}");
    assert_contains(h->out.data, "\"param\": \"continue_final_message\"");
    assert_error(h, 400, "invalid_value");
    assert_error(posted(apply_template_handle, "{\"messages\":[],\"continue_final_message\":1}"),
                 400, "invalid_type");
    assert_error(posted(completions_handle, "{\"prompt\":\"a\",\"continue_final_message\":true}"),
                 400, "unsupported_parameter");
}

static void a_template_is_applied_and_may_refuse(void **state)
{
    struct http_request *h = posted(
        apply_template_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000hi\"}]}");
    json_t *o = reply_of(h);
    assert_int_equal(json_object_size(o), 1);
    assert_non_null(json_object_get(o, "prompt"));
    json_decref(o);
    end(h, false);
    h = posted(apply_template_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"raise\"}]}");
    assert_contains(h->out.data, "the chat template failed: line 7: roles must alternate");
    assert_error(h, 400, "invalid_value");
    assert_error(posted(apply_template_handle, "{}"), 400, "missing_field");
    api->engine = NULL;
    assert_error(posted(apply_template_handle, "{}"), 503, "model_loading");
    api->engine = &engine;
    api->model.template = NULL;
    assert_error(posted(apply_template_handle, "{}"), 400, "unsupported_parameter");
}

#define SAID(content, more)                                                                        \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"" content "\"" more "}]}"

static void a_fault_of_the_template_is_the_servers_unless_the_request_caused_it(void **state)
{
    struct http_request *h = posted(apply_template_handle, SAID("break", ""));
    assert_contains(h->out.data, "the chat template failed: line 3: 'x' is undefined");
    assert_error(h, 500, "chat_template_error");
    assert_error(posted(chat_handle, SAID("break", "")), 500, "chat_template_error");
    /* what is unusual about a request may be what the template does not expect */
    assert_error(posted(apply_template_handle, SAID("break", ",\"name\":\"joe\"")), 400,
                 "invalid_value");
    assert_error(posted(apply_template_handle,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"break\"}],"
                        "\"chat_template_kwargs\":{\"a\":1}}"),
                 400, "invalid_value");
    template.broken = true;
    assert_error(posted(apply_template_handle, SAID("hi", ",\"name\":\"joe\"")), 500,
                 "chat_template_error");
}

static void the_model_list_tells_the_serving_limit_three_ways(void **state)
{
    struct http_request *h = post(models_list_handle, "");
    json_t *o = reply_of(h), *m = json_array_get(json_object_get(o, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(m, "id")), "m");
    assert_int_equal(json_integer_value(json_object_get(m, "max_model_len")), 100);
    assert_int_equal(json_integer_value(json_object_get(m, "context_length")), 100);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(m, "meta"), "n_ctx")), 100);
    json_decref(o);
    end(h, false);
}

static struct http_request *get_model(const char *name)
{
    struct http_request *h = calloc(1, sizeof *h);
    h->rest = name;
    models_one_handle(h, api);
    return h;
}

static void each_served_name_has_its_entry_and_no_other(void **state)
{
    struct http_request *h = get_model("alias");
    assert_int_equal(h->status, 200);
    json_t *o = reply_of(h);
    assert_string_equal(json_string_value(json_object_get(o, "id")), "alias");
    json_decref(o);
    end(h, false);
    h = get_model("gpt\xff");
    assert_contains(h->out.data, "`gpt?` does not exist; this server has: m, alias");
    assert_error(h, 404, "model_not_found");
}

/* All series with their labels, without values. */
static void metric_names(const char *text, struct buf *out)
{
    for (const char *line = text; *line;) {
        const char *next = strchr(line, '\n') + 1;
        if (*line != '#')
            buf_add(out, line,
                    (size_t)((const char *)memrchr(line, ' ', (size_t)(next - line)) - line));
        line = next;
    }
}

static void texts_longer_than_any_that_fits_are_refused(void **state)
{
    void (*const handles[])(struct http_request *,
                            void *) = {tokenize_handle, detokenize_handle, apply_template_handle,
                                       completions_render_handle, chat_render_handle};
    struct buf body = {0};
    buf_addf(&body, "{\"prompt\":\"%0*d\"}", CALL_MIN_TEXT, 1);
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        assert_error(posted(handles[i], body.data), 413, "request_too_large");
    api->model.max_model_len = CALL_MIN_TEXT; /* a longer context takes longer texts */
    struct http_request *h = posted(tokenize_handle, body.data);
    json_t *o = reply_of(h);
    assert_int_equal(json_integer_value(json_object_get(o, "count")), CALL_MIN_TEXT);
    assert_int_equal(json_array_size(json_object_get(o, "tokens")), CALL_MIN_TEXT);
    json_decref(o);
    end(h, false);
    buf_free(&body);
}

static void all_metrics_are_there_from_the_first_scrape(void **state)
{
    struct buf before = {0}, after = {0};
    struct http_request *h = post(metrics_handle, "");
    assert_contains(h->out.data, "vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 0\n");
    assert_contains(h->out.data, "vllm:time_to_first_token_seconds_count{model_name=\"m\","
                                 "engine=\"0\"} 0\n");
    assert_contains(h->out.data, "finished_reason=\"abort\"} 0\n");
    metric_names(h->out.data, &before);
    end(h, false);

    h = posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":2}");
    make_text(engine.all[0], "ab");
    engine.stats = (struct engine_stats){.pages_total = 8,
                                         .pages_in_use = 2,
                                         .steps = 2,
                                         .prompt_tokens = 1,
                                         .generated_tokens = 2,
                                         .computed_tokens = 14,
                                         .slots_in_use = 32,
                                         .slots_written = 24};
    end_request(engine.all[0], FINISH_LENGTH);
    end(h, false);

    h = post(metrics_handle, "");
    metric_names(h->out.data, &after);
    assert_string_equal(before.data, after.data);
    assert_contains(h->out.data, "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25\n");
    assert_contains(h->out.data, "tokend:kv_waste_ratio{model_name=\"m\",engine=\"0\"} 0.25\n");
    assert_contains(h->out.data, "finished_reason=\"length\"} 1\n");
    assert_contains(h->out.data, "vllm:inter_token_latency_seconds_count{model_name=\"m\","
                                 "engine=\"0\"} 1\n");
    assert_contains(h->out.data, "vllm:iteration_tokens_total_count{model_name=\"m\","
                                 "engine=\"0\"} 2\n");
    assert_contains(h->out.data, "vllm:iteration_tokens_total_sum{model_name=\"m\","
                                 "engine=\"0\"} 14\n");
    assert_contains(h->out.data, "tokend:computed_tokens_total{model_name=\"m\","
                                 "engine=\"0\"} 14\n");
    end(h, false);
    buf_free(&before);
    buf_free(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_api(only_so_many_sequences_are_taken_at_once),
        with_api(a_request_counts_as_its_prompts_times_n),
        with_api(a_request_that_can_never_fit_is_not_told_to_come_back),
        with_api(bodies_on_the_pool_count_when_they_will_generate),
        with_api(a_refused_or_left_body_gives_its_place_back),
        with_api(a_body_on_the_pool_survives_the_beginning_of_a_drain),
        with_api(health_tells_the_truth),
        with_api(tokenize_and_detokenize_are_inverse),
        with_api(special_tokens_of_a_chat_are_the_templates_unless_asked_for),
        with_api(rendering_gives_the_ids_and_generates_nothing),
        with_api(reasoning_effort_is_a_variable_of_the_template),
        with_api(a_final_message_is_continued_only_instead_of_a_new_one),
        with_api(a_template_is_applied_and_may_refuse),
        with_api(a_fault_of_the_template_is_the_servers_unless_the_request_caused_it),
        with_api(the_model_list_tells_the_serving_limit_three_ways),
        with_api(each_served_name_has_its_entry_and_no_other),
        with_api(texts_longer_than_any_that_fits_are_refused),
        with_api(all_metrics_are_there_from_the_first_scrape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
