#include "joins.h"

void joins_note(struct joins *j, struct str token)
{
    for (size_t i = 0; i + 1 < token.len; i++) {
        unsigned char a = (unsigned char)token.data[i], b = (unsigned char)token.data[i + 1];
        if ((b & 0xC0) != 0x80)
            j->bits[a][b / 8] |= (uint8_t)(1 << b % 8);
    }
}

size_t joins_part_end(const struct joins *j, const char *text, size_t n, size_t at)
{
    for (size_t i = at + 1; i < n; i++) {
        unsigned char a = (unsigned char)text[i - 1], b = (unsigned char)text[i];
        if ((b & 0xC0) != 0x80 && !(j->bits[a][b / 8] >> b % 8 & 1))
            return i;
    }
    return n;
}
