/* Every key of a config: its type, default, limits and meaning.
 *
 * Keys and defaults are Sparsebit's; GROUP_SIZE, per-group schemes, `A: none`,
 * `A: dynamic` and the backends after tensorrt are ours.
 *
 * What quantizers and observers there are, and which parameters they have, say
 * their rows: the tables below have the keys that are always there, and
 * sb_quant_tables_make() puts both together. */
#include <stdalign.h>
#include <stddef.h>
#include <string.h>

#include "quant/config/quant_config_file.h"
#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"

const char *const sb_quant_scheme_names[] = {"per-tensor-symmetric",
                                             "per-tensor-affine",
                                             "per-channel-symmetric",
                                             "per-channel-affine",
                                             "per-group-symmetric",
                                             "per-group-affine",
                                             NULL};

const char *const sb_quant_strategy_names[] = {"l1norm", "l2norm", "slimming",
                                               "taylor", "fisher", "hrank",
                                               "random", NULL};

static const char *const layouts[] = {"NCHW", "NLC", NULL};
/* In the order of sb_layerwise. */
static const char *const layerwise[] = {"auto", "true", "false", NULL};
static const char *const sparsers[] = {"structed", "unstructed", "structured",
                                       "unstructured", NULL};

/* clang-format off */

/* ---- what names stand for ------------------------------------------------ */

#define SCHEMES_MORE                                                           \
    "per-tensor   one scale for the whole tensor\n"                            \
    "per-channel  one scale for each channel\n"
#define SCHEMES_MORE_END                                                       \
    "symmetric    zero is number 0: -2^(b-1) .. 2^(b-1)-1\n"                   \
    "affine       zero is the zero point: 0 .. 2^b-1"
#define SPECIFIC_MORE                                                          \
    "Patterns (*, ?, [set]) match the module path (layer1.0.conv1), the same\n" \
    "with _ (layer1_0_conv1), the node's name (/layer1/conv1/Conv) or the\n"   \
    "function (softmax).  Keys are relative to W or A:\n"                      \
    "  SPECIFIC: {\"head*\": [QUANTIZER.BIT, 8], \"*norm\": [QUANTIZER.DISABLE, true]}"

#define SIDE(field) offsetof(sb_quant_side, field)
#define TOP(field)  offsetof(sb_quant_file, field)

/* ---- what W and A share -------------------------------------------------- */

#define ROW_DISABLE                                                            \
    {.name = "DISABLE", .type = SB_PARAM_BOOL, .offset = SIDE(disable),        \
     .preset = "false", .help = "leave all of these in float"}
#define ROW_BIT                                                                \
    {.name = "BIT", .type = SB_PARAM_INT, .offset = SIDE(bit),                 \
     .preset = "-1", .sample = "8", .min = -1, .max = 16,                      \
     .values = "1..16, or 0 for float",                                        \
     .help = "width in bits; must be set"}
/* `names` and `meanings` of both are filled in later. */
#define ROW_QUANTIZER(first)                                                   \
    {.name = "TYPE", .type = SB_PARAM_ENUM, .offset = SIDE(quantizer),         \
     .preset = "uniform", .sample = first, .help = "how values are rounded"}
#define ROW_OBSERVER                                                           \
    {.name = "TYPE", .type = SB_PARAM_ENUM, .offset = SIDE(observer),          \
     .preset = "MINMAX", .sample = "minmax", .help = "how the range is found"}

/* ---- W -------------------------------------------------------------------- */

static const sb_param_def w_quantizer_table[] = {
    ROW_QUANTIZER("gptq"),
    ROW_BIT,
    ROW_DISABLE,
    {.name = "GROUP_SIZE", .type = SB_PARAM_INT, .offset = SIDE(group_size),
     .preset = "128", .min = -1, .max = 256,
     .values = "16, 32, 64, 128, 256, or -1 for a whole row",
     .help = "per-group schemes: how many columns share a scale"},
    {0},
};

static const sb_param_def w_observer_table[] = {
    ROW_OBSERVER,
    {0},
};

/* QUANTIZER and OBSERVER get their fields later, W and A too. */

#define SPECIFIC_VALUES "a map from pattern to [key, value, ...], or a list of such maps"

