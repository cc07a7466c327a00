/* The API between a fake HTTP module and a fake engine: what each reply says, and that every
 * request is let go of exactly once, in whatever order client and engine leave. */
#include "test.h"

#include "api_rig.h"

/* ---- whole replies ---- */

static void of_a_field_given_twice_the_last_counts(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"max_tokens\":\"x\",\"prompt\":\"abcd\",\"max_tokens\":7,"
                                   "\"prompt\":\"abc\"}");
    assert_int_equal(engine.all[0]->n_prompt, 3);
    assert_int_equal(engine.all[0]->params.max_tokens, 7);
    end(h, true);
    end_request(engine.all[0], FINISH_CANCELLED);
}

static void a_whole_completion_has_text_usage_and_reason(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"model\":\"alias\",\"prompt\":\"abc\",\"max_tokens\":3}");
    assert_int_equal(engine.n, 1);
    assert_int_equal(engine.all[0]->n_prompt, 3);
    make_text(engine.all[0], "xy");
    assert_int_equal(h->status, 0);
    make_token(engine.all[0], 0, 'z');
    end_request(engine.all[0], FINISH_LENGTH);
    assert_int_equal(h->status, 200);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "xyz");
    assert_string_equal(finish_of(o), "length");
    assert_int_equal(usage_of(o, "prompt_tokens"), 3);
    assert_int_equal(usage_of(o, "completion_tokens"), 3);
    assert_int_equal(usage_of(o, "total_tokens"), 6);
    assert_string_equal(json_string_value(json_object_get(o, "model")), "m");
    json_t *d = json_object_get(json_object_get(o, "usage"), "prompt_tokens_details");
    assert_true(json_is_integer(json_object_get(d, "cached_tokens")));
    json_decref(o);
    end(h, false);
}

static void a_stop_token_counts_but_is_not_shown(void **state)
{
    struct http_request *h = posted(
        chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"logprobs\":true}");
    struct request *r = engine.all[0];
    assert_int_equal(r->params.max_tokens, 98);
    make_text(r, "ok");
    make_token(r, 0, EOS);
    r->choices[0].stop_id = EOS;
    end_request(r, FINISH_STOP);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, "message"), "ok");
    assert_string_equal(finish_of(o), "stop");
    assert_int_equal(usage_of(o, "completion_tokens"), 3);
    json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    json_t *list = json_object_get(json_object_get(c, "logprobs"), "content");
    assert_int_equal(json_array_size(list), 2);
    json_decref(o);
    end(h, false);
}

static void everything_ends_at_a_stop_string(void **state)
{
    struct http_request *h =
        posted(completions_handle,
               "{\"prompt\":\"p\",\"max_tokens\":20,\"stop\":[\"cd\"],\"logprobs\":2}");
    struct request *r = engine.all[0];
    make_text(r, "abcd");
    assert_int_equal(h->status, 200); /* before the engine has stopped */
    assert_int_equal(engine.stopped, 1);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "ab");
    assert_string_equal(finish_of(o), "stop");
    assert_int_equal(usage_of(o, "completion_tokens"), 4);
    json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    json_t *tokens = json_object_get(json_object_get(c, "logprobs"), "tokens");
    assert_int_equal(json_array_size(tokens), 2);
    json_decref(o);
    end(h, false);
    make_text(r, "efgh");
    end_request(r, FINISH_STOP);
}

static void the_stop_string_is_shown_when_asked(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stop\":\"cd\","
                                   "\"include_stop_str_in_output\":true}");
    make_text(engine.all[0], "abcd");
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "abcd");
    json_decref(o);
    end(h, false);
    end_request(engine.all[0], FINISH_STOP);
}

static void a_stop_string_before_min_tokens_does_not_count(void **state)
{
    struct http_request *h = posted(
        completions_handle, "{\"prompt\":\"p\",\"max_tokens\":4,\"stop\":\"a\",\"min_tokens\":2}");
    make_text(engine.all[0], "aaba");
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "aab");
    json_decref(o);
    end(h, false);
    end_request(engine.all[0], FINISH_LENGTH);
}

