#include "special_tokens.h"

#include "codepoint.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* A node stands for the end of some token, read backwards from its last byte. Node 0 is the
 * root and also means "none" in links. */
struct node {
    uint32_t child, sibling; /* the first child; the next child of the same parent */
    uint32_t fail;           /* the longest other node that is a prefix of this node's text */
    uint32_t nearest[N_SPECIAL_KINDS]; /* on the way of fail links, from here on: the first
                                        * node that is a whole token of the kind */
    uint32_t depth;                    /* bytes */
    int32_t id;                        /* the token that this node is, or -1 */
    uint8_t byte, kind, flags;
};

struct special_tokens {
    struct node *nodes;
    uint32_t n_nodes;
    uint32_t first[256]; /* the root's children by byte */
    bool covering;
};

enum { MAX_NODES = 4 << 20 };

static uint32_t find_child(const struct special_tokens *t, uint32_t node, unsigned char byte)
{
    if (node == 0)
        return t->first[byte];
    uint32_t c = t->nodes[node].child;
    while (c && t->nodes[c].byte != byte)
        c = t->nodes[c].sibling;
    return c;
}

static uint32_t add_child(struct special_tokens *t, uint32_t node, unsigned char byte)
{
    uint32_t c = t->n_nodes++;
    t->nodes[c] = (struct node){.sibling = t->nodes[node].child,
                                .byte = byte,
                                .id = -1,
                                .depth = t->nodes[node].depth + 1,
                                .kind = SPECIAL_NOT};
    t->nodes[node].child = c;
    if (node == 0)
        t->first[byte] = c;
    return c;
}

/* Of equal texts the more guarded kind wins, then the first token. */
static void add_token(struct special_tokens *t, const struct special_token *token)
{
    uint32_t node = 0;
    if (token->text.len == 0)
        return;
    for (size_t i = token->text.len; i-- > 0;) {
        unsigned char byte = (unsigned char)token->text.data[i];
        uint32_t c = find_child(t, node, byte);
        node = c ? c : add_child(t, node, byte);
    }
    struct node *end = &t->nodes[node];
    if (end->id < 0 || token->kind > end->kind) {
        end->id = token->id;
        end->kind = token->kind;
        end->flags = token->flags;
    }
}

static uint32_t step(const struct special_tokens *t, uint32_t node, unsigned char byte)
{
    for (;;) {
        uint32_t c = find_child(t, node, byte);
        if (c || node == 0)
            return c;
        node = t->nodes[node].fail;
    }
}

/* Breadth first, so that the shorter nodes that a link may lead to are done. */
static bool link_nodes(struct special_tokens *t)
{
    uint32_t *queue = malloc(t->n_nodes * sizeof *queue);
    if (!queue)
        return false;
    uint32_t n = 1;
    queue[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = queue[i];
        for (uint32_t c = t->nodes[u].child; c; c = t->nodes[c].sibling) {
            struct node *node = &t->nodes[c];
            node->fail = u ? step(t, t->nodes[u].fail, node->byte) : 0;
            memcpy(node->nearest, t->nodes[node->fail].nearest, sizeof node->nearest);
            if (node->id >= 0)
                node->nearest[node->kind] = c;
            queue[n++] = c;
        }
    }
    free(queue);
    return true;
}

struct special_tokens *special_tokens_new(const struct special_token *list, size_t n, bool covering,
                                          struct err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += list[i].text.len; /* cannot overflow: the texts are in memory */
        if (bytes >= MAX_NODES) {
            err_set(e, ERR_LIMIT, "control and user-defined tokens hold more than %d bytes",
                    MAX_NODES);
            return NULL;
        }
    }
    struct special_tokens *t = calloc(1, sizeof *t);
    struct node *nodes = calloc(bytes + 1, sizeof *nodes);
    if (t && nodes) {
        *t = (struct special_tokens){.nodes = nodes, .n_nodes = 1, .covering = covering};
        nodes[0].id = -1;
        for (size_t i = 0; i < n; i++)
            if (utf8_check(list[i].text.data, list[i].text.len) == list[i].text.len)
                add_token(t, &list[i]);
        if (link_nodes(t))
            return t;
    }
    free(nodes);
    free(t);
    err_set(e, ERR_MEMORY, "out of memory for the table of control tokens");
    return NULL;
}

void special_tokens_free(struct special_tokens *t)
{
    if (!t)
        return;
    free(t->nodes);
    free(t);
}

