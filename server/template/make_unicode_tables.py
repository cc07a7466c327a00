"""Prints unicode_tables.c, made from Python's own Unicode data."""
import sys, unicodedata

N = 0x110000
chars = [chr(c) for c in range(N)]
surrogate = range(0xD800, 0xE000)


def runs(points):
    """(first, last, stride) of ascending code points, stride 1 or 2."""
    out = []
    for p in points:
        if out:
            first, last, stride = out[-1]
            if last == first and p - last in (1, 2):
                out[-1] = (first, p, p - last)
                continue
            if p - last == stride and last != first:
                out[-1] = (first, p, stride)
                continue
        out.append((p, p, 1))
    return out


def table(name, pred):
    r = runs([c for c in range(N) if c not in surrogate and pred(chars[c])])
    print(f"const struct unicode_run {name}[] = {{")
    line = "   "
    for a, b, s in r:
        item = f"{{{a},{b},{s}}},"
        if len(line) + len(item) > 98:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")
    print(f"const size_t {name}_n = sizeof {name} / sizeof {name}[0];\n")


def maps(name, f):
    out = []
    special = []
    for c in range(N):
        if c in surrogate:
            continue
        m = f(chars[c])
        if len(m) > 1:
            special.append((c, m))
        elif m != chars[c]:
            d = ord(m) - c
            if out and out[-1][3] == d:
                a, b, s, _ = out[-1]
                if (a == b and c - b in (1, 2)) or (a != b and c - b == s):
                    out[-1] = (a, c, c - b, d)
                    continue
            out.append((c, c, 1, d))
    print(f"const struct unicode_map {name}[] = {{")
    line = "   "
    for a, b, s, d in out:
        item = f"{{{a},{b},{s},{d}}},"
        if len(line) + len(item) > 98:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")
    print(f"const size_t {name}_n = sizeof {name} / sizeof {name}[0];\n")
    print(f"const struct unicode_special {name}_special[] = {{")
    line = "   "
    for c, m in special:
        p = [str(ord(x)) for x in m] + ["0"] * (3 - len(m))
        item = f"{{{c},{{{','.join(p)}}}}},"
        if len(line) + len(item) > 98:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")
    print(f"const size_t {name}_special_n = sizeof {name}_special / sizeof {name}_special[0];\n")


print(f"/* Unicode {unicodedata.unidata_version}, by make_unicode_tables.py. */")
print('#include "unicode.h"\n\n/* clang-format off */')
table("unicode_unprintable", lambda c: not c.isprintable())
table("unicode_alpha", str.isalpha)
table("unicode_numeric", str.isnumeric)
table("unicode_digit", str.isdigit)
table("unicode_decimal", str.isdecimal)
table("unicode_lower", str.islower)
table("unicode_upper", str.isupper)
table("unicode_titlecase", lambda c: unicodedata.category(c) == "Lt")
table("unicode_case_ignorable", lambda c: unicodedata.category(c) in ("Mn", "Me", "Cf", "Lm", "Sk") or c in "'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a")
maps("unicode_to_upper", str.upper)
maps("unicode_to_lower", str.lower)
maps("unicode_to_title", str.title)
