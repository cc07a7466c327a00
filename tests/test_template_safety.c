/* What templates and their data must not be able to do: pass data off as the template's text,
 * exhaust the server, or get in each other's way. */
#include <pthread.h>

#include "template_rig.h"
#include "template_tail.h"

static void the_template_wrote_its_text_and_its_constants(void **state)
{
    const char json[] = "{\"d\": \"data\", \"bos_token\": \"<s>\", \"n\": 5}";
    writes("a{{ d }}b", json, "[a]data[b]");
    writes("{{ 'a' + d + 'b' }}{{ 'c' ~ d ~ 1 }}", json, "[a]data[bc]data1");
    writes("{{ bos_token }}{{ n }}{{ none }}", json, "[<s>]5None");
    writes("{{ ['a', d]|join(', ') }}", json, "[a, ]data");
    writes("{{ 'x-y'|replace('-', d) }}{{ d|replace('at', 'XX') }}", json, "[x]data[y]d[XX]a");
    writes("{{ (' a ' + d + ' b ').strip() }}{{ ('ab' + d)[1:4] }}", json, "[a ]data[ bb]da");
    writes("{{ ('a,' + d).split(',') | join('|') }}{{ ('a' + d)|upper }}", json, "[a|]data[A]DATA");
    writes("{% set s %}a{{ d }}{% endset %}{{ s }}", json, "[a]data");
    writes("{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(d) }}{{ m('c') }}", json, "[<]data[><c>]");
    writes("{{ '%s:%d' % (d, 3) }}{{ '{}-{}'.format(d, 'q') }}", json, "data[:]3data[-q]");
    writes("{{ {'k': d, 'c': 'const'}|tojson }}{{ ['c'] }}", json,
           "{\"k\": \"data\", \"c\": \"const\"}['c']");
    writes("{% filter upper %}a{{ d }}{% endfilter %}{{ 'ab'|indent }}{{ 'a' * 2 }}", json,
           "[A]DATA[abaa]");
    writes("{% for c in 'a' + d %}{{ c }}{% endfor %}{{ ('a' + d)|reverse }}", json,
           "[a]dataatad[a]");
    writes("{{ ('a' + d)|trim|title }}{{ 'x'|default(d) }}{{ nope|default('e') }}", json,
           "[A]data[xe]");
}

static void a_usual_role_counts_as_the_templates_and_no_other_text_does(void **state)
{
    const char source[] =
        "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content }}{% endfor %}";
    writes(source, "{\"messages\": [{\"role\": \"user\", \"content\": \"user\"}]}",
           "[<|user|>]user");
    writes(source, "{\"messages\": [{\"role\": \"im_end\", \"content\": \"\"}]}", "[<|]im_end[|>]");
    writes("{{ m.role }}{{ x[0].role }}",
           "{\"m\": {\"role\": \"user\"}, \"x\": [{\"role\": "
           "\"user\"}]}",
           "useruser");
}

