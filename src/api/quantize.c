/* The public side of quantized models. */
#include <string.h>

#include "api/model.h"
#include "base/options.h"
#include "base/simd.h"
#include "llm/blocks/blocks.h"
#include "passes/deploy/three_bits.h"
#include "quant/calibrate/calibrate.h"
#include "quant/config/preset.h"
#include "quant/correct/correct.h"
#include "quant/export/export.h"
#include "quant/model/stages.h"
#include "quant/reconstruct/reconstruct.h"

/* As a file that is quantized already has it: nothing is put together that the
 * file has apart. */
static sb_status mode_config(sb_ctx *ctx, sb_quant_mode mode,
                             sb_quant_config **out)
{
    static const char dynamic[] =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
        "A: dynamic\n";
    static const char none[] =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
        "A: none\n";

    return sb_quant_config_load_memory(
        ctx, "default", mode == SB_QUANT_DYNAMIC ? dynamic : none,
        mode == SB_QUANT_DYNAMIC ? sizeof dynamic - 1 : sizeof none - 1,
        SB_QUANT_CONFIG_QUANT, out);
}

static sb_status default_config(sb_ctx *ctx, const sb_target_def *target,
                                sb_quant_mode mode, const char *preset,
                                sb_quant_config **out)
{
    const sb_quant_preset *row;

    SB_TRY(sb_quant_preset_find(ctx, preset, &row));
    if (mode != SB_QUANT_STATIC)
        return mode_config(ctx, mode, out);
    return sb_quant_preset_config(ctx, target, row, out);
}

static sb_status read_config(sb_ctx *ctx, const sb_quant_options *opt,
                             const sb_target_def *target, sb_quant_mode mode,
                             sb_quant_config **out)
{
    if (opt->config && opt->config_text)
        return sb_fail(ctx, SB_BAD_ARG,
                       "sb_quant_options: config and config_text are both set");
    if (opt->preset && (opt->config || opt->config_text))
        return sb_fail(ctx, SB_BAD_ARG,
                       "a preset stands for a config: give one of the two");
    if (opt->config)
        return sb_quant_config_load(ctx, opt->config, SB_QUANT_CONFIG_QUANT,
                                    out);
    if (opt->config_text)
        return sb_quant_config_load_memory(ctx, "config", opt->config_text,
                                           strlen(opt->config_text),
                                           SB_QUANT_CONFIG_QUANT, out);
    return default_config(ctx, target, mode, opt->preset, out);
}

/* The target by its name; NULL if none is asked for. */
static sb_status find_target(sb_ctx *ctx, const char *name,
                             const sb_target_def **out)
{
    *out = name ? sb_target_find(name) : NULL;
    return name && !*out ? sb_target_unknown(ctx, name) : SB_OK;
}

static sb_status find_blocks(sb_ctx *ctx, const char *type,
                             const sb_block_mix **out)
{
    *out = type ? sb_block_mix_find(type) : NULL;
    return type && !*out ? sb_fail(ctx, SB_BAD_ARG,
                                   "type '%.64s' of GGUF files, want one of %s",
                                   type, sb_block_mix_names())
                         : SB_OK;
}

/* What the options say of a model that is there. */
static void set_options(sb_quant_model *qm, const sb_quant_options *opt)
{
    qm->exact = opt->exact;
    qm->choose_ranges = !opt->config && !opt->config_text && !opt->train;
    qm->reduce_range = opt->reduce_range;
    /* Weights that change all the time have bounds instead of scales that were
     * enlarged for what they once were. */
    if (opt->train && qm->target->pairs_saturate &&
        opt->reduce_range == SB_REDUCE_RANGE_AUTO)
        qm->reduce_range = SB_REDUCE_RANGE_ALL;
    if (qm->reduce_range == SB_REDUCE_RANGE_ALL && !qm->target->pairs_saturate)
        sb_warn(qm->ctx,
                "target %s adds products in more than 16 bits: --reduce-range "
                "changes nothing",
                qm->target->name);
    if (sb_learns_no_blocks(qm))
        sb_warn(qm->ctx, "SCHEDULE.BLOCKWISE: no blocks are learned: %s",
                sb_learns_no_blocks(qm));
}

sb_status sb_quant_model_create(const sb_model *model,
                                const sb_quant_options *options,
                                sb_quant_model **out)
{
    const sb_quant_options defaults = SB_QUANT_OPTIONS_INIT;
    sb_ctx *ctx = model->ctx;
    sb_quant_config *config = NULL;
    const sb_target_def *target = NULL;
    sb_quant_options opt;

    SB_TRY(sb_options_read(ctx, "sb_quant_options", options, &defaults,
                           sizeof opt, &opt));
    SB_TRY(sb_graph_check_whole(model->graph));
    SB_TRY(find_target(ctx, opt.target, &target));
    const bool asked = opt.config || opt.config_text;
    const sb_quant_mode mode =
        asked || opt.calibrate ? SB_QUANT_STATIC : sb_import_mode(model->graph);
    sb_build_options build = {
        .half_scales = opt.half_scales,
        .follow = mode != SB_QUANT_STATIC,
        .asked = asked,
        .dump_after = opt.dump_after,
        .train = opt.train,
    };
    SB_TRY(find_blocks(ctx, opt.gguf_type, &build.blocks));
    SB_TRY(read_config(ctx, &opt, target, mode, &config));
    sb_status status =
        sb_quant_config_exclude(config, opt.exclude, opt.n_exclude);
    if (status != SB_OK) {
        sb_quant_config_free(config);
        return status;
    }
    SB_TRY(
        sb_quant_model_build(ctx, model->graph, config, target, &build, out));
    set_options(*out, &opt);
    return SB_OK;
}

