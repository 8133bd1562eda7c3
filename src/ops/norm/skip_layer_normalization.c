/* com.microsoft: SkipLayerNormalization, SkipSimplifiedLayerNormalization, and
 * EmbedLayerNormalization.
 *
 * Skip: s = x + skip + bias, then layer (or RMS) normalization of s over the
 * last dimension; outputs y, mean, 1 / deviation, s.
 * Embed: the sum of three looked-up rows, normalized; output 1 counts the ones
 * of the mask in each sequence. */
#include "ops/batch_rules.h"
#include "ops/norm/norm_util.h"
#include "ops/tie/tie_rules.h"

#include <string.h>

enum { SKIP_X, SKIP_SKIP, SKIP_GAMMA };

typedef struct {
    float epsilon;
    int64_t mask_index_type;
} skip_attrs;

static const sb_attr_def attrs[] = {
    {"epsilon", SB_ATTR_FLOAT, offsetof(skip_attrs, epsilon), .f = 1e-12f},
    {0},
};

/* ---- skip --------------------------------------------------------------- */

static sb_status skip_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[SKIP_X]->type.shape;
    sb_shape stats = *x;

    if (x->rank == 0)
        return sb_infer_fail(in, "input is a scalar");
    if (stats.rank > 0)
        stats.dim[stats.rank - 1] = 1;
    in->out[0].type = in->in[SKIP_X]->type;
    sb_infer_set(in, 1, SB_DTYPE_F32, &stats);
    sb_infer_set(in, 2, SB_DTYPE_F32, &stats);
    sb_infer_set(in, 3, in->in[SKIP_X]->type.dtype, x);
    return SB_OK;
}

/* The simplified operator has no beta: its bias is input 3, not 4. */
static bool is_simplified(const sb_kernel *k)
{
    return strcmp(k->node->op, "SkipSimplifiedLayerNormalization") == 0;
}

static sb_status skip_prepare(sb_kernel *k)
{
    const sb_tensor *x = k->in[SKIP_X];
    int64_t size = x->dims[x->rank - 1], n = sb_tensor_count(k->in[SKIP_SKIP]);

    for (uint32_t i = 0; i < k->n_in; i++) {
        const sb_tensor *t = k->in[i];
        if (t && t->dtype != SB_DTYPE_F32)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %u of type %s", i,
                                  sb_dtype_name(t->dtype));
        if (t && i >= SKIP_GAMMA && sb_tensor_count(t) != size)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "input %u does not have %lld elements", i,
                                  (long long)size);
    }
    if (sb_tensor_count(x) && (n == 0 || n % size || sb_tensor_count(x) % n))
        return sb_kernel_fail(k, SB_BAD_MODEL, "the skip does not fit");
    return SB_OK;
}

static sb_status skip_forward(sb_kernel *k)
{
    const skip_attrs *a = k->attrs;
    const sb_tensor *x = k->in[SKIP_X], *skip = k->in[SKIP_SKIP];
    bool simplified = is_simplified(k);
    const sb_tensor *beta = simplified ? NULL : sb_kernel_in(k, 3);
    const sb_tensor *bias = sb_kernel_in(k, simplified ? 3 : 4);
    sb_tensor *mean = sb_kernel_out(k, 1), *inv = sb_kernel_out(k, 2);
    sb_tensor *sum = sb_kernel_out(k, 3);
    int64_t size = x->dims[x->rank - 1], n = sb_tensor_count(x);

    if (n == 0)
        return SB_OK;
    sb_row_norm norm = {
        .rows = n / size,
        .size = size,
        .centered = !simplified,
        .epsilon = a->epsilon,
        .x = x->data,
        .skip = skip->data,
        .skip_rows = sb_tensor_count(skip) / size,
        .skip_bias = bias ? bias->data : NULL,
        .scale = k->in[SKIP_GAMMA]->data,
        .bias = beta ? beta->data : NULL,
        .y = k->out[0]->data,
        .mean = mean && !simplified ? mean->data : NULL,
        .inv_std = inv ? inv->data : NULL,
        .sum = sum ? sum->data : NULL,
    };
    sb_row_norm_run(k->ctx, &norm);
    if (mean && simplified)
        memset(mean->data, 0, sb_tensor_bytes(mean));
    return SB_OK;
}

