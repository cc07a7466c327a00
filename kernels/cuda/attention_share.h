/* attention_share.h: which sequences of a step begin with the same pages. Host only. */
#ifndef TOKEND_ATTENTION_SHARE_H
#define TOKEND_ATTENTION_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A sequence; the search sets the key. */
struct share_item {
    int32_t seq, n_segments; /* whole segments that it may share */
    uint32_t key;
};
struct share_span {
    int32_t first, n, depth;
};
struct share_search {
    const int32_t *tables; /* [][max_pages] */
    int max_pages, block_size;
    int segment; /* tokens */
    struct share_item *items;
    int n_items;
    struct share_span *spans; /* [n_items], working memory */
    /* Items [first, first + n), n at least 2, share the pages of segments [from, to), and those of
     * [0, from) were told of before. False: later segments of theirs are of no interest. Items may
     * change places afterwards, but not leave this range. */
    bool (*found)(void *arg, int first, int n, int from, int to);
    void *arg;
};
/* Tells of all groups, those that share less first. Takes time in proportion to the pages shared,
 * and to n_items log n_items where groups part. */
void attention_share_find(struct share_search *);

#ifdef __cplusplus
}
#endif

#endif
