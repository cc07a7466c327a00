#include "bpe.h"

#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* Symbols are a linked list over an array whose index is the offset of the first byte. */
struct bpe_symbol {
    int32_t id;         /* MERGED: into its left neighbour */
    int32_t prev, next; /* -1: none */
    int32_t end;        /* the offset behind its last byte */
    uint32_t rank;      /* of the merge with the next symbol; NO_RANK: none */
    int32_t result;     /* of that merge */
};

enum { MERGED = -1, NO_TOKEN = -2 };
static const uint32_t NO_RANK = UINT32_MAX;

struct bpe_word {
    const struct bpe *b;
    struct bpe_scratch *scratch;
    const char *text;
    int32_t n;
    struct bpe_symbol *s;
    uint64_t *heap;
    size_t n_heap;
};

static uint32_t merge_place(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)(hash_mix(pair ^ b->key[0], b->key[1]) >> 32);
}

/* The slot of the pair, or the empty one where it belongs. */
static struct merge_slot *merge_slot(const struct bpe *b, int32_t left, int32_t right)
{
    for (uint32_t i = merge_place(b, left, right) & b->merge_mask;; i = (i + 1) & b->merge_mask) {
        struct merge_slot *m = &b->merges[i];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

bool bpe_init(struct bpe *b, const struct str *tokens, size_t n_vocab, bool by_characters,
              struct err *e)
{
    *b = (struct bpe){.n_vocab = n_vocab, .by_characters = by_characters, .unknown = -1};
    memset(b->byte_token, 0xFF, sizeof b->byte_token);
    memset(b->ascii, 0xFF, sizeof b->ascii);
    return (string_table_init(&b->words, tokens, n_vocab) &&
            (!by_characters || string_table_init(&b->characters, tokens, n_vocab))) ||
           err_set(e, ERR_MEMORY, "out of memory for a vocabulary of %zu tokens", n_vocab);
}

bool bpe_by_pairs(struct bpe *b, size_t n_merges, struct err *e)
{
    if (n_merges > UINT32_MAX / 4)
        return err_set(e, ERR_LIMIT, "%zu merges: at most %u", n_merges, UINT32_MAX / 4);
    uint32_t cap = 16;
    while (cap < n_merges * 2)
        cap *= 2;
    b->merges = malloc(cap * sizeof *b->merges);
    if (!b->merges)
        return err_set(e, ERR_MEMORY, "out of memory for %zu merges", n_merges);
    memset(b->merges, 0xFF, cap * sizeof *b->merges);
    b->merge_mask = cap - 1;
    string_table_new_key(b->key);
    b->key[1] |= 1;
    return true;
}

void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t result, uint32_t rank)
{
    struct merge_slot *m = merge_slot(b, left, right);
    if (m->left < 0)
        *m = (struct merge_slot){.left = left, .right = right, .rank = rank, .result = result};
}

void bpe_put_merge(struct bpe *b, int32_t left, int32_t right, int32_t result, uint32_t rank)
{
    *merge_slot(b, left, right) =
        (struct merge_slot){.left = left, .right = right, .rank = rank, .result = result};
}

void bpe_add_character(struct bpe *b, int32_t id)
{
    struct str text = b->words.strings[id];
    if (text.len == 1)
        b->ascii[(unsigned char)text.data[0] & 0x7F] = id;
    else if (text.len > 1)
        string_table_add(&b->characters, id);
}

bool bpe_by_text(struct bpe *b, struct err *e)
{
    b->ranks = b->own_ranks = calloc(b->n_vocab, sizeof *b->ranks);
    return (b->ranks && string_table_init(&b->tokens, b->words.strings, b->n_vocab)) ||
           err_set(e, ERR_MEMORY, "out of memory for a vocabulary of %zu tokens", b->n_vocab);
}

void bpe_add_text(struct bpe *b, int32_t id, uint32_t rank)
{
    struct str text = b->tokens.strings[id];
    string_table_add(&b->tokens, id);
    b->own_ranks[id] = rank;
    if (text.len > b->longest)
        b->longest = text.len;
    if (b->by_characters && (size_t)utf8_char(text.data, text.len) == text.len)
        bpe_add_character(b, id);
}

bool bpe_set_unused(struct bpe *b, int32_t id, struct err *e)
{
    if (!b->unused)
        b->unused = calloc(b->n_vocab, sizeof *b->unused);
    if (!b->unused)
        return err_set(e, ERR_MEMORY, "out of memory for a vocabulary of %zu tokens", b->n_vocab);
    b->unused[id] = true;
    return true;
}

bool bpe_finish(struct bpe *b, const bool *whole, bool ignore_merges, struct err *e)
{
    struct string_table words = b->words; /* filled aside: encoding must not find words yet */
    b->words = (struct string_table){0};
    struct bpe_scratch scratch = {0};
    struct token_list ids = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < b->n_vocab; i++) {
        const struct str *text = &words.strings[i];
        if (!whole[i] || text->len == 0 || text->len > INT32_MAX)
            continue;
        ids.n = 0;
        ok = ignore_merges || bpe_encode(b, text->data, text->len, &scratch, &ids, e);
        if (ok && (ignore_merges || (ids.n == 1 && ids.ids[0] == (int32_t)i)))
            string_table_add(&words, (int32_t)i);
    }
    b->words = words;
    bpe_scratch_free(&scratch);
    token_list_free(&ids);
    return ok;
}

