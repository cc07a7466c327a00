#include "params_fields.h"

#include "json_in.h"

#include <stdio.h>
#include <string.h>

static bool refuse(const char *name, const char *why, struct api_error *e)
{
    return api_fail(e, 400, "unsupported_parameter", name, "%s is not supported%s%s", name,
                    why[0] ? ": " : "", why);
}

static bool is_string(const json_t *v, const char *text)
{
    return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

static bool is_empty(const json_t *v)
{
    return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* A list of tools and what chooses among them; also by the older names, functions. */
static bool refuse_tools(const json_t *body, const char *list, const char *chooser,
                         struct api_error *e)
{
    const json_t *tools = field(body, list), *choice = field(body, chooser);
    char why[80];
    if (tools && !json_is_array(tools))
        return api_fail(e, 400, "invalid_type", list, "%s: expected an array, got %s", list,
                        json_in_kind(tools));
    snprintf(why, sizeof why, "this server calls no tools; %s \"none\" ignores them", chooser);
    if (tools && json_array_size(tools) > 0 && !is_string(choice, "none"))
        return refuse(list, why, e);
    if (choice && !is_string(choice, "none") && !is_string(choice, "auto"))
        return refuse(chooser, "only \"none\" and \"auto\" are taken", e);
    return true;
}

static bool refuse_modalities(const json_t *body, struct api_error *e)
{
    const json_t *list = field(body, "modalities");
    if (list && !json_is_array(list))
        return api_fail(e, 400, "invalid_type", "modalities",
                        "modalities: expected an array of strings, got %s", json_in_kind(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is_string(json_array_get(list, i), "text"))
            return refuse("modalities", "only [\"text\"] is taken", e);
    return true;
}

/* Of OpenAI, vLLM, SGLang and llama.cpp. */
static const char *const refused[] = {
    "allowed_token_ids",
    "audio",
    "bad_words",
    "chat_template",
    "custom_logit_processor",
    "documents",
    "dry_multiplier",
    "dynatemp_range",
    "ebnf",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "json_schema",
    "logits_processors",
    "logprob_token_ids",
    "lora",
    "lora_path",
    "mirostat",
    "prompt_embeds",
    "prompt_logprobs",
    "regex",
    "repetition_detection",
    "samplers",
    "stop_regex",
    "structured_outputs",
    "suffix",
    "thinking_token_budget",
    "truncate_prompt_tokens",
    "use_beam_search",
    "vllm_xargs",
    "web_search_options",
    "xtc_probability",
};
enum { N_REFUSED = sizeof refused / sizeof *refused };

/* Of llama.cpp, SGLang and text-generation-inference: what we have by another name, and what only
 * `neutral` leaves without effect. */
static const struct {
    const char *name;
    double neutral;
    const char *why;
} foreign[] = {
    {"max_new_tokens", -1, "its name here is max_tokens"},
    {"n_predict", -1, "its name here is max_tokens"},
    {"repeat_penalty", 1, "its name here is repetition_penalty"},
    {"tfs_z", 1, ""},
    {"top_n_sigma", -1, ""},
    {"typical_p", 1, ""},
};
enum { N_FOREIGN = sizeof foreign / sizeof *foreign };

static bool refuse_foreign(const json_t *body, struct api_error *e)
{
    for (size_t i = 0; i < N_FOREIGN; i++) {
        const json_t *v = field(body, foreign[i].name);
        if (v && !(json_is_number(v) && json_number_value(v) == foreign[i].neutral))
            return refuse(foreign[i].name, foreign[i].why, e);
    }
    return true;
}

bool params_refuse(const json_t *body, bool chat, struct api_error *e)
{
    for (size_t i = 0; i < N_REFUSED; i++) {
        const json_t *v = field(body, refused[i]);
        if (v && !is_empty(v))
            return refuse(refused[i], "", e);
    }
    if (!refuse_foreign(body, e))
        return false;
    const json_t *f = field(body, "response_format");
    if (f && !is_string(json_object_get(f, "type"), "text"))
        return refuse("response_format", "only {\"type\": \"text\"} is taken", e);
    if (chat && field(body, "echo") && !is_empty(field(body, "echo")))
        return refuse("echo", "it belongs to /v1/completions", e);
    const json_t *go_on = field(body, "continue_final_message");
    if (!chat && go_on && !is_empty(go_on))
        return refuse("continue_final_message", "it belongs to /v1/chat/completions", e);
    return refuse_modalities(body, e) && refuse_tools(body, "tools", "tool_choice", e) &&
           refuse_tools(body, "functions", "function_call", e);
}

/* Read here or in prompt.c, or without effect on the answer. */
static const char *const taken[] = {
    "add_generation_prompt",
    "add_special_tokens",
    "best_of",
    "cache_salt",
    "chat_template_kwargs",
    "continue_final_message",
    "echo",
    "frequency_penalty",
    "function_call",
    "functions",
    "ignore_eos",
    "include_reasoning",
    "include_stop_str_in_output",
    "kv_transfer_params",
    "length_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "min_tokens",
    "modalities",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "priority",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "repetition_penalty",
    "request_id",
    "response_format",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "safety_identifier",
    "seed",
    "service_tier",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop",
    "stop_token_ids",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
};
enum { N_TAKEN = sizeof taken / sizeof *taken };

static bool among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

void params_unknown(const json_t *body, char *out, size_t cap)
{
    const char *name;
    json_t *value;
    size_t len = 0;
    out[0] = '\0';
    json_object_foreach((json_t *)body, name, value)
    {
        if (among(name, taken, N_TAKEN) || among(name, refused, N_REFUSED))
            continue;
        int n = snprintf(out + len, cap - len, "%s%.40s", len ? ", " : "", name);
        if (n < 0 || (size_t)n >= cap - len)
            return; /* enough of them */
        len += (size_t)n;
    }
}
