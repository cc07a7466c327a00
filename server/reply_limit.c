#include "reply_limit.h"

/* JSON's bytes, rounded up from what models give: of a token beside its logprob, of each of its
 * alternatives (itself among them), of an id; and what the engine keeps of an alternative. */
enum { TOKEN_BYTES = 40, TOP_BYTES = 32, CHAT_TOP_BYTES = 96, ID_BYTES = 8, KEPT_BYTES = 8 };

/* What jansson holds of a token's logprob and of each alternative, measured. */
enum { TREE_BYTES = 150, CHAT_TREE_BYTES = 900 };

/* What multiplies what. */
struct counts {
    int64_t n_prompts, ids, text;  /* of all prompts */
    int64_t longest, longest_text; /* of one */
    int64_t n, n_top, max_tokens;
};

static int64_t json_length(const char *text, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (unsigned char)text[i] < 0x20 ? 6 : text[i] == '"' || text[i] == '\\' ? 2 : 1;
    return sum;
}

static struct counts count(const struct gen_input *in, int max_model_len)
{
    struct counts c = {.n_prompts = (int64_t)in->prompts.n,
                       .n = in->params.n,
                       .n_top = in->params.n_top,
                       .max_tokens = in->params.max_tokens};
    for (size_t i = 0; i < in->prompts.n; i++) {
        const struct prompt *p = &in->prompts.items[i];
        int64_t ids = (int64_t)p->tokens.n, text = json_length(p->text, p->n_text);
        c.ids += ids;
        c.text += text;
        c.longest = ids > c.longest ? ids : c.longest;
        c.longest_text = text > c.longest_text ? text : c.longest_text;
    }
    if (c.max_tokens < 0)
        c.max_tokens = max_model_len - c.longest;
    return c;
}

static int64_t logged_bytes(const struct gen_input *in, const struct counts *c)
{
    if (!in->params.logprobs)
        return 0;
    return TOKEN_BYTES + (in->chat ? CHAT_TOP_BYTES : TOP_BYTES) * (c->n_top + 1);
}

/* Of `ids` tokens of prompts. */
static int64_t prompt_bytes(const struct gen_input *in, const struct counts *c, int64_t ids,
                            int64_t text)
{
    const struct gen_params *p = &in->params;
    return (p->return_token_ids ? ID_BYTES * ids : 0) +
           (p->echo ? text + logged_bytes(in, c) * ids : 0);
}

static int64_t answer_token_bytes(const struct gen_input *in, const struct counts *c)
{
    if (in->params.stream)
        return in->params.logprobs ? KEPT_BYTES * (c->n_top + 1) : 0;
    return logged_bytes(in, c) + (in->params.return_token_ids ? ID_BYTES : 0);
}

static int64_t prompts_part(const struct gen_input *in, const struct counts *c)
{
    if (in->params.stream)
        return prompt_bytes(in, c, c->longest, c->longest_text);
    return prompt_bytes(in, c, c->ids, c->text) * (in->chat ? 1 : c->n);
}

static int64_t total(const struct gen_input *in, const struct counts *c)
{
    return prompts_part(in, c) + c->n_prompts * c->n * c->max_tokens * answer_token_bytes(in, c);
}

/* The JSON that is built at once: an answer's logprobs and its echoed prompt's; of a stream
 * that prompt's alone. */
static int64_t tree(const struct gen_input *in, const struct counts *c)
{
    const struct gen_params *p = &in->params;
    if (!p->logprobs)
        return 0;
    int64_t tokens = (p->echo ? c->longest : 0) + (p->stream ? 0 : c->max_tokens);
    return tokens * (c->n_top + 1) * (in->chat ? CHAT_TREE_BYTES : TREE_BYTES);
}

static bool fits(const struct gen_input *in, const struct counts *c)
{
    return total(in, c) <= REPLY_MAX_BYTES && tree(in, c) <= REPLY_TREE_MAX_BYTES;
}

/* The largest of 0 … *field with which it fits, or −1. `field` is one of c's. */
static int64_t most(const struct gen_input *in, struct counts *c, int64_t *field)
{
    int64_t was = *field, low = -1, high = was; /* low fits, or is −1; above high none does */
    while (low < high) {
        *field = low + (high - low + 1) / 2;
        if (fits(in, c))
            low = *field;
        else
            high = *field - 1;
    }
    *field = was;
    return low;
}

static bool refuse(const struct gen_input *in, struct counts *c, struct api_error *e)
{
    const struct gen_params *p = &in->params;
    const char *param = p->logprobs           ? in->chat ? "top_logprobs" : "logprobs"
                        : p->return_token_ids ? "return_token_ids"
                                              : "echo";
    struct buf fit = {0};
    int64_t n = most(in, c, &c->n), tokens = most(in, c, &c->max_tokens);
    int64_t top = p->logprobs ? most(in, c, &c->n_top) : -1;
    if (n > 0)
        buf_addf(&fit, "; n = %lld would fit", (long long)n);
    if (tokens > 0 && tokens < c->max_tokens)
        buf_addf(&fit, "; max_tokens = %lld would fit", (long long)tokens);
    if (top >= 0)
        buf_addf(&fit, "; %s = %lld would fit", param, (long long)top);
    bool small = total(in, c) <= REPLY_MAX_BYTES;
    api_bad(e, param,
            "%s: the reply could %s %lld MB, %lld are the most (%lld prompts of %lld tokens "
            "together, n = %lld answers each of up to %lld tokens, %lld alternatives a token)%s",
            param, small ? "take, while one answer is written," : "have",
            (long long)((small ? tree(in, c) : total(in, c)) >> 20),
            (long long)((small ? REPLY_TREE_MAX_BYTES : REPLY_MAX_BYTES) >> 20),
            (long long)c->n_prompts, (long long)c->ids, (long long)c->n, (long long)c->max_tokens,
            (long long)c->n_top,
            fit.len ? fit.data : "; send fewer or shorter prompts in one request");
    buf_free(&fit);
    return false;
}

bool reply_limit_check(struct gen_input *in, int max_model_len, struct api_error *e)
{
    struct counts c = count(in, max_model_len);
    if (fits(in, &c))
        return true;
    int64_t tokens = in->params.max_tokens < 0 ? most(in, &c, &c.max_tokens) : 0;
    if (tokens < 1 || tokens < in->params.sampling.min_tokens)
        return refuse(in, &c, e);
    in->params.max_tokens = tokens;
    return true;
}
