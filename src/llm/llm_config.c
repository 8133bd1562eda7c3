/* Numbers of a language model: the architectures, checks, config.json. */
#include "llm/llm_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "llm/arch.h"

/* What config.json need not say: the classes of transformers have it.  Files
 * within files (text_config) leave out what is as there, others all but sizes
 * at times. */
#define ABSENT(epsilon, most, base)                                      \
    .norm_epsilon = (epsilon), .positions = (most), .window = 4096,      \
    .zeros_less_one = true, /* the first version of GPTQ says nothing */ \
        .rope = {.theta = (base), .factor = 1},                          \
    .local_rope = {.theta = 10000, .factor = 1}

/* Rows of each architecture; who adds one adds its names of GGUF tensors to
 * gguf_names.c, where they differ. */
static const sb_llm_arch archs[] = {
    {"llama",
     "LlamaForCausalLM",
     "llama",
     SB_LLM_GGUF_INTERLEAVED | SB_LLM_NO_WINDOW,
     {ABSENT(1e-6, 2048, 1e4)},
     sb_arch_llama},
    {"mistral",
     "MistralForCausalLM",
     NULL,
     0,
     {ABSENT(1e-6, 131072, 1e4)},
     sb_arch_llama},
    {"qwen2",
     "Qwen2ForCausalLM",
     "qwen2",
     SB_LLM_WINDOW_ASKED,
     {ABSENT(1e-6, 32768, 1e4)},
     sb_arch_llama},
    {"qwen3",
     "Qwen3ForCausalLM",
     "qwen3",
     SB_LLM_WINDOW_ASKED,
     {ABSENT(1e-6, 32768, 1e4), .head_size = 128},
     sb_arch_llama},
    {"gemma3_text",
     "Gemma3ForCausalLM",
     "gemma3",
     SB_LLM_SCALED_EMBEDDING | SB_LLM_GEMMA,
     {ABSENT(1e-6, 131072, 1e6), .heads = 8, .kv_heads = 4, .head_size = 256,
      .vocabulary = 262208},
     sb_arch_llama},
    {"gpt2",
     "GPT2LMHeadModel",
     "gpt2",
     SB_LLM_TRANSPOSED | SB_LLM_LEARNED_POSITIONS | SB_LLM_NO_WINDOW,
     {ABSENT(1e-5, 1024, 1e4)},
     sb_arch_gpt2},
};

sb_status sb_llm_arch_find(sb_ctx *ctx, const char *file, const char *name,
                           bool gguf, const sb_llm_arch **out)
{
    sb_str known;

    for (size_t i = 0; i < SB_COUNT(archs); i++) {
        const char *own = gguf ? archs[i].gguf : archs[i].hf;

        if (own && strcmp(own, name) == 0) {
            *out = &archs[i];
            return SB_OK;
        }
    }
    sb_str_init(&known, ctx);
    for (size_t i = 0; i < SB_COUNT(archs); i++)
        if (gguf ? archs[i].gguf : archs[i].hf)
            sb_str_addf(&known, "%s%s", known.len ? ", " : "",
                        gguf ? archs[i].gguf : archs[i].hf);
    sb_status status =
        sb_fail(ctx, SB_UNSUPPORTED, "%s: architecture '%.64s'; known are %s",
                file, name, sb_str_text(&known));
    sb_str_free(&known);
    return status;
}

/* ---- checks ------------------------------------------------------------- */

static sb_status check_range(sb_ctx *ctx, const char *file, const char *what,
                             int64_t x, int64_t most)
{
    if (x < 1 || x > most)
        return sb_fail(ctx, SB_BAD_DATA, "%s: %lld %s, want 1 to %lld", file,
                       (long long)x, what, (long long)most);
    return SB_OK;
}

static sb_status check_sizes(sb_ctx *ctx, const char *file,
                             const sb_llm_config *c)
{
    SB_TRY(check_range(ctx, file, "layers", c->layers, 4096));
    SB_TRY(check_range(ctx, file, "hidden elements", c->hidden, 1 << 20));
    SB_TRY(check_range(ctx, file, "feed-forward elements", c->feed_forward,
                       1 << 22));
    SB_TRY(check_range(ctx, file, "attention heads", c->heads, 1 << 16));
    SB_TRY(check_range(ctx, file, "key heads", c->kv_heads, c->heads));
    SB_TRY(check_range(ctx, file, "elements of a head", c->head_size, 1 << 14));
    SB_TRY(check_range(ctx, file, "tokens", c->vocabulary, 1 << 24));
    SB_TRY(check_range(ctx, file, "positions", c->positions, 1 << 28));
    if (c->heads % c->kv_heads)
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: %lld attention heads for %lld key heads", file,
                       (long long)c->heads, (long long)c->kv_heads);
    return SB_OK;
}

