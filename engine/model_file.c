#include "model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "hf_dir.h"
#include "hf_shards.h"
#include "log.h"
#include "model_path.h"

struct model_file {
    char *path;
    struct hf_dir *hf; /* or: */
    struct gguf *gguf;
    struct model_spec spec;
    struct err spec_error; /* ERR_NONE: spec is filled */
    struct weights *weights;
    struct generation_defaults defaults;
    struct chat_templates templates;
};

static bool take_gguf(struct model_file *f, struct gguf *g, struct err *e)
{
    f->gguf = g;
    if (!g || !gguf_join_parts(g, e) || !(f->weights = weights_open_gguf(g, e)))
        return false;
    model_spec_from_gguf(g, &f->spec, &f->spec_error);
    struct err why;
    if (!chat_templates_read_gguf(&f->templates, g, &why))
        log_warn("%s", why.msg);
    return true;
}

static bool open_path(struct model_file *f, const char *model, struct err *e)
{
    struct stat st;
    struct err why;
    f->path = model_path_find(model, e);
    if (!f->path)
        return false;
    if (stat(f->path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!chat_templates_read_dir(&f->templates, f->path, &why))
            log_warn("%s", why.msg);
        return (f->hf = hf_dir_open(f->path, e));
    }
    return take_gguf(f, gguf_open(f->path, e), e);
}

static struct model_file *new_file(struct err *e)
{
    struct model_file *f = calloc(1, sizeof *f);
    if (!f)
        err_set(e, ERR_MEMORY, "no memory to open a model");
    return f;
}

static struct model_file *or_close(struct model_file *f, bool ok)
{
    if (ok)
        return f;
    model_file_close(f);
    return NULL;
}

struct model_file *model_file_open(const char *path, struct err *e)
{
    struct model_file *f = new_file(e);
    return f ? or_close(f, open_path(f, path, e)) : NULL;
}

struct model_file *model_file_open_memory(const void *bytes, size_t n, struct err *e)
{
    struct model_file *f = new_file(e);
    return f ? or_close(f, take_gguf(f, gguf_open_memory(bytes, n, e), e)) : NULL;
}

void model_file_close(struct model_file *f)
{
    if (!f)
        return;
    weights_close(f->weights);
    gguf_close(f->gguf);
    hf_dir_close(f->hf);
    chat_templates_free(&f->templates);
    free(f->path);
    free(f);
}

const char *model_file_path(const struct model_file *f)
{
    return f->path;
}

const struct model_spec *model_file_spec(const struct model_file *f, struct err *e)
{
    if (f->hf)
        return hf_dir_spec(f->hf, e);
    if (f->spec_error.code == ERR_NONE)
        return &f->spec;
    if (e)
        *e = f->spec_error;
    return NULL;
}

const struct weights *model_file_weights(const struct model_file *f, struct err *e)
{
    return f->hf ? hf_dir_weights(f->hf, e) : f->weights;
}

uint64_t model_file_identity(const struct model_file *f)
{
    return f->hf ? hf_dir_identity(f->hf) : gguf_identity(f->gguf);
}

const struct gguf *model_file_gguf(const struct model_file *f)
{
    return f->gguf;
}

const struct generation_defaults *model_file_defaults(const struct model_file *f)
{
    return f->hf ? hf_dir_defaults(f->hf) : &f->defaults;
}

const struct chat_templates *model_file_templates(const struct model_file *f)
{
    return &f->templates;
}

struct tokenizer *model_file_tokenizer(const struct model_file *f, struct err *e)
{
    return f->gguf ? tokenizer_open_gguf(f->gguf, e) : tokenizer_open(f->path, NULL, e);
}

const char *model_file_kind(const struct model_file *f)
{
    return f->hf ? "Hugging Face directory" : "GGUF file";
}

void model_file_each_tensor(const struct model_file *f,
                            void (*each)(void *arg, const char *type, uint64_t bytes), void *arg)
{
    const struct hf_shards *s = f->hf ? hf_dir_shards(f->hf) : NULL;
    for (uint64_t i = 0; f->gguf && i < gguf_n_tensors(f->gguf); i++)
        each(arg, gguf_tensor_at(f->gguf, i)->type_name, gguf_tensor_at(f->gguf, i)->bytes);
    for (size_t i = 0; s && i < hf_shards_n(s); i++)
        each(arg, hf_shards_at(s, i)->type, hf_shards_at(s, i)->bytes);
}

void model_file_licence(const struct model_file *f, char out[160])
{
    struct gguf_str text;
    out[0] = '\0';
    if (f->hf)
        hf_dir_licence(f->hf, out);
    else if (gguf_has(f->gguf, "general.license") &&
             gguf_string(f->gguf, "general.license", &text, NULL))
        snprintf(out, 160, "%s", gguf_show(text).text);
}
