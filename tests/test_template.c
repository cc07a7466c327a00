/* Small templates of our own; the expected texts are what jinja2 3.1 gives for them. */
#include "template.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template_tail.h"

#include "test.h"

static const char *const trusted[] = {"bos_token", NULL};
static const char context[] = "{\"x\": {\"y\": {\"z\": \"deep\"}}, \"l\": [1, 2, 3]}";

static bool render_with(const char *source, size_t n, const char *json,
                        struct template_limits limits, struct rendered *out, struct err *e)
{
    json_t *c = json_loads(json, JSON_ALLOW_NUL, NULL);
    assert_non_null(c);
    *out = (struct rendered){0};
    *e = (struct err){0};
    struct template *t = template_parse(source, n, e);
    struct template_input in = {.context = c,
                                .trusted = trusted,
                                .now = 1785069296, /* 2026-07-26 12:34:56 UTC */
                                .limits = limits};
    bool ok = t && template_render(t, &in, out, e);
    template_free(t);
    json_decref(c);
    return ok;
}

static bool render(const char *source, const char *json, struct rendered *out, struct err *e)
{
    return render_with(source, strlen(source), json, (struct template_limits){0}, out, e);
}

static const char *text_of(const struct rendered *out)
{
    return out->text.data ? out->text.data : "";
}

static void gives(const char *source, const char *json, const char *want)
{
    struct rendered out;
    struct err e;
    if (!render(source, json, &out, &e))
        fail_msg("%s: %s", source, e.msg);
    if (strcmp(text_of(&out), want) != 0)
        fail_msg("%s\n gives: \"%s\"\n want:  \"%s\"", source, text_of(&out), want);
    rendered_free(&out);
}

static void fails_as(const char *source, const char *json, enum err_code code, const char *part)
{
    struct rendered out;
    struct err e;
    if (render(source, json, &out, &e))
        fail_msg("%.200s gives \"%.200s\", not an error", source, text_of(&out));
    assert_contains(e.msg, part);
    assert_int_equal(e.code, code);
    assert_null(out.text.data);
    assert_null(out.template_spans);
}

static void fails(const char *source, const char *part)
{
    fails_as(source, context, ERR_INVALID, part);
}

/* The text, with what the template wrote in brackets. */
static void mark(const struct rendered *out, char *text, size_t cap)
{
    size_t n = 0, s = 0;
    assert_true(out->text.len + 2 * out->n_spans < cap);
    for (size_t i = 0; i <= out->text.len; i++) {
        if (s < out->n_spans && i == out->template_spans[s].end) {
            text[n++] = ']';
            s++;
        }
        if (s < out->n_spans && i == out->template_spans[s].start)
            text[n++] = '[';
        if (i < out->text.len)
            text[n++] = out->text.data[i];
    }
    text[n] = '\0';
}

static void writes(const char *source, const char *json, const char *want)
{
    struct rendered out;
    struct err e;
    char text[2000];
    if (!render(source, json, &out, &e))
        fail_msg("%s: %s", source, e.msg);
    mark(&out, text, sizeof text);
    if (strcmp(text, want) != 0)
        fail_msg("%s\n writes: %s\n want:   %s", source, text, want);
    rendered_free(&out);
}