/* Whatever is done to context text, no byte of it may come out as the template's. */
static void no_filter_or_method_turns_data_into_template_text(void **state)
{
    static const char *const calls[] = {
        "|upper",
        "|lower",
        "|capitalize",
        "|title",
        "|trim",
        "|string",
        "|safe",
        "|escape",
        "|forceescape",
        "|replace('q', d)",
        "|replace('M', d)",
        "|indent(2, true)",
        "|urlencode",
        "|truncate(5, true, '')",
        "|center(60)",
        "|join(d)",
        "|list",
        "|reverse",
        "|first",
        "|last",
        "|default(d)",
        "|tojson",
        "|format",
        "|wordcount",
        "|length",
        "|sort",
        "|unique|list",
        "|map('upper')|list",
        "|batch(3)|list",
        "|slice(2)|list",
        "|select|list",
        "|min",
        "|max",
        "|tojson(indent=2)",
        "|string|e",
        ".upper()",
        ".lower()",
        ".title()",
        ".capitalize()",
        ".swapcase()",
        ".casefold()",
        ".strip()",
        ".strip('M')",
        ".lstrip()",
        ".rstrip('K')",
        ".split()",
        ".split('R')",
        ".rsplit('R', 1)",
        ".splitlines()",
        ".replace('A', d)",
        ".join([d, d])",
        ".partition('R')",
        ".rpartition('R')",
        ".removeprefix('M')",
        ".removesuffix('K')",
        ".center(50)",
        ".ljust(50)",
        ".rjust(50, d[0])",
        ".zfill(50)",
        ".expandtabs()",
        ".format()",
        "[1:3]",
        "[::-1]",
        "[0]",
        " * 3",
        " + d",
        " ~ d",
        " % ()",
        ".startswith(d)",
        ".find(d)",
        ".count(d)",
    };
    static const char json[] = "{\"d\": \"MARK MARK <|im_end|> \\u00e9\\nMARK\", \"o\": "
                               "{\"MARK\": \"MARK\", \"l\": [\"MARK\", {\"MARK\": 1}]}}";
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char source[300];
        struct rendered out;
        struct err e;
        snprintf(source, sizeof source,
                 "{%% set r = d%s %%}{{ r }}{%% for c in r|string %%}{{ c }}{%% endfor %%}",
                 calls[i]);
        if (!render(source, json, &out, &e))
            fail_msg("%s: %s", source, e.msg);
        if (out.n_spans != 0)
            fail_msg("%s: a byte of \"%s\" counts as the template's", source, out.text.data);
        rendered_free(&out);
    }
    writes("{{ o }}{{ o|tojson }}{{ o.items()|list }}{{ o.keys()|join }}{{ o|dictsort }}"
           "{% for k, v in o.items() %}{{ k }}{{ v }}{% endfor %}{{ '%s' % o }}{{ o|string }}"
           "{{ o|length }}{{ o.l|join }}{{ '{}'.format(o) }}{{ [o] }}{{ o|list }}",
           "{\"o\": {\"M\": \"N\", \"l\": [1]}}",
           "{'M': 'N', 'l': [1]}{\"M\": \"N\", \"l\": [1]}[('M', 'N'), ('l', [1])]Ml"
           "[('l', [1]), ('M', 'N')]MNl[1]{'M': 'N', 'l': [1]}{'M': 'N', 'l': [1]}21"
           "{'M': 'N', 'l': [1]}[{'M': 'N', 'l': [1]}]['M', 'l']");
}

static char *repeated(const char *a, const char *middle, const char *z, int n)
{
    size_t na = strlen(a), nm = strlen(middle), nz = strlen(z);
    char *s = malloc((na + nz) * (size_t)n + nm + 1), *p = s;
    assert_non_null(s);
    for (int i = 0; i < n; i++, p += na)
        memcpy(p, a, na);
    memcpy(p, middle, nm);
    p += nm;
    for (int i = 0; i < n; i++, p += nz)
        memcpy(p, z, nz);
    *p = '\0';
    return s;
}

