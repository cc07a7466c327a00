#include "inspect.h"
#include "loaded_model.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

static void print_value(const json_t *v);

static void print_text(const char *s)
{
    output_text(stdout, s);
}

static void print_object(const json_t *o)
{
    const char *key, *between = "";
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        printf("%s", between);
        print_text(key);
        putchar(' ');
        print_value(v);
        between = ", ";
    }
}

static void print_value(const json_t *v)
{
    if (json_is_string(v))
        print_text(json_string_value(v));
    else if (json_is_integer(v))
        printf("%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        printf("%g", json_real_value(v));
    else if (json_is_boolean(v))
        printf("%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_object(v))
        print_object(v);
}

void inspect_print(const json_t *all)
{
    const char *key;
    json_t *v, *item;
    size_t i;
    json_object_foreach((json_t *)all, key, v)
    {
        const bool many = json_is_array(v), types = strcmp(key, "tensors") == 0;
        const char *name;
        if ((many && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0))
            continue;
        printf("%-18s", key);
        if (many)
            json_array_foreach(v, i, item)
            {
                printf("%s", i ? "\n                  " : "");
                print_value(item);
            }
        else if (types) {
            const char *between = "";
            json_object_foreach(v, name, item)
            {
                char size[32];
                printf("%s", between);
                print_text(name);
                printf(": %lld in %s",
                       (long long)json_integer_value(json_object_get(item, "tensors")),
                       format_bytes((uint64_t)json_integer_value(json_object_get(item, "bytes")),
                                    size));
                between = "\n                  ";
            }
        } else
            print_value(v);
        printf("\n");
    }
}