/* ---- embed -------------------------------------------------------------- */

enum {
    IDS,
    SEGMENTS,
    WORDS,
    POSITIONS,
    SEGMENT_ROWS,
    GAMMA,
    BETA,
    MASK,
    PLACES
};

static const sb_attr_def embed_attrs[] = {
    {"epsilon", SB_ATTR_FLOAT, offsetof(skip_attrs, epsilon), .f = 1e-12f},
    {"mask_index_type", SB_ATTR_INT, offsetof(skip_attrs, mask_index_type),
     .i = 1},
    {0},
};

static sb_status embed_infer(sb_infer *in)
{
    for (uint32_t i = 0; i <= BETA; i++)
        if (!sb_infer_in(in, i) && i != SEGMENTS && i != SEGMENT_ROWS)
            return sb_infer_fail(in, "input %u is absent", i);
    const sb_shape *ids = &in->in[IDS]->type.shape;
    const sb_shape *words = &in->in[WORDS]->type.shape;
    sb_dim b = ids->rank == 2 ? ids->dim[0] : SB_DIM_UNKNOWN;
    sb_shape y = {3,
                  {b, ids->rank == 2 ? ids->dim[1] : SB_DIM_UNKNOWN,
                   words->rank == 2 ? words->dim[1] : SB_DIM_UNKNOWN}};
    sb_shape mask = {1, {b}};

    if ((ids->rank >= 0 && ids->rank != 2) ||
        (words->rank >= 0 && words->rank != 2))
        return sb_infer_fail(in, "ids and words want rank 2");
    sb_infer_set(in, 0, in->in[WORDS]->type.dtype, &y);
    sb_infer_set(in, 1, SB_DTYPE_I32, &mask);
    sb_infer_set(in, 2, in->in[WORDS]->type.dtype, &y);
    return SB_OK;
}

static sb_status embed_prepare(sb_kernel *k)
{
    const sb_tensor *ids = k->in[IDS];
    int64_t size = k->in[WORDS]->dims[1];
    static const uint32_t tables[] = {WORDS, POSITIONS, SEGMENT_ROWS};
    static const uint32_t indices[] = {IDS, SEGMENTS, MASK, PLACES};

    for (size_t i = 0; i < SB_COUNT(tables); i++) {
        const sb_tensor *t = sb_kernel_in(k, tables[i]);
        if (t && (t->rank != 2 || t->dims[1] != size))
            return sb_kernel_fail(k, SB_BAD_MODEL, "input %u is not [?, %lld]",
                                  tables[i], (long long)size);
    }
    for (uint32_t i = GAMMA; i <= BETA; i++)
        if (sb_tensor_count(k->in[i]) != size)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "input %u does not have %lld elements", i,
                                  (long long)size);
    for (size_t i = 0; i < SB_COUNT(indices); i++) {
        const sb_tensor *t = sb_kernel_in(k, indices[i]);
        bool whole = t && sb_tensor_count(t) == sb_tensor_count(ids);
        bool row = t && indices[i] == PLACES && ids->rank == 2 &&
                   sb_tensor_count(t) == ids->dims[1];
        if (t && (t->dtype != SB_DTYPE_I32 || (!whole && !row)))
            return sb_kernel_fail(
                k, SB_BAD_MODEL, "input %u wants one int32 a word", indices[i]);
    }
    if (!sb_kernel_in(k, PLACES) && k->in[POSITIONS]->dims[0] < ids->dims[1])
        return sb_kernel_fail(k, SB_BAD_MODEL, "too few positions");
    return SB_OK;
}

/* Adds row `index` of a table to `to`. */
static sb_status add_row(const sb_kernel *k, const sb_tensor *table,
                         int64_t index, float *to)
{
    int64_t size = table->dims[1];
    const float *row = (const float *)table->data + index * size;

    if (index < 0 || index >= table->dims[0])
        return sb_kernel_fail(k, SB_BAD_DATA, "index %lld is outside [0, %lld)",
                              (long long)index, (long long)table->dims[0]);
    for (int64_t i = 0; i < size; i++)
        to[i] += row[i];
    return SB_OK;
}

