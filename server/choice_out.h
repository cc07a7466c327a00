/* choice_out.h: the tokens of one choice become the text that its client may see.
 *
 * Detokenises, holds back what may become a stop string, cuts there, and knows which tokens
 * belong to the text that is out (for logprobs). Loop thread only. */
#ifndef TOKEND_CHOICE_OUT_H
#define TOKEND_CHOICE_OUT_H

#include "detokenize.h"
#include "engine.h"
#include "params.h"

struct choice_out { /* zeroed = new; free with choice_out_free */
    struct detokenizer detok;
    struct stop_matcher matcher;
    struct buf text; /* all text so far; cut at a stop string */
    size_t released; /* bytes of it that may be shown: the rest is held back */
    int n_tokens;    /* consumed; a stop token counts */
    int n_timed;     /* whose arrival the latencies have counted */
    bool ends_in_stop_token;
    enum finish_reason finish; /* FINISH_NONE while open */
    struct token_extent {
        uint32_t start, end; /* bytes of text before and after the token */
    } * extents;             /* [n_tokens], only with logprobs */
    int extents_cap;
    bool failed; /* out of memory */

    /* What a stream has sent, or a reply has listed, so far. */
    bool begun;
    size_t shown;                   /* bytes of text */
    int listed;                     /* tokens in logprobs */
    int ids_listed;                 /* tokens in token_ids */
    size_t offset_at, offset_chars; /* code points of text before a byte, for text_offset */
};

/* Consumes the next token. stop_token: it ended the choice and is shown only when asked. */
void choice_out_take(struct choice_out *, const struct gen_params *, const struct tokenizer *,
                     int32_t id, bool stop_token);
/* No more tokens come: what is held back is released. */
void choice_out_finish(struct choice_out *, enum finish_reason);
/* Tokens 0 … n−1 whose logprobs may be shown with the text that is released. */
int choice_out_listable(const struct choice_out *, const struct gen_params *);
void choice_out_free(struct choice_out *);

#endif