static const sb_param_def w_table[] = {
    {.name = "QSCHEME", .type = SB_PARAM_ENUM, .offset = SIDE(scheme),
     .sample = "per-channel-symmetric", .names = sb_quant_scheme_names,
     .more = SCHEMES_MORE
             "per-group    one scale for each QUANTIZER.GROUP_SIZE columns\n"
             SCHEMES_MORE_END,
     .help = "how many values share a scale, and is there a zero point; must be set"},
    {.name = "QUANTIZER", .type = SB_PARAM_MAP,
     .help = "rounding of weights"},
    {.name = "OBSERVER", .type = SB_PARAM_MAP,
     .help = "ranges of weights"},
    {.name = "SPECIFIC", .type = SB_PARAM_NODE, .offset = SIDE(specific),
     .preset = "[]", .values = SPECIFIC_VALUES, .more = SPECIFIC_MORE,
     .help = "other settings for the weights of some nodes; the first pattern that matches wins"},
    {0},
};

/* ---- A -------------------------------------------------------------------- */

static const sb_param_def a_quantizer_table[] = {
    ROW_QUANTIZER("uniform"),
    ROW_BIT,
    ROW_DISABLE,
    {0},
};

static const sb_param_def a_observer_table[] = {
    ROW_OBSERVER,
    {.name = "LAYOUT", .type = SB_PARAM_ENUM, .offset = SIDE(layout),
     .preset = "NCHW", .names = layouts,
     .help = "where the channels are: axis 1 (NCHW) or axis 2 (NLC)"},
    {0},
};

static const sb_param_def qadd_table[] = {
    {.name = "ENABLE_QUANT", .type = SB_PARAM_BOOL, .offset = SIDE(qadd),
     .preset = "false", .help = "quantize the inputs of element-wise additions"},
    {0},
};

static const sb_param_def a_table[] = {
    {.name = "QSCHEME", .type = SB_PARAM_ENUM, .offset = SIDE(scheme),
     .sample = "per-tensor-affine", .names = sb_quant_scheme_names,
     .more = SCHEMES_MORE SCHEMES_MORE_END,
     .values = "per-tensor-symmetric, per-tensor-affine, per-channel-symmetric "
               "or per-channel-affine",
     .help = "how many values share a scale, and is there a zero point; must be set"},
    {.name = "QUANTIZER", .type = SB_PARAM_MAP,
     .help = "rounding of activations"},
    {.name = "OBSERVER", .type = SB_PARAM_MAP,
     .help = "ranges of activations"},
    {.name = "QADD", .type = SB_PARAM_MAP, .fields = qadd_table,
     .help = "additions"},
    {.name = "SPECIFIC", .type = SB_PARAM_NODE, .offset = SIDE(specific),
     .preset = "[]", .values = SPECIFIC_VALUES, .more = SPECIFIC_MORE,
     .help = "other settings for the inputs of some nodes; the first pattern that matches wins"},
    {0},
};

/* ---- the file ------------------------------------------------------------- */

static const sb_param_def blockwise_table[] = {
    {.name = "STEPS", .type = SB_PARAM_INT, .offset = TOP(blockwise.steps),
     .preset = "0", .min = 0, .max = 1e7,
     .help = "steps of learning, for each block; 0: blocks are not learned"},
    {.name = "BATCH", .type = SB_PARAM_INT, .offset = TOP(blockwise.batch),
     .preset = "32", .min = 1, .max = 65536,
     .help = "samples of a step, drawn at random (--seed)"},
    {.name = "LEARNING_RATE", .type = SB_PARAM_FLOAT,
     .offset = TOP(blockwise.rate), .preset = "0", .max = 1,
     .help = "of the rounding of weights, by Adam; 0: the rate that goes with STEPS, 10 / STEPS and at most 0.1"},
    {.name = "SCALE_RATE", .type = SB_PARAM_FLOAT,
     .offset = TOP(blockwise.scale_rate), .preset = "0.001", .max = 1,
     .help = "of the scales of activations, in parts of each, and of biases; 0: none, both stay as they are"},
    {.name = "LAMBDA", .type = SB_PARAM_FLOAT, .offset = TOP(blockwise.lambda),
     .preset = "0.01", .max = 1e6,
     .help = "weight of the term that drives weights to one side"},
    {.name = "DROP", .type = SB_PARAM_FLOAT, .offset = TOP(blockwise.drop),
     .preset = "0.5", .max = 1,
     .help = "share of activations that is not rounded in a step (QDrop); 0: all are (BRECQ)"},
    {0},
};

