/* Streams whose reader is behind, events too large for the loop, and streams without memory. */
#include "test.h"

#include "api_rig.h"

/* ---- readers that are behind, and large events ---- */

static void room(struct http_request *h)
{
    h->full = false;
    h->on_room(h, h->user);
}

/* The text of all events of a choice. */
static void streamed_text(const struct http_request *h, int choice, struct buf *out)
{
    json_t *o;
    buf_clear(out);
    buf_add_str(out, "");
    for (int i = 0; (o = event(h, i)); i++) {
        const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
        if (c && json_integer_value(json_object_get(c, "index")) == choice)
            buf_add_str(out, text_at(o, NULL));
        json_decref(o);
    }
}

static uint64_t n_counted(const struct histogram *h)
{
    uint64_t n = 0;
    for (int i = 0; i <= h->n; i++)
        n += h->counts[i];
    return n;
}

static void nothing_is_made_for_a_reader_that_is_behind(void **state)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true,\"n\":2}");
    struct request *r = engine.all[0];
    make_text(r, "ab");
    assert_int_equal(n_events(h), 2);
    h->full = true;
    for (int i = 0; i < 3; i++)
        make_token(r, 1, 'x' + i);
    make_text(r, "cd");
    assert_int_equal(n_events(h), 2);
    room(h);
    assert_int_equal(n_events(h), 7);
    h->full = true;
    make_text(r, "e");
    end_request(r, FINISH_LENGTH); /* the engine has let go of it; its tokens are still there */
    assert_int_equal(n_events(h), 7);
    assert_false(h->ended);
    room(h);
    struct buf text = {0};
    streamed_text(h, 0, &text);
    assert_string_equal(text.data, "abcde");
    streamed_text(h, 1, &text);
    assert_string_equal(text.data, "xyz");
    buf_free(&text);
    assert_true(h->ended);
    json_t *last = event(h, 8);
    assert_string_equal(finish_of(last), "length");
    json_decref(last);
    assert_int_equal(n_counted(&api->metrics.ttft), 1);
    assert_int_equal(n_counted(&api->metrics.itl), 6); /* steps, though the reader waited */
    end(h, false);
}

static void a_reader_that_is_behind_may_leave_or_get_an_error(void **state)
{
    for (int gone = 0; gone < 2; gone++) {
        struct http_request *h =
            posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":20,\"stream\":true}");
        h->full = true;
        make_text(engine.all[gone], "ab");
        if (gone)
            end(h, true);
        end_request(engine.all[gone], gone ? FINISH_CANCELLED : FINISH_ERROR);
        if (gone)
            return;
        json_t *o = event(h, 0);
        assert_non_null(json_object_get(o, "error"));
        json_decref(o);
        assert_true(h->ended);
        end(h, false);
    }
}

static const char long_echo[] =
    "{\"prompt\":\"it was the best of times, it was the worst of times\",\"max_tokens\":20,"
    "\"stream\":true,\"echo\":true,\"logprobs\":5}";

static void a_large_first_event_is_written_by_a_worker(void **state)
{
    struct http_request *h = posted(completions_handle, long_echo);
    struct request *r = engine.all[0];
    make_text(r, "ab");
    assert_int_equal(h->out.len, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_events(h), 2);
    make_token(r, 0, 'c');
    end_request(r, FINISH_LENGTH);
    uv_run(&loop, UV_RUN_DEFAULT);
    struct buf text = {0};
    streamed_text(h, 0, &text);
    assert_string_equal(text.data, "it was the best of times, it was the worst of timesabc");
    buf_free(&text);
    assert_true(h->ended);
    end(h, false);
}

static void a_worker_may_write_for_a_client_that_leaves_or_a_request_that_fails(void **state)
{
    for (int gone = 0; gone < 2; gone++) {
        struct http_request *h = posted(completions_handle, long_echo);
        make_text(engine.all[gone], "ab");
        if (gone)
            end(h, true);
        end_request(engine.all[gone], gone ? FINISH_CANCELLED : FINISH_ERROR);
        assert_int_equal(api_n_in_flight(api), 1);
        uv_run(&loop, UV_RUN_DEFAULT);
        if (gone)
            return;
        json_t *o = event(h, 0);
        assert_non_null(json_object_get(o, "error"));
        json_decref(o);
        assert_int_equal(n_events(h), 2);
        end(h, false);
        assert_int_equal(api_n_in_flight(api), 0);
    }
}