const char *sb_quant_model_target(const sb_quant_model *qm)
{
    return qm->target->name;
}

int64_t sb_quant_model_fixed_batch(const sb_quant_model *qm)
{
    return qm->fixed_batch;
}

int sb_quant_model_can_calibrate(const sb_quant_model *qm)
{
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        if (sb_calibrate_observes(qm, i))
            return 1;
    return sb_refine_wanted(qm);
}

int sb_quant_model_learns(const sb_quant_model *qm)
{
    return sb_learns_weights(qm);
}

int sb_quant_model_needs_calibration(const sb_quant_model *qm)
{
    return (sb_quant_config_mode(qm->config) == SB_QUANT_STATIC &&
            !sb_imported_calibrated(&qm->known)) ||
           sb_rounds_weights(qm) || sb_learns_blocks(qm);
}

const sb_quant_step *sb_quant_model_step(const sb_quant_model *qm, size_t i)
{
    return i < qm->state.n_steps ? &qm->state.steps[i] : NULL;
}

size_t sb_quant_model_quantizer_count(const sb_quant_model *qm)
{
    return qm->place.n_quantizers;
}

const sb_quantizer_info *sb_quant_model_quantizer(const sb_quant_model *qm,
                                                  size_t i)
{
    if (i >= qm->place.n_quantizers)
        return NULL;
    const sb_quantizer *q = &qm->place.quantizers[i];
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    sb_quantizer_info *info = &qm->state.quantizers[i].info;

    *info = (sb_quantizer_info){
        .name = q->name,
        .value = sb_graph_value(qm->graph, q->value)->name,
        .is_weight = sb_quantizer_is_constant(qm, q),
        .fused = sb_quantizer_is_off(qm, q),
        .bits = q->spec.bits,
        .scheme = sb_quant_scheme_name(q->spec.granularity, q->spec.symmetric),
        .quantizer = q->def->name,
        .observer = sb_observer_name(q->spec.observer),
        .axis = q->axis,
        .group_size = q->block,
        .qmin = p->qmin,
        .qmax = p->qmax,
        .n = (size_t)p->n,
        .scale = p->scale,
        .zero_point = p->zero_point,
    };
    return info;
}

int64_t sb_quant_model_quantizer_elements(const sb_quant_model *qm, size_t i)
{
    if (i >= qm->place.n_quantizers)
        return 0;
    const sb_value *v =
        sb_graph_value(qm->graph, qm->place.quantizers[i].value);

    return v->is_constant ? sb_tensor_count(&v->constant) : 0;
}

/* ---- export ------------------------------------------------------------- */

static sb_status export_choice(const sb_quant_model *qm,
                               const sb_export_options *options,
                               sb_export_choice *out)
{
    const sb_export_options defaults = SB_EXPORT_OPTIONS_INIT;
    sb_export_options opt;

    SB_TRY(sb_options_read(qm->ctx, "sb_export_options", options, &defaults,
                           sizeof opt, &opt));
    SB_TRY(
        sb_options_range(qm->ctx, "accuracy_level", opt.accuracy_level, 0, 4));
    *out = (sb_export_choice){.float_weights = opt.float_weights,
                              .extra_info = opt.extra_info,
                              .format = opt.format,
                              .accuracy_level = opt.accuracy_level,
                              .opset = opt.opset};
    return opt.opset ? sb_model_check_opset(qm->ctx, opt.opset) : SB_OK;
}

sb_status sb_quant_model_check_export(const sb_quant_model *qm,
                                      const sb_export_options *opt)
{
    sb_export_choice choice;

    SB_TRY(export_choice(qm, opt, &choice));
    return sb_export_check(qm, &choice);
}

static sb_status export_graph(const sb_quant_model *qm,
                              const sb_export_options *opt, sb_graph **out,
                              int64_t *min_opset)
{
    sb_export_choice choice;

    SB_TRY(export_choice(qm, opt, &choice));
    SB_TRY(sb_progress(qm->ctx, "export", 0, 1));
    uint64_t before = sb_subnormals_off();
    sb_status status = sb_export_graph(qm, &choice, out, min_opset);
    sb_subnormals_restore(before);
    return status;
}

static sb_status export_to(const sb_quant_model *qm,
                           const sb_export_options *opt, const char *path,
                           void **out, size_t *size)
{
    sb_graph *g = NULL;
    int64_t min_opset = 0;

    SB_TRY(export_graph(qm, opt, &g, &min_opset));
    sb_status status = sb_graph_widen_three_bits(g);
    if (status == SB_OK)
        status = sb_model_write(g, min_opset, path, out, size);
    sb_graph_free(g);
    return status;
}

sb_status sb_quant_model_export(const sb_quant_model *qm, const char *path,
                                const sb_export_options *opt)
{
    return export_to(qm, opt, path, NULL, NULL);
}

sb_status sb_quant_model_export_memory(const sb_quant_model *qm,
                                       const sb_export_options *opt, void **out,
                                       size_t *size)
{
    return export_to(qm, opt, NULL, out, size);
}

sb_status sb_quant_model_export_model(const sb_quant_model *qm,
                                      const sb_export_options *opt,
                                      sb_model **out)
{
    sb_graph *g = NULL;
    int64_t min_opset = 0;

    SB_TRY(export_graph(qm, opt, &g, &min_opset));
    return sb_model_wrap(g, out);
}