static void prompts_and_choices_are_numbered_in_order(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":[[1,2],[3,4,5]],\"n\":2,\"max_tokens\":1}");
    assert_int_equal(engine.n, 2);
    for (int p = 1; p >= 0; p--) {
        make_token(engine.all[p], 0, 'a' + 2 * p);
        make_token(engine.all[p], 1, 'b' + 2 * p);
        end_request(engine.all[p], FINISH_LENGTH);
    }
    json_t *o = reply_of(h), *c;
    size_t i;
    assert_int_equal(usage_of(o, "prompt_tokens"), 5);
    assert_int_equal(usage_of(o, "completion_tokens"), 4);
    json_array_foreach(json_object_get(o, "choices"), i, c)
    {
        char want[2] = {(char)('a' + i), '\0'};
        assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
        assert_string_equal(json_string_value(json_object_get(c, "text")), want);
    }
    assert_int_equal(i, 4);
    json_decref(o);
    end(h, false);
}

static void echo_with_logprobs_lists_the_prompt_first(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"h\xC3\xA9\",\"max_tokens\":1,\"echo\":true,"
                                   "\"logprobs\":0}");
    make_token(engine.all[0], 0, '!');
    end_request(engine.all[0], FINISH_LENGTH);
    json_t *o = reply_of(h);
    assert_string_equal(text_at(o, NULL), "h\xC3\xA9!");
    json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    json_t *l = json_object_get(c, "logprobs");
    json_t *want = json_loads("{\"tokens\":[\"h\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"!\"],"
                              "\"token_logprobs\":[null,0.0,0.0,-0.5],"
                              "\"top_logprobs\":[null,{\"bytes:\\\\xc3\":0.0},"
                              "{\"bytes:\\\\xa9\":0.0},{\"!\":-0.5}],"
                              "\"text_offset\":[0,1,1,2]}",
                              0, NULL);
    assert_non_null(want);
    assert_true(json_equal(l, want));
    json_decref(want);
    json_decref(o);
    end(h, false);
}

static json_t *tokens_of(const json_t *reply, size_t choice)
{
    json_t *c = json_array_get(json_object_get(reply, "choices"), choice);
    return json_object_get(json_object_get(c, "logprobs"), "tokens");
}

static void the_choices_of_a_prompt_share_its_logprobs(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":[\"abc\",\"de\"],\"n\":3,\"max_tokens\":1,"
                                   "\"echo\":true,\"logprobs\":2}");
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < 3; i++)
            make_token(engine.all[p], i, 'x' + i);
        end_request(engine.all[p], FINISH_LENGTH);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    json_t *o = reply_of(h);
    for (int i = 0; i < 6; i++) {
        json_t *tokens = tokens_of(o, (size_t)i);
        size_t n = i < 3 ? 3 : 2;
        char last[2] = {(char)('x' + i % 3), '\0'};
        assert_int_equal(json_array_size(tokens), n + 1);
        assert_string_equal(json_string_value(json_array_get(tokens, 0)), i < 3 ? "a" : "d");
        assert_string_equal(json_string_value(json_array_get(tokens, n)), last);
    }
    json_decref(o);
    end(h, false);
}

static void is_prompt(const char *body, const int32_t *want, int n)
{
    struct http_request *h = posted(completions_handle, body);
    struct request *r = engine.all[engine.n - 1];
    assert_int_equal(r->n_prompt, n);
    assert_memory_equal(r->prompt, want, (size_t)n * sizeof *want);
    end_request(r, FINISH_LENGTH);
    end(h, false);
}

static void what_the_model_wants_around_a_prompt_is_added_once(void **state)
{
    tokenizer = (struct tokenizer){{'G', BOS}, {EOS}, 2, 1};
    is_prompt("{\"prompt\":\"a\",\"max_tokens\":1}", (int32_t[]){'G', BOS, 'a', EOS}, 4);
    is_prompt("{\"prompt\":\"\",\"max_tokens\":1}", (int32_t[]){'G', BOS, EOS}, 3);
    is_prompt("{\"prompt\":\"a\",\"max_tokens\":1,\"add_special_tokens\":false}", (int32_t[]){'a'},
              1);
    tokenizer = (struct tokenizer){{'G', 'S'}, {'E'}, 2, 1};
    is_prompt("{\"prompt\":\"GSa\",\"max_tokens\":1}", (int32_t[]){'G', 'S', 'a', 'E'}, 4);
    is_prompt("{\"prompt\":\"GaE\",\"max_tokens\":1}", (int32_t[]){'G', 'S', 'G', 'a', 'E'}, 5);
    is_prompt("{\"prompt\":[7],\"max_tokens\":1}", (int32_t[]){7}, 1);
    tokenizer = (struct tokenizer){.suffix = {EOS}, .n_suffix = 1};
    is_prompt("{\"prompt\":\"a\",\"max_tokens\":1}", (int32_t[]){'a', EOS}, 2);
}