static void text_and_tags_follow_the_rules_of_white_space(void **state)
{
    gives("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", context, "a\n  b\nc");
    gives("a  {%- if true -%}  b  {%- endif -%}  c", context, "abc");
    gives("a\n  {%+ if true %}\nb{% endif +%}\nc", context, "a\n  b\nc");
    gives("  {{- ' x ' -}}  y", context, " x y");
    gives("  {{ 1 }}\n", context, "  1");
    gives("a\r\nb\rc\n\n", context, "a\nb\nc\n");
    gives("x {# c #}\n  {# d #}\ny {#- e -#} z", context, "x yz");
    gives("{% raw %}{{ x }}{% if %}{% endraw %}!", context, "{{ x }}{% if %}!");
    gives("{%- raw -%}  {{ x }}  {%- endraw -%}  !", context, "{{ x }}!");
    gives("{% raw %}\nx\n  {% endraw %}\ny", context, "\nx\ny");
    gives("{{ {'a': {'b': 1}}['a']['b'] }}", context, "1");
    gives("{# a #}{#- b +#}\n c", context, "\n c");
    gives("{{ 'a\\nb\\x41\\u00e9\\101\\q\\'' \"c\" }}", context, "a\nbA\303\251A\\q'c");
    gives("\303\251 {{ '\303\274' }}\343\200\200{{- 1 -}}\343\200\200x", context,
          "\303\251 \303\2741x");
}

static void expressions_bind_and_compute_as_in_python(void **state)
{
    gives("{{ 1 + 2 * 3 - 4 // 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ "
          "-7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }}",
          context, "6 4 64 1 -4 2 3.5 0.5");
    gives("{{ 1 ~ 2 ~ none }} {{ not true or true and false }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ "
          "2 in [1, 2] }} {{ 'a' not in 'bc' }}",
          context, "12None False True False True True");
    gives("{{ 'a' if false }}|{{ 'a' if true else 'b' }}|{{ 'a' if false else 'b' if false else "
          "'c' }}",
          context, "|a|c");
    gives("{{ [1, 2.0, 'x', none, true, (1,), {'k': 'v'}] }} {{ (1, 2) }} {{ () }} {{ 1, 2 }}",
          context, "[1, 2.0, 'x', None, True, (1,), {'k': 'v'}] (1, 2) () (1, 2)");
    gives("{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1.0 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 1_000 }} {{ 0x1f "
          "}} {{ 5 // 2.0 }} {{ -5.5 % 2 }} {{ 1e300 * 1e10 }} {{ 0.0001 }} {{ 100000.0 }}",
          context,
          "0.30000000000000004 1e+16 1.0 1e-05 123456789.125 1000 31 2.0 0.5 inf 0.0001 100000.0");
    gives("{{ 'abc'[1] }}{{ 'abc'[-1] }}{{ 'abcdef'[1:4] }}{{ 'abcdef'[::-1] }}{{ 'abcdef'[-2:] "
          "}}{{ 'a\303\261b'[1:] }}{{ [1,2,3,4][1::2] }}{{ 'abc'[5:] }}{{ (1,2,3)[:-1] }}",
          context, "bcbcdfedcbaef\303\261b[2, 4](1, 2)");
    gives("{{ 'ab' * 3 }}{{ [1] * 2 }}{{ [1] + [2] }}{{ (1,) + (2,) }}", context,
          "ababab[1, 1][1, 2](1, 2)");
    gives("{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 1 }} {{ [1] == [1.0] }} {{ {'a': 1} == {'a': "
          "1} }} {{ 1 != 2 }} {{ [1, 2] < [1, 3] }} {{ 'a' < 'b' }}",
          context, "True True False True True True True True");
    gives("{{ x.y.z }} {{ x['y']['z'] }} {{ x.items is callable }} {{ l.0 }} {{ l[-1] }} {{ l[9] "
          "}} {{ x.nope }} {{ x['items'] is callable }}",
          context, "deep deep True 1 3   True");
    gives("{{ +1 }}{{ -1|abs }}{{ (-1)|abs }}{{ 3 is odd and 4 is even }}{{ not 3 is even }}{{ 4 "
          "is divisibleby 2 }}{{ 'a' is in ['a'] }}",
          context, "111TrueTrueTrueTrue");
    gives("{{ \"it's\" }} {{ [\"it's\", 'q\"', 'b\\\\', 'n\\n', '\303\251\\x00'] }}", context,
          "it's [\"it's\", 'q\"', 'b\\\\', 'n\\n', '\303\251\\x00']");
}