static const sb_param_def schedule_table[] = {
    {.name = "FUSE_BN", .type = SB_PARAM_BOOL, .offset = TOP(fuse_bn),
     .preset = "false", .sample = "true",
     .help = "fold batch normalization into the convolution or matmul before it"},
    {.name = "BN_TUNING", .type = SB_PARAM_BOOL, .offset = TOP(bn_tuning),
     .preset = "false",
     .help = "measure the statistics of batch normalization anew, in the quantized network, before it is folded; needs weights per channel"},
    {.name = "DISABLE_UNNECESSARY_QUANT", .type = SB_PARAM_BOOL,
     .offset = TOP(disable_unnecessary), .preset = "true",
     .help = "no quantizers inside convolution + normalization + activation"},
    {.name = "EQUALIZATION", .type = SB_PARAM_BOOL,
     .offset = TOP(equalization), .preset = "false", .sample = "true",
     .help = "bring channels that share a scale to similar sizes, by factors that the layers around them undo; where none can, by a `Mul` in front of matrix products"},
    {.name = "BIAS_CORRECTION", .type = SB_PARAM_BOOL,
     .offset = TOP(bias_correction), .preset = "false", .sample = "true",
     .help = "give biases back what rounding took from the means of each layer; without samples (A: none, A: dynamic) by what batch norms in front of layers say"},
    {.name = "LAYERWISE", .type = SB_PARAM_ENUM, .offset = TOP(layerwise),
     .preset = "auto", .names = layerwise,
     .help = "round weights layer by layer, each fitted to what the float network computes; takes longer; for quantizers that need samples (auto: if only weights are quantized)"},
    {.name = "BLOCKWISE", .type = SB_PARAM_MAP, .fields = blockwise_table,
     .help = "learn the rounding of weights and the scales of activations, block by block, so that each computes what it does in float"},
    {.name = "SAMPLES", .type = SB_PARAM_INT, .offset = TOP(refine_samples),
     .preset = "0", .sample = "32", .min = 0, .max = 1e9,
     .help = "how many samples bias correction, rounding methods and BLOCKWISE run on; 0: all"},
    {0},
};

static const sb_param_def sparser_table[] = {
    {.name = "TYPE", .type = SB_PARAM_ENUM, .offset = TOP(sparser),
     .names = sparsers, .sample = "structured", .required = true,
     .help = "whole channels or single weights"},
    {.name = "STRATEGY", .type = SB_PARAM_ENUM, .offset = TOP(strategy),
     .names = sb_quant_strategy_names, .sample = "l1norm", .required = true,
     .help = "what decides which go first"},
    {.name = "RATIO", .type = SB_PARAM_FLOAT, .offset = TOP(ratio),
     .preset = "0.0", .max = 1, .help = "share that goes"},
    {0},
};

static const sb_param_def file_table[] = {
    {.name = "BACKEND", .type = SB_PARAM_ENUM, .offset = TOP(backend),
     .preset = "virtual", .names = sb_target_names,
     .help = "where the model will run; virtual allows everything"},
    {.name = "SKIP_TRACE_MODULES", .type = SB_PARAM_STRINGS, .offset = TOP(skip),
     .preset = "[]", .values = "a list of patterns, such as \"head.*\"",
     .help = "modules that stay whole and in float"},
    {.name = "SCHEDULE", .type = SB_PARAM_MAP, .fields = schedule_table,
     .help = "what happens to the graph before calibration, and to biases after it"},
    {.name = "W", .type = SB_PARAM_NODE, .offset = TOP(w),
     .values = "a map", .help = "weights"},
    {.name = "A", .type = SB_PARAM_NODE, .offset = TOP(a),
     .values = "a map, none or dynamic",
     .more = "none     activations stay in float, only weights are quantized\n"
             "dynamic  activations are quantized at run time; no calibration",
     .help = "activations; instead of a map: none (weights only) or dynamic "
             "(ranges at run time)"},
    {.name = "SPARSER", .type = SB_PARAM_MAP, .fields = sparser_table,
     .sample = "#", .help = "pruning"},
    {0},
};
/* clang-format on */