static void a_large_reply_is_written_by_a_worker(void **state)
{
    for (int gone = 0; gone < 2; gone++) {
        struct http_request *h =
            posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":90,\"logprobs\":2}");
        for (int i = 0; i < 90; i++)
            make_token(engine.all[gone], 0, 'a' + i % 26);
        end_request(engine.all[gone], FINISH_LENGTH);
        assert_int_equal(h->status, 0);
        if (gone)
            end(h, true);
        assert_int_equal(api_n_in_flight(api), 1);
        uv_run(&loop, UV_RUN_DEFAULT);
        if (gone)
            break;
        json_t *o = reply_of(h);
        assert_int_equal(usage_of(o, "completion_tokens"), 90);
        json_decref(o);
        end(h, false);
    }
}

/* ---- streams ---- */

static void a_chat_stream_is_role_text_reason_usage_done(void **state)
{
    struct http_request *h = posted(
        chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
                     "\"max_tokens\":2,\"stream_options\":{\"include_usage\":true}}");
    assert_int_equal(h->status, 200);
    assert_int_equal(h->out.len, 0); /* nothing is said before the first token */
    struct request *r = engine.all[0];
    make_text(r, "a");
    assert_int_equal(n_events(h), 2);
    make_token(r, 0, 'b');
    end_request(r, FINISH_LENGTH);
    assert_int_equal(n_events(h), 5);
    json_t *role = event(h, 0), *first = event(h, 1), *last = event(h, 2), *usage = event(h, 3);
    json_t *delta = json_object_get(json_array_get(json_object_get(role, "choices"), 0), "delta");
    assert_string_equal(json_string_value(json_object_get(delta, "role")), "assistant");
    assert_string_equal(text_at(role, "delta"), "");
    assert_string_equal(text_at(first, "delta"), "a");
    assert_null(finish_of(first));
    assert_string_equal(text_at(last, "delta"), "b");
    assert_string_equal(finish_of(last), "length");
    assert_null(json_object_get(last, "usage"));
    assert_int_equal(json_array_size(json_object_get(usage, "choices")), 0);
    assert_int_equal(usage_of(usage, "completion_tokens"), 2);
    assert_string_equal(h->out.data + h->out.len - 14, "data: [DONE]\n\n");
    assert_true(h->ended);
    json_decref(role);
    json_decref(first);
    json_decref(last);
    json_decref(usage);
    end(h, false);
}

static void no_event_is_sent_for_a_token_without_text(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true,"
                                   "\"stop\":\"end\",\"return_token_ids\":true}");
    struct request *r = engine.all[0];
    make_text(r, "\xC3"); /* half a character */
    assert_int_equal(n_events(h), 0);
    make_text(r, "\xA9");
    assert_int_equal(n_events(h), 1);
    make_text(r, "en"); /* may become the stop string */
    assert_int_equal(n_events(h), 1);
    make_text(r, "x");
    assert_int_equal(n_events(h), 2);
    json_t *one = event(h, 0), *two = event(h, 1);
    assert_string_equal(text_at(one, NULL), "\xC3\xA9");
    assert_string_equal(text_at(two, NULL), "enx");
    json_t *ids = json_object_get(json_array_get(json_object_get(two, "choices"), 0), "token_ids");
    assert_int_equal(json_array_size(ids), 3);
    json_decref(one);
    json_decref(two);
    make_text(r, "end");
    assert_int_equal(n_events(h), 4);
    json_t *last = event(h, 2);
    assert_string_equal(text_at(last, NULL), "");
    assert_string_equal(finish_of(last), "stop");
    json_decref(last);
    end(h, false);
    end_request(r, FINISH_STOP);
}

static void several_tokens_of_one_poll_are_several_events(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true}");
    for (int i = 0; i < 5; i++)
        make_token(engine.all[0], 0, 'a' + i);
    publish(engine.all[0]);
    assert_int_equal(n_events(h), 5);
    end_request(engine.all[0], FINISH_STOP);
    end(h, false);
}

