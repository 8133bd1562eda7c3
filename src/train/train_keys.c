/* The table of training options. */
#include "train/train_keys.h"

#include <string.h>

#define KEY(field) offsetof(sb_train_keys, field)

/* As sb_train_bn counts them. */
static const char *const norms[] = {"auto", "restore", "folded", NULL};
/* As sb_optimizer counts them, and one more. */
static const char *const optimizers[] = {"sgd", "adam", "adamw", "auto", NULL};
enum { OPTIMIZER_AUTO = SB_OPTIMIZER_ADAMW + 1 };
static const char *const schedules[] = {"constant", "step", "cosine",
                                        "onecycle", NULL};
/* As sb_train_loss counts them. */
static const char *const losses[] = {"auto",      "cross_entropy", "mse", "l1",
                                     "smooth_l1", "bce",           NULL};

/* clang-format off */
const sb_param_def sb_train_table[] = {
    {.name = "EPOCHS", .type = SB_PARAM_INT, .offset = KEY(epochs), .preset = "10",
     .min = 1, .max = 100000, .help = "how often all samples are seen"},
    {.name = "OPTIMIZER", .type = SB_PARAM_ENUM, .offset = KEY(optimizer), .preset = "auto",
     .names = optimizers, .help = "how parameters follow their gradients; auto: adam with quantizers, else sgd"},
    {.name = "LR", .type = SB_PARAM_FLOAT, .offset = KEY(rate), .preset = "0",
     .min = 0, .max = 1e3, .help = "learning rate, the largest of the schedule; 0: 0.01 for sgd, 0.001 for adam and adamw"},
    {.name = "MOMENTUM", .type = SB_PARAM_FLOAT, .offset = KEY(momentum), .preset = "0.9",
     .min = 0, .max = 0.9999, .help = "of sgd"},
    {.name = "NESTEROV", .type = SB_PARAM_BOOL, .offset = KEY(nesterov), .preset = "false",
     .help = "sgd with Nesterov's momentum"},
    {.name = "BETA1", .type = SB_PARAM_FLOAT, .offset = KEY(beta1), .preset = "0.9",
     .min = 0, .max = 0.99999, .help = "of adam and adamw"},
    {.name = "BETA2", .type = SB_PARAM_FLOAT, .offset = KEY(beta2), .preset = "0.999",
     .min = 0, .max = 0.999999, .help = "of adam and adamw"},
    {.name = "EPSILON", .type = SB_PARAM_FLOAT, .offset = KEY(epsilon), .preset = "1e-8",
     .min = 1e-16, .max = 1, .help = "of adam and adamw"},
    {.name = "WEIGHT_DECAY", .type = SB_PARAM_FLOAT, .offset = KEY(decay), .preset = "0",
     .min = 0, .max = 10, .help = "of weights; biases, norms and quantization scales have none"},
    {.name = "SCHEDULE", .type = SB_PARAM_ENUM, .offset = KEY(schedule), .preset = "cosine",
     .names = schedules, .help = "how the learning rate changes"},
    {.name = "WARMUP", .type = SB_PARAM_FLOAT, .offset = KEY(warmup), .preset = "0",
     .min = 0, .max = 100000, .help = "epochs in which it rises from 0"},
    {.name = "MILESTONES", .type = SB_PARAM_FLOATS, .offset = KEY(milestones),
     .min = 0, .max = 100000, .help = "schedule step: epochs at which it is multiplied by GAMMA"},
    {.name = "GAMMA", .type = SB_PARAM_FLOAT, .offset = KEY(gamma), .preset = "0.1",
     .min = 1e-6, .max = 1, .help = "of the schedule step"},
    {.name = "LOSS", .type = SB_PARAM_ENUM, .offset = KEY(loss), .preset = "auto",
     .names = losses, .help = "what is made small; auto: cross_entropy, or with a teacher the divergence from it"},
    {.name = "CLASS_AXIS", .type = SB_PARAM_INT, .offset = KEY(class_axis), .preset = "0",
     .min = -8, .max = 8, .help = "axis of the output that counts classes, negative: from the end; 0: that of its Softmax, else 1"},
    {.name = "LABEL_SMOOTHING", .type = SB_PARAM_FLOAT, .offset = KEY(smoothing), .preset = "0",
     .min = 0, .max = 0.999, .help = "share of the label that goes to all classes alike"},
    {.name = "TEMPERATURE", .type = SB_PARAM_FLOAT, .offset = KEY(temperature), .preset = "1",
     .min = 0.01, .max = 1000, .help = "of the outputs that are learned from a teacher"},
    {.name = "LABELS", .type = SB_PARAM_FLOAT, .offset = KEY(labels), .preset = "0",
     .min = 0, .max = 1, .help = "with a teacher: share of the labels in what is learned"},
    {.name = "MIXUP", .type = SB_PARAM_FLOAT, .offset = KEY(mixup), .preset = "0",
     .min = 0, .max = 100, .help = "samples are mixed with others, in shares drawn from the beta distribution of this parameter; 0: not"},
    {.name = "FEATURES", .type = SB_PARAM_STRINGS, .offset = KEY(features),
     .help = "with a teacher: results in between that shall be like the teacher's; NAME, or NAME=ITS_NAME"},
    {.name = "FEATURE_WEIGHT", .type = SB_PARAM_FLOAT, .offset = KEY(feature_weight), .preset = "1",
     .min = 0, .max = 1e9, .help = "of the mean of their mean squared differences"},
    {.name = "OUTPUT", .type = SB_PARAM_STRING, .offset = KEY(output),
     .help = "the output that is learned, of a network with several"},
    {.name = "CLIP_NORM", .type = SB_PARAM_FLOAT, .offset = KEY(clip), .preset = "0",
     .min = 0, .max = 1e9, .help = "most that the norm of all gradients may be; 0: any"},
    {.name = "EMA", .type = SB_PARAM_FLOAT, .offset = KEY(average), .preset = "0",
     .min = 0, .max = 0.999999, .help = "decay of a moving average of the parameters, which is validated and kept; 0: none"},
    {.name = "FREEZE_BN", .type = SB_PARAM_INT, .offset = KEY(freeze_norms), .preset = "-1",
     .min = -1, .max = 100000, .help = "epoch from which on batch norms keep their statistics; -1: none"},
    {.name = "ACCUMULATE", .type = SB_PARAM_INT, .offset = KEY(accumulate), .preset = "1",
     .min = 1, .max = 65536, .help = "batches whose gradients make one update"},
    {.name = "RECOMPUTE", .type = SB_PARAM_INT, .offset = KEY(recompute), .preset = "0",
     .min = 0, .max = 10000, .help = "blocks whose activations are computed again instead of being kept, to save memory"},
    {.name = "TRAIN", .type = SB_PARAM_STRINGS, .offset = KEY(train),
     .help = "patterns of the parameters to train (default: all)"},
    {.name = "FREEZE", .type = SB_PARAM_STRINGS, .offset = KEY(freeze),
     .help = "patterns of parameters that stay as they are"},
    {.name = "SCALE_LR", .type = SB_PARAM_FLOAT, .offset = KEY(scale_rate), .preset = "1",
     .min = 0, .max = 1e6, .help = "with quantizers: rate of what they learn, times LR; without weight decay"},
    {.name = "BN", .type = SB_PARAM_ENUM, .offset = KEY(bn), .preset = "auto",
     .names = norms, .help = "with quantizers: batch norms behind convolutions while training; auto restores them if weights have per-channel scales"},
    {.name = "BN_BATCHES", .type = SB_PARAM_INT, .offset = KEY(bn_batches), .preset = "50",
     .min = 0, .max = 1000000, .help = "with quantizers: batches on which restored norms are measured at the end, before they are folded"},
    {.name = "CALIBRATE", .type = SB_PARAM_INT, .offset = KEY(calibrate), .preset = "512",
     .min = 1, .max = 1000000000, .help = "with quantizers: samples that their first scales, and weights rounded by samples, come from"},
    {.name = "EARLY_STOP", .type = SB_PARAM_INT, .offset = KEY(early_stop), .preset = "0",
     .min = 0, .max = 100000, .help = "ends after so many epochs without a better validation; 0: never"},
    {.name = "CHECKPOINT", .type = SB_PARAM_INT, .offset = KEY(checkpoint), .preset = "0",
     .min = 0, .max = 1000000000, .help = "steps after which a checkpoint is written besides those after each epoch; 0: none"},
    {0},
};
/* clang-format on */