static bool is_positive(double x)
{
    return isfinite(x) && x > 0;
}

static sb_status check_rope(sb_ctx *ctx, const char *file, const sb_rope *r)
{
    if (!is_positive(r->theta) || !is_positive(r->factor))
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: rope theta %g, factor %g: want numbers above 0",
                       file, r->theta, r->factor);
    if (r->scaling == SB_ROPE_LLAMA3 &&
        (!is_positive(r->low_factor) || !(r->high_factor > r->low_factor) ||
         !is_positive(r->original_positions)))
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: rope scaling llama3 with frequency factors %g and "
                       "%g for %g positions",
                       file, r->low_factor, r->high_factor,
                       r->original_positions);
    return SB_OK;
}

sb_status sb_llm_config_check(sb_ctx *ctx, const char *file, sb_llm_config *c)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_size == 0 && c->heads > 0)
        c->head_size = c->hidden / c->heads;
    if (c->rope_size == 0)
        c->rope_size = c->head_size;
    if (c->positions > SB_POSITIONS_MOST)
        c->positions = SB_POSITIONS_MOST;
    SB_TRY(check_sizes(ctx, file, c));
    if (!(c->arch->flags & SB_LLM_LEARNED_POSITIONS) &&
        (c->rope_size < 2 || c->rope_size > c->head_size || c->rope_size % 2))
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: %lld rotated elements of a head of %lld, want an "
                       "even number",
                       file, (long long)c->rope_size, (long long)c->head_size);
    if (!is_positive(c->norm_epsilon))
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: norm epsilon %g, want a number above 0", file,
                       c->norm_epsilon);
    SB_TRY(check_rope(ctx, file, &c->rope));
    SB_TRY(check_rope(ctx, file, &c->local_rope));
    if (c->window < 0 || c->window_pattern < 0 || !isfinite(c->attention_scale))
        return sb_fail(ctx, SB_BAD_DATA, "%s: window %lld of pattern %lld",
                       file, (long long)c->window,
                       (long long)c->window_pattern);
    return SB_OK;
}

/* ---- config.json -------------------------------------------------------- */

typedef struct hf_reader {
    const sb_json_doc *doc;
    const sb_json *at; /* the object that is read */
    sb_status status;  /* the first failure */
} hf_reader;

/* What stands under one of two names. */
static const sb_json *hf_find(const hf_reader *r, const char *key,
                              const char *other)
{
    const sb_json *v = sb_json_get(r->at, key);

    return v || !other ? v : sb_json_get(r->at, other);
}

/* A number; `absent` if it is not there or null. */
static double hf_number(hf_reader *r, const char *key, const char *other,
                        double absent)
{
    const sb_json *v = hf_find(r, key, other);

    if (!v || v->kind == SB_JSON_NULL || r->status != SB_OK)
        return absent;
    if (v->kind != SB_JSON_NUMBER)
        r->status = sb_json_fail(r->doc, v, "%s is no number", v->key);
    return v->number;
}

static int64_t hf_whole(hf_reader *r, const char *key, const char *other,
                        int64_t absent)
{
    const sb_json *v = hf_find(r, key, other);
    const char *name = v ? v->key : key;
    double x = hf_number(r, key, other, (double)absent);

    if (r->status == SB_OK && !(x >= -1e15 && x <= 1e15))
        r->status = sb_json_fail(r->doc, v, "%s is out of range", name);
    else if (r->status == SB_OK && x > floor(x))
        r->status = sb_json_fail(r->doc, v, "%s is no whole number", name);
    return r->status == SB_OK ? (int64_t)x : absent;
}

static bool hf_says(const sb_json *at, const char *key, bool what)
{
    const sb_json *v = sb_json_get(at, key);

    return sb_json_is(v, SB_JSON_BOOL) && (v->number > 0) == what;
}

/* One object of them.  What a kind of scaling cannot do without is 0 if it is
 * missing, which is refused later. */