static void line_separators_are_escaped_in_events(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true}");
    make_text(engine.all[0], "\xE2\x80\xA8\xC2\x85\xE2\x80\xA6");
    assert_null(strstr(h->out.data, "\xE2\x80\xA8"));
    assert_null(strstr(h->out.data, "\xC2\x85"));
    json_t *first = event(h, 0), *third = event(h, 2);
    assert_string_equal(text_at(first, NULL), "\xE2\x80\xA8");
    assert_string_equal(text_at(third, NULL), "\xE2\x80\xA6");
    json_decref(first);
    json_decref(third);
    end_request(engine.all[0], FINISH_STOP);
    end(h, false);
}

/* ---- leaving and failing ---- */

static void a_client_that_leaves_cancels_its_request(void **state)
{
    for (int stream = 0; stream < 2; stream++) {
        char body[100];
        snprintf(body, sizeof body, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":%s}",
                 stream ? "true" : "false");
        struct http_request *h = posted(completions_handle, body);
        make_text(engine.all[stream], "ab");
        end(h, true);
        assert_int_equal(engine.cancelled, stream + 1);
        assert_int_equal(api_n_in_flight(api), 1);
        make_text(engine.all[stream], "c");
        end_request(engine.all[stream], FINISH_CANCELLED);
    }
    assert_int_equal(api->metrics.ends[END_ABORT], 2);
}

static void a_client_may_leave_while_its_body_is_parsed(void **state)
{
    struct http_request *h = post(completions_handle, "{\"prompt\":\"p\"}");
    end(h, true);
    assert_int_equal(api_n_in_flight(api), 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(engine.n, 0);
}

static void what_cannot_be_written_is_cancelled(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true}");
    h->left = true;
    make_text(engine.all[0], "ab");
    assert_int_equal(engine.cancelled, 1);
    end(h, true);
    end_request(engine.all[0], FINISH_CANCELLED);
}

static void an_engine_error_is_a_500_or_an_event(void **state)
{
    struct http_request *h = posted(completions_handle, "{\"prompt\":[\"p\",\"q\"]}");
    err_set(&engine.all[0]->error, ERR_DEVICE, "numerical_error");
    end_request(engine.all[0], FINISH_ERROR);
    assert_int_equal(engine.cancelled, 1); /* the other prompt */
    end_request(engine.all[1], FINISH_CANCELLED);
    assert_error(h, 500, "numerical_error");

    h = posted(completions_handle, "{\"prompt\":\"p\",\"stream\":true}");
    make_text(engine.all[2], "ab");
    err_set(&engine.all[2]->error, ERR_DEVICE, "the device is gone");
    end_request(engine.all[2], FINISH_ERROR);
    json_t *o = event(h, 2);
    assert_non_null(json_object_get(o, "error"));
    json_decref(o);
    assert_null(event(h, 3));
    assert_true(h->ended);
    end(h, false);
}

static void what_can_never_run_is_refused(void **state)
{
    char body[2000] = "{\"max_tokens\":4,\"prompt\":[1";
    for (int i = 0; i < 100; i++)
        strcat(body, ",1");
    strcat(body, "]}");
    struct http_request *h = posted(completions_handle, body);
    json_t *o = reply_of(h), *e = json_object_get(o, "error");
    assert_int_equal(json_integer_value(json_object_get(e, "n_prompt_tokens")), 101);
    assert_int_equal(json_integer_value(json_object_get(e, "n_ctx")), 100);
    assert_contains(json_string_value(json_object_get(e, "message")),
                    "This model's maximum context length is 100 tokens. However,");
    json_decref(o);
    assert_error(h, 400, "context_length_exceeded");
    assert_error(posted(completions_handle, "{\"prompt\":\"X\"}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":[]}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":\"\"}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":[1,300]}"), 400, "invalid_value");
    assert_error(posted(completions_handle, "{\"prompt\":[1,\"a\"]}"), 400, "invalid_type");
    assert_error(posted(completions_handle, "{}"), 400, "missing_field");
    assert_error(posted(completions_handle, "{\"model\":\"gpt\"}"), 404, "model_not_found");
    assert_error(posted(chat_handle, "{\"model\":\"\"}"), 404, "model_not_found");
    assert_error(
        posted(chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"raise a line\"}]}"),
        400, "invalid_value");
    assert_error(posted(chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":\"raise\"}]}"),
                 400, "invalid_value");
}

