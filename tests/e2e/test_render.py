"""`tokend render`: what a chat template makes of given variables, compared with jinja2."""
import glob
import json
import os
import struct
import subprocess

import jinja2.ext
import jinja2.sandbox
import pytest
from tokend import MODEL, PROGRAM

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
CORPUS = os.environ.get("TOKEND_CORPUS", os.path.join(ROOT, "..", "shared", "golden"))
NOW = "2026-07-26T12:34:56"


def render(tmp_path, template, context, *flags):
    """Runs the program; bytes of its output."""
    (tmp_path / "t.jinja").write_bytes(template.encode())
    (tmp_path / "c.json").write_bytes(context if isinstance(context, bytes) else json.dumps(context).encode())
    return subprocess.run([PROGRAM, "render", "--template", tmp_path / "t.jinja", "--context", tmp_path / "c.json",
                           *flags], capture_output=True, timeout=60)


def rendered(tmp_path, *args):
    r = render(tmp_path, *args)
    assert r.returncode == 0, r.stderr
    return r.stdout.decode()


def failed(tmp_path, *args):
    r = render(tmp_path, *args)
    assert r.returncode == 1 and r.stdout == b""
    return r.stderr.decode()


CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": "  Grüße, <b>\"你\"</b> & 😀\t"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a1", "function": {"name": "f", "arguments": {"z": 1, "a": [1.5, True, None], "ü": "</x>"}}}]},
        {"role": "tool", "content": "42"},
    ],
    "bos_token": "<s>", "add_generation_prompt": True, "n": -7, "deep": {"b": {"c": [0, 1]}},
}
TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}\n<|{{ m.role }}|>\n  {{ m['content'] }}<|end|>\n{% endfor %}\n",
    "  {% for m in messages -%}\n    {{- loop.index }}/{{ loop.length }} {{ m.content | default('', true) | trim }};\n"
    "  {%- endfor %}\n\n",
    "{% set ns = namespace(n=0) %}{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}"
    "{% set ns.n = ns.n + 1 %}{{ c.function.arguments | tojson }} {{ c.function.arguments.items() | list }}"
    "{% endfor %}{% else %}none{% endfor %}{{ ns.n }}",
    "{% macro m(a, b='x') %}[{{ a }}:{{ b }}]{% endmacro %}{{ m(n) }}{{ m(b=deep, a=tools) }}{{ documents }}"
    "{{ tools is none }}{{ absent is defined }}",
    "{{ n // 2 }} {{ n % 3 }} {{ n / 2 }} {{ 'abc'[::-1] }} {{ messages[-1].content.split('4') }} {{ deep.b.c[1:] }}",
    "{% if not add_generation_prompt %}a{% elif messages[0]['role'] == 'system' %}{{ messages[1:] | length }}"
    "{% endif %}{# gone #}\n{% raw %}{{ raw }}{% endraw %}\n",
]


@pytest.mark.parametrize("number", range(len(TEMPLATES)))
def test_a_template_gives_what_jinja2_gives(tmp_path, number):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    want = env.from_string(TEMPLATES[number]).render(**CONTEXT, tools=None, documents=None)
    assert rendered(tmp_path, TEMPLATES[number], CONTEXT) == want


def test_nothing_is_added_and_a_nul_is_a_character(tmp_path):
    assert render(tmp_path, "{{ a }}", {"a": "x\0y\n"}).stdout == b"x\0y\n"
    assert render(tmp_path, "", {}).stdout == b""


def test_tools_and_documents_are_null_only_if_absent(tmp_path):
    assert rendered(tmp_path, "{{ tools }} {{ documents }}", {}) == "None None"
    assert rendered(tmp_path, "{{ tools }} {{ documents }}", {"tools": [1], "documents": {}}) == "[1] {}"


@pytest.mark.parametrize("now, want", [
    (NOW, "2026-07-26 12:34:56"), (NOW + "Z", "2026-07-26 12:34:56"), (NOW + "+02:00", "2026-07-26 12:34:56"),
    ("2024-02-29", "2024-02-29 00:00:00"), ("1969-12-31T23:59", "1969-12-31 23:59:00"),
    (NOW + ".250-11:30", "2026-07-26 12:34:56"),
])
def test_the_clock_is_what_the_flag_says(tmp_path, now, want):
    assert rendered(tmp_path, "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", {}, "--now", now) == want
    assert rendered(tmp_path, "{{ strftime_now('%Y') }}", {}) >= "2026"


def test_a_final_message_is_continued_after_its_last_occurrence(tmp_path):
    chat = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}END"
    go_on = lambda *texts: {"continue_final_message": True, "messages": [{"role": "assistant", "content": t} for t in texts]}
    assert rendered(tmp_path, chat, go_on("ab", "ab")) == "[ab][ab"
    assert rendered(tmp_path, chat, go_on("x", " ab \n")) == "[x][ab"
    assert rendered(tmp_path, chat, go_on("x", [{"type": "text", "text": "'"}])).endswith("'")
    assert rendered(tmp_path, chat, {**go_on("ab"), "continue_final_message": False}) == "[ab]END"
    assert "did not write the last message" in failed(tmp_path, "END", go_on("ab"))
    for empty in "", " \n", [{"type": "text", "text": ""}]:
        assert rendered(tmp_path, "[x]END", go_on(empty)) == "[x]END"
    assert "no text to continue" in failed(tmp_path, "END", {"continue_final_message": True, "messages": []})
    assert "expected true or false" in failed(tmp_path, "END", {"continue_final_message": "yes"})


