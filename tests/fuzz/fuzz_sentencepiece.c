/* The input is the length of a SentencePiece model in two bytes, the model, and a text. */
#include <stdlib.h>

#include "fuzz_encode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t n = (size_t)data[0] | (size_t)data[1] << 8, left = size - 2;
    n = n < left ? n : left;
    struct tokenizer *t = tokenizer_open_sentencepiece(data + 2, n, NULL, NULL);
    if (t)
        check_encoding(t, (const char *)data + 2 + n, left - n);
    tokenizer_free(t);
    return 0;
}