/* ---- quantizers and observers ------------------------------------------- */

/* What the two lists of rows have in common here. */
typedef struct table_row {
    const char *name, *summary;
    const sb_param_def *params;
    size_t params_size;
    bool used[2]; /* by sb_quant_kind */
} table_row;

static bool quantizer_row(const sb_ctx *ctx, size_t i, table_row *out)
{
    const sb_quantizer_def *q = sb_quantizer_at(ctx, i);

    if (q)
        *out = (table_row){q->name,
                           q->summary,
                           q->params,
                           q->params_size,
                           {q->uses[SB_QUANT_WEIGHT].schemes != 0,
                            q->uses[SB_QUANT_ACTIVATION].schemes != 0}};
    return q != NULL;
}

static bool observer_row(const sb_ctx *ctx, size_t i, table_row *out)
{
    const sb_observer_def *o = sb_observer_at(ctx, i);

    if (o)
        *out = (table_row){o->name,
                           o->summary,
                           o->params,
                           o->params_size,
                           {(o->flags & SB_OBS_WEIGHT) != 0,
                            (o->flags & SB_OBS_ACTIVATION) != 0}};
    return o != NULL;
}

/* ---- putting tables together -------------------------------------------- */

/* A list of rows: their names, and where in a side their parameters are. */
typedef struct table_rows {
    bool (*row)(const sb_ctx *ctx, size_t i, table_row *out);
    size_t n;
    const char **names; /* [n], then NULL */
    size_t *at;         /* [n]; 0: no parameters */
} table_rows;

/* Makes room for the parameters of all rows behind a side of *size bytes. */
static sb_status table_rows_make(sb_arena *arena, table_rows *rows,
                                 size_t *size)
{
    const size_t align = alignof(max_align_t);
    table_row row;

    while (rows->row(arena->ctx, rows->n, &row))
        rows->n++;
    rows->names = sb_arena_alloc(arena, rows->n + 1, sizeof *rows->names);
    rows->at = sb_arena_alloc(arena, rows->n, sizeof *rows->at);
    if (!rows->names || !rows->at)
        return SB_NO_MEMORY;
    for (size_t i = 0; rows->row(arena->ctx, i, &row); i++) {
        rows->names[i] = row.name;
        if (!row.params)
            continue;
        *size = (*size + align - 1) / align * align;
        rows->at[i] = *size;
        *size += row.params_size;
    }
    return SB_OK;
}

/* A copy with room for `more` rows; *n is the number of those copied. */
static sb_param_def *table_copy(sb_arena *arena, const sb_param_def *from,
                                size_t more, size_t *n)
{
    for (*n = 0; from[*n].name; ++*n) {
    }
    sb_param_def *to = sb_arena_alloc(arena, *n + more + 1, sizeof *to);
    if (to)
        memcpy(to, from, *n * sizeof *to);
    return to;
}

