#include "protobuf.h"

static bool varint(struct str *rest, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (rest->len == 0)
            return false;
        unsigned char b = (unsigned char)*rest->data;
        *rest = (struct str){rest->data + 1, rest->len - 1};
        *out |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80)
            return true;
    }
    return false;
}

static bool fixed(struct str *rest, size_t n, uint64_t *out)
{
    if (rest->len < n)
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)(unsigned char)rest->data[i] << 8 * i;
    *rest = (struct str){rest->data + n, rest->len - n};
    return true;
}

static bool value(struct str *rest, struct proto_field *f)
{
    switch (f->wire) {
    case PROTO_VARINT:
        return varint(rest, &f->value);
    case PROTO_64:
        return fixed(rest, 8, &f->value);
    case PROTO_32:
        return fixed(rest, 4, &f->value);
    case PROTO_BYTES:
        if (!varint(rest, &f->value) || f->value > rest->len)
            return false;
        f->bytes = (struct str){rest->data, (size_t)f->value};
        *rest = (struct str){rest->data + f->value, rest->len - (size_t)f->value};
        return true;
    default:
        return false;
    }
}

int proto_next(struct str *rest, struct proto_field *f, struct err *e)
{
    uint64_t key;
    if (rest->len == 0)
        return 0;
    size_t left = rest->len;
    *f = (struct proto_field){0};
    if (varint(rest, &key) && key >> 3 <= UINT32_MAX >> 3 && key >> 3 > 0) {
        f->number = (uint32_t)(key >> 3);
        f->wire = (enum proto_wire)(key & 7);
        if (value(rest, f))
            return 1;
    }
    err_set(e, ERR_INVALID, "no protocol buffer: a broken field %zu bytes before the end", left);
    return -1;
}

float proto_float(const struct proto_field *f)
{
    uint32_t bits = (uint32_t)f->value;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