static void hf_rope_of(hf_reader *r, const sb_json *s, sb_rope *rope)
{
    const sb_json *outer = r->at, *v;

    r->at = s;
    v = hf_find(r, "rope_type", "type");
    const char *type = sb_json_text(v);
    rope->theta = hf_number(r, "rope_theta", NULL, rope->theta);
    if (v && !type && v->kind != SB_JSON_NULL && r->status == SB_OK)
        r->status = sb_json_fail(r->doc, v, "%s is no text", v->key);
    if (type && strcmp(type, "default") != 0) {
        rope->factor = hf_number(r, "factor", NULL, 0);
        rope->low_factor = hf_number(r, "low_freq_factor", NULL, 0);
        rope->high_factor = hf_number(r, "high_freq_factor", NULL, 0);
        rope->original_positions =
            hf_number(r, "original_max_position_embeddings", NULL, 0);
        if (strcmp(type, "linear") == 0)
            rope->scaling = SB_ROPE_LINEAR;
        else if (strcmp(type, "llama3") == 0)
            rope->scaling = SB_ROPE_LLAMA3;
        else if (r->status == SB_OK)
            r->status = sb_fail(r->doc->ctx, SB_UNSUPPORTED,
                                "%s: rope scaling '%.64s'; known are default, "
                                "linear, llama3",
                                r->doc->file, type);
    }
    r->at = outer;
}

/* rope_scaling, or rope_parameters, which newer files have: one object, or one
 * for each kind of layers. */
static void hf_rope(hf_reader *r, sb_llm_config *c)
{
    const sb_json *s = sb_json_get(r->at, "rope_parameters");
    const sb_json *all = sb_json_get(s, "full_attention");

    c->rope.theta = hf_number(r, "rope_theta", NULL, c->rope.theta);
    c->local_rope.theta =
        hf_number(r, "rope_local_base_freq", NULL, c->local_rope.theta);
    if (all)
        hf_rope_of(r, sb_json_get(s, "sliding_attention"), &c->local_rope);
    else if (!sb_json_is(s, SB_JSON_OBJECT))
        s = sb_json_get(r->at, "rope_scaling");
    hf_rope_of(r, all ? all : s, &c->rope);
}

/* Each architecture has one activation; all names of it are the same
 * function. */
static void hf_activation(hf_reader *r, const sb_llm_config *c)
{
    static const char *const names[2][3] = {
        {"silu", "swish", NULL},
        {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}};
    unsigned flags = c->arch->flags;
    bool gelu = (flags & (SB_LLM_GEMMA | SB_LLM_TRANSPOSED)) != 0;
    const char *const *known = names[gelu];
    const char *key = flags & SB_LLM_GEMMA        ? "hidden_activation"
                      : flags & SB_LLM_TRANSPOSED ? "activation_function"
                                                  : "hidden_act";
    const sb_json *v = sb_json_get(r->at, key);
    const char *name = sb_json_text(v);

    if (v && !name && v->kind != SB_JSON_NULL && r->status == SB_OK)
        r->status = sb_json_fail(r->doc, v, "%s is no text", key);
    for (int i = 0; i < 3 && known[i]; i++)
        if (!name || strcmp(name, known[i]) == 0)
            return;
    if (r->status == SB_OK)
        r->status =
            sb_fail(r->doc->ctx, SB_UNSUPPORTED,
                    "%s: %s '%.64s'; known for %s are %s, %s%s%s", r->doc->file,
                    key, name, c->arch->hf, known[0], known[1],
                    known[2] ? ", " : "", known[2] ? known[2] : "");
}

/* Switches of GPT-2 and Gemma that change what attention computes, and what
 * most files say of them. */
static void hf_switches(hf_reader *r, const sb_llm_config *c)
{
    static const struct {
        const char *key;
        bool known;
        unsigned flag; /* of the architectures that have it */
    } switches[] = {
        {"scale_attn_weights", true, SB_LLM_TRANSPOSED},
        {"scale_attn_by_inverse_layer_idx", false, SB_LLM_TRANSPOSED},
        {"use_bidirectional_attention", false, SB_LLM_GEMMA}};
    static const char *const caps[] = {"attn_logit_softcapping",
                                       "final_logit_softcapping"};

    for (size_t i = 0; i < SB_COUNT(switches); i++) {
        if ((c->arch->flags & switches[i].flag) &&
            hf_says(r->at, switches[i].key, !switches[i].known) &&
            r->status == SB_OK)
            r->status =
                sb_fail(r->doc->ctx, SB_UNSUPPORTED, "%s: %s is %s, want %s",
                        r->doc->file, switches[i].key,
                        switches[i].known ? "false" : "true",
                        switches[i].known ? "true" : "false");
    }
    for (size_t i = 0; i < SB_COUNT(caps); i++)
        if ((c->arch->flags & SB_LLM_GEMMA) && r->status == SB_OK &&
            hf_number(r, caps[i], NULL, 0) > 0)
            r->status =
                sb_fail(r->doc->ctx, SB_UNSUPPORTED, "%s: %s is %g, want null",
                        r->doc->file, caps[i], hf_number(r, caps[i], NULL, 0));
}