void bpe_free(struct bpe *b)
{
    free(b->own_ranks);
    free(b->unused);
    free(b->merges);
    string_table_free(&b->tokens);
    string_table_free(&b->words);
    string_table_free(&b->characters);
    *b = (struct bpe){0};
}

/* The heap orders rank before place, so that of equal merges the leftmost is first. An entry
 * is void when the symbol's rank is no longer its own. */
static uint64_t heap_entry(uint32_t rank, int32_t at)
{
    return (uint64_t)rank << 32 | (uint32_t)at;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t x = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= x)
            break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t x)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > x; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0];
    heap[0] = heap[--*n];
    if (*n)
        sift_down(heap, *n, 0);
    return top;
}

/* Every merge takes one entry out and puts at most two in, and there are less than n merges:
 * 2n entries are enough. */
static bool reserve(struct bpe_scratch *s, size_t n, struct err *e)
{
    if (n <= s->cap)
        return true;
    size_t cap = n < 256 ? 256 : n;
    free(s->symbols);
    free(s->heap);
    s->cap = 0;
    s->symbols = malloc(cap * sizeof *s->symbols);
    s->heap = malloc(2 * cap * sizeof *s->heap);
    if (!s->symbols || !s->heap)
        return err_set(e, ERR_MEMORY, "out of memory for a word of %zu bytes", n);
    s->cap = cap;
    return true;
}

void bpe_scratch_free(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    free(s->unmade);
    *s = (struct bpe_scratch){0};
}

struct chain {
    int32_t first, last; /* symbols, -1: none yet */
};

/* The next symbol, [at, end) of the text; an id of -1 gives none, as in the reference. */
static void add_symbol(const struct bpe_word *w, struct chain *c, int32_t at, int32_t end,
                       int32_t id)
{
    w->s[at] =
        (struct bpe_symbol){.id = id, .prev = c->last, .next = -1, .rank = NO_RANK, .end = end};
    if (id == -1)
        return;
    if (c->last < 0)
        c->first = at;
    else
        w->s[c->last].next = at;
    c->last = at;
}

/* Returns the first symbol, or -1. */
static int32_t start_bytes(const struct bpe_word *w)
{
    struct chain c = {-1, -1};
    for (int32_t i = 0; i < w->n; i++) {
        int32_t id = w->b->byte_token[(unsigned char)w->text[i]];
        if (id < 0 && (w->b->ranks || w->b->unknown >= 0))
            id = NO_TOKEN; /* by text even such a one may merge */
        add_symbol(w, &c, i, i + 1, id);
    }
    return c.first;
}

/* The token of a character; NO_TOKEN: others say it; -1: it says nothing. */
static int32_t character_token(const struct bpe *b, const char *c, int len)
{
    int32_t id =
        len == 1 ? b->ascii[(unsigned char)*c] : string_table_find(&b->characters, c, (size_t)len);
    if (id >= 0)
        return id;
    bool stays = b->ranks || b->unknown >= 0 || b->byte_token[(unsigned char)*c] >= 0;
    return stays ? NO_TOKEN : -1;
}

static int32_t start_characters(const struct bpe_word *w)
{
    struct chain c = {-1, -1};
    for (int32_t i = 0, len; i < w->n; i += len) {
        len = utf8_length((unsigned char)w->text[i]);
        add_symbol(w, &c, i, i + len, character_token(w->b, w->text + i, len));
    }
    return c.first;
}

/* An unused token may have to be taken apart: notes how it would be made. */
static bool note_unmade(const struct bpe_word *w, int32_t id, int32_t left)
{
    struct bpe_scratch *s = w->scratch;
    if (!s->unmade)
        s->unmade = calloc(w->b->n_vocab, sizeof *s->unmade);
    if (s->unmade)
        s->unmade[id] = (uint32_t)left;
    return s->unmade != NULL;
}

static bool find_by_text(struct bpe_word *w, int32_t at)
{
    struct bpe_symbol *s = &w->s[at];
    const struct bpe *b = w->b;
    size_t len = (size_t)(w->s[s->next].end - at);
    s->result = len > b->longest ? -1 : string_table_find(&b->tokens, w->text + at, len);
    if (s->result < 0)
        return false;
    if (b->unused && b->unused[s->result] && !note_unmade(w, s->result, s->end - at))
        return false;
    s->rank = b->ranks[s->result];
    return true;
}

/* Notes the merge of the symbol with its right neighbour; false: there is none. */
static bool find_merge(struct bpe_word *w, int32_t at)
{
    struct bpe_symbol *s = &w->s[at];
    s->rank = NO_RANK;
    if (s->next < 0)
        return false;
    if (w->b->ranks)
        return find_by_text(w, at);
    if (s->id < 0 || w->s[s->next].id < 0)
        return false;
    const struct merge_slot *m = merge_slot(w->b, s->id, w->s[s->next].id);
    if (m->left < 0)
        return false;
    s->rank = m->rank;
    s->result = m->result;
    return true;
}

