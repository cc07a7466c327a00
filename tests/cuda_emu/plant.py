#!/usr/bin/env python3
"""plant.py FILE OUT OLD NEW [SOURCE]: a copy of a kernel's source with one text, which must stand
there once, replaced; ~ in OLD and NEW is a line's end. With SOURCE, FILE is a header that it
includes: OUT then has the changed header and the source, whose own include finds it included."""
import sys

file, out, old, new, *source = sys.argv[1:]
old, new = old.replace("~", "\n"), new.replace("~", "\n")
text = open(file).read()
if text.count(old) != 1:
    sys.exit(f"{file}: {old!r} stands there {text.count(old)} times, not once")
with open(out, "w") as f:
    f.write(f'#line 1 "{file}"\n' + text.replace(old, new))
    f.writelines(f'#include "{s}"\n' for s in source)