static void undefined_prints_nothing_and_breaks_when_used(void **state)
{
    gives("[{{ nope }}]{% for x in nope %}x{% endfor %}{{ nope|length }}{{ nope == nope2 }}{{ "
          "nope|default('d') }}{{ nope is defined }}{{ nope|upper }}",
          context, "[]0TruedFalse");
    gives("{{ 1 in nope }}{{ nope ~ 'x' }}{{ [nope] }}{{ nope|list }}{{ nope|join(',') }}", context,
          "Falsex[Undefined][]");
}

static void statements_scope_their_variables(void **state)
{
    gives("{% set a = 1 %}{% for i in [1, 2] %}{{ a }}{% set a = 5 %}{{ a }}{% endfor %}{{ a }}",
          context, "15151");
    gives("{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor "
          "%}{{ ns.n }}",
          context, "6");
    gives("{% if true %}{% set b = 2 %}{% endif %}{{ b }}", context, "2");
    gives("{% for i in [1, 2] %}{% if loop.first %}{% set c = 1 %}{% endif %}{{ c is defined }}{% "
          "endfor %}",
          context, "TrueFalse");
    gives("{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% set x, y = 1, 2 "
          "%}{{ x }}{{ y }}",
          context, "12312");
    gives("{% set t %}a{{ 1 }}{% endset %}{{ t|upper }}{% set u | upper | replace('B', 'c') %}b{% "
          "endset %}{{ u }}",
          context, "A1c");
    gives("{% with a = 1, b = 2 %}{{ a + b }}{% set z = 1 %}{% endwith %}{{ z }}{{ a }}", context,
          "3");
    gives("{% filter upper|trim %} a{{ 'b' }} {% endfilter %}", context, "AB");
    gives("{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}", context, "a");
    gives("{% if 0 %}a{% elif '' %}b{% elif [0] %}c{% else %}d{% endif %}", context, "c");
}

static void for_loops_know_where_they_are(void **state)
{
    gives("{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ "
          "loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ "
          "loop.nextitem }}{{ loop.depth }} {% endfor %}",
          context, "10TrueFalse332b1 21FalseFalse321ac1 32FalseTrue310b1 ");
    gives("{% for x in [1,2,3,4] if x is even %}{{ x }}{{ loop.length }}{{ loop.last }}{% else "
          "%}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}",
          context, "22False42Trueempty");
    gives("{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break "
          "%}{% endif %}{{ x }}{% endfor %}",
          context, "0134");
    gives("{% for x in [1,1,2] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}",
          context, "aTruebFalseaTrue");
    gives("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for k in {'a': "
          "1} %}{{ k }}{% endfor %}{% for k, v in {'z': 1, 'a': 2}|dictsort %}{{ k }}{% endfor %}",
          context, "a1b2aaz");
    gives("{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else "
          "%}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}",
          context, "[12[23]][32]");
    gives("{% set ns = namespace(go=true) %}{% for x in [1,2,3] if ns.go %}{{ x }}{% if x == 2 "
          "%}{% set ns.go = false %}{% endif %}{% endfor %}",
          context, "12");
    gives("{% for x in [1,2] %}{% for y in [1,2] %}{{ loop.index }}{% if y == 1 %}{% continue %}{% "
          "endif %}{% break %}{% endfor %}{{ loop.last }}{% endfor %}",
          context, "12False12True");
}

static void macros_take_defaults_keywords_and_callers(void **state)
{
    gives("{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro "
          "%}{{ m(1) }} {{ m(1, 3, 4, 5, k=6) }} {{ m(b=1, a=0) }} {{ m(*[7, 8], **{'c': 9}) }}",
          context, "121(){} 134(5,){'k': 6} 010(){} 789(){}");
    gives(
        "{% macro w(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) w(3) %}{{ y + 1 }}{% endcall %}",
        context, "<4>");
    gives("{% macro r(n) %}{% if n > 0 %}{{ n }}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(5) }}",
          context, "54321");
    gives("{% set g = 1 %}{% macro q() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ q() }}{% macro "
          "u(x) %}[{{ x }}]{% endmacro %}{{ u() }}{{ q }}",
          context, "2[]<Macro 'q'>");
    gives("{% for i in [1, 2] %}{% macro k() %}{{ i }}{% endmacro %}{{ k() }}{% endfor %}", context,
          "12");
}