static sb_status embed_rows(const sb_kernel *k, float *y)
{
    const sb_tensor *ids = k->in[IDS], *segments = sb_kernel_in(k, SEGMENTS);
    const sb_tensor *rows = sb_kernel_in(k, SEGMENT_ROWS);
    const sb_tensor *places = sb_kernel_in(k, PLACES);
    int64_t size = k->in[WORDS]->dims[1], len = ids->dims[1];

    for (int64_t i = 0; i < sb_tensor_count(ids); i++) {
        float *to = y + i * size;
        int64_t at = i % len;
        if (places)
            at = ((const int32_t *)places
                      ->data)[sb_tensor_count(places) == len ? i % len : i];
        memset(to, 0, (size_t)size * sizeof *to);
        SB_TRY(add_row(k, k->in[WORDS], ((const int32_t *)ids->data)[i], to));
        SB_TRY(add_row(k, k->in[POSITIONS], at, to));
        if (segments && rows)
            SB_TRY(add_row(k, rows, ((const int32_t *)segments->data)[i], to));
    }
    return SB_OK;
}

static sb_status embed_forward(sb_kernel *k)
{
    const skip_attrs *a = k->attrs;
    const sb_tensor *ids = k->in[IDS], *mask = sb_kernel_in(k, MASK);
    sb_tensor *count = sb_kernel_out(k, 1), *sum = sb_kernel_out(k, 2);
    int64_t len = ids->dims[1];

    SB_TRY(embed_rows(k, k->out[0]->data));
    if (sum)
        memcpy(sum->data, k->out[0]->data, sb_tensor_bytes(sum));
    for (int64_t b = 0; count && b < ids->dims[0]; b++) {
        int32_t ones = 0;
        for (int64_t i = 0; mask && i < len; i++)
            ones += ((const int32_t *)mask->data)[b * len + i] == 1;
        ((int32_t *)count->data)[b] = ones;
    }
    sb_row_norm norm = {
        .rows = sb_tensor_count(ids),
        .size = k->in[WORDS]->dims[1],
        .centered = true,
        .epsilon = a->epsilon,
        .x = k->out[0]->data,
        .scale = k->in[GAMMA]->data,
        .bias = k->in[BETA]->data,
        .y = k->out[0]->data,
    };
    sb_row_norm_run(k->ctx, &norm);
    return SB_OK;
}

const sb_op_def sb_op_ms_skip_layer_normalization = {
    .name = "SkipLayerNormalization",
    .domain = "com.microsoft",
    .since = 1,
    .parameters = 1u << 2 | 1u << 3 | 1u << 4,
    .in_min = 3,
    .in_max = 5,
    .out_min = 1,
    .out_max = 4,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(skip_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_last,
    .infer = skip_infer,
    .prepare = skip_prepare,
    .forward = skip_forward,
    .tie = sb_tie_skip_layer_norm,
};

const sb_op_def sb_op_ms_skip_simplified_layer_normalization = {
    .name = "SkipSimplifiedLayerNormalization",
    .domain = "com.microsoft",
    .since = 1,
    .parameters = 1u << 2 | 1u << 3,
    .in_min = 3,
    .in_max = 4,
    .out_min = 1,
    .out_max = 4,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(skip_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_last,
    .infer = skip_infer,
    .prepare = skip_prepare,
    .forward = skip_forward,
    .tie = sb_tie_skip_layer_norm,
};

const sb_op_def sb_op_ms_embed_layer_normalization = {
    .name = "EmbedLayerNormalization",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 1,
    .in_max = 9,
    .out_min = 1,
    .out_max = 3,
    .flags = SB_OP_F32,
    .any_type = 1u << IDS | 1u << SEGMENTS | 1u << MASK | 1u << PLACES,
    .attrs_size = sizeof(skip_attrs),
    .attrs = embed_attrs,
    .batch = sb_batch_first,
    .infer = embed_infer,
    .prepare = embed_prepare,
    .forward = embed_forward,
};