@pytest.mark.parametrize("template, context, message", [
    ("\n\n{{ raise_exception('roles must alternate') }}", {}, "line 3: roles must alternate"),
    ("a\n{{ x.y }}", {}, "line 2: 'x' is undefined"),
    ("{% for %}", {}, "line 1: "),
    ("x", b"[1]", "c.json must be a JSON object"),
    ("x", b'{"a": 1', "c.json is not valid JSON"),
    ("x", b'{"a": "\xff"}', "UTF-8"),
    ("x", b'{"a": 1e999}', "c.json: a: the number"),
    ("x", b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested deeper"),
])
def test_what_fails_is_told_with_its_place(tmp_path, template, context, message):
    error = failed(tmp_path, template, context)
    assert message in error and error.startswith("tokend render: ") and error.count("\n") == 1


def test_files_that_are_not_there_are_named(tmp_path):
    (tmp_path / "c.json").write_text("{}")
    for flags in (("--template", "/nowhere/t"), ("--model", "/nowhere/t"), ("--template", str(tmp_path))):
        r = subprocess.run([PROGRAM, "render", *flags, "--context", tmp_path / "c.json"], capture_output=True, text=True)
        assert r.returncode == 1 and flags[1] in r.stderr
    r = subprocess.run([PROGRAM, "render", "--template", tmp_path / "c.json", "--context", "/nowhere/c"],
                       capture_output=True, text=True)
    assert r.returncode == 1 and "/nowhere/c" in r.stderr


@pytest.mark.parametrize("flags", [
    (), ("--template", "t"), ("--context", "c"), ("--template", "t", "--model", "m", "--context", "c"),
    ("--template", "t", "--context"), ("--template", "t", "--context", "c", "more"),
    ("--template=t", "--context=c", "--colour"), ("--template", "t", "--context", "c", "--now", "today"),
    ("--template", "t", "--context", "c", "--now", "2026-02-30"), ("--template", "t", "--context", "c", "--now", NOW + "+2"),
])
def test_a_wrong_command_line_is_told_in_a_line(flags):
    r = subprocess.run([PROGRAM, "render", *flags], capture_output=True, text=True)
    assert r.returncode == 2 and "see tokend render --help" in r.stderr and r.stdout == "" and r.stderr.count("\n") == 1


def gguf_with_template(path, template):
    string = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    keys = {"general.architecture": "llama", **({"tokenizer.chat_template": template} if template else {})}
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) +
                     b"".join(string(k) + struct.pack("<I", 8) + string(v) for k, v in keys.items()))


def test_the_template_of_a_model_is_used(tmp_path):
    (tmp_path / "c.json").write_text('{"who": "you"}')
    run = lambda model: subprocess.run([PROGRAM, "render", "--model", model, "--context", tmp_path / "c.json"],
                                       capture_output=True, text=True)
    gguf_with_template(tmp_path / "m.gguf", "hello {{ who }}")
    assert run(tmp_path / "m.gguf").stdout == "hello you"
    gguf_with_template(tmp_path / "m.gguf", None)
    r = run(tmp_path / "m.gguf")
    assert r.returncode == 1 and "no chat template" in r.stderr
    (tmp_path / "c.json").write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}],
                                                 "add_generation_prompt": True}))
    assert run(MODEL).stdout.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_a_models_template_has_its_special_tokens_unless_the_file_does(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }} {{ eos_token }} {{ unk_token }}")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    (tmp_path / "config.json").write_text("{}")
    context = tmp_path / "c.json"
    context.write_text('{"eos_token": "mine"}')
    run = lambda *flags: subprocess.run([PROGRAM, "render", *flags, "--context", context], capture_output=True, text=True)
    assert run("--model", tmp_path).stdout == "<s> mine "
    assert run("--template", tmp_path / "chat_template.jinja").stdout == " mine "


@pytest.mark.skipif(not os.path.isdir(os.path.join(CORPUS, "templates")), reason="no corpus of chat templates")
def test_every_template_of_the_corpus_renders_as_recorded(tmp_path):
    """One case of each: another one from template to template, so that all kinds occur."""
    folder = os.path.join(CORPUS, "templates")
    with open(os.path.join(folder, "_contexts.json"), encoding="utf-8") as f:
        shared = json.load(f)
    wrong, names = [], sorted(set(glob.glob(os.path.join(folder, "[!_]*.json"))))
    for number, name in enumerate(names):
        with open(name, encoding="utf-8") as f:
            golden = json.load(f)
        case = golden["cases"][number % len(golden["cases"])]
        given = shared["contexts"][case["context"]]
        context = {**shared["default_vars"], **golden["vars"], **given.get("kwargs", {}),
                   **{k: v for k, v in given.items() if k != "kwargs"}}
        r = render(tmp_path, golden["template"], context, "--now", shared["now"])
        if "expected" in case:
            good = r.returncode == 0 and r.stdout == case["expected"].encode()
        else:
            good = r.returncode == 1 and (case["error_kind"] != "raise_exception" or
                                          case["error"][:300].encode() in r.stderr)
        if not good:
            wrong.append((os.path.basename(name), case["context"]))
    assert names and not wrong


def test_what_a_template_says_cannot_talk_to_the_terminal(tmp_path):
    r = render(tmp_path, "{{ raise_exception(a) }}", {"a": "\x1b[31mé\u009bx\x07"})
    assert r.returncode == 1
    assert r.stderr.endswith("line 1: \\x1b[31mé\\x9bx\\x07\n".encode()), r.stderr