static void filters_give_what_jinja2_gives(void **state)
{
    gives("{{ ' a '|trim }}{{ 'xax'|trim('x') }}{{ 'aB c'|upper }}{{ 'AB'|lower }}{{ 'hELLO "
          "wORLD'|capitalize }}{{ 'hello wORLD-foo (bar'|title }}",
          context, "aaAB CabHello worldHello World-Foo (Bar");
    gives("{{ 'aaa'|replace('a', 'b', 2) }}{{ 'abc'|replace('', '-') }}{{ [1,2]|join('-') }}{{ "
          "[{'n': 1}]|join(',', attribute='n') }}",
          context, "bba-a-b-c-1-21");
    gives("{{ x|default('d') }}{{ ''|default('e', true) }}{{ none|d('f') }}{{ 'abc'|first }}{{ "
          "[1,2]|last }}{{ 'h\303\251\303\251'|length }}{{ {'a': 1}|count }}",
          context, "{'y': {'z': 'deep'}}eNonea231");
    gives("{{ '42'|int }} {{ '0x1f'|int(0, 16) }} {{ 'x'|int(7) }} {{ '3.7'|int }} {{ 3.9|int }} "
          "{{ '2.5'|float }} {{ 'q'|float }} {{ ' 12 '|int }} {{ none|int }} {{ true|int }} {{ "
          "'1_0'|int }}",
          context, "42 31 7 3 3 2.5 0.0 12 0 1 10");
    gives("{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ "
          "2.19|round(1, 'floor') }} {{ 1234|round(-2) }} {{ 42|round }} {{ 1250.0|round(-2) }}",
          context, "2.0 4.0 2.67 3.0 2.1 1200 42 1200.0");
    gives("{{ [3,1,2]|sort }} {{ ['b','A','c']|sort }} {{ ['b','A']|sort(case_sensitive=true) }} "
          "{{ [1,2]|sort(reverse=true) }} {{ [{'a': 2}, {'a': 1}]|sort(attribute='a') }}",
          context, "[1, 2, 3] ['A', 'b', 'c'] ['A', 'b'] [2, 1] [{'a': 1}, {'a': 2}]");
    gives("{{ [1,2,3]|sum }} {{ [{'v': 1}, {'v': 2}]|sum('v') }} {{ [3,1]|min }} {{ ['b','A']|max "
          "}} {{ []|max }} {{ [1,2,3]|reverse|list }} {{ 'abc'|reverse }} {{ -3|abs }}",
          context, "6 3 1 b  [3, 2, 1] cba 3");
    gives("{{ ['a','b']|map('upper')|list }} {{ [{'x': {'y': 1}}]|map(attribute='x.y')|list }} {{ "
          "[{}]|map(attribute='q', default='z')|list }} {{ [0,1,'']|select|list }} {{ "
          "[1,2,3]|reject('odd')|list }} {{ [{'r': 'u'}, {'r': 'a'}]|selectattr('r', 'equalto', "
          "'u')|list }} {{ [{'r': 1}, {}]|rejectattr('r', 'defined')|list }}",
          context, "['A', 'B'] [1] ['z'] [1] [2] [{'r': 'u'}] [{}]");
    gives("{{ ['a','A','b']|unique|list }} {{ [1,2,3,4,5]|batch(2, 'x')|list }} {{ "
          "[1,2,3,4,5]|slice(2, 'x')|list }} {{ [{'g': 1, 'v': 1}, {'g': 2, 'v': 2}, {'g': 1, 'v': "
          "3}]|groupby('g') }}",
          context,
          "['a', 'b'] [[1, 2], [3, 4], [5, 'x']] [[1, 2, 3], [4, 5, 'x']] [(1, [{'g': 1, 'v': 1}, "
          "{'g': 1, 'v': 3}]), (2, [{'g': 2, 'v': 2}])]");
    gives("{% for g in [{'g': 'B'}, {'g': 'b'}, {'g': 'a'}]|groupby('g') %}{{ g.grouper }}{{ "
          "g.list|length }}{% endfor %}",
          context, "a1B2");
    gives("{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent('> ', "
          "blank=true) }}|{{ 'a\n'|indent }}",
          context, "a\n    b\n\n    c|  a\n  b|a\n> \n> b|a\n");
    gives("{{ 'a b  c-d'|wordcount }} {{ '<a href=\"x\">&'|e }} {{ ('<b>'|safe) + '<c>' }} {{ "
          "'%s-%d'|format('a', 3) }} {{ 'a b/\303\274?'|urlencode }} {{ {'a': 1, 'b c': "
          "'\303\274'}|urlencode }}",
          context,
          "4 &lt;a href=&#34;x&#34;&gt;&amp; <b>&lt;c&gt; a-3 a%20b/%C3%BC%3F a=1&b+c=%C3%BC");
    gives("{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ "
          "'x'|center(5) }}| {{ {'a': 1}|items|list }} {{ 'ab'|list }} {{ 5|string + '5' }}",
          context, "foo... foo ba...   x  | [('a', 1)] ['a', 'b'] 55");
    gives("{{ {'b': 1, 'a': [1, 2.5, none, true, '\303\251\"\\n']}|tojson }} {{ {'a': [1, {}], "
          "'b': []}|tojson(indent=2) }} {{ '\303\251<'|tojson(ensure_ascii=true) }} {{ {'b': 1, "
          "'a': 2}|tojson(separators=(',', ':'), sort_keys=true) }} {{ {1: 2, none: 3, true: 4, "
          "1.5: 0}|tojson }} {{ (1, 2)|tojson(indent=0) }}",
          context,
          "{\"b\": 1, \"a\": [1, 2.5, null, true, \"\303\251\\\"\\n\"]} {\n  \"a\": [\n    1,\n    "
          "{}\n  ],\n  \"b\": []\n} \"\\u00e9<\" {\"a\":2,\"b\":1} {\"1\": 4, \"null\": 3, "
          "\"1.5\": 0} [\n1,\n2\n]");
    gives("{{ [[2, 'b'], [1, 'a']]|sort }} {{ {'b': 1, 'A': 2}|dictsort }} {{ {'b': 1, 'a': "
          "2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}",
          context,
          "[[1, 'a'], [2, 'b']] [('A', 2), ('b', 1)] [('b', 1), ('a', 2)] [('b', 1), ('a', 2)]");
    gives("{{ none|select|list }}{{ none|map('upper')|list }}{{ '\303\237'|upper }}{{ "
          "'\307\206'|capitalize }}{{ '\316\221\316\243'|lower }}{{ '\304\260'|lower|length }}",
          context, "[][]SS\307\205\316\261\317\2022");
}