static void one_turn_of_the_loop_writes_only_so_much(void **state)
{
    struct http_request *h = posted(
        completions_handle, "{\"prompt\":\"how much wood would a woodchuck\",\"max_tokens\":1,"
                            "\"stream\":true,\"echo\":true,\"logprobs\":4,\"n\":30}");
    struct request *r = engine.all[0];
    for (int i = 0; i < 30; i++)
        make_token(r, i, 'a' + i % 26);
    end_request(r, FINISH_LENGTH);
    assert_in_range(n_events(h), 2, 10);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_events(h), 31);
    struct buf text = {0};
    streamed_text(h, 27, &text);
    assert_string_equal(text.data, "how much wood would a woodchuckb");
    buf_free(&text);
    assert_true(h->ended);
    end(h, false);
}

static void large_whole_replies_of_text_and_ids_are_a_workers(void **state)
{
    static const char *const ask[] = {"\"echo\":true", "\"return_token_ids\":true"};
    for (int k = 0; k < 2; k++) {
        struct buf body = {0};
        buf_addf(&body, "{\"max_tokens\":1,\"n\":16,%s,\"prompt\":\"", ask[k]);
        for (int i = 0; i < 3000; i++)
            buf_add_str(&body, "x");
        buf_add_str(&body, "\"}");
        api->model.max_model_len = 4000;
        struct http_request *h = posted(completions_handle, body.data);
        buf_free(&body);
        for (int i = 0; i < 16; i++)
            make_token(engine.all[k], i, 'a');
        end_request(engine.all[k], FINISH_LENGTH);
        assert_int_equal(h->status, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(h->status, 200);
        json_t *o = reply_of(h);
        assert_int_equal(json_array_size(json_object_get(o, "choices")), 16);
        json_decref(o);
        end(h, false);
    }
}

/* ---- without memory ---- */

static struct {
    int left; /* allocations until one fails; negative: none does */
    bool all; /* and all after it */
} memory;

static void *allocate(size_t n)
{
    if (memory.left == 0) {
        memory.left = memory.all ? 0 : -1;
        return NULL;
    }
    memory.left -= memory.left > 0;
    return malloc(n);
}

/* One stream whose n-th allocation of JSON fails. True: all were there. */
static bool stream_without_memory(int n, bool all)
{
    struct http_request *h =
        posted(completions_handle, "{\"prompt\":\"p\",\"max_tokens\":2,\"stream\":true,"
                                   "\"logprobs\":1,\"return_token_ids\":true,\"echo\":true,"
                                   "\"stream_options\":{\"include_usage\":true}}");
    struct request *r = engine.all[engine.n - 1];
    memory.left = n;
    memory.all = all;
    make_text(r, "a");
    make_token(r, 0, 'b');
    end_request(r, FINISH_LENGTH);
    bool spared = memory.left > 0;
    memory.left = -1;
    bool error = h->out.len && strstr(h->out.data, "\"error\"");
    if (!error && !h->aborted) {
        assert_int_equal(n_events(h), 4);
        assert_contains(h->out.data, "\"text\":\"pa\"");
        assert_contains(h->out.data, "\"prompt_token_ids\":[112]");
        assert_contains(h->out.data, "\"token_ids\":[97]");
        assert_contains(h->out.data, "\"tokens\":[\"p\",\"a\"]");
        assert_contains(h->out.data, "\"usage\":{\"prompt_tokens\":1");
    }
    assert_true(h->ended || h->aborted);
    end(h, false);
    engine.n = 0;
    return spared;
}

static void without_memory_no_stream_looks_whole(void **state)
{
    json_malloc_t malloc_before;
    json_free_t free_before;
    json_get_alloc_funcs(&malloc_before, &free_before);
    memory.left = -1;
    json_set_alloc_funcs(allocate, free);
    for (int all = 0; all < 2; all++)
        for (int n = 0; !stream_without_memory(n, all); n++)
            assert_true(n < 2000);
    json_set_alloc_funcs(malloc_before, free_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_api(nothing_is_made_for_a_reader_that_is_behind),
        with_api(a_reader_that_is_behind_may_leave_or_get_an_error),
        with_api(a_large_first_event_is_written_by_a_worker),
        with_api(a_worker_may_write_for_a_client_that_leaves_or_a_request_that_fails),
        with_api(one_turn_of_the_loop_writes_only_so_much),
        with_api(large_whole_replies_of_text_and_ids_are_a_workers),
        with_api(without_memory_no_stream_looks_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
