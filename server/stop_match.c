#include "stop_match.h"

#include <stdlib.h>
#include <string.h>

static void fill_back(struct stop_string *s)
{
    s->back[0] = 0;
    for (int i = 1; i < s->len; i++) {
        int k = s->back[i - 1];
        while (k > 0 && s->text[k] != s->text[i])
            k = s->back[k - 1];
        s->back[i] = (uint16_t)(k + (s->text[k] == s->text[i]));
    }
}

bool stop_set_add(struct stop_set *set, const char *text, size_t len)
{
    if (len == 0)
        return true;
    size_t room = (len + 1) & ~(size_t)1;
    char *p = malloc(room + len * sizeof(uint16_t));
    if (!p)
        return false;
    memcpy(p, text, len);
    struct stop_string *s = &set->strings[set->n++];
    *s = (struct stop_string){.text = p, .back = (uint16_t *)(void *)(p + room), .len = (int)len};
    fill_back(s);
    return true;
}

void stop_set_free(struct stop_set *set)
{
    for (int i = 0; i < set->n; i++)
        free(set->strings[i].text);
    set->n = 0;
}

static int advance(const struct stop_string *s, int matched, char c)
{
    while (matched > 0 && s->text[matched] != c)
        matched = s->back[matched - 1];
    return matched + (s->text[matched] == c);
}

int stop_feed(struct stop_matcher *m, const struct stop_set *set, const char *text, size_t n,
              size_t *used)
{
    for (size_t i = 0; set->n > 0 && i < n; i++) {
        int found = 0;
        for (int k = 0; k < set->n; k++) {
            int matched = advance(&set->strings[k], m->matched[k], text[i]);
            m->matched[k] = (uint16_t)matched;
            if (matched == set->strings[k].len && matched > found)
                found = matched;
        }
        if (found) {
            *used = i + 1;
            return found;
        }
    }
    *used = n;
    return 0;
}

int stop_held(const struct stop_matcher *m, const struct stop_set *set)
{
    int held = 0;
    for (int k = 0; k < set->n; k++)
        if (m->matched[k] > held)
            held = m->matched[k];
    return held;
}
