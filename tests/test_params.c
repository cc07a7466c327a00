#include "json_in.h"
#include "messages.h"
#include "params.h"
#include "params_fields.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

static struct params_limits limits = {.n_vocab = 1000};

/* Reads a body; on success the params are the caller's, else *e is filled. */
static bool read_body(const char *text, bool chat, struct gen_params *p, struct api_error *e)
{
    *p = (struct gen_params){0};
    *e = (struct api_error){0};
    json_t *body = json_in_read_object(text, strlen(text), e);
    bool ok = body && gen_params_read(body, chat, &limits, p, e);
    json_decref(body);
    return ok;
}

static void assert_refused(const char *text, bool chat, const char *param, const char *code)
{
    struct gen_params p;
    struct api_error e;
    if (read_body(text, chat, &p, &e))
        fail_msg("accepted: %s", text);
    assert_int_equal(e.status, 400);
    if (strcmp(e.param, param) != 0 || !e.code || strcmp(e.code, code) != 0)
        fail_msg("%s: param %s code %s: %s", text, e.param, e.code ? e.code : "-", e.msg);
    gen_params_free(&p);
}

static void defaults_are_openais(void **state)
{
    struct gen_params p;
    struct api_error e;
    assert_true(read_body("{}", true, &p, &e));
    assert_float_equal(p.sampling.temperature, 1, 0);
    assert_float_equal(p.sampling.repetition_penalty, 1, 0);
    assert_int_equal(p.max_tokens, -1);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.sampling.n_logprobs, -1);
    assert_false(p.has_seed);
    gen_params_free(&p);
    assert_true(read_body("{}", false, &p, &e));
    assert_int_equal(p.max_tokens, 16);
    assert_true(p.add_special_tokens);
    gen_params_free(&p);
}

static void a_models_own_defaults_stand_where_a_client_says_nothing(void **state)
{
    const struct generation_defaults own = {.has_temperature = true,
                                            .temperature = 0.6,
                                            .has_top_p = true,
                                            .top_p = 0.9,
                                            .has_top_k = true,
                                            .top_k = 20,
                                            .has_repetition_penalty = true,
                                            .repetition_penalty = 1.05};
    const struct params_limits with = {.n_vocab = 1000, .defaults = &own};
    struct gen_params p = {0};
    struct api_error e = {0};
    json_t *body = json_pack("{s:i, s:f}", "top_k", 5, "temperature", 0.0);
    assert_true(gen_params_read(body, true, &with, &p, &e));
    assert_float_equal(p.sampling.temperature, 0, 0);
    assert_int_equal(p.sampling.top_k, 5);
    assert_float_equal(p.sampling.top_p, 0.9, 1e-6);
    assert_float_equal(p.sampling.repetition_penalty, 1.05, 1e-6);
    assert_float_equal(p.sampling.min_p, 0, 0);
    gen_params_free(&p);
    json_object_clear(body);
    assert_true(gen_params_read(body, true, &with, &p, &e));
    assert_float_equal(p.sampling.temperature, 0.6, 1e-6);
    assert_int_equal(p.sampling.top_k, 20);
    gen_params_free(&p);
    json_decref(body);
}

static void null_counts_as_absent_and_unknown_fields_are_ignored(void **state)
{
    struct gen_params p;
    struct api_error e;
    assert_true(read_body("{\"max_tokens\":null,\"stop\":null,\"temperature\":null,\"seed\":null,"
                          "\"stream_options\":null,\"logit_bias\":null,\"tools\":null,"
                          "\"user\":\"u\",\"store\":true,\"metadata\":{},\"wild\":[1]}",
                          true, &p, &e));
    assert_int_equal(p.max_tokens, -1);
    assert_int_equal(p.stops.n, 0);
    gen_params_free(&p);
}

static void of_both_token_limits_the_smaller_wins(void **state)
{
    struct gen_params p;
    struct api_error e;
    assert_true(read_body("{\"max_tokens\":50,\"max_completion_tokens\":5}", true, &p, &e));
    assert_int_equal(p.max_tokens, 5);
    gen_params_free(&p);
    assert_true(read_body("{\"max_tokens\":3,\"max_completion_tokens\":5}", false, &p, &e));
    assert_int_equal(p.max_tokens, 3);
    gen_params_free(&p);
}