/* Layers by name: all but every n-th see a window. */
static void hf_layer_types(hf_reader *r, sb_llm_config *c)
{
    const sb_json *list = sb_json_get(r->at, "layer_types");
    int64_t i = 0;

    if (!sb_json_is(list, SB_JSON_LIST) || c->window == 0)
        return;
    c->window_pattern = 0;
    for (const sb_json *t = list->child; t; t = t->next) {
        const char *name = sb_json_text(t);
        bool all = name && strcmp(name, "full_attention") == 0;

        i++;
        if (all && c->window_pattern == 0)
            c->window_pattern = i;
        bool fits = all ? i % c->window_pattern == 0
                        : name && strcmp(name, "sliding_attention") == 0 &&
                              (c->window_pattern == 0 || i % c->window_pattern);
        if (!fits && r->status == SB_OK)
            r->status =
                sb_fail(r->doc->ctx, SB_UNSUPPORTED,
                        "%s: layer_types: layer %lld is '%.64s'; known "
                        "are sliding_attention with full_attention in "
                        "every n-th layer",
                        r->doc->file, (long long)i - 1, name ? name : "");
    }
    if (i < c->layers && r->status == SB_OK)
        r->status =
            sb_json_fail(r->doc, list, "layer_types: %lld of %lld layers",
                         (long long)i, (long long)c->layers);
    /* Windows alone have frequencies of their own, too. */
    if (c->window_pattern == 0 && (c->arch->flags & SB_LLM_GEMMA))
        c->window_pattern = i + 1;
}

/* Of an architecture that must be asked for windows, without layer_types. */
static void hf_asked_window(hf_reader *r, sb_llm_config *c)
{
    int64_t from = hf_whole(r, "max_window_layers", NULL, 28);

    if (!hf_says(r->at, "use_sliding_window", true))
        c->window = 0;
    if (c->window == 0 || sb_json_get(r->at, "layer_types"))
        return;
    if (from >= c->layers)
        c->window = 0;
    else if (from > 0 && r->status == SB_OK)
        r->status =
            sb_fail(r->doc->ctx, SB_UNSUPPORTED,
                    "%s: max_window_layers %lld of %lld layers, want "
                    "0, or all of them",
                    r->doc->file, (long long)from, (long long)c->layers);
}

static void hf_window(hf_reader *r, sb_llm_config *c)
{
    if (!(c->arch->flags & SB_LLM_NO_WINDOW))
        c->window = sb_json_get(r->at, "sliding_window")
                        ? hf_whole(r, "sliding_window", NULL, 0)
                        : c->window;
    else
        c->window = 0;
    if (c->arch->flags & SB_LLM_WINDOW_ASKED)
        hf_asked_window(r, c);
    if (c->arch->flags & SB_LLM_GEMMA) {
        double scale = hf_number(r, "query_pre_attn_scalar", NULL, 256);

        c->window_pattern =
            hf_whole(r, "sliding_window_pattern", "_sliding_window_pattern", 6);
        c->attention_scale = 1 / sqrt(scale);
        if (!(scale > 0) && r->status == SB_OK)
            r->status = sb_fail(r->doc->ctx, SB_BAD_DATA,
                                "%s: query_pre_attn_scalar %g, want a number "
                                "above 0",
                                r->doc->file, scale);
        c->norm_plus_one = true;
    } else { /* windows have no frequencies of their own */
        c->local_rope = c->rope;
    }
    hf_layer_types(r, c);
}

