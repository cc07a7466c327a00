/* Small templates of our own; the expected texts are what jinja2 3.1 gives for them. */
#include "template_rig.h"

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

static void the_line_of_a_failure_is_told_once(void **state)
{
    struct rendered out;
    struct err e;
    assert_false(render("\n\n{{ raise_exception('no') }}", "{}", &out, &e));
    assert_int_equal(out.error_line, 3);
    template_name_line(&out, &e);
    assert_string_equal(e.msg, "line 3: no");
    assert_true(out.raised);
    assert_false(render("\n{{ raise_exception('line 2: no') }}", "{}", &out, &e));
    assert_true(out.raised);
    template_name_line(&out, &e);
    assert_string_equal(e.msg, "line 2: line 2: no");
    assert_false(render("\n{{ nothing.at }}", "{}", &out, &e));
    assert_int_equal(out.error_line, 2);
    assert_false(out.raised);
    template_name_line(&out, &e);
    assert_string_equal(e.msg, "line 2: 'nothing' is undefined");
    assert_true(render("x", "{}", &out, &e));
    assert_int_equal(out.error_line, 0);
    rendered_free(&out);
}

static void what_would_change_its_object_is_refused(void **state)
{
    fails("{{ l.append(1) }}", "'append' is not allowed");
    fails("{{ x.update({}) }}", "'update' is not allowed");
    fails("{{ x.pop('y') }}", "'pop' is not allowed");
    fails("{% set a = [] %}{{ a.sort() }}", "'sort' is not allowed");
    gives("{{ l.append is defined }}{{ x.__class__ }}{{ ''.__class__ }}", context, "False");
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
        cmocka_unit_test(the_line_of_a_failure_is_told_once),
        cmocka_unit_test(what_would_change_its_object_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