static void max_tokens_zero_is_for_echoed_prompts_only(void **state)
{
    struct gen_params p;
    struct api_error e;
    assert_refused("{\"max_tokens\":0}", true, "max_tokens", "invalid_value");
    assert_refused("{\"max_tokens\":0}", false, "max_tokens", "invalid_value");
    assert_true(read_body("{\"max_tokens\":0,\"echo\":true,\"logprobs\":2}", false, &p, &e));
    assert_int_equal(p.max_tokens, 0);
    assert_int_equal(p.sampling.n_prompt_logprobs, 2);
    gen_params_free(&p);
}

static void wrong_values_name_their_field(void **state)
{
    static const struct {
        const char *body, *param, *code;
    } cases[] = {
        {"{\"temperature\":2.1}", "temperature", "invalid_value"},
        {"{\"temperature\":\"hot\"}", "temperature", "invalid_type"},
        {"{\"temperature\":1e400}", "temperature", "invalid_value"},
        {"{\"seed\":99999999999999999999}", "seed", "invalid_value"},
        {"{\"logit_bias\":{\"5\":1e999}}", "logit_bias.5", "invalid_value"},
        {"{\"top_p\":-0.1}", "top_p", "invalid_value"},
        {"{\"top_k\":-2}", "top_k", "invalid_value"},
        {"{\"top_k\":1.5}", "top_k", "invalid_value"},
        {"{\"min_p\":2}", "min_p", "invalid_value"},
        {"{\"presence_penalty\":3}", "presence_penalty", "invalid_value"},
        {"{\"repetition_penalty\":0}", "repetition_penalty", "invalid_value"},
        {"{\"n\":0}", "n", "invalid_value"},
        {"{\"n\":true}", "n", "invalid_type"},
        {"{\"stop\":5}", "stop", "invalid_type"},
        {"{\"stop\":[\"a\",null]}", "stop", "invalid_type"},
        {"{\"stop_token_ids\":[1000]}", "stop_token_ids", "invalid_value"},
        {"{\"stop_token_ids\":[-5]}", "stop_token_ids", "invalid_value"},
        {"{\"logit_bias\":{\"1000\":5}}", "logit_bias.1000", "invalid_value"},
        {"{\"logit_bias\":{\"-1\":5}}", "logit_bias.-1", "invalid_value"},
        {"{\"logit_bias\":{\"abc\":1}}", "logit_bias.abc", "invalid_value"},
        {"{\"logit_bias\":{\"1\":101}}", "logit_bias.1", "invalid_value"},
        {"{\"stream\":\"yes\"}", "stream", "invalid_type"},
        {"{\"stream_options\":[]}", "stream_options", "invalid_type"},
        {"{\"stream_options\":{\"include_usage\":1}}", "stream_options.include_usage",
         "invalid_type"},
        {"{\"min_tokens\":20,\"max_tokens\":10}", "min_tokens", "invalid_value"},
        {"{\"n_predict\":5}", "n_predict", "unsupported_parameter"},
        {"{\"repeat_penalty\":1.1}", "repeat_penalty", "unsupported_parameter"},
        {"{\"typical_p\":\"x\"}", "typical_p", "unsupported_parameter"},
        {"{\"best_of\":3,\"n\":4}", "best_of", "invalid_value"},
        {"{\"best_of\":3,\"stream\":true}", "best_of", "invalid_value"},
        {"{\"priority\":\"high\"}", "priority", "invalid_type"},
        {"{\"response_format\":{\"type\":\"json_object\"}}", "response_format",
         "unsupported_parameter"},
        {"{\"response_format\":7}", "response_format", "unsupported_parameter"},
        {"{\"tools\":[{}]}", "tools", "unsupported_parameter"},
        {"{\"functions\":[{}]}", "functions", "unsupported_parameter"},
        {"{\"functions\":{}}", "functions", "invalid_type"},
        {"{\"function_call\":{\"name\":\"f\"}}", "function_call", "unsupported_parameter"},
        {"{\"tool_choice\":\"required\"}", "tool_choice", "unsupported_parameter"},
        {"{\"modalities\":[\"text\",\"audio\"]}", "modalities", "unsupported_parameter"},
        {"{\"modalities\":\"text\"}", "modalities", "invalid_type"},
        {"{\"guided_json\":{\"a\":1}}", "guided_json", "unsupported_parameter"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_refused(cases[i].body, true, cases[i].param, cases[i].code);
        assert_refused(cases[i].body, false, cases[i].param, cases[i].code);
    }
    assert_refused("{\"logprobs\":21}", false, "logprobs", "invalid_value");
    assert_refused("{\"logprobs\":3}", true, "logprobs", "invalid_type");
    assert_refused("{\"top_logprobs\":3}", true, "top_logprobs", "invalid_value");
    assert_refused("{\"logprobs\":true,\"top_logprobs\":21}", true, "top_logprobs",
                   "invalid_value");
}

static void what_would_change_the_answer_and_is_not_done_is_refused(void **state)
{
    static const char *const bodies[][2] = {
        {"{\"bad_words\":[\"a\"]}", "bad_words"},
        {"{\"allowed_token_ids\":[1]}", "allowed_token_ids"},
        {"{\"logits_processors\":[\"x\"]}", "logits_processors"},
        {"{\"thinking_token_budget\":5}", "thinking_token_budget"},
        {"{\"structured_outputs\":{\"regex\":\"a\"}}", "structured_outputs"},
        {"{\"regex\":\"a+\"}", "regex"},
        {"{\"documents\":[{}]}", "documents"},
        {"{\"mirostat\":2}", "mirostat"},
        {"{\"suffix\":\"z\"}", "suffix"},
    };
    struct gen_params p;
    struct api_error e;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        for (int chat = 0; chat < 2; chat++)
            assert_refused(bodies[i][0], chat, bodies[i][1], "unsupported_parameter");
    assert_true(read_body("{\"bad_words\":[],\"mirostat\":0,\"regex\":null,\"documents\":[],"
                          "\"suffix\":\"\",\"use_beam_search\":false,\"modalities\":[\"text\"],"
                          "\"functions\":[{}],\"function_call\":\"none\"}",
                          false, &p, &e));
    gen_params_free(&p);
}

static void assert_unknown(const char *text, const char *names)
{
    char out[24];
    json_t *body = json_loads(text, 0, NULL);
    params_unknown(body, out, sizeof out);
    assert_string_equal(out, names);
    json_decref(body);
}

static void fields_that_nobody_knows_are_named(void **state)
{
    assert_unknown("{\"max_tokens\":1,\"user\":\"u\",\"bad_words\":[],\"service_tier\":\"auto\"}",
                   "");
    assert_unknown("{\"max_token\":1,\"model\":\"m\",\"top-p\":1}", "max_token, top-p");
    assert_unknown("{\"aaaaaaaaaa\":1,\"bbbbbbbbbbbbbbbbb\":1}", "aaaaaaaaaa, bbbbbbbbbbb");
}

static uint64_t salt_of(const char *text)
{
    struct gen_params p;
    struct api_error e;
    assert_true(read_body(text, true, &p, &e));
    uint64_t salt = p.cache_salt;
    gen_params_free(&p);
    return salt;
}

static void equal_cache_salts_and_no_others_are_equal(void **state)
{
    assert_int_equal(salt_of("{}"), 0);
    assert_int_equal(salt_of("{\"cache_salt\":null}"), 0);
    assert_int_not_equal(salt_of("{\"cache_salt\":\"a\"}"), 0);
    assert_int_equal(salt_of("{\"cache_salt\":\"a\"}"), salt_of("{\"cache_salt\":\"a\"}"));
    assert_int_not_equal(salt_of("{\"cache_salt\":\"a\"}"), salt_of("{\"cache_salt\":\"b\"}"));
    assert_int_not_equal(salt_of("{\"cache_salt\":\"a\"}"),
                         salt_of("{\"cache_salt\":\"a\\u0000b\"}"));
    assert_refused("{\"cache_salt\":\"\"}", true, "cache_salt", "invalid_value");
    assert_refused("{\"cache_salt\":7}", false, "cache_salt", "invalid_type");
    char longest[64 + CACHE_SALT_MAX_BYTES + 1];
    snprintf(longest, sizeof longest, "{\"cache_salt\":\"%0*d\"}", CACHE_SALT_MAX_BYTES, 0);
    assert_int_not_equal(salt_of(longest), 0);
    snprintf(longest, sizeof longest, "{\"cache_salt\":\"%0*d\"}", CACHE_SALT_MAX_BYTES + 1, 0);
    assert_refused(longest, true, "cache_salt", "invalid_value");
}

/* Memory is bounded, and still no two salts ever have one number. */
static void a_salt_that_was_forgotten_gets_a_new_number(void **state)
{
    struct cache_salts *s = cache_salts_new();
    const uint64_t kept = cache_salts_number(s, "kept", 4), first = cache_salts_number(s, "0", 1);
    uint64_t last = first;
    for (int i = 1; i < 2 * CACHE_SALTS_MAX; i++) {
        char text[16];
        const size_t n = (size_t)snprintf(text, sizeof text, "%d", i);
        const uint64_t number = cache_salts_number(s, text, n);
        assert_true(number > last);
        assert_int_equal(cache_salts_number(s, text, n), number);
        assert_int_equal(cache_salts_number(s, "kept", 4), kept);
        last = number;
    }
    assert_true(cache_salts_number(s, "0", 1) > last);
    cache_salts_free(s);
}

static void stops_take_a_string_or_strings_and_ignore_empty_ones(void **state)
{
    struct gen_params p;
    struct api_error e;
    assert_true(read_body("{\"stop\":\"\"}", true, &p, &e));
    assert_int_equal(p.stops.n, 0);
    gen_params_free(&p);
    assert_true(read_body("{\"stop\":[\"\",\"ab\",\"c\\u0000d\"]}", true, &p, &e));
    assert_int_equal(p.stops.n, 2);
    assert_int_equal(p.stops.strings[1].len, 3);
    gen_params_free(&p);
}

static void biases_are_sorted_by_id(void **state)
{
    struct gen_params p;
    struct api_error e;
    assert_true(read_body("{\"logit_bias\":{\"30\":1,\"4\":-100,\"999\":2.5}}", true, &p, &e));
    assert_int_equal(p.sampling.n_bias, 3);
    assert_int_equal(p.sampling.bias[0].id, 4);
    assert_int_equal(p.sampling.bias[2].id, 999);
    assert_float_equal(p.sampling.bias[2].bias, 2.5, 0);
    gen_params_free(&p);
}

static void top_p_zero_means_the_best_token(void **state)
{
    struct gen_params p;
    struct api_error e;
    assert_true(read_body("{\"top_p\":0,\"top_k\":40}", true, &p, &e));
    assert_int_equal(p.sampling.top_k, 1);
    assert_float_equal(p.sampling.top_p, 1, 0);
    gen_params_free(&p);
}

static void broken_json_is_refused_with_its_place(void **state)
{
    struct api_error e = {0};
    assert_null(json_in_read_object("{\"a\":\xff\xfe}", 8, &e));
    assert_contains(e.msg, "offset 5");
    assert_string_equal(e.code, "invalid_json");
    assert_null(json_in_read_object("[1]", 3, &e));
    assert_contains(e.msg, "must be a JSON object");
    assert_null(json_in_read_object("", 0, &e));
    assert_int_equal(e.status, 400);
    assert_null(json_in_read_object("{\"a\":\"\\ud83d\"}", 14, &e));
    assert_int_equal(e.status, 400);
    assert_null(json_in_read_object("{\"a\":1} x", 9, &e));
    assert_int_equal(e.status, 400);
}

static void nesting_is_refused_before_it_is_parsed(void **state)
{
    enum { N = 3000000 };
    char *text = malloc(N);
    struct api_error e = {0};
    memset(text, '[', N);
    assert_null(json_in_read(text, N, &e));
    assert_contains(e.msg, "deeper than 128");
    free(text);
    char ok[2 * 128 + 1];
    memset(ok, '[', 128);
    memset(ok + 128, ']', 128);
    json_t *v = json_in_read(ok, 256, &e);
    assert_non_null(v);
    json_decref(v);
    /* Brackets in strings are text. */
    v = json_in_read("[\"\\\"[[[\"]", 9, &e);
    assert_non_null(v);
    json_decref(v);
}

static void too_many_containers_are_refused(void **state)
{
    size_t n = 3 * (JSON_IN_MAX_CONTAINERS + 10);
    char *text = malloc(n + 2);
    struct api_error e = {0};
    text[0] = '[';
    for (size_t i = 0; i < n; i += 3)
        memcpy(text + 1 + i, "[],", 3);
    text[n] = ']';
    assert_null(json_in_read(text, n + 1, &e));
    assert_contains(e.msg, "at most");
    free(text);
}

static void a_nul_is_part_of_the_text(void **state)
{
    struct api_error e = {0};
    json_t *v = json_in_read_object("{\"a\":\"x\\u0000y\"}", 16, &e);
    assert_non_null(v);
    assert_int_equal(json_string_length(json_object_get(v, "a")), 3);
    json_decref(v);
}

static json_t *messages(const char *text, struct api_error *e)
{
    *e = (struct api_error){0};
    json_t *in = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(in);
    json_t *out = messages_normalise(in, e);
    json_decref(in);
    return out;
}

static void assert_messages(const char *in, const char *want)
{
    struct api_error e;
    json_t *got = messages(in, &e), *expected = json_loads(want, 0, NULL);
    if (!got)
        fail_msg("refused: %s", e.msg);
    char *text = json_dumps(got, JSON_COMPACT);
    if (!json_equal(got, expected))
        fail_msg("got %s, want %s", text, want);
    free(text);
    json_decref(got);
    json_decref(expected);
}

static void messages_are_brought_into_one_form(void **state)
{
    assert_messages("[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"Hello \"},"
                    "{\"type\":\"text\",\"text\":\"world\"}]}]",
                    "[{\"role\":\"system\",\"content\":\"Hello world\"}]");
    const char *calls = "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":"
                        "{\"name\":\"add\",\"arguments\":%s}}]";
    char args_text[200], args_object[200], in[400], want[400];
    snprintf(args_text, sizeof args_text, calls, "\"{\\\"a\\\":2}\"");
    snprintf(args_object, sizeof args_object, calls, "{\"a\":2}");
    static const char *const contents[] = {"\"content\":null,", "\"content\":\"\",", ""};
    snprintf(want, sizeof want, "[{\"role\":\"assistant\",\"content\":\"\",%s}]", args_object);
    for (int i = 0; i < 3; i++) {
        snprintf(in, sizeof in, "[{\"role\":\"assistant\",%s%s}]", contents[i], args_text);
        assert_messages(in, want);
    }
    assert_messages("[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":null}]",
                    "[{\"role\":\"assistant\",\"content\":\"a\"}]");
}