static void methods_give_what_python_gives(void **state)
{
    gives("{{ ' a '.strip() }}{{ 'xxa'.lstrip('x') }}{{ 'axx'.rstrip('x') }}{{ 'a,b,c'.split(',') "
          "}}{{ 'a,b,c'.split(',', 1) }}{{ ' a  b '.split() }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a b "
          "c'.rsplit(none, 1) }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'a\nb\n'.splitlines(true) }}",
          context,
          "aaa['a', 'b', 'c']['a', 'b,c']['a', 'b']['a,b', 'c']['a b', 'c']['a', 'b', 'c']['a\\n', "
          "'b\\n']");
    gives("{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('b', 1) "
          "}}{{ 'aXbX'.replace('X', '-') }}{{ 'aXbX'.replace('X', '-', 1) }}{{ 'ab'.upper() }}{{ "
          "'AB'.lower() }}{{ \"it's a tEST\".title() }}{{ 'aBC dE'.capitalize() }}{{ "
          "'aB'.swapcase() }}",
          context, "TrueTrueTruea-b-a-bXABabIt'S A TestAbc deAb");
    gives("{{ '-'.join(['a', 'b']) }}{{ 'abcabc'.find('c') }}{{ 'abcabc'.rfind('c') }}{{ "
          "'abc'.find('z') }}{{ 'abc'.index('b') }}{{ 'banana'.count('an') }}{{ 'aaa'.count('') "
          "}}{{ '\303\251-\303\251'.find('-') }}",
          context, "a-b25-11241");
    gives("{{ '{} {}'.format(1, 'b') }}{{ '{1}{0}{a}'.format(1, 2, a=3) }}{{ "
          "'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{!r}'.format('a', 'b', 'c', 42, 3.14159, "
          "1234567, 255, 'q') }}{{ '{a[k]}{a.b}'.format(a={'k': 1, 'b': 2}) }}{{ '{{}}'.format() "
          "}}{{ '{:{w}}'.format('a', w=3) }}",
          context, "1 b213    a|b    |  c  |00042|3.14|1,234,567|ff|'q'12{}a  ");
    gives("{{ '%s %d %5.2f %x %r %% %05d %-4s|' % ('a', 3, 2.5, 255, 'q', 42, 'z') }}{{ '%(a)s' % "
          "{'a': 1} }}{{ '%s' % 'x' }}{{ '%s' % [1] }}{{ '%+d' % 3 }}{{ '%e' % 12345.678 }}{{ '%g' "
          "% 0.0001 }}{{ '%c' % 65 }}",
          context, "a 3  2.50 ff 'q' % 00042 z   |1x[1]+31.234568e+040.0001A");
    gives("{{ '5'.zfill(3) }}{{ '-5'.zfill(4) }}{{ 'a'.center(4, '*') }}{{ 'a'.ljust(3) }}|{{ "
          "'a'.rjust(3) }}{{ 'a=b'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ "
          "'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'a\tb'.expandtabs(4) }}",
          context, "005-005*a**a  |  a('a', '=', 'b')('a=b', '=', 'c')bcaba   b");
    gives("{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ "
          "'ab'.islower() }}{{ 'AB'.isupper() }}{{ 'Ab Cd'.istitle() }}{{ ''.isdigit() }}{{ "
          "'\303\251'.isascii() }}{{ '\302\275'.isnumeric() }}",
          context, "TrueTrueTrueTrueTrueTrueTrueFalseFalseTrue");
    gives("{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': "
          "1}.keys() }}{{ {'a': 1}.values()|list }}{{ {'a': 1}.items() }}{{ [1,2,1].count(1) }}{{ "
          "[1,2].index(2) }}{{ {'a': 1}.items()|length }}{{ 'a' in {'a': 1}.keys() }}",
          context, "1None2dict_keys(['a'])[1]dict_items([('a', 1)])211True");
    gives("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current "
          "}}{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ range(3) }}{{ range(5, 1, -2)|list "
          "}}{{ dict(a=1, b=2) }}{{ namespace(a=1) }}{{ range(10)[2:4] }}{{ range(3)|last }}",
          context, "ababa|brange(0, 3)[5, 3]{'a': 1, 'b': 2}<Namespace {'a': 1}>range(2, 4)2");
    gives("{{ strftime_now('%d %b %Y %H:%M %-d %j %%') }}", context, "26 Jul 2026 12:34 26 207 %");
}

