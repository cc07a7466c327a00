/* cmd_tokenize.c: `tokend tokenize`: texts on standard input, their token ids on standard output,
 * one JSON object a line. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "commands.h"
#include "model_path.h"
#include "output.h"
#include "tokenizer.h"
#include "utf8.h"

static const char usage[] =
    "usage: tokend tokenize FILE|DIR|NAME [--encoding NAME] [--no-add-special] "
    "[--no-parse-special]\n\n"
    "Reads lines {\"text\": ...} from standard input and prints lines {\"ids\": [...]}; a line\n"
    "that fails gives {\"error\": ...}, and the exit status 1 at the end. Blank lines are passed\n"
    "over, as in JSON Lines files.\n\n"
    "  FILE|DIR|NAME       a GGUF file, a tokenizer.json, a SentencePiece .model, a tekken.json,\n"
    "                      a tiktoken rank file, a directory that holds one, or a hub name in the\n"
    "                      local cache\n"
    "  --encoding NAME     what a rank file lacks: cl100k_base, o200k_base, o200k_harmony,\n"
    "                      llama3, llama4 or qwen\n"
    "  --no-add-special    leave out what the model wants around every prompt (BOS)\n"
    "  --no-parse-special  read control tokens in the text as plain text\n";

struct options {
    bool help;
    const char *path, *encoding;
    bool add_special, parse_special;
};

static bool read_options(int argc, char **argv, struct options *o, struct err *e)
{
    *o = (struct options){.add_special = true, .parse_special = true};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--no-add-special"))
            o->add_special = false;
        else if (!strcmp(argv[i], "--no-parse-special"))
            o->parse_special = false;
        else if (!strcmp(argv[i], "--encoding") && i + 1 < argc)
            o->encoding = argv[++i];
        else if (argv[i][0] != '-' && !o->path)
            o->path = argv[i];
        else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return o->help = true;
        else
            return err_set(e, ERR_INVALID, "unexpected argument \"%s\"", argv[i]);
    }
    return o->path || err_set(e, ERR_INVALID, "expected a file, a directory or a hub name");
}

static bool add_all(struct token_list *to, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!token_list_add(to, ids[i]))
            return false;
    return true;
}

static bool encode(const struct tokenizer *t, const struct options *o, const char *text, size_t n,
                   struct token_list *ids, struct err *e)
{
    size_t n_prefix, n_suffix;
    const int32_t *prefix = tokenizer_prefix(t, &n_prefix);
    const int32_t *suffix = tokenizer_suffix(t, &n_suffix);
    ids->n = 0;
    if (o->add_special && !add_all(ids, prefix, n_prefix))
        return err_set(e, ERR_MEMORY, "out of memory for token ids");
    if (!tokenizer_encode(t, text, n, o->parse_special ? CONTROL_ALL : CONTROL_NONE, NULL, 0, ids,
                          e))
        return false;
    return !o->add_special || add_all(ids, suffix, n_suffix) ||
           err_set(e, ERR_MEMORY, "out of memory for token ids");
}

static bool encode_line(const struct tokenizer *t, const struct options *o, const char *line,
                        size_t n, struct token_list *ids, struct err *e)
{
    json_error_t why;
    json_t *in = json_loadb(line, n, JSON_ALLOW_NUL, &why);
    const json_t *text = json_object_get(in, "text");
    bool ok;
    if (!in)
        ok = err_set(e, ERR_INVALID, "not JSON: %s", why.text);
    else if (!json_is_string(text))
        ok = err_set(e, ERR_INVALID, "expected an object with a string \"text\"");
    else
        ok = encode(t, o, json_string_value(text), json_string_length(text), ids, e);
    json_decref(in);
    return ok;
}

static void print_ids(const struct token_list *ids)
{
    fputs("{\"ids\": [", stdout);
    for (size_t i = 0; i < ids->n; i++)
        printf(i ? ", %d" : "%d", ids->ids[i]);
    puts("]}");
}

static void print_error(const struct err *e)
{
    struct buf text = {0};
    utf8_replace_bad(&text, e->msg); /* a path in it may be of any bytes */
    json_t *out = text.failed ? NULL : json_pack("{s:s}", "error", text.data ? text.data : "");
    buf_free(&text);
    if (out)
        json_dumpf(out, stdout, 0);
    puts(out ? "" : "{\"error\": \"out of memory\"}");
    json_decref(out);
}

static int encode_lines(const struct tokenizer *t, const struct options *o)
{
    int status = 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    struct token_list ids = {0};
    while ((n = getline(&line, &cap, stdin)) >= 0) {
        struct err e = {0};
        if (strspn(line, " \t\r\n") == (size_t)n)
            continue;
        if (encode_line(t, o, line, (size_t)n, &ids, &e)) {
            print_ids(&ids);
        } else {
            print_error(&e);
            status = 1;
        }
        if (!output_flush(&e)) {
            output_error("tokenize", "%s", e.msg);
            status = 1;
            break;
        }
    }
    if (ferror(stdin)) {
        output_error("tokenize", "standard input cannot be read: %s", strerror(errno));
        status = 1;
    }
    free(line);
    token_list_free(&ids);
    return status;
}

/* A file that is there is taken as it is: of a model's directory `serve` takes no single one. */
static struct tokenizer *open_named(const struct options *o, struct err *e)
{
    if (access(o->path, F_OK) == 0)
        return tokenizer_open(o->path, o->encoding, e);
    char *path = model_path_find(o->path, e);
    struct tokenizer *t = path ? tokenizer_open(path, o->encoding, e) : NULL;
    free(path);
    return t;
}

int cmd_tokenize(int argc, char **argv)
{
    struct options o;
    struct err e = {0};
    if (!read_options(argc, argv, &o, &e)) {
        output_error("tokenize", "%s; see tokend tokenize --help", e.msg);
        return 2;
    }
    if (o.help) {
        fputs(usage, stdout);
        return 0;
    }
    struct tokenizer *t = open_named(&o, &e);
    if (!t) {
        output_error("tokenize", "%s", e.msg);
        return 1;
    }
    int status = encode_lines(t, &o);
    tokenizer_free(t);
    return status;
}