/* The part of a head that is rotated. */
static void hf_rope_size(hf_reader *r, sb_llm_config *c)
{
    const sb_json *outer = r->at;
    double factor = hf_number(r, "partial_rotary_factor", NULL, 1);
    int64_t size = c->head_size   ? c->head_size
                   : c->heads > 0 ? c->hidden / c->heads
                                  : 0;

    r->at = sb_json_get(outer, "rope_parameters");
    factor = hf_number(r, "partial_rotary_factor", NULL, factor);
    r->at = outer;
    if (r->status == SB_OK && !(factor > 0 && factor <= 1))
        r->status = sb_fail(r->doc->ctx, SB_BAD_DATA,
                            "%s: partial_rotary_factor %g, want a number above "
                            "0, at most 1",
                            r->doc->file, factor);
    else if (factor < 1)
        c->rope_size = (int64_t)rint((double)size * factor);
}

sb_status sb_llm_config_read_packing(sb_llm_config *c, const sb_json_doc *doc,
                                     const sb_json *q)
{
    const char *method = sb_json_text(sb_json_get(q, "quant_method"));
    const char *format = sb_json_text(sb_json_get(q, "checkpoint_format"));
    const char *version = sb_json_text(sb_json_get(q, "version"));

    if (!sb_json_is(q, SB_JSON_OBJECT))
        return SB_OK;
    if (!method && q == doc->root)
        method = "gptq";
    c->awq = method && strcmp(method, "awq") == 0;
    c->zeros_less_one = !c->awq && !(format && strcmp(format, "gptq_v2") == 0);
    bool known =
        method && (c->awq ? !version || strcmp(version, "gemm") == 0 ||
                                strcmp(version, "GEMM") == 0
                          : strcmp(method, "gptq") == 0 &&
                                (!format || strncmp(format, "gptq", 4) == 0) &&
                                !(format && strcmp(format, "gptq_p") == 0));
    if (!known)
        return sb_fail(doc->ctx, SB_UNSUPPORTED,
                       "%s: weights packed by '%.64s' (%.64s); known are gptq "
                       "(gptq, gptq_v2) and awq (gemm)",
                       doc->file, method ? method : "",
                       format    ? format
                       : version ? version
                                 : "");
    return SB_OK;
}

const sb_json *sb_llm_config_object(const sb_json *root)
{
    const sb_json *inner = sb_json_get(root, "text_config");

    return sb_json_text(sb_json_get(inner, "model_type")) ? inner : root;
}

sb_status sb_llm_config_read_hf(sb_llm_config *c, const sb_json_doc *doc)
{
    const sb_json *root = doc->root;
    hf_reader r = {doc, sb_llm_config_object(root), SB_OK};
    const char *type = sb_json_text(sb_json_get(r.at, "model_type"));
    const sb_llm_arch *arch;

    if (!type)
        return sb_json_fail(doc, NULL, "there is no model_type");
    SB_TRY(sb_llm_arch_find(doc->ctx, doc->file, type, false, &arch));
    *c = arch->absent;
    c->arch = arch;
    c->layers = hf_whole(&r, "num_hidden_layers", "n_layer", 0);
    c->hidden = hf_whole(&r, "hidden_size", "n_embd", 0);
    c->feed_forward =
        hf_whole(&r, "intermediate_size", "n_inner", 4 * c->hidden);
    c->heads = hf_whole(&r, "num_attention_heads", "n_head", c->heads);
    c->kv_heads = hf_whole(&r, "num_key_value_heads", NULL, c->kv_heads);
    c->head_size = hf_whole(&r, "head_dim", NULL, c->head_size);
    c->vocabulary = hf_whole(&r, "vocab_size", NULL, c->vocabulary);
    c->positions =
        hf_whole(&r, "max_position_embeddings", "n_positions", c->positions);
    c->norm_epsilon =
        hf_number(&r, "rms_norm_eps", "layer_norm_epsilon", c->norm_epsilon);
    c->transposed = (c->arch->flags & SB_LLM_TRANSPOSED) != 0;
    c->untied = hf_says(r.at, "tie_word_embeddings", false) &&
                !hf_says(root, "tie_word_embeddings", true);
    hf_activation(&r, c);
    hf_switches(&r, c);
    hf_rope(&r, c);
    hf_window(&r, c);
    hf_rope_size(&r, c);
    SB_TRY(r.status);
    SB_TRY(sb_llm_config_read_packing(
        c, doc, sb_json_get(root, "quantization_config")));
    return sb_llm_config_check(doc->ctx, doc->file, c);
}