/* Quantized weights move in jumps, and what their gradients say of length and
 * direction differs much from layer to layer: steps of a length of their own
 * serve them better (docs/qat.md). */
static void settle_rate(sb_train_keys *keys, bool quantized)
{
    if (keys->optimizer == OPTIMIZER_AUTO)
        keys->optimizer = quantized ? SB_OPTIMIZER_ADAM : SB_OPTIMIZER_SGD;
    if (keys->rate <= 0)
        keys->rate = keys->optimizer == SB_OPTIMIZER_SGD ? 0.01 : 0.001;
}

sb_status sb_train_keys_read(sb_ctx *ctx, const char *path, const char *text,
                             bool quantized, sb_yaml_doc **doc,
                             sb_yaml_doc **other, sb_train_keys *out)
{
    static const char nothing[] = "{}";

    if (path)
        SB_TRY(sb_yaml_load(ctx, path, doc));
    else
        SB_TRY(sb_yaml_load_memory(ctx, "training options", nothing,
                                   strlen(nothing), doc));
    if (text && *text) {
        SB_TRY(sb_yaml_load_memory(ctx, "training options", text, strlen(text),
                                   other));
        SB_TRY(sb_yaml_override(*doc, (*other)->root));
    }
    SB_TRY(sb_params_read(*doc, (*doc)->root, "", sb_train_table, out));
    settle_rate(out, quantized);
    if (out->loss > SB_TRAIN_LOSS_CROSS_ENTROPY &&
        (out->mixup > 0 || out->labels > 0 || out->smoothing > 0))
        return sb_yaml_fail(*doc, sb_yaml_get((*doc)->root, "LOSS"),
                            "LOSS: found %s beside MIXUP, LABELS or "
                            "LABEL_SMOOTHING, which are of classes",
                            losses[out->loss]);
    for (size_t i = 1; i < out->milestones.n; i++)
        if (out->milestones.v[i] < out->milestones.v[i - 1])
            return sb_yaml_fail(*doc, sb_yaml_get((*doc)->root, "MILESTONES"),
                                "MILESTONES: want rising epochs");
    if (out->labels > 0 && (out->temperature < 1 || out->temperature > 1))
        return sb_yaml_fail(*doc, sb_yaml_get((*doc)->root, "LABELS"),
                            "LABELS: found beside a TEMPERATURE of %g, want 1: "
                            "labels have none",
                            out->temperature);
    return SB_OK;
}

