#include "loaded_model.h"

#include "cuda_module.h"
#include "inspect_template.h"
#include "log.h"
#include "read_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATE_FILE = 1 << 20 };

const char *format_bytes(uint64_t bytes, char buf[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u + 1 < sizeof units / sizeof units[0]; u++)
        v /= 1024;
    snprintf(buf, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return buf;
}

static bool try_named_template(const struct loaded_model *m, const char *path, struct err *e)
{
    struct err why = {0};
    bool raised;
    if (template_answers(m->template, &m->texts, &raised, &why))
        return true;
    if (!raised) { /* which may be meant, for conversations of another kind */
        *e = why;
        return err_prefix(e, "--chat-template: %s fails for a plain message", path);
    }
    log_warn("--chat-template: %s refuses a plain message: %s", path, why.msg);
    return true;
}

static bool open_named_template(struct loaded_model *m, const char *path, struct err *e)
{
    struct buf text = {0};
    if (!read_file(path, MAX_TEMPLATE_FILE, &text, e))
        err_prefix(e, "--chat-template");
    else if (!(m->template = template_parse(text.data ? text.data : "", text.len, e)))
        err_prefix(e, "--chat-template: %s", path);
    buf_free(&text);
    return m->template && try_named_template(m, path, e);
}

static struct template *parse_own(const struct chat_templates *t, const char *name)
{
    struct err why = {0};
    bool raised;
    const struct chat_template *c = chat_templates_find(t, name);
    struct template *parsed = c ? template_parse(c->text, c->len, &why) : NULL;
    if (c && !parsed)
        log_warn("the model's chat template \"%s\" cannot be used (%s): /v1/chat/completions "
                 "needs --chat-template",
                 name, why.msg);
    if (parsed && !template_answers(parsed, t, &raised, &why))
        log_warn("the model's chat template \"%s\" fails for a plain message (%s): chats may need "
                 "--chat-template",
                 name, why.msg);
    return parsed;
}

/* A template that the user names must work; the model's own may fail, and then only the chat
 * route is lost. */
static bool open_template(struct loaded_model *m, const struct model_file *file, const char *path,
                          struct err *e)
{
    const struct chat_templates *t = model_file_templates(file);
    for (int i = 0; i < N_SPECIAL_TEXTS; i++)
        if (t->special[i] && !(m->texts.special[i] = strdup(t->special[i])))
            return err_set(e, ERR_MEMORY, "out of memory");
    if (path)
        return open_named_template(m, path, e);
    m->template = parse_own(t, "default");
    m->tool_template = parse_own(t, "tool_use");
    if (t->n == 0)
        log_warn("the model has no chat template: /v1/chat/completions needs --chat-template");
    else if (!chat_templates_find(t, "default"))
        log_warn("the model has chat templates, but none by the name default: "
                 "/v1/chat/completions needs --chat-template");
    return true;
}

static bool open_tokenizer(struct loaded_model *m, const struct model_file *file, struct err *e)
{
    struct err why;
    m->tokenizer = model_file_tokenizer(file, &why);
    if (m->tokenizer)
        return true;
    const bool none = why.code == ERR_NOT_FOUND && !model_file_gguf(file);
    if (why.code != ERR_UNSUPPORTED && !none) {
        *e = why;
        return err_prefix(e, "tokenizer");
    }
    log_warn("the model's tokenizer cannot be used (%s): prompts must be token ids", why.msg);
    return true;
}

/* What the model's authors want sampled with is the default, unless the user wants none of it. */
static void take_defaults(struct loaded_model *m, const struct model_file *file,
                          const char *setting)
{
    const struct generation_defaults *d = model_file_defaults(file);
    char text[160] = "";
    int n = 0;
    if (strcmp(setting, "auto") != 0)
        return;
    m->defaults = *d;
    struct generation_default all[N_GENERATION_DEFAULTS];
    generation_defaults_list(d, all);
    for (int i = 0; i < N_GENERATION_DEFAULTS; i++)
        if (all[i].has)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%s %g", n ? ", " : "", all[i].name,
                          all[i].value);
    if (n)
        log_info("sampling defaults of the model's generation_config.json: %s "
                 "(--generation-config none: OpenAI's)",
                 text);
}

static enum dtype type_of(const char *name)
{
    enum dtype t = DTYPE_F16;
    dtype_from_name(name, &t); /* one of the table's choices, or "auto" or "none" */
    return t;
}

enum dtype kv_cache_type(const char *name)
{
    const bool fp8 = strcmp(name, "fp8") == 0 || strcmp(name, "fp8_e4m3") == 0;
    return fp8 ? DTYPE_F8_E4M3 : type_of(name);
}

static int bits_of(const char *text)
{
    return strcmp(text, "8") == 0 ? 8 : strcmp(text, "16") == 0 ? 16 : 0;
}

bool engine_config_types(struct engine_config *c, const char *kv_cache_dtype, const char *dtype,
                         const char *quantization, const char *activation_bits, struct err *e)
{
    c->activation_bits = bits_of(activation_bits);
    c->kv_dtype_auto = strcmp(kv_cache_dtype, "auto") == 0;
    c->kv_dtype = kv_cache_type(kv_cache_dtype);
    c->widen = strcmp(dtype, "float32") == 0;
    c->quantise = strcmp(quantization, "none") != 0;
    c->quantise_to = type_of(quantization);
    return !(c->widen && c->quantise) ||
           err_set(e, ERR_INVALID, "--dtype %s and --quantization %s exclude each other", dtype,
                   quantization);
}