static void tests_give_what_jinja2_gives(void **state)
{
    gives(
        "{{ 1 is number }}{{ 1.5 is float }}{{ true is integer }}{{ true is boolean }}{{ 'a' is "
        "string }}{{ {} is mapping }}{{ [] is sequence }}{{ 'a' is sequence }}{{ {} is sequence "
        "}}{{ 1 is iterable }}{{ none is none }}{{ x is defined }}{{ nope is undefined }}{{ range "
        "is callable }}{{ 'A' is upper }}{{ 'a' is lower }}{{ 1 is sameas 1 }}{{ [1]|map('string') "
        "is sequence }}{{ {}.items() is sequence }}{{ {}.items() is iterable }}",
        context,
        "TrueTrueFalseTrueTrueTrueTrueTrueTrueFalseTrueTrueTrueTrueTrueTrueTrueFalseFalseTrue");
    gives("{{ 1 is eq 1 }}{{ 1 is ne 1 }}{{ 1 is lt 2 }}{{ 2 is ge(2) }}{{ 1 is not none }}{{ "
          "false is false }}{{ 1 is true }}{{ 'x' is filter }}{{ 'upper' is filter }}{{ 'odd' is "
          "test }}{{ 1 is in([1]) }}{{ ('a'|safe) is escaped }}",
          context, "TrueFalseTrueTrueTrueTrueFalseFalseTrueTrueTrueTrue");
}