/* `PERCENTILE: {...}`, the parameters of a row. */
static sb_status table_section(sb_arena *arena, const table_row *row, size_t at,
                               sb_param_def *out)
{
    char *key = sb_arena_str(arena, row->name);
    const char *help = sb_arena_printf(arena, "settings of %s", row->name);

    if (!key || !help)
        return SB_NO_MEMORY;
    for (char *p = key; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            *p = (char)(*p - 'a' + 'A');
    *out = (sb_param_def){.name = key,
                          .type = SB_PARAM_MAP,
                          .offset = at,
                          .fields = row->params,
                          .help = help};
    return SB_OK;
}

/* QUANTIZER or OBSERVER of one side: `fixed`, whose first row is TYPE, and the
 * parameters of each row that the side can use. */
static sb_status table_choice(sb_arena *arena, const table_rows *rows,
                              const sb_param_def *fixed, sb_quant_kind kind,
                              const sb_param_def **out)
{
    size_t n;
    sb_param_def *table = table_copy(arena, fixed, rows->n, &n);
    const char **meanings = sb_arena_alloc(arena, rows->n, sizeof *meanings);
    table_row row;

    if (!table || !meanings)
        return SB_NO_MEMORY;
    table[0].names = rows->names;
    table[0].meanings = meanings;
    for (size_t i = 0; rows->row(arena->ctx, i, &row); i++) {
        meanings[i] = row.used[kind] ? row.summary : NULL;
        if (rows->at[i] && row.used[kind])
            SB_TRY(table_section(arena, &row, rows->at[i], &table[n++]));
    }
    *out = table;
    return SB_OK;
}

static void table_set_fields(sb_param_def *table, const char *name,
                             const sb_param_def *fields)
{
    while (strcmp(table->name, name) != 0)
        table++;
    table->fields = fields;
}

static sb_status table_side(sb_arena *arena, const table_rows *quantizers,
                            const table_rows *observers, sb_quant_kind kind,
                            const sb_param_def **out)
{
    bool weight = kind == SB_QUANT_WEIGHT;
    const sb_param_def *quantizer, *observer;
    size_t n;
    sb_param_def *table = table_copy(arena, weight ? w_table : a_table, 0, &n);

    if (!table)
        return SB_NO_MEMORY;
    SB_TRY(table_choice(arena, quantizers,
                        weight ? w_quantizer_table : a_quantizer_table, kind,
                        &quantizer));
    SB_TRY(table_choice(arena, observers,
                        weight ? w_observer_table : a_observer_table, kind,
                        &observer));
    table_set_fields(table, "QUANTIZER", quantizer);
    table_set_fields(table, "OBSERVER", observer);
    *out = table;
    return SB_OK;
}

/* BACKEND, the first row: what each target allows. */
static sb_status table_targets(sb_arena *arena, sb_param_def *backend)
{
    const char **meanings = NULL;
    size_t n = 0;

    while (backend->names[n])
        n++;
    meanings = sb_arena_alloc(arena, n, sizeof *meanings);
    if (!meanings)
        return SB_NO_MEMORY;
    sb_str text;
    sb_str_init(&text, arena->ctx);
    for (size_t i = 0; i < n; i++) {
        sb_str_clear(&text);
        sb_target_describe(sb_target_find(backend->names[i]), &text);
        meanings[i] = sb_arena_str(arena, sb_str_text(&text));
        if (!meanings[i] || sb_str_status(&text) != SB_OK) {
            sb_str_free(&text);
            return SB_NO_MEMORY;
        }
    }
    sb_str_free(&text);
    backend->meanings = meanings;
    return SB_OK;
}

sb_status sb_quant_tables_make(sb_arena *arena, sb_quant_tables *out)
{
    table_rows quantizers = {.row = quantizer_row};
    table_rows observers = {.row = observer_row};
    size_t n, size = sizeof(sb_quant_side);
    sb_param_def *file = table_copy(arena, file_table, 0, &n);

    if (!file)
        return SB_NO_MEMORY;
    SB_TRY(table_targets(arena, &file[0]));
    SB_TRY(table_rows_make(arena, &quantizers, &size));
    SB_TRY(table_rows_make(arena, &observers, &size));
    *out = (sb_quant_tables){
        .ctx = arena->ctx,
        .file = file,
        .side_size = size,
        .quantizer_names = quantizers.names,
        .observer_names = observers.names,
        .quantizer_at = quantizers.at,
        .observer_at = observers.at,
    };
    for (int k = 0; k < 2; k++)
        SB_TRY(table_side(arena, &quantizers, &observers, (sb_quant_kind)k,
                          &out->sides[k]));
    table_set_fields(file, "W", out->sides[SB_QUANT_WEIGHT]);
    table_set_fields(file, "A", out->sides[SB_QUANT_ACTIVATION]);
    return SB_OK;
}

sb_status sb_quant_config_table(sb_arena *arena, const sb_param_def **out)
{
    sb_quant_tables tables;

    SB_TRY(sb_quant_tables_make(arena, &tables));
    *out = tables.file;
    return SB_OK;
}
