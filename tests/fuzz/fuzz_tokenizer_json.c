/* The input is a tokenizer.json (or a tekken.json), a NUL, and a text: opening says no or gives
 * a tokenizer that keeps its promises. */
#include <jansson.h>
#include <stdlib.h>

#include "fuzz_encode.h"

static struct tokenizer *open_json(const char *data, size_t n)
{
    json_t *root = json_loadb(data, n, 0, NULL);
    struct tokenizer *t = NULL;
    if (json_is_object(json_object_get(root, "model")))
        t = tokenizer_open_json(root, json_object_get(root, "tokenizer_config"), NULL);
    else if (root)
        t = tokenizer_open_tekken(root, NULL);
    json_decref(root);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    struct tokenizer *t = open_json((const char *)data, n);
    if (t)
        check_encoding(t, (const char *)data + n, size - n);
    tokenizer_free(t);
    return 0;
}
