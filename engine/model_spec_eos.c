#include <string.h>

#include "log.h"
#include "model_spec_read.h"

enum { TOKEN_TYPE_CONTROL = 3 }; /* in tokenizer.ggml.token_type */

static const char *const eos_keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};

/* Control tokens by which models end a turn, whether or not the file's keys say so. */
static const char *const end_texts[] = {
    "<|endoftext|>",      "<|end_of_text|>", "<|eot_id|>",      "<|eom_id|>",
    "<|im_end|>",         "<end_of_turn>",   "<|EOT|>",         "<|eot|>",
    "<end_of_utterance>", "<|endofturn|>",   "<EOT>",           "</s>",
    "<|return|>",         "<|call|>",        "<|observation|>",
};

/* Ends a turn, but for models that have "<|return|>": there it ends a message, and the next one
 * of the same turn follows. */
static const char END_OF_MESSAGE[] = "<|end|>";
static const char END_OF_TURN[] = "<|return|>";

static bool add_eos(const struct gguf *g, struct model_spec *s, uint32_t id, struct err *e)
{
    for (int i = 0; i < s->n_eos; i++)
        if ((uint32_t)s->eos[i] == id)
            return true;
    if (s->n_eos == MODEL_MAX_EOS)
        return gguf_err(g, e, ERR_LIMIT, "more than %d tokens that end a generation",
                        MODEL_MAX_EOS);
    s->eos[s->n_eos++] = (int32_t)id;
    return true;
}

static bool read_keys(const struct gguf *g, struct model_spec *s, struct err *e)
{
    for (size_t i = 0; i < sizeof eos_keys / sizeof *eos_keys; i++) {
        uint32_t id;
        if (!gguf_has(g, eos_keys[i]))
            continue;
        if (!gguf_u32(g, eos_keys[i], &id, e))
            return false;
        if (id >= (uint32_t)s->n_vocab)
            log_warn("%s: key %s is %u, not one of the %d tokens: ignored", gguf_path(g),
                     eos_keys[i], id, s->n_vocab);
        else if (!add_eos(g, s, id, e))
            return false;
    }
    return true;
}

static bool is_end_text(struct gguf_str text)
{
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++)
        if (gguf_str_is(text, end_texts[i]))
            return true;
    return false;
}

static bool is_control(const unsigned char *types, uint64_t id)
{
    int32_t type;
    memcpy(&type, types + id * sizeof type, sizeof type);
    return type == TOKEN_TYPE_CONTROL;
}

/* The control tokens of the texts above. */
static bool read_texts(const struct gguf *g, struct model_spec *s, const void *types,
                       struct gguf_string_iter it, struct err *e)
{
    struct gguf_str text;
    int64_t end_of_message = -1;
    bool has_other = false;
    for (uint64_t id = 0; gguf_next_string(&it, &text); id++) {
        if (!is_control(types, id))
            continue;
        if (gguf_str_is(text, END_OF_MESSAGE))
            end_of_message = (int64_t)id;
        has_other = has_other || gguf_str_is(text, END_OF_TURN);
        if (is_end_text(text) && !add_eos(g, s, (uint32_t)id, e))
            return false;
    }
    return end_of_message < 0 || has_other || add_eos(g, s, (uint32_t)end_of_message, e);
}

bool spec_read_eos(const struct spec_reader *r)
{
    const struct gguf *g = r->g;
    struct gguf_string_iter it = {0};
    const void *types;
    uint64_t n_types;
    if (!read_keys(g, r->s, r->e))
        return false;
    if (!gguf_has(g, "tokenizer.ggml.tokens") || !gguf_has(g, "tokenizer.ggml.token_type"))
        return true;
    if (!gguf_strings(g, "tokenizer.ggml.tokens", &it, r->e) ||
        !gguf_array(g, "tokenizer.ggml.token_type", GGUF_I32, &types, &n_types, r->e))
        return false;
    if (n_types != it.left)
        return gguf_err(g, r->e, ERR_INVALID,
                        "tokenizer.ggml.token_type has %llu elements, expected %llu, one a token",
                        (unsigned long long)n_types, (unsigned long long)it.left);
    return read_texts(g, r->s, types, it, r->e);
}