/* The fake http_reply_error checks it of every reply. */
static void a_503_comes_with_retry_after(void **state)
{
    assert_error(posted(completions_handle, "{\"prompt\":\"D\"}"), 503, "engine_dead");
    struct http_request *h = posted(completions_handle, "{\"prompt\":\"p\"}");
    end_request(engine.all[0], FINISH_CANCELLED);
    assert_error(h, 503, "draining");
    h = posted(completions_handle, "{\"prompt\":\"p\"}");
    err_set(&engine.all[1]->error, ERR_MEMORY, "no pages");
    end_request(engine.all[1], FINISH_ERROR);
    assert_error(h, 503, "out_of_memory");
    api->closing = true;
    assert_error(posted(completions_handle, "{\"prompt\":\"p\"}"), 503, "draining");
}

static void abort_ends_all_with_an_error(void **state)
{
    struct http_request *a = posted(completions_handle, "{\"prompt\":\"p\",\"stream\":true}");
    struct http_request *b = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *c = post(completions_handle, "{\"prompt\":\"p\"}");
    api_abort_all(api, "draining", "the time is up");
    assert_int_equal(engine.cancelled, 2);
    assert_true(a->ended);
    assert_contains(a->out.data, "the time is up");
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_error(b, 503, "draining");
    assert_error(c, 503, "draining");
    end(a, false);
    for (int i = 0; i < 2; i++) { /* as engine_close leaves them */
        atomic_store(&engine.all[i]->choices[0].finish, FINISH_CANCELLED);
        atomic_store(&engine.all[i]->ended, true);
    }
    api_engine_closed(api);
}

static void seeds_differ_from_request_to_request(void **state)
{
    struct http_request *a = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *b = posted(completions_handle, "{\"prompt\":\"p\"}");
    struct http_request *c = posted(completions_handle, "{\"prompt\":\"p\",\"seed\":-1}");
    assert_true(engine.all[0]->params.seed != engine.all[1]->params.seed);
    assert_true(engine.all[2]->params.seed == UINT64_MAX);
    for (int i = 0; i < 3; i++)
        end_request(engine.all[i], FINISH_LENGTH);
    end(a, false);
    end(b, false);
    end(c, false);
}

static void each_prompt_of_a_list_has_its_own_seed(void **state)
{
    struct http_request *fresh = posted(completions_handle, "{\"prompt\":[\"a\",\"a\",\"a\"]}");
    struct http_request *list =
        posted(completions_handle, "{\"prompt\":[\"a\",\"a\",\"a\"],\"seed\":7}");
    struct http_request *again =
        posted(completions_handle, "{\"prompt\":[\"b\",\"a\"],\"seed\":7}");
    assert_int_equal(engine.n, 8);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < i; k++)
            assert_true(engine.all[i]->params.seed != engine.all[k]->params.seed);
    assert_true(engine.all[3]->params.seed == 7); /* as alone */
    for (int i = 0; i < 2; i++)
        assert_true(engine.all[3 + i]->params.seed == engine.all[6 + i]->params.seed);
    for (int i = 0; i < 8; i++)
        end_request(engine.all[i], FINISH_LENGTH);
    end(fresh, false);
    end(list, false);
    end(again, false);
}

/* {"prompt":[n_prompts strings of n letters], fields} */
static struct http_request *post_prompts(int n_prompts, int n, const char *fields)
{
    struct buf body = {0};
    buf_add_str(&body, "{\"prompt\":[");
    for (int i = 0; i < n_prompts; i++)
        buf_addf(&body, "%s\"%0*d\"", i ? "," : "", n, 1);
    buf_addf(&body, "],%s}", fields);
    struct http_request *h = posted(completions_handle, body.data);
    buf_free(&body);
    return h;
}

