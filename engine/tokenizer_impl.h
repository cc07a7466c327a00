/* tokenizer_impl.h: what a tokenizer is made of; only for the files that fill one. */
#ifndef TOKEND_TOKENIZER_IMPL_H
#define TOKEND_TOKENIZER_IMPL_H

#include "bpe.h"
#include "pretokenizer.h"
#include "special_tokens.h"
#include "spm.h"

struct tokenizer {
    int32_t n_vocab;
    struct gguf_str *pieces; /* [n_vocab] bytes of each token, in `bytes` */
    char *bytes;
    uint8_t *kinds;            /* [n_vocab] enum special_kind */
    struct string_table texts; /* of every piece; of equal ones a special token is found */
    int32_t bos, eos;
    bool adds_bos, adds_eos;
    struct token_list prefix, suffix; /* what goes around a prompt */

    struct special_tokens *special;
    struct pretokenizer *pre; /* splits text into words; NULL: the kind with scores, */
    struct spm *spm;          /* which has this instead */
    struct bpe bpe;
};

#endif
