#include "sequence.h"

#include "check.h"

struct sequence *sequence_new(int max_tokens, int block_size)
{
    CHECK(max_tokens >= 1 && block_size >= 1);
    struct sequence *seq = calloc(1, sizeof *seq);
    if (!seq)
        return NULL;
    seq->state = SEQ_NEW;
    seq->key.adapter = -1;
    seq->node = PREFIX_ROOT;
    seq->n_cached = -1;
    seq->row = -1;
    seq->max_tokens = max_tokens;
    seq->max_pages = (max_tokens - 1) / block_size + 1;
    seq->tokens = malloc((size_t)max_tokens * sizeof *seq->tokens);
    seq->pages = malloc((size_t)seq->max_pages * sizeof *seq->pages);
    if (!seq->tokens || !seq->pages) {
        sequence_free(seq);
        return NULL;
    }
    return seq;
}

void sequence_free(struct sequence *seq)
{
    if (!seq)
        return;
    CHECK(seq->n_pages == 0 && (seq->state == SEQ_NEW || seq->state == SEQ_DONE));
    free(seq->tokens);
    free(seq->pages);
    free(seq);
}

void sequence_append_pending(struct sequence *seq, int draw)
{
    CHECK(seq->n_tokens < seq->max_tokens && draw >= 0);
    seq->tokens[seq->n_tokens++] = -1 - draw;
    seq->n_pending++;
}

void sequence_set_state(struct sequence *seq, enum seq_state to)
{
    static const bool legal[4][4] = {
        [SEQ_NEW] = {[SEQ_WAITING] = true, [SEQ_RUNNING] = true, [SEQ_DONE] = true},
        [SEQ_WAITING] = {[SEQ_RUNNING] = true, [SEQ_DONE] = true},
        [SEQ_RUNNING] = {[SEQ_WAITING] = true, [SEQ_DONE] = true},
    };
    CHECK(legal[seq->state][to]);
    seq->state = to;
}