/* Nobody has seen the CUDA backend on a GPU yet, so auto does not take it. */
bool engine_config_device(struct engine_config *c, const char *device, bool tell, struct err *e)
{
    struct err why;
    if (strcmp(device, "cpu") == 0)
        return true;
    const bool usable = cuda_module_usable(&why);
    if (strcmp(device, "auto") == 0) {
        if (tell && usable)
            log_info("device: cpu (a GPU is there: --device cuda takes it, which is new and was "
                     "tested under emulation only)");
        else if (tell)
            log_info("device: cpu (no cuda: %s)", why.msg);
        return true;
    }
    if (!usable)
        return err_set(e, why.code, "--device %s: %s", device, why.msg);
    if (c->repack_cache)
        log_warn("--repack-cache has no effect with --device cuda: it is of the CPU's weights");
    c->repack_cache = NULL;
    c->open_backend = backend_cuda_open;
    return true;
}

static void add_bytes(void *arg, const char *type, uint64_t bytes)
{
    *(uint64_t *)arg += bytes;
}

static void log_loading(const struct model_file *file)
{
    uint64_t bytes = 0;
    char text[32];
    model_file_each_tensor(file, add_bytes, &bytes);
    log_info("loading %s (%s)", model_file_path(file), format_bytes(bytes, text));
}

static void warn_of_no_end(const struct model_file *file)
{
    struct err why;
    const struct model_spec *spec = model_file_spec(file, &why);
    if (spec && spec->n_eos == 0)
        log_warn("no token ends a generation (the model's files name no end-of-sequence token): "
                 "answers end only at their limit, or by a request's stop or stop_token_ids");
}

bool loaded_model_open(struct loaded_model *m, const struct settings *s, void (*wake)(void *arg),
                       void *arg, struct err *e)
{
    *m = (struct loaded_model){0};
    struct engine_config config = {
        .max_model_len = (int)s->max_model_len,
        .max_num_seqs = (int)s->max_num_seqs,
        .max_num_batched_tokens = (int)s->max_num_batched_tokens,
        .target_itl = (double)s->target_itl_ms / 1000,
        .block_size = (int)s->block_size,
        .threads = (int)s->threads,
        .pin_threads = s->pin_threads,
        .batch_invariant = s->batch_invariant,
        .kv_cache_memory = (uint64_t)s->kv_cache_memory,
        .prefix_cache_memory = (uint64_t)s->prefix_cache_memory,
        .prefix_caching = s->enable_prefix_caching,
        .async_scheduling = s->async_scheduling,
        .repack_cache = s->repack_cache,
        .gpu_memory_share = s->gpu_memory_utilization,
        .enforce_eager = s->enforce_eager,
    };
    if (!engine_config_types(&config, s->kv_cache_dtype, s->dtype, s->quantization,
                             s->activation_bits, e) ||
        !engine_config_device(&config, s->device, true, e))
        return false;
    struct model_file *file = model_file_open(s->model, e);
    if (!file)
        return false;
    log_loading(file);
    warn_of_no_end(file);
    take_defaults(m, file, s->generation_config);
    bool ok = open_tokenizer(m, file, e) && open_template(m, file, s->chat_template, e) &&
              (m->engine = engine_open(&config, file, wake, arg, e));
    model_file_close(file);
    if (!ok)
        loaded_model_free(m);
    return ok;
}

static void log_invariance(const struct engine_info *info)
{
    if (info->warning)
        log_warn("%s", info->warning);
    if (info->batch_dependent)
        log_info(
            "batch invariance: no: what else runs may change an answer's last bits, and so "
            "its tokens at near ties (--batch-invariant: it may not, and prompts take longer)");
    else
        log_info("batch invariance: yes: an answer does not depend on what else runs");
}

void loaded_model_log(const struct loaded_model *m)
{
    const struct engine_info *info = engine_get_info(m->engine);
    const struct model_spec *spec = &info->spec;
    char a[32], b[32], c[32], d[32];
    long long tokens = (long long)info->n_pages * info->block_size;
    log_info("model: %s (%s, %.1f M parameters, %d layers, width %d, %d heads over %d KV heads, "
             "vocabulary %d), on %s",
             spec->name, spec->architecture, (double)spec->n_params / 1e6, spec->n_layers,
             spec->n_embd, spec->n_heads, spec->n_kv_heads, spec->n_vocab, info->backend);
    log_info("memory: weights %s (mostly %s), KV pages %s (%s a token, %s), activations %s (%d "
             "bits where weights are quantised%s)",
             format_bytes(info->weight_bytes, a), dtype_info(info->weight_dtype)->name,
             format_bytes(info->kv_bytes, b), format_bytes(info->kv_bytes_per_token, c),
             dtype_info(info->kv_dtype)->name, format_bytes(info->activation_bytes, d),
             info->activation_bits,
             strncmp(info->backend, "cpu", 3) != 0 ? ""
             : info->activation_bits == 16         ? ", float32 where they are BF16"
                                                   : ", bf16 where they are BF16");
    log_info("fits: %lld tokens in %d pages of %d: %.1f sequences of %d tokens, "
             "or %d at once (--max-num-seqs) of %lld",
             tokens, info->n_pages, info->block_size, (double)tokens / info->max_model_len,
             info->max_model_len, info->max_num_seqs, tokens / info->max_num_seqs);
    log_invariance(info);
}

void loaded_model_free(struct loaded_model *m)
{
    template_free(m->template);
    template_free(m->tool_template);
    chat_templates_free(&m->texts);
    tokenizer_free(m->tokenizer);
    *m = (struct loaded_model){0};
}
