#include "unigram.h"

#include <stdlib.h>

#include "trie.h"
#include "utf8.h"

struct unigram {
    struct trie trie; /* values are numbers of `tokens` */
    struct unigram_rules rules;
    struct entry {
        double score;
        int32_t id;
        bool control;
    } * tokens;
};

/* The best way to a place of the text. */
struct unigram_node {
    double sum;
    int32_t from; /* where its last token starts; -1: no way yet */
    int32_t id;   /* of that token */
    int32_t next; /* on the way back: where the token behind this place ends */
};

struct unigram *unigram_new(const struct unigram_token *list, size_t n, struct unigram_rules rules,
                            struct err *e)
{
    struct unigram *u = calloc(1, sizeof *u);
    struct str *texts = malloc((n + 1) * sizeof *texts);
    bool ok = u && texts && (u->tokens = malloc((n + 1) * sizeof *u->tokens));
    if (!ok)
        err_set(e, ERR_MEMORY, "out of memory for a vocabulary of %zu tokens", n);
    for (size_t i = 0; ok && i < n; i++) {
        texts[i] = list[i].text;
        u->tokens[i] = (struct entry){list[i].score, list[i].id, list[i].control};
        if (list[i].text.len > UNIGRAM_LONGEST)
            ok = err_set(e, ERR_LIMIT, "token %d has %zu bytes: at most %d", list[i].id,
                         list[i].text.len, UNIGRAM_LONGEST);
        else if (utf8_check(texts[i].data, texts[i].len) < texts[i].len)
            texts[i].len = 0; /* no text can hold it */
    }
    if (u)
        u->rules = rules;
    ok = ok && trie_build(&u->trie, texts, n, e);
    free(texts);
    if (ok)
        return u;
    unigram_free(u);
    return NULL;
}

void unigram_free(struct unigram *u)
{
    if (!u)
        return;
    trie_free(&u->trie);
    free(u->tokens);
    free(u);
}

void unigram_scratch_free(struct unigram_scratch *s)
{
    free(s->nodes);
    *s = (struct unigram_scratch){0};
}

struct path {
    const struct unigram *u;
    const char *text;
    int32_t n;
    struct unigram_node *nodes;
    bool guarded;
};

static void offer(struct path *p, int32_t from, int32_t to, double score, int32_t id)
{
    struct unigram_node *node = &p->nodes[to];
    double sum = p->nodes[from].sum + score;
    if (p->u->rules.single)
        sum = (float)sum;
    if (node->from >= 0 && sum <= node->sum)
        return;
    node->sum = sum;
    node->from = from;
    node->id = id;
}

/* Offers the tokens that start at `at`; true: one of them is the character there. */
static bool offer_tokens(struct path *p, int32_t at, int32_t len)
{
    bool single = false;
    const struct trie *t = &p->u->trie;
    uint32_t node = 0;
    for (int32_t i = at; i < p->n; i++) {
        node = trie_step(t, node, (unsigned char)p->text[i]);
        if (node == 0)
            break;
        const int32_t value = trie_value(t, node);
        if (value < 0)
            continue;
        const struct entry *token = &p->u->tokens[value];
        if (p->guarded && token->control)
            continue;
        offer(p, at, i + 1, token->score, token->id);
        single = single || i + 1 - at == len;
    }
    return single;
}

static bool find_ways(struct path *p, struct err *e)
{
    const struct unigram_rules *rules = &p->u->rules;
    for (int32_t at = 0, len; at < p->n; at += len) {
        len = utf8_length((unsigned char)p->text[at]);
        if (offer_tokens(p, at, len))
            continue;
        if (rules->unknown < 0 && rules->byte_token[(unsigned char)p->text[at]] < 0)
            return err_set(e, ERR_INVALID,
                           "\"%.*s\" is no token, and the vocabulary has none for the unknown", len,
                           p->text + at);
        offer(p, at, at + len, rules->unk_score, rules->unknown);
    }
    return true;
}

static bool say_bytes(const struct path *p, int32_t from, int32_t to, struct token_list *out,
                      bool *ok)
{
    const int32_t *tokens = p->u->rules.byte_token;
    for (int32_t i = from; i < to; i++)
        if (tokens[(unsigned char)p->text[i]] < 0)
            return false;
    for (int32_t i = from; i < to; i++)
        *ok = *ok && token_list_add(out, tokens[(unsigned char)p->text[i]]);
    return true;
}

static int32_t look_up(const struct path *p, int32_t from, int32_t to)
{
    const struct trie *t = &p->u->trie;
    uint32_t node = 0;
    for (int32_t i = from; i < to; i++)
        if ((node = trie_step(t, node, (unsigned char)p->text[i])) == 0)
            return -1;
    const int32_t value = trie_value(t, node);
    bool allowed = value >= 0 && !(p->guarded && p->u->tokens[value].control);
    return allowed ? p->u->tokens[value].id : -1;
}

/* Says an unknown run. What it follows tells whether it only goes on with one. */
static bool say_unknown(const struct path *p, int32_t from, int32_t to, struct unigram_scratch *s,
                        struct token_list *out)
{
    const struct unigram_rules *rules = &p->u->rules;
    bool ok = true, after = s->after_unknown;
    int32_t id = rules->look_up ? look_up(p, from, to) : -1;
    s->after_unknown = false;
    if (id >= 0 && id != rules->unknown)
        return token_list_add(out, id);
    if (id < 0 && say_bytes(p, from, to, out, &ok))
        return ok;
    s->after_unknown = rules->fuse;
    return after || rules->unknown < 0 || token_list_add(out, rules->unknown);
}

static bool say_all(const struct path *p, struct unigram_scratch *s, struct token_list *out)
{
    struct unigram_node *nodes = p->nodes;
    for (int32_t at = p->n; at > 0; at = nodes[at].from)
        nodes[nodes[at].from].next = at;
    for (int32_t at = 0; at < p->n;) {
        int32_t end = nodes[at].next;
        if (nodes[end].id != p->u->rules.unknown) {
            s->after_unknown = false;
            if (!token_list_add(out, nodes[end].id))
                return false;
        } else {
            while (p->u->rules.fuse && end < p->n &&
                   nodes[nodes[end].next].id == p->u->rules.unknown)
                end = nodes[end].next;
            if (!say_unknown(p, at, end, s, out))
                return false;
        }
        at = end;
    }
    return true;
}

static bool reserve(struct unigram_scratch *s, size_t n, struct err *e)
{
    if (n <= s->cap)
        return true;
    free(s->nodes);
    s->cap = n < 256 ? 256 : n;
    s->nodes = malloc(s->cap * sizeof *s->nodes);
    if (!s->nodes) {
        s->cap = 0;
        return err_set(e, ERR_MEMORY, "out of memory for a text of %zu bytes", n);
    }
    return true;
}

bool unigram_encode(const struct unigram *u, const char *text, size_t n, bool guarded,
                    struct unigram_scratch *s, struct token_list *out, struct err *e)
{
    if (!reserve(s, n + 1, e))
        return false;
    struct path p = {.u = u, .text = text, .n = (int32_t)n, .nodes = s->nodes, .guarded = guarded};
    for (size_t i = 0; i <= n; i++)
        p.nodes[i] = (struct unigram_node){.from = -1};
    p.nodes[0].sum = s->sum;
    if (!find_ways(&p, e))
        return false;
    s->sum = p.nodes[n].sum;
    return say_all(&p, s, out) || err_set(e, ERR_MEMORY, "out of memory for token ids");
}