/* What the control rule lets tokens that start at one byte be: the most bytes by kind. */
static void most_bytes(const struct special_tokens *t, enum control_rule rule, size_t in_span,
                       size_t most[N_SPECIAL_KINDS])
{
    bool spans = rule == CONTROL_SPANS;
    most[SPECIAL_USER] = SIZE_MAX;
    most[SPECIAL_MARKER] = spans ? in_span : SIZE_MAX;
    most[SPECIAL_SPANNED] = spans ? in_span : 0;
    most[SPECIAL_CONTROL] = spans ? in_span : rule == CONTROL_ALL || t->covering ? SIZE_MAX : 0;
}

/* The node of the longest token that may start where the automaton is in `state`; 0: none. */
static uint32_t longest(const struct special_tokens *t, uint32_t state,
                        const size_t most[N_SPECIAL_KINDS])
{
    uint32_t best = 0;
    for (int kind = 0; kind < N_SPECIAL_KINDS; kind++) {
        uint32_t c = t->nodes[state].nearest[kind];
        while (c && most[kind] && t->nodes[c].depth > most[kind])
            c = t->nodes[t->nodes[c].fail].nearest[kind];
        if (c && most[kind] && t->nodes[c].depth > t->nodes[best].depth)
            best = c;
    }
    return best;
}

static bool add_match(struct special_matches *m, size_t start, const struct node *node)
{
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 32;
        struct special_match *list = realloc(m->list, cap * sizeof *list);
        if (!list)
            return false;
        m->list = list;
        m->cap = cap;
    }
    m->list[m->n++] =
        (struct special_match){start, start + node->depth, node->id, node->kind, node->flags};
    return true;
}

/* From descending candidates, one a byte, to ascending matches that do not overlap. */
static void choose(struct special_matches *m)
{
    for (size_t i = 0, k = m->n; i + 1 < k; i++, k--) {
        struct special_match x = m->list[i];
        m->list[i] = m->list[k - 1];
        m->list[k - 1] = x;
    }
    size_t n = 0, end = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->list[i].start >= end) {
            end = m->list[i].end;
            m->list[n++] = m->list[i];
        }
    m->n = n;
}

static bool word_before(const char *text, size_t at)
{
    size_t i = at ? codepoint_last(text, at) : 0;
    return at && codepoint_is_word(utf8_decode(text, &i));
}

static bool word_behind(const char *text, size_t n, size_t at)
{
    return at < n && codepoint_is_word(utf8_decode(text, &at));
}

static size_t spaces_before(const char *text, size_t at, size_t least)
{
    while (at > least) {
        size_t start = codepoint_last(text, at), i = start;
        if (start < least || !codepoint_is_space(utf8_decode(text, &i)))
            break;
        at = start;
    }
    return at;
}

static size_t spaces_behind(const char *text, size_t n, size_t at)
{
    for (size_t i = at; i < n && codepoint_is_space(utf8_decode(text, &i));)
        at = i;
    return at;
}

/* Drops matches that only covered, or stand where they may not; the others take their spaces. */
static void settle(struct special_matches *m, const char *text, size_t n, enum control_rule rule)
{
    size_t kept = 0, end = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct special_match x = m->list[i];
        if (rule == CONTROL_NONE && x.kind == SPECIAL_CONTROL)
            continue;
        if (x.flags & SPECIAL_SINGLE_WORD &&
            (word_before(text, x.start) || word_behind(text, n, x.end)))
            continue;
        if (x.flags & SPECIAL_LSTRIP)
            x.start = x.start > end ? spaces_before(text, x.start, end) : end;
        if (x.flags & SPECIAL_RSTRIP)
            x.end = spaces_behind(text, n, x.end);
        if (x.flags & SPECIAL_LSTRIP && x.start >= x.end)
            continue; /* all of it went with the one before */
        end = x.end;  /* which may lie before the one before took its spaces */
        m->list[kept++] = x;
    }
    m->n = kept;
}

bool special_tokens_find(const struct special_tokens *t, const char *text, size_t n,
                         enum control_rule rule, const struct text_span *spans, size_t n_spans,
                         struct special_matches *out, struct err *e)
{
    uint32_t state = 0;
    size_t most[N_SPECIAL_KINDS];
    out->n = 0;
    for (size_t i = n; i-- > 0;) {
        state = step(t, state, (unsigned char)text[i]);
        if (state == 0)
            continue;
        while (n_spans && spans[n_spans - 1].start > i)
            n_spans--;
        size_t in_span = n_spans && spans[n_spans - 1].end > i ? spans[n_spans - 1].end - i : 0;
        most_bytes(t, rule, in_span, most);
        uint32_t found = longest(t, state, most);
        if (found && !add_match(out, i, &t->nodes[found]))
            return err_set(e, ERR_MEMORY, "out of memory for the control tokens of a text");
    }
    choose(out);
    settle(out, text, n, rule);
    return true;
}

void special_matches_free(struct special_matches *m)
{
    free(m->list);
    *m = (struct special_matches){0};
}