static void what_a_text_model_cannot_read_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text, *param;
    } cases[] = {
        {"[]", "messages"},
        {"{}", "messages"},
        {"[5]", "messages[0]"},
        {"[{\"content\":\"x\"}]", "messages[0].role"},
        {"[{\"role\":\"wizard\"}]", "messages[0].role"},
        {"[{\"role\":\"user\",\"content\":7}]", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"http://x\"}}]}]",
         "messages[0].content[1]"},
        {"[{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}]", "messages[0].content[0]"},
        {"[{\"role\":\"user\"},{\"role\":\"assistant\",\"tool_calls\":{}}]",
         "messages[1].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\"}]}]", "messages[0].tool_calls[0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_error e;
        json_t *got = messages(cases[i].text, &e);
        assert_null(got);
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, cases[i].param);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_openais),
        cmocka_unit_test(a_models_own_defaults_stand_where_a_client_says_nothing),
        cmocka_unit_test(null_counts_as_absent_and_unknown_fields_are_ignored),
        cmocka_unit_test(of_both_token_limits_the_smaller_wins),
        cmocka_unit_test(max_tokens_zero_is_for_echoed_prompts_only),
        cmocka_unit_test(wrong_values_name_their_field),
        cmocka_unit_test(what_would_change_the_answer_and_is_not_done_is_refused),
        cmocka_unit_test(fields_that_nobody_knows_are_named),
        cmocka_unit_test(equal_cache_salts_and_no_others_are_equal),
        cmocka_unit_test(a_salt_that_was_forgotten_gets_a_new_number),
        cmocka_unit_test(stops_take_a_string_or_strings_and_ignore_empty_ones),
        cmocka_unit_test(biases_are_sorted_by_id),
        cmocka_unit_test(top_p_zero_means_the_best_token),
        cmocka_unit_test(broken_json_is_refused_with_its_place),
        cmocka_unit_test(nesting_is_refused_before_it_is_parsed),
        cmocka_unit_test(too_many_containers_are_refused),
        cmocka_unit_test(a_nul_is_part_of_the_text),
        cmocka_unit_test(messages_are_brought_into_one_form),
        cmocka_unit_test(what_a_text_model_cannot_read_is_refused_with_its_place),
    };
    limits.salts = cache_salts_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cache_salts_free(limits.salts);
    return failed;
}