void sb_train_keys_learner(const sb_train_keys *keys, sb_learn_options *out)
{
    static const sb_learn_loss as[] = {
        [SB_TRAIN_LOSS_AUTO] = SB_LEARN_LOSS_CROSS_ENTROPY,
        [SB_TRAIN_LOSS_CROSS_ENTROPY] = SB_LEARN_LOSS_CROSS_ENTROPY,
        [SB_TRAIN_LOSS_MSE] = SB_LEARN_LOSS_MSE,
        [SB_TRAIN_LOSS_L1] = SB_LEARN_LOSS_L1,
        [SB_TRAIN_LOSS_SMOOTH_L1] = SB_LEARN_LOSS_SMOOTH_L1,
        [SB_TRAIN_LOSS_BCE] = SB_LEARN_LOSS_BCE};

    out->loss = as[keys->loss];
    out->class_axis = (int)keys->class_axis;
    out->optimizer = (sb_optimizer)keys->optimizer;
    out->learning_rate = keys->rate;
    out->momentum = keys->momentum;
    out->nesterov = keys->nesterov;
    out->beta1 = keys->beta1;
    out->beta2 = keys->beta2;
    out->epsilon = keys->epsilon;
    out->weight_decay = keys->decay;
    out->label_smoothing = keys->smoothing;
    out->temperature = keys->temperature;
    out->loss_output = keys->output;
    out->scale_rate = keys->scale_rate;
    out->clip_norm = keys->clip;
    out->ema_decay = keys->average;
    out->accumulate = (size_t)keys->accumulate;
    out->recompute = (size_t)keys->recompute;
    out->train = keys->train.v;
    out->n_train = keys->train.n;
    out->freeze = keys->freeze.v;
    out->n_freeze = keys->freeze.n;
}