static void deep_templates_are_refused(void **state)
{
    static const struct {
        const char *a, *middle, *z;
    } shapes[] = {
        {"(", "1", ")"},    {"[", "", "]"},      {"not ", "1", ""}, {"-", "1", ""},
        {"{1: ", "1", "}"}, {"f(", "1", ")"},    {"x[", "1", "]"},  {"1 if 1 else ", "1", ""},
        {"", "x", ".a"},    {"", "x", "|upper"}, {"", "x", "()"},   {"1 ** (", "1", ")"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char *inner = repeated(shapes[i].a, shapes[i].middle, shapes[i].z, 100000);
        char *source = repeated("{{ ", inner, " }}", 1);
        fails_as(source, context, ERR_LIMIT, "deep");
        free(inner);
        free(source);
    }
    char *tags = repeated("{% if 1 %}", "", "{% endif %}", 100000);
    fails_as(tags, context, ERR_LIMIT, "deep");
    free(tags);
    char *loops = repeated("{% for x in [1] %}", "", "", 100000);
    fails_as(loops, context, ERR_LIMIT, "deep");
    free(loops);
}

static void long_flat_chains_are_fine(void **state)
{
    char *chain = repeated("", "1", " + 1", 20000), *source = repeated("{{ ", chain, " }}", 1);
    gives(source, "{}", "20001");
    free(chain);
    free(source);
    char *arms = repeated("", "{% if 0 %}", "{% elif 0 %}", 20000);
    char *whole = repeated("", arms, "{% else %}y{% endif %}", 1);
    gives(whole, "{}", "y");
    free(arms);
    free(whole);
}

/* Runs out of a tenth of the steps that a template has by default. */
static void runs_out_of_steps(const char *source)
{
    struct rendered out;
    struct err e;
    struct template_limits limits = {.max_steps = 5000000};
    assert_false(render_with(source, strlen(source), context, limits, &out, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_contains(e.msg, "steps");
}

static void hostile_templates_end_at_a_limit(void **state)
{
    fails_as("{{ 'x' * 10 ** 12 }}", context, ERR_LIMIT, "MiB");
    fails_as("{{ '\t'.expandtabs(10 ** 12) }}", context, ERR_LIMIT, "MiB");
    fails_as("{{ [1] * 10 ** 12 }}", context, ERR_LIMIT, "");
    fails("{{ range(10 ** 12) }}", "limited to 100000");
    fails_as("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
             "{% endfor %}",
             context, ERR_LIMIT, "MiB");
    fails_as("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", context, ERR_LIMIT, "deep");
    fails_as("{% set ns = namespace() %}{% set ns.l = [] %}{% for i in range(1000) %}"
             "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
             context, ERR_LIMIT, "deep");
    fails_as("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", context, ERR_LIMIT, "deep");
    runs_out_of_steps("{% set ns = namespace() %}{% set ns.l = () %}{% for i in range(60) %}"
                      "{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ ns.l == ns.l }}");
    fails("{% set ns = namespace() %}{% set ns.l = () %}{% for i in range(60) %}"
          "{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
          "unhashable");
    runs_out_of_steps(
        "{% set s = 'x' * 10 ** 7 %}{% for i in range(99999) %}{{ l[s] }}{{ {s: 1}[s] }}"
        "{% endfor %}");
    runs_out_of_steps(
        "{% set s = 'x' * 10 ** 6 %}{% for i in range(99999) %}{{ s.rfind('y' + s[1:]) }}"
        "{% endfor %}");
    runs_out_of_steps(
        "{% set s = 'x' * 10 ** 7 %}{% for i in range(99999) %}{{ s[i] }}{{ s|length }}"
        "{{ 'y' in s }}{% endfor %}");
    fails_as("{{ ('a\n' * 100000)|indent('b' * 100000) }}", context, ERR_LIMIT, "");
    fails_as("{{ '%2000001d' % 1 }}", context, ERR_INVALID, "width");
    runs_out_of_steps(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
    fails_as("{{ '{:{:{:1}}}'.format(1, 1, 1) }}", context, ERR_INVALID, "nested too deeply");
}

static void a_macro_keeps_the_loop_turn_that_made_it(void **state)
{
    gives("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro k() %}{{ i }}{% endmacro %}"
          "{% if loop.first %}{% set ns.f = k %}{% endif %}{% endfor %}{{ ns.f() }}",
          "{}", "1");
}

static void limits_can_be_set_lower(void **state)
{
    static const struct {
        const char *source;
        struct template_limits limits;
        const char *part;
    } cases[] = {
        {"{{ 'x' * 101 }}", {.max_output = 100}, "longer than 100 bytes"},
        {"{% for i in range(50) %}{% endfor %}", {.max_steps = 50}, "more than 50 steps"},
        {"{{ [[[[1]]]] }}", {.max_depth = 3}, "more than 3 deep"},
        {"{{ 'x' * 2000000 }}", {.max_memory = 1 << 20}, "more than 1 MiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rendered out;
        struct err e;
        const char *s = cases[i].source;
        assert_false(render_with(s, strlen(s), "{}", cases[i].limits, &out, &e));
        assert_int_equal(e.code, ERR_LIMIT);
        assert_contains(e.msg, cases[i].part);
    }
}

static void appending_in_a_loop_takes_linear_memory(void **state)
{
    static const char source[] =
        "{% set ns = namespace(s='') %}{% for i in range(20000) %}"
        "{% set ns.s = ns.s + 'some text of forty characters, or so....' %}{% endfor %}"
        "{{ ns.s|length }}";
    struct rendered out;
    struct err e;
    if (!render_with(source, strlen(source), "{}", (struct template_limits){.max_memory = 16 << 20},
                     &out, &e))
        fail_msg("%s", e.msg);
    assert_string_equal(out.text.data, "800000");
    rendered_free(&out);
}

static void a_string_that_was_appended_to_stays_as_it_was(void **state)
{
    gives("{% set a = 'x' * 300 %}{% set b = a + 'yy' %}{% set c = b + '1' %}{% set d = b + '2' %}"
          "{{ b|length }}{{ c[-3:] }}{{ d[-3:] }}{{ (c + d)|length }}",
          "{}", "302yy1yy2606");
}

static void bytes_that_are_not_text_are_handled(void **state)
{
    struct rendered out;
    struct err e;
    struct template_limits none = {0};
    assert_false(render_with("a\xff", 2, "{}", none, &out, &e));
    assert_contains(e.msg, "not UTF-8 at byte 1");
    assert_true(render_with("a\0b{{ x }}", 10, "{\"x\": \"c\\u0000d\"}", none, &out, &e));
    assert_int_equal(out.text.len, 6);
    assert_memory_equal(out.text.data, "a\0bc\0d", 6);
    rendered_free(&out);
}

static void a_chat_is_cut_after_its_last_message(void **state)
{
    static const char source[] = "{% for m in messages %}<{{ m.content|trim }}>{% endfor %}<end>";
    static const char json[] = "{\"messages\": [{\"content\": \"a\"}, {\"content\": \"a b \"}]}";
    json_t *c = json_loads(json, 0, NULL);
    struct rendered out;
    struct err e;
    char text[100];
    assert_true(render(source, json, &out, &e));
    assert_true(template_cut_after(&out, json_object_get(c, "messages"), &e));
    mark(&out, text, sizeof text);
    assert_string_equal(text, "[<]a[><]a b");
    json_object_set_new(json_array_get(json_object_get(c, "messages"), 1), "content",
                        json_string("never written"));
    assert_false(template_cut_after(&out, json_object_get(c, "messages"), &e));
    assert_contains(e.msg, "did not write");
    rendered_free(&out);
    json_decref(c);
}

struct sharing {
    const struct template *t;
    const json_t *context;
    bool same;
};

static void *render_often(void *arg)
{
    struct sharing *s = arg;
    for (int i = 0; i < 50; i++) {
        struct template_input in = {.context = s->context};
        struct rendered out;
        if (!template_render(s->t, &in, &out, NULL) || strcmp(text_of(&out), "[A]3x1x1.") != 0)
            s->same = false;
        rendered_free(&out);
    }
    return NULL;
}

static void threads_share_a_template_and_a_context(void **state)
{
    static const char source[] = "{% macro m(v) %}[{{ v|upper }}]{% endmacro %}{{ m('a') }}"
                                 "{{ l|length }}{{ ('x%d' % 1) * 2 }}{{ '.' }}";
    struct template *t = template_parse(source, sizeof source - 1, NULL);
    json_t *c = json_loads(context, 0, NULL);
    struct sharing s[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        s[i] = (struct sharing){t, c, true};
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &s[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(s[i].same);
    }
    json_decref(c);
    template_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_template_wrote_its_text_and_its_constants),
        cmocka_unit_test(a_usual_role_counts_as_the_templates_and_no_other_text_does),
        cmocka_unit_test(no_filter_or_method_turns_data_into_template_text),
        cmocka_unit_test(deep_templates_are_refused),
        cmocka_unit_test(long_flat_chains_are_fine),
        cmocka_unit_test(hostile_templates_end_at_a_limit),
        cmocka_unit_test(a_macro_keeps_the_loop_turn_that_made_it),
        cmocka_unit_test(limits_can_be_set_lower),
        cmocka_unit_test(appending_in_a_loop_takes_linear_memory),
        cmocka_unit_test(a_string_that_was_appended_to_stays_as_it_was),
        cmocka_unit_test(bytes_that_are_not_text_are_handled),
        cmocka_unit_test(a_chat_is_cut_after_its_last_message),
        cmocka_unit_test(threads_share_a_template_and_a_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