static void a_small_request_for_a_huge_reply_is_refused_with_what_would_fit(void **state)
{
    static const char *const much = "\"n\":128,\"max_tokens\":1,\"echo\":true,\"logprobs\":20";
    struct http_request *h = post_prompts(8, 99, much);
    assert_contains(h->out.data, "n = 117 would fit");
    assert_contains(h->out.data, "logprobs = 18 would fit");
    assert_error(h, 400, "invalid_value");
    api->model.max_model_len = 100000;
    api->max_queue_len = 2000;
    assert_error(post_prompts(8, 10000, "\"n\":128,\"return_token_ids\":true"), 400,
                 "invalid_value");
    assert_error(post_prompts(8, 70000, "\"n\":128,\"echo\":true"), 400, "invalid_value");
    assert_error(post_prompts(1, 99999,
                              "\"max_tokens\":1,\"echo\":true,\"logprobs\":20,"
                              "\"stream\":true"),
                 400, "invalid_value");
    assert_int_equal(engine.n, 0);
}

static void a_reply_that_just_fits_is_made(void **state)
{
    api->max_queue_len = 8 * 117;
    struct http_request *h =
        post_prompts(8, 99, "\"n\":117,\"max_tokens\":1,\"echo\":true,\"logprobs\":20");
    assert_int_equal(engine.n, 8);
    end(h, true);
    for (int i = 0; i < 8; i++)
        end_request(engine.all[i], FINISH_CANCELLED);
}

static void the_json_of_one_answer_is_bounded_before_it_is_text(void **state)
{
    static const char *const scored =
        "\"max_tokens\":%d,\"echo\":true,\"logprobs\":20,\"stream\":%s";
    char fields[100];
    api->model.max_model_len = 100000;
    for (int stream = 0; stream < 2; stream++) {
        snprintf(fields, sizeof fields, scored, 1, stream ? "true" : "false");
        struct http_request *h = post_prompts(1, 50000, fields);
        assert_contains(h->out.data, "take, while one answer is written, 150 MB, 128 are the most");
        assert_contains(h->out.data, "logprobs = 16 would fit");
        assert_error(h, 400, "invalid_value");
        h = post_prompts(1, 40000, fields);
        assert_int_equal(engine.n, stream + 1);
        end(h, true);
        end_request(engine.all[stream], FINISH_CANCELLED);
    }
}

static void an_answer_with_logprobs_ends_where_its_reply_would_be_too_large(void **state)
{
    api->model.max_model_len = 200000;
    struct http_request *h = posted(chat_handle, "{\"messages\":[{\"role\":\"user\",\"content\":"
                                                 "\"hi\"}],\"logprobs\":true,\"top_logprobs\":20}");
    assert_int_equal(engine.n, 1);
    assert_in_range(engine.all[0]->params.max_tokens, 6500, 7500); /* 128 MB of JSON, unwritten */
    end_request(engine.all[0], FINISH_LENGTH);
    end(h, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_api(of_a_field_given_twice_the_last_counts),
        with_api(a_whole_completion_has_text_usage_and_reason),
        with_api(a_stop_token_counts_but_is_not_shown),
        with_api(everything_ends_at_a_stop_string),
        with_api(the_stop_string_is_shown_when_asked),
        with_api(a_stop_string_before_min_tokens_does_not_count),
        with_api(prompts_and_choices_are_numbered_in_order),
        with_api(echo_with_logprobs_lists_the_prompt_first),
        with_api(the_choices_of_a_prompt_share_its_logprobs),
        with_api(what_the_model_wants_around_a_prompt_is_added_once),
        with_api(a_large_reply_is_written_by_a_worker),
        with_api(a_chat_stream_is_role_text_reason_usage_done),
        with_api(no_event_is_sent_for_a_token_without_text),
        with_api(several_tokens_of_one_poll_are_several_events),
        with_api(line_separators_are_escaped_in_events),
        with_api(a_client_that_leaves_cancels_its_request),
        with_api(a_client_may_leave_while_its_body_is_parsed),
        with_api(what_cannot_be_written_is_cancelled),
        with_api(an_engine_error_is_a_500_or_an_event),
        with_api(what_can_never_run_is_refused),
        with_api(a_503_comes_with_retry_after),
        with_api(abort_ends_all_with_an_error),
        with_api(seeds_differ_from_request_to_request),
        with_api(each_prompt_of_a_list_has_its_own_seed),
        with_api(a_small_request_for_a_huge_reply_is_refused_with_what_would_fit),
        with_api(a_reply_that_just_fits_is_made),
        with_api(the_json_of_one_answer_is_bounded_before_it_is_text),
        with_api(an_answer_with_logprobs_ends_where_its_reply_would_be_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
