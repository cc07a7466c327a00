/* The added tokens of a tokenizer.json, and those that tokenizer_config.json adds to them. Ids
 * are given as the library gives them: the model's own, or the next free one. */
#include <stdlib.h>

#include "tokenizer_json.h"

static int32_t find_added(const struct json_reading *r, struct str content)
{
    return string_table_find(&r->added_by_name, content.data, content.len);
}

int32_t json_find_id(const struct json_reading *r, struct str name)
{
    int32_t added = find_added(r, name);
    return added >= 0 ? r->added[added].id : string_table_find(&r->by_name, name.data, name.len);
}

static bool read_flags(struct json_reading *r, const json_t *from, struct added_token *out)
{
    static const char *const where = "added_tokens";
    bool left, right, word;
    if (!json_get_bool(from, where, "special", false, &out->special, r->e) ||
        !json_get_bool(from, where, "normalized", !out->special, &out->normalized, r->e) ||
        !json_get_bool(from, where, "lstrip", false, &left, r->e) ||
        !json_get_bool(from, where, "rstrip", false, &right, r->e) ||
        !json_get_bool(from, where, "single_word", false, &word, r->e))
        return false;
    out->flags = (uint8_t)((left ? SPECIAL_LSTRIP : 0) | (right ? SPECIAL_RSTRIP : 0) |
                           (word ? SPECIAL_SINGLE_WORD : 0));
    return true;
}

/* A token that is there takes the new flags. */
static bool add_token(struct json_reading *r, struct added_token token)
{
    int32_t at = find_added(r, token.content);
    if (token.content.len == 0)
        return true;
    if (at >= 0) {
        token.id = r->added[at].id;
        r->added[at] = token;
        return true;
    }
    int32_t own = json_find_id(r, token.content);
    size_t id = own >= 0 ? (size_t)own : r->next_id;
    if (r->n_added == r->most_added || id >= MOST_IDS)
        return err_set(r->e, ERR_LIMIT, "an added token with an id above %d", MOST_IDS);
    if (id >= r->next_id)
        r->next_id = id + 1;
    token.id = (int32_t)id;
    r->added[r->n_added] = token;
    r->added_names[r->n_added] = token.content;
    string_table_add(&r->added_by_name, (int32_t)r->n_added++);
    return true;
}

static bool add_from(struct json_reading *r, const json_t *from)
{
    struct added_token token;
    return json_get_str(from, "added_tokens", "content", &token.content, r->e) &&
           read_flags(r, from, &token) && add_token(r, token);
}

static int compare_ids(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    long long i = atoll(*x), k = atoll(*y);
    return (i > k) - (i < k);
}

/* tokenizer_config.json has them by id, in no certain order. */
static bool add_from_decoder(struct json_reading *r)
{
    json_t *decoder = json_object_get(r->config, "added_tokens_decoder");
    size_t n = json_object_size(decoder), i = 0;
    const char *key;
    json_t *v;
    if (n == 0)
        return true;
    const char **keys = malloc(n * sizeof *keys);
    if (!keys)
        return tokenizer_oom(r->e, r->n_ids);
    json_object_foreach(decoder, key, v)
    {
        keys[i++] = key;
    }
    qsort(keys, n, sizeof *keys, compare_ids);
    bool ok = true;
    for (i = 0; ok && i < n; i++)
        ok = add_from(r, json_object_get(decoder, keys[i])) ||
             err_prefix(r->e, "tokenizer_config.json");
    free(keys);
    return ok;
}

/* A special token by name, which may be written as an object. */
static bool add_named(struct json_reading *r, const json_t *v)
{
    const json_t *content = json_is_object(v) ? json_object_get(v, "content") : v;
    if (!json_is_string(content) || find_added(r, json_str(content)) >= 0)
        return true;
    return add_token(r, (struct added_token){.content = json_str(content), .special = true});
}

static bool add_from_config(struct json_reading *r)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    size_t i;
    const json_t *v;
    if (!add_from_decoder(r))
        return false;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (!add_named(r, json_object_get(r->config, names[i])))
            return false;
    json_array_foreach(json_object_get(r->config, "additional_special_tokens"), i, v)
    {
        if (!add_named(r, v))
            return false;
    }
    return true;
}

void json_free_added(struct json_reading *r)
{
    free(r->added);
    free(r->added_names);
    string_table_free(&r->added_by_name);
}

static bool make_room(struct json_reading *r, const json_t *list)
{
    enum { NAMED = 8 };
    r->most_added = json_array_size(list) + NAMED +
                    json_object_size(json_object_get(r->config, "added_tokens_decoder")) +
                    json_array_size(json_object_get(r->config, "additional_special_tokens"));
    r->next_id = r->n_own;
    r->added = malloc(r->most_added * sizeof *r->added);
    r->added_names = malloc(r->most_added * sizeof *r->added_names);
    return (r->added && r->added_names &&
            string_table_init(&r->added_by_name, r->added_names, r->most_added)) ||
           tokenizer_oom(r->e, r->n_ids);
}

bool json_read_added(struct json_reading *r)
{
    size_t i;
    const json_t *from, *list = json_object_get(r->root, "added_tokens");
    if (list && !json_is_array(list) && !json_is_null(list))
        return err_set(r->e, ERR_INVALID, "added_tokens is %s: expected a list",
                       json_type_of(list));
    if (!make_room(r, list))
        return false;
    json_array_foreach(list, i, from)
    {
        if (!add_from(r, from))
            return false;
    }
    return !r->config || add_from_config(r);
}