static void a_chatml_template_renders_a_conversation(void **state)
{
    gives("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
          "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\n' }}{% endif %}",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
          "\"add_generation_prompt\": true}",
          "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

static void errors_name_the_line(void **state)
{
    fails("a\n\n{% if %}", "line 3: expected an expression");
    fails("{{ 1 + }}", "line 1: unexpected '}}'");
    fails("\n{% for x of y %}{% endfor %}", "line 2: expected 'in'");
    fails("{% if 1 %}\n\n", "line 1: this block is not closed: endif");
    fails("{% nope %}", "unknown tag 'nope'");
    fails("{% endif %}", "unknown tag 'endif'");
    fails("{{ 'a }}", "line 1: this string is not closed by '");
    fails("{# a", "comment is not closed");
    fails("{% raw %}", "raw block is not closed");
    fails("{{ (1, 2] }}", "unexpected ']', expected ')'");
    fails("{{ $ }}", "unexpected character '$'");
    fails("{% set 1 = 2 %}", "cannot be assigned to");
    fails("{% break %}", "inside a for loop");
    fails("{{ f(a=1, 2) }}", "positional arguments come before");
    fails("\n{{ x.nope.more }}", "line 2: the value has no attribute 'nope'");
    fails("{{ nope.more }}", "'nope' is undefined");
    fails("{{ nope() }}", "'nope' is undefined");
    fails("{{ 'a' + 1 }}", "unsupported operand types for +: 'str' and 'int'");
    fails("{{ 1 // 0 }}", "division by zero");
    fails("{{ 1|nope }}", "no filter named 'nope'");
    fails("{{ 1 is nope }}", "no test named 'nope'");
    fails("{{ 1 < 'a' }}", "not supported between 'int' and 'str'");
    fails("{% for x in 5 %}{% endfor %}", "'int' object is not iterable");
    fails("{{ 9223372036854775807 + 1 }}", "64 bits");
    fails("{{ nope|tojson }}", "not JSON serializable");
    fails("{{ {[]: 1} }}", "unhashable type: 'list'");
    fails("{% set x.y = 1 %}", "a namespace is needed");
    fails("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "not more than 1 argument");
    fails("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "no keyword argument 'b'");
    gives("{% if false %}{{ 1|nope }}{% endif %}ok", context, "ok");
}

static void raise_exception_gives_exactly_its_message(void **state)
{
    struct rendered out;
    struct err e;
    assert_false(render("\n{{ raise_exception('Roles must ' ~ 'alternate') }}", "{}", &out, &e));
    assert_string_equal(e.msg, "Roles must alternate");
    assert_int_equal(e.code, ERR_INVALID);
}

static void what_would_change_its_object_is_refused(void **state)
{
    fails("{{ l.append(1) }}", "'append' is not allowed");
    fails("{{ x.update({}) }}", "'update' is not allowed");
    fails("{{ x.pop('y') }}", "'pop' is not allowed");
    fails("{% set a = [] %}{{ a.sort() }}", "'sort' is not allowed");
    gives("{{ l.append is defined }}{{ x.__class__ }}{{ ''.__class__ }}", context, "False");
}

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

static void hostile_templates_end_at_a_limit(void **state)
{
    fails_as("{{ 'x' * 10 ** 12 }}", context, ERR_LIMIT, "MiB");
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
    fails_as("{% set ns = namespace() %}{% set ns.l = () %}{% for i in range(60) %}"
             "{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ ns.l == ns.l }}",
             context, ERR_LIMIT, "steps");
    fails("{% set ns = namespace() %}{% set ns.l = () %}{% for i in range(60) %}"
          "{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
          "unhashable");
    fails_as("{% set s = 'x' * 10 ** 7 %}{% for i in range(99999) %}{{ l[s] }}{{ {s: 1}[s] }}"
             "{% endfor %}",
             context, ERR_LIMIT, "steps");
    fails_as("{% set s = 'x' * 10 ** 6 %}{% for i in range(99999) %}{{ s.rfind('y' + s[1:]) }}"
             "{% endfor %}",
             context, ERR_LIMIT, "");
    fails_as("{% set s = 'x' * 10 ** 7 %}{% for i in range(99999) %}{{ s[i] }}{{ s|length }}"
             "{{ 'y' in s }}{% endfor %}",
             context, ERR_LIMIT, "steps");
    fails_as("{{ ('a\n' * 100000)|indent('b' * 100000) }}", context, ERR_LIMIT, "");
    fails_as("{{ '%2000001d' % 1 }}", context, ERR_INVALID, "width");
    fails_as("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
             context, ERR_LIMIT, "steps");
    fails_as("{{ '{:{:{:1}}}'.format(1, 1, 1) }}", context, ERR_INVALID, "nested too deeply");
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
        cmocka_unit_test(text_and_tags_follow_the_rules_of_white_space),
        cmocka_unit_test(expressions_bind_and_compute_as_in_python),
        cmocka_unit_test(undefined_prints_nothing_and_breaks_when_used),
        cmocka_unit_test(statements_scope_their_variables),
        cmocka_unit_test(for_loops_know_where_they_are),
        cmocka_unit_test(macros_take_defaults_keywords_and_callers),
        cmocka_unit_test(filters_give_what_jinja2_gives),
        cmocka_unit_test(methods_give_what_python_gives),
        cmocka_unit_test(tests_give_what_jinja2_gives),
        cmocka_unit_test(a_chatml_template_renders_a_conversation),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(raise_exception_gives_exactly_its_message),
        cmocka_unit_test(what_would_change_its_object_is_refused),
        cmocka_unit_test(the_template_wrote_its_text_and_its_constants),
        cmocka_unit_test(a_usual_role_counts_as_the_templates_and_no_other_text_does),
        cmocka_unit_test(no_filter_or_method_turns_data_into_template_text),
        cmocka_unit_test(deep_templates_are_refused),
        cmocka_unit_test(long_flat_chains_are_fine),
        cmocka_unit_test(hostile_templates_end_at_a_limit),
        cmocka_unit_test(limits_can_be_set_lower),
        cmocka_unit_test(appending_in_a_loop_takes_linear_memory),
        cmocka_unit_test(a_string_that_was_appended_to_stays_as_it_was),
        cmocka_unit_test(bytes_that_are_not_text_are_handled),
        cmocka_unit_test(a_chat_is_cut_after_its_last_message),
        cmocka_unit_test(threads_share_a_template_and_a_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
