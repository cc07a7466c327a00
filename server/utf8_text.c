#include "utf8_text.h"

#include "utf8.h"

#include <string.h>

size_t utf8_code_points(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

void utf8_trim(char *text)
{
    text[utf8_check(text, strlen(text))] = '\0';
}