static void start_heap(struct bpe_word *w, int32_t first)
{
    for (int32_t i = first; i >= 0; i = w->s[i].next)
        if (find_merge(w, i))
            w->heap[w->n_heap++] = heap_entry(w->s[i].rank, i);
    for (size_t i = w->n_heap / 2; i-- > 0;)
        sift_down(w->heap, w->n_heap, i);
}

/* After a change at `at`: the merge of it with its right neighbour. */
static void renew_pair(struct bpe_word *w, int32_t at)
{
    if (find_merge(w, at))
        heap_push(w->heap, &w->n_heap, heap_entry(w->s[at].rank, at));
}

static void merge_all(struct bpe_word *w)
{
    struct bpe_symbol *s = w->s;
    while (w->n_heap) {
        uint64_t top = heap_pop(w->heap, &w->n_heap);
        int32_t at = (int32_t)(uint32_t)top;
        if (s[at].id == MERGED || s[at].rank != top >> 32)
            continue;
        int32_t right = s[at].next;
        s[at].id = s[at].result;
        s[at].end = s[right].end;
        s[at].next = s[right].next;
        s[right].id = MERGED;
        if (s[at].next >= 0)
            s[s[at].next].prev = at;
        renew_pair(w, at);
        if (s[at].prev >= 0)
            renew_pair(w, s[at].prev);
    }
}

/* A character that is no token: the tokens of its bytes, or the unknown one. */
static bool add_character(const struct bpe *b, const char *c, int32_t n,
                          struct bpe_scratch *scratch, struct token_list *out)
{
    bool after = scratch->after_unknown && b->fuse_unknown;
    for (int32_t i = 0; i < n; i++)
        if (b->byte_token[(unsigned char)c[i]] < 0) {
            scratch->after_unknown = b->unknown >= 0;
            return b->unknown < 0 || after || token_list_add(out, b->unknown);
        }
    scratch->after_unknown = false;
    for (int32_t i = 0; i < n; i++)
        if (!token_list_add(out, b->byte_token[(unsigned char)c[i]]))
            return false;
    return true;
}

enum { MAX_PARTS = 64 };

/* Unused tokens in text[n] are taken apart until none is left. A stack of what is still to do:
 * each step makes two shorter parts, of which the left one is done first. */
static bool add_apart(const struct bpe_word *w, const char *text, size_t n, struct token_list *out)
{
    struct str stack[MAX_PARTS] = {{text, n}};
    for (int depth = 1; depth > 0;) {
        struct str part = stack[--depth];
        int32_t id = string_table_find(&w->b->tokens, part.data, part.len);
        bool apart = id >= 0 && w->b->unused[id] && w->scratch->unmade;
        uint32_t left = apart ? w->scratch->unmade[id] : 0;
        if (left && left < part.len && depth + 2 <= MAX_PARTS) {
            stack[depth++] = (struct str){part.data + left, part.len - left};
            stack[depth++] = (struct str){part.data, left};
        } else if (id < 0) {
            if (!add_character(w->b, part.data, (int32_t)part.len, w->scratch, out))
                return false;
        } else {
            w->scratch->after_unknown = false;
            if (!token_list_add(out, id))
                return false;
        }
    }
    return true;
}

static bool add_symbols(const struct bpe_word *w, int32_t first, struct token_list *out)
{
    const struct bpe *b = w->b;
    for (int32_t i = first; i >= 0; i = w->s[i].next) {
        const struct bpe_symbol *s = &w->s[i];
        bool ok;
        if (s->id == NO_TOKEN) {
            ok = add_character(b, w->text + i, s->end - i, w->scratch, out);
        } else if (b->unused && b->unused[s->id]) {
            ok = add_apart(w, w->text + i, (size_t)(s->end - i), out);
        } else {
            w->scratch->after_unknown = false;
            ok = token_list_add(out, s->id);
        }
        if (!ok)
            return false;
    }
    return true;
}

bool bpe_encode(const struct bpe *b, const char *word, size_t n, struct bpe_scratch *scratch,
                struct token_list *out, struct err *e)
{
    int32_t whole = string_table_find(&b->words, word, n);
    if (whole >= 0) {
        scratch->after_unknown = false;
        return token_list_add(out, whole) || err_set(e, ERR_MEMORY, "out of memory for token ids");
    }
    if (!reserve(scratch, n, e))
        return false;
    struct bpe_word w = {.b = b,
                         .scratch = scratch,
                         .text = word,
                         .n = (int32_t)n,
                         .s = scratch->symbols,
                         .heap = scratch->heap};
    int32_t first = b->by_characters ? start_characters(&w) : start_bytes(&w);
    start_heap(&w, first);
    merge_all(&w);
    return add_symbols(&w, first, out) || err_set(e, ERR_MEMORY, "out of memory for token ids");
}
