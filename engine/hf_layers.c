#include <limits.h>
#include <string.h>

#include "architectures.h"
#include "hf_spec.h"

/* layer_types says of each layer whether it has a window. */
static bool read_layer_types(const struct hf_config *c, const struct model_spec *s,
                             const json_t *types, bool *windowed)
{
    if (!json_is_array(types) || json_array_size(types) != (size_t)s->n_layers)
        return hf_err(c, ERR_INVALID, "layer_types is %s, expected a list of %d names",
                      hf_show_value(types).text, s->n_layers);
    for (int i = 0; i < s->n_layers; i++) {
        const char *name = json_string_value(json_array_get(types, (size_t)i));
        windowed[i] = name && strcmp(name, "sliding_attention") == 0;
        if (!windowed[i] && !(name && strcmp(name, "full_attention") == 0))
            return hf_err(c, ERR_UNSUPPORTED,
                          "layer_types has %s at layer %d; sliding_attention and full_attention "
                          "are supported",
                          hf_show_value(json_array_get(types, (size_t)i)).text, i);
    }
    return true;
}

/* sliding_window; 0: none. null says so, and a missing key gives the architecture's default. */
static bool read_window(const struct hf_config *c, int dflt, int *out)
{
    if (hf_is_null(c->model, "sliding_window")) {
        *out = 0;
        return true;
    }
    return hf_int(c, c->model, "sliding_window", 0, INT_MAX, dflt, out);
}

/* Of every `every` layers the last has no window. */
static bool read_pattern(const struct hf_config *c, const struct model_spec *s, int every,
                         bool *windowed)
{
    const json_t *types = hf_get(c->model, "layer_types");
    if (types)
        return read_layer_types(c, s, types, windowed);
    if (!hf_int(c, c->model, "sliding_window_pattern", 1, MODEL_MAX_LAYERS, every, &every))
        return false;
    for (int i = 0; i < s->n_layers; i++)
        windowed[i] = (i + 1) % every != 0;
    return true;
}

/* Qwen's: a switch, and the first layers see everything. */
static bool read_qwen(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s,
                      bool *windowed)
{
    const json_t *types = hf_get(c->model, "layer_types");
    bool use;
    int first;
    if (!hf_bool(c, c->model, "use_sliding_window", false, &use) ||
        !read_window(c, 4096, &s->window) ||
        !hf_int(c, c->model, "max_window_layers", 0, INT_MAX, 28, &first))
        return false;
    if (!use)
        s->window = 0;
    if (s->window == 0)
        return true;
    if (strcmp(a->row, "qwen3moe") != 0 && types)
        return read_layer_types(c, s, types, windowed);
    for (int i = 0; i < s->n_layers; i++)
        windowed[i] = strcmp(a->row, "qwen3moe") == 0   ? true
                      : strcmp(a->row, "qwen2moe") == 0 ? (i + 1) % 2 != 0 && i < first
                                                        : i >= first;
    return true;
}

static bool read_all(const struct hf_config *c, struct model_spec *s, int dflt, bool *windowed)
{
    if (!read_window(c, dflt, &s->window))
        return false;
    for (int i = 0; i < s->n_layers; i++)
        windowed[i] = true;
    return true;
}

/* SmolLM 3: which layers do not turn, and these may have a window. */
static bool read_smollm3(const struct hf_config *c, struct model_spec *s, bool *windowed,
                         bool *still)
{
    const json_t *turns = hf_get(c->model, "no_rope_layers"), *types;
    bool use;
    int every;
    if (!hf_bool(c, c->model, "use_sliding_window", false, &use) ||
        !read_window(c, 0, &s->window) ||
        !hf_int(c, c->model, "no_rope_layer_interval", 1, INT_MAX, 4, &every))
        return false;
    if (turns && json_array_size(turns) != (size_t)s->n_layers)
        return hf_err(c, ERR_INVALID, "no_rope_layers is %s, expected a list of %d numbers",
                      hf_show_value(turns).text, s->n_layers);
    for (int i = 0; i < s->n_layers; i++) {
        const json_t *v = json_array_get(turns, (size_t)i);
        still[i] = turns ? !json_is_true(v) && json_integer_value(v) == 0 : (i + 1) % every == 0;
        windowed[i] = use && still[i];
    }
    types = hf_get(c->model, "layer_types");
    return !types || read_layer_types(c, s, types, windowed);
}

static bool read_windows(const struct hf_config *c, const struct hf_arch *a,
                         const struct architecture *row, struct model_spec *s, bool *windowed,
                         bool *still)
{
    if (strncmp(a->row, "qwen", 4) == 0)
        return read_qwen(c, a, s, windowed);
    if (strcmp(a->row, "smollm3") == 0)
        return read_smollm3(c, s, windowed, still);
    if (strcmp(a->class, "Olmo2ForCausalLM") == 0 || strcmp(a->class, "LlamaForCausalLM") == 0)
        return true;
    if (row->window == WINDOW_ALL)
        return read_all(c, s, a->window, windowed);
    if (row->window == WINDOW_NONE)
        return true;
    return read_window(c, a->window, &s->window) && read_pattern(c, s, row->window_every, windowed);
}

bool hf_read_layers(const struct hf_config *c, const struct hf_arch *a, struct model_spec *s)
{
    const struct architecture *row = architecture_find(a->row, strlen(a->row));
    bool windowed[MODEL_MAX_LAYERS] = {false}, still[MODEL_MAX_LAYERS] = {false}, any = false;
    if (!read_windows(c, a, row, s, windowed, still))
        return false;
    for (int i = 0; i < s->n_layers; i++) {
        any = any || windowed[i];
        still[i] = still[i] || (row->rope_windowed_only && !windowed[i]);
        s->layers[i] = (uint8_t)((windowed[i] && s->window > 0 ? LAYER_WINDOWED : 0) |
                                 (still[i] ? LAYER_NO_ROPE : 0) |
                                 (windowed[i] && row->rope_local ? LAYER_ROPE_LOCAL : 0));
    }
    if (!any)
        s->window = 0;
    return true;
}
