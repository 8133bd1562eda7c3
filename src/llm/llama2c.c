/* llama2.c checkpoints: int32 hidden, feed-forward, layers, heads, key heads,
 * tokens (negative: the last layer has weights of its own), positions; then
 * float32 weights, each kind for all layers, and two tables of rotary
 * positions, which are not needed. */
#include "llm/llama2c.h"

#include <math.h>
#include <string.h>

#include "tensor/mapped.h"

enum { HEADER = 28, KINDS = 11 };

typedef struct layout {
    int64_t n[7];
    bool own_head;
} layout;

static layout layout_of(const void *head)
{
    const uint8_t *p = head;
    layout l;

    for (int i = 0; i < 7; i++, p += 4) {
        uint32_t u = (uint32_t)p[0] | (uint32_t)p[1] << 8 |
                     (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        l.n[i] = u < 0x80000000u ? (int64_t)u : (int64_t)u - 0x100000000;
    }
    l.own_head = l.n[5] < 0;
    l.n[5] = l.own_head ? -l.n[5] : l.n[5];
    return l;
}

/* Sizes that networks have; small enough that nothing below overflows. */
static bool layout_ok(const layout *l)
{
    static const int64_t most[7] = {1 << 16, 1 << 18, 1 << 10, 1 << 10,
                                    1 << 10, 1 << 22, 1 << 20};

    for (int i = 0; i < 7; i++)
        if (l->n[i] < 1 || l->n[i] > most[i])
            return false;
    return l->n[0] % l->n[3] == 0 && l->n[3] % l->n[4] == 0 &&
           l->n[0] / l->n[3] % 2 == 0;
}

typedef struct kind {
    const char *name;
    bool per_layer;
    int64_t rows, cols; /* cols 0: a vector */
} kind;

static size_t layout_kinds(const layout *l, kind out[KINDS])
{
    int64_t h = l->n[0], ff = l->n[1], kv = h / l->n[3] * l->n[4];
    const kind all[KINDS] = {
        {"model.embed_tokens", false, l->n[5], h},
        {"input_layernorm", true, h, 0},
        {"self_attn.q_proj", true, h, h},
        {"self_attn.k_proj", true, kv, h},
        {"self_attn.v_proj", true, kv, h},
        {"self_attn.o_proj", true, h, h},
        {"post_attention_layernorm", true, h, 0},
        {"mlp.gate_proj", true, ff, h},
        {"mlp.down_proj", true, h, ff},
        {"mlp.up_proj", true, ff, h},
        {"model.norm", false, h, 0},
    };

    memcpy(out, all, sizeof all);
    return KINDS;
}

/* Bytes of the whole file. */
static double layout_bytes(const layout *l)
{
    kind kinds[KINDS];
    size_t n = layout_kinds(l, kinds);
    double floats = (double)l->n[6] * (double)(l->n[0] / l->n[3]);

    for (size_t i = 0; i < n; i++)
        floats += (double)kinds[i].rows *
                  (double)(kinds[i].cols ? kinds[i].cols : 1) *
                  (double)(kinds[i].per_layer ? l->n[2] : 1);
    if (l->own_head)
        floats += (double)l->n[5] * (double)l->n[0];
    return HEADER + 4 * floats;
}

bool sb_llama2c_is(const void *head, size_t n)
{
    if (n < HEADER)
        return false;
    layout l = layout_of(head);
    return layout_ok(&l);
}

static sb_status add_kind(sb_checkpoint *c, const char *path, sb_buf *file,
                          const char *name, const kind *k, size_t *at)
{
    sb_weight w = {.format = sb_weight_format_plain(SB_DTYPE_F32),
                   .rank = k->cols ? 2 : 1,
                   .dims = {k->rows, k->cols},
                   .at = *at,
                   .buf = file};

    w.bytes = (size_t)sb_weight_count(&w) * sizeof(float);
    *at += w.bytes;
    return name ? sb_checkpoint_add(c, path, name, &w) : SB_NO_MEMORY;
}

static sb_status add_kinds(sb_checkpoint *c, const char *path, sb_buf *file,
                           const layout *l)
{
    kind kinds[KINDS];
    size_t n = layout_kinds(l, kinds), at = HEADER;

    for (size_t i = 0; i < n; i++)
        for (int64_t layer = 0; layer < (kinds[i].per_layer ? l->n[2] : 1);
             layer++)
            SB_TRY(add_kind(
                c, path, file,
                kinds[i].per_layer
                    ? sb_arena_printf(&c->arena, "model.layers.%lld.%s.weight",
                                      (long long)layer, kinds[i].name)
                    : sb_arena_printf(&c->arena, "%s.weight", kinds[i].name),
                &kinds[i], &at));
    if (!l->own_head)
        return SB_OK;
    at += (size_t)(l->n[6] * (l->n[0] / l->n[3])) * sizeof(float);
    const kind head = {"lm_head", false, l->n[5], l->n[0]};
    return add_kind(c, path, file, "lm_head.weight", &head, &at);
}

sb_status sb_llama2c_load(sb_checkpoint *c, const char *path,
                          sb_llm_config *config)
{
    sb_buf *file = NULL;

    SB_TRY(sb_buf_map_file(c->ctx, path, true, &file));
    SB_TRY(sb_checkpoint_keep(c, file));
    if (!sb_llama2c_is(sb_buf_data(file), sb_buf_size(file)))
        return sb_fail(c->ctx, SB_BAD_DATA, "%s: no llama2.c checkpoint", path);
    layout l = layout_of(sb_buf_data(file));
    if (fabs(layout_bytes(&l) - (double)sb_buf_size(file)) > 0.5)
        return sb_fail(c->ctx, SB_BAD_DATA,
                       "%s: a llama2.c checkpoint of %zu bytes, want %.0f by "
                       "its first numbers",
                       path, sb_buf_size(file), layout_bytes(&l));
    *config = (sb_llm_config){
        .hidden = l.n[0],
        .feed_forward = l.n[1],
        .layers = l.n[2],
        .heads = l.n[3],
        .kv_heads = l.n[4],
        .vocabulary = l.n[5],
        .positions = l.n[6],
        .norm_epsilon = 1e-5,
        .rope = {.theta = 10000, .factor = 1},
        .local_rope = {.theta = 10000, .factor = 1},
        .interleaved = true,
    };
    SB_TRY(sb_llm_arch_find(c->ctx, path, "llama", false, &config->arch));
    SB_TRY(add_kinds(c, path, file, &l));
    return sb_llm_config_check(c->ctx, path, config);
}
