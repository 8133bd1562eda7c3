/* Wrong quantization configs, each with the whole message that it gets: line,
 * key, what was found, what is allowed, and why where that is not plain.
 *
 * What depends on which rows there are is written with a letter for W or A and
 * one for the list: $wq quantizers, $wg those with groups, $wo observers, $wk
 * and $wp the keys of their parameters, each after a comma. */
#include "sbtest.h"

#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"

#define W8 "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
#define A8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n"

static const struct {
    const char *text, *want;
} wrong[] = {
    {"{}", "q.yaml: W and A, or SPARSER, are missing"},
    {"- 1", "q.yaml:1: found a list, allowed a map"},
    {"text", "q.yaml:1: found text, allowed a map"},
    {W8, "q.yaml:1: A: missing, allowed a map, none or dynamic"},
    {A8, "q.yaml:1: W: missing, beside A"},
    {W8 A8 "BACKENDS: virtual\n",
     "q.yaml:3: BACKENDS: unknown key, allowed BACKEND, SKIP_TRACE_MODULES, "
     "SCHEDULE, W, A, SPARSER; did you mean BACKEND?"},
    {"backend: virtual\n" W8 A8,
     "q.yaml:1: backend: unknown key, allowed BACKEND, SKIP_TRACE_MODULES, "
     "SCHEDULE, W, A, SPARSER; did you mean BACKEND?"},
    {W8 A8 W8, "q.yaml:3: key 'W' is given twice, first in line 1"},
    {W8 A8 "SKIP_TRACE_MODULES: {a: b}\n",
     "q.yaml:3: SKIP_TRACE_MODULES: found a map, allowed a list of patterns, "
     "such as \"head.*\""},
    {W8 A8 "SKIP_TRACE_MODULES: [a, [b]]\n",
     "q.yaml:3: SKIP_TRACE_MODULES: found a list, allowed a list of patterns, "
     "such as \"head.*\""},
    {W8 A8 "SCHEDULE: true\n", "q.yaml:3: SCHEDULE: found true, allowed a map"},
    {W8 A8 "SCHEDULE: {FUSE_BN: 1}\n",
     "q.yaml:3: SCHEDULE.FUSE_BN: found 1, allowed true or false"},
    {W8 A8 "SCHEDULE: {FUSEBN: true}\n",
     "q.yaml:3: SCHEDULE.FUSEBN: unknown key, allowed FUSE_BN, BN_TUNING, "
     "DISABLE_UNNECESSARY_QUANT, EQUALIZATION, BIAS_CORRECTION, LAYERWISE, "
     "BLOCKWISE, "
     "SAMPLES; did you "
     "mean "
     "FUSE_BN?"},
    {W8 A8 "SCHEDULE: {FUSE_BN: 'yes'}\n",
     "q.yaml:3: SCHEDULE.FUSE_BN: found \"yes\", allowed true or false"},
    {"W: 8\n" A8, "q.yaml:1: W: found 8, allowed a map"},
    {"W: none\n" A8, "q.yaml:1: W: found none, allowed a map"},
    {"W:\n" A8, "q.yaml:1: W: found nothing, allowed a map"},
    {"W: {}\n" A8,
     "q.yaml:1: W.QUANTIZER.BIT: not set, allowed 1..16, or 0 for float"},
    {"W: {QSCHEME: per-channel-symmetric}\n" A8,
     "q.yaml:1: W.QUANTIZER.BIT: not set, allowed 1..16, or 0 for float"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    TYPE: "
     "uniform\n" A8,
     "q.yaml:4: W.QUANTIZER.BIT: not set, allowed 1..16, or 0 for float"},
    {"W:\n  QUANTIZER:\n    BIT: 8\n" A8,
     "q.yaml:2: W.QSCHEME: not set, allowed "
     "per-{tensor,channel,group}-{symmetric,affine}"},
    {"W: {QSCHEME: per-chanel-symmetric, QUANTIZER: {BIT: 8}}\n" A8,
     "q.yaml:1: W.QSCHEME: found per-chanel-symmetric, allowed "
     "per-tensor-symmetric, per-tensor-affine, per-channel-symmetric, "
     "per-channel-affine, per-group-symmetric or per-group-affine; did you "
     "mean per-channel-symmetric?"},
    {"W: {QSCHEME: symmetric, QUANTIZER: {BIT: 8}}\n" A8,
     "q.yaml:1: W.QSCHEME: found symmetric, allowed per-tensor-symmetric, "
     "per-tensor-affine, per-channel-symmetric, per-channel-affine, "
     "per-group-symmetric or per-group-affine"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 17\n" A8,
     "q.yaml:4: W.QUANTIZER.BIT: found 17, allowed 1..16, or 0 for float"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: -2\n" A8,
     "q.yaml:4: W.QUANTIZER.BIT: found -2, allowed 1..16, or 0 for float"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8.0\n" A8,
     "q.yaml:4: W.QUANTIZER.BIT: found 8.0, allowed 1..16, or 0 for float"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: eight\n" A8,
     "q.yaml:4: W.QUANTIZER.BIT: found eight, allowed 1..16, or 0 for float"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BITS: 8\n" A8,
     "q.yaml:4: W.QUANTIZER.BITS: unknown key, allowed TYPE, BIT, DISABLE, "
     "GROUP_SIZE$wk; did you mean BIT?"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n    "
     "TYPE: unifrom\n" A8,
     "q.yaml:5: W.QUANTIZER.TYPE: found unifrom, allowed $wq; did you mean "
     "uniform?"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n    "
     "DISABLE: 0\n" A8,
     "q.yaml:5: W.QUANTIZER.DISABLE: found 0, allowed true or false"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n  "
     "OBSERVER: minmax\n" A8,
     "q.yaml:5: W.OBSERVER: found minmax, allowed a map"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n  "
     "OBSERVER:\n    TYPE: entropy\n" A8,
     "q.yaml:6: W.OBSERVER.TYPE: found entropy, allowed $wo"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n  "
     "OBSERVER:\n    PERCENTILE:\n      ALPHA: 0.6\n" A8,
     "q.yaml:7: W.OBSERVER.PERCENTILE.ALPHA: found 0.6, allowed a number "
     "0..0.5"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n  "
     "OBSERVER:\n    ACIQ:\n      DISTRIBUTION: GAUSS\n" A8,
     "q.yaml:7: W.OBSERVER.ACIQ.DISTRIBUTION: found GAUSS, allowed GAUS or "
     "LAPLACE; did you mean GAUS?"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n  "
     "OBSERVER:\n    LAYOUT: NCHW\n" A8,
     "q.yaml:6: W.OBSERVER.LAYOUT: unknown key, allowed TYPE$wp"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n    "
     "PACT:\n      ALPHA_VALUE: 1\n" A8,
     "q.yaml:5: W.QUANTIZER.PACT: unknown key, allowed TYPE, BIT, DISABLE, "
     "GROUP_SIZE$wk"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER: {BIT: 8}\n  "
     "OBSERVER:\n    TYPE: MOVING_AVERAGE\n" A8,
     "q.yaml:5: W.OBSERVER.TYPE: found moving_average, allowed $wo: a weight "
     "does not change from "
     "sample to sample"},
    {"W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    BIT: 8\n    "
     "TYPE: pact\n" A8,
     "q.yaml:5: W.QUANTIZER.TYPE: found pact, allowed $wq: pact learns where "
     "to clip activations"},
    {"W: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8, TYPE: LSQ+}}\n" A8,
     "q.yaml:1: W.QSCHEME: found per-tensor-affine, allowed "
     "per-channel-symmetric: lsq+ learns per-channel scales for weights"},
    {"W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 48}}\n" A8,
     "q.yaml:1: W.QUANTIZER.GROUP_SIZE: found 48, allowed 16, 32, 64, 128, 256 "
     "or -1: runtimes read groups of these sizes"},
    {"W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 8}}\n" A8,
     "q.yaml:1: W.QUANTIZER.GROUP_SIZE: found 8, allowed 16, 32, 64, 128, 256 "
     "or -1: runtimes read groups of these sizes"},
    {"W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: "
     "512}}\n" A8,
     "q.yaml:1: W.QUANTIZER.GROUP_SIZE: found 512, allowed 16, 32, 64, 128, "
     "256, or -1 for a whole row"},
    {"W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, TYPE: lsq}}\n" A8,
     "q.yaml:1: W.QUANTIZER.TYPE: found lsq, allowed $wg: QSCHEME is per "
     "group, and only $wg has groups"},
    {W8 "A: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 8}}\n",
     "q.yaml:2: A.QSCHEME: found per-group-affine, allowed "
     "per-{tensor,channel}-{symmetric,affine}: groups are columns of a weight"},
    {W8
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8, TYPE: adaround}}\n",
     "q.yaml:2: A.QUANTIZER.TYPE: found adaround, allowed $aq: adaround "
     "decides for each weight which way to round"},
    {W8 "A: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: 8, TYPE: pact}}\n",
     "q.yaml:2: A.QSCHEME: found per-channel-affine, allowed "
     "per-tensor-symmetric or per-tensor-affine: pact has one clipping value "
     "for a tensor"},
    {W8 "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8, TYPE: lsq+}}\n",
     "q.yaml:2: A.QSCHEME: found per-tensor-symmetric, allowed "
     "per-tensor-affine: lsq+ learns one scale and zero point for activations"},
    {W8 "A: static\n",
     "q.yaml:2: A: found static, allowed a map, none or dynamic"},
    {W8 "A: []\n", "q.yaml:2: A: found a list, allowed a map, none or dynamic"},
    {W8 "A:\n", "q.yaml:2: A: found nothing, allowed a map, none or dynamic"},
    {W8
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8, GROUP_SIZE: 32}}\n",
     "q.yaml:2: A.QUANTIZER.GROUP_SIZE: unknown key, allowed TYPE, BIT, "
     "DISABLE$ak"},
    {W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8, PACT: "
        "{ALPHA_VALUE: 0}}}\n",
     "q.yaml:2: A.QUANTIZER.PACT.ALPHA_VALUE: found 0, allowed a number "
     "1e-06..1000000"},
    {W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, OBSERVER: "
        "{MOVING_AVERAGE: {EMA_RATIO: 1.5}}}\n",
     "q.yaml:2: A.OBSERVER.MOVING_AVERAGE.EMA_RATIO: found 1.5, allowed a "
     "number 0..1"},
    {W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, OBSERVER: "
        "{LAYOUT: NHWC}}\n",
     "q.yaml:2: A.OBSERVER.LAYOUT: found NHWC, allowed NCHW or NLC"},
    {W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, QADD: true}\n",
     "q.yaml:2: A.QADD: found true, allowed a map"},
    {"BACKEND: tensorrt\n" W8 A8,
     "q.yaml:3: A.QSCHEME: found per-tensor-affine, allowed "
     "per-tensor-symmetric: tensorrt wants zero points 0, weights per channel, "
     "activations per tensor"},
    {"BACKEND: tensorrt\nW: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: "
     "8}}\n" A8,
     "q.yaml:2: W.QSCHEME: found per-tensor-symmetric, allowed "
     "per-channel-symmetric: tensorrt wants zero points 0, weights per "
     "channel, activations per tensor"},
    {"BACKEND: tensorrt\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: "
     "4}}\n" A8,
     "q.yaml:2: W.QUANTIZER.BIT: found 4, allowed 8: tensorrt runs int8 only"},
    {"BACKEND: onnxruntime\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: "
     "{BIT: 6}}\n" A8,
     "q.yaml:2: W.QUANTIZER.BIT: found 6, allowed 4 or 8: onnxruntime has no "
     "kernels for other widths"},
    {"BACKEND: onnxruntime\n" W8
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n",
     "q.yaml:3: A.QUANTIZER.BIT: found 4, allowed 8: onnxruntime has no "
     "kernels for other widths"},
    {"BACKEND: onnxruntime\n" W8
     "A: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: 8}}\n",
     "q.yaml:3: A.QSCHEME: found per-channel-affine, allowed "
     "per-tensor-affine: onnxruntime wants affine activations with one scale, "
     "symmetric weights beside them, and groups only with A: none"},
    {"BACKEND: onnxruntime-arm\n" W8
     "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n",
     "q.yaml:3: A.QSCHEME: found per-tensor-symmetric, allowed "
     "per-tensor-affine: onnxruntime wants affine activations with one scale, "
     "symmetric weights beside them, and groups only with A: none"},
    {"BACKEND: onnxruntime\nW: {QSCHEME: per-group-affine, QUANTIZER: {BIT: "
     "4}}\n" A8,
     "q.yaml:2: W.QSCHEME: found per-group-affine, allowed "
     "per-tensor-symmetric or per-channel-symmetric: onnxruntime wants affine "
     "activations with one scale, symmetric weights beside them, and groups "
     "only with A: none"},
    {"BACKEND: onnxruntime\nW: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: "
     "4}}\nA: dynamic\n",
     "q.yaml:2: W.QUANTIZER.BIT: found 4, allowed 8: A: dynamic multiplies "
     "8-bit numbers"},
    {"BACKEND: onnxruntime\nW: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: "
     "3}}\nA: none\n",
     "q.yaml:2: W.QUANTIZER.BIT: found 3, allowed 2, 4 or 8: onnxruntime has "
     "no kernels for other widths"},
    {"BACKEND: openvino\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: "
     "4}}\n" A8,
     "q.yaml:2: W.QUANTIZER.BIT: found 4, allowed 8: openvino runs 8 bit, and "
     "4 for weights with A: none"},
    {"BACKEND: qnn\n" W8 "A: none\n", "q.yaml:3: A: found none, allowed a map: "
                                      "qnn runs the whole graph quantized"},
    {"BACKEND: qnn\n" W8 "A: dynamic\n",
     "q.yaml:3: A: found dynamic, allowed a map: qnn wants ranges that are "
     "known beforehand"},
    {"BACKEND: tensorrt\n" W8 "A: dynamic\n",
     "q.yaml:3: A: found dynamic, allowed a map or none: tensorrt wants ranges "
     "that are known beforehand"},
    {"W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n" A8
     "SCHEDULE: {BN_TUNING: true}\n",
     "q.yaml:3: SCHEDULE.BN_TUNING: found true, allowed false: W.QSCHEME is "
     "per-tensor-symmetric, and only scales per channel take in the factors of "
     "batch normalization"},
    {W8 A8 "SCHEDULE: {BN_TUNING: true, BIAS_CORRECTION: true}\n",
     "q.yaml:3: SCHEDULE.BN_TUNING: found true, allowed false beside "
     "BIAS_CORRECTION: it settles means and sizes of channels by itself"},
    {W8 "A: none\nSCHEDULE: {BN_TUNING: true}\n",
     "q.yaml:3: SCHEDULE.BN_TUNING: found true, allowed false: activations "
     "have no calibrated scales"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: [QUANTIZER.BIT]\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1']: found a list of 1, allowed pairs of key "
     "and value"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: 8\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1']: found 8, allowed [key, value, ...]"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[conv1]\n",
     "q.yaml:5: A.SPECIFIC: found conv1, allowed a map from pattern to [key, "
     "value, ...]"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "conv1\n",
     "q.yaml:5: A.SPECIFIC: found conv1, allowed a map from pattern to [key, "
     "value, ...]"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: [QUANTIZER.BITS, 4]\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1'].QUANTIZER.BITS: unknown key, allowed TYPE, "
     "BIT, DISABLE$ak; did you mean BIT?"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: [QUANTIZER.BIT, 99]\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1'].QUANTIZER.BIT: found 99, allowed 1..16, or "
     "0 for float"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: [BIT, 4]\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1'].BIT: unknown key, allowed QSCHEME, "
     "QUANTIZER, OBSERVER, QADD, SPECIFIC; did you mean QUANTIZER.BIT?"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: [[QUANTIZER.BIT], 4]\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1']: found a list, allowed a key"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: [SPECIFIC, []]\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1']: SPECIFIC inside SPECIFIC"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    conv1: [QUANTIZER.TYPE, adaround]\n  }]\n",
     "q.yaml:6: A.SPECIFIC['conv1'].QUANTIZER.TYPE: found adaround, allowed "
     "$aq: adaround decides for each weight "
     "which way to round"},
    {"BACKEND: tensorrt\nA: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: "
     "8}}\nW:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER: {BIT: 8}\n  "
     "SPECIFIC: [{\n    \"conv1\": [\"QUANTIZER.BIT\", 4]\n  }]\n",
     "q.yaml:7: W.SPECIFIC['conv1'].QUANTIZER.BIT: found 4, allowed 8: "
     "tensorrt runs int8 only"},
    {W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n  SPECIFIC: "
        "[{\n    c: [QUANTIZER.BIT, 4],\n    c: [QUANTIZER.BIT, 2]\n  }]\n",
     "q.yaml:7: key 'c' is given twice, first in line 6"},
    {"SPARSER: {TYPE: structed}\n",
     "q.yaml:1: SPARSER.STRATEGY: missing, allowed l1norm, l2norm, slimming, "
     "taylor, fisher, hrank or random"},
    {"SPARSER: {STRATEGY: l1norm}\n",
     "q.yaml:1: SPARSER.TYPE: missing, allowed structed, unstructed, "
     "structured or unstructured"},
    {"SPARSER: {TYPE: both, STRATEGY: l1norm}\n",
     "q.yaml:1: SPARSER.TYPE: found both, allowed structed, unstructed, "
     "structured or unstructured"},
    {"SPARSER: {TYPE: structed, STRATEGY: l1nrom}\n",
     "q.yaml:1: SPARSER.STRATEGY: found l1nrom, allowed l1norm, l2norm, "
     "slimming, taylor, fisher, hrank or random; did you mean l1norm?"},
    {"SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIO: 50}\n",
     "q.yaml:1: SPARSER.RATIO: found 50, allowed a number 0..1"},
    {"SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIO: half}\n",
     "q.yaml:1: SPARSER.RATIO: found half, allowed a number 0..1"},
    {"SPARSER: {TYPE: structed, STRATEGY: l1norm, RATE: 0.5}\n",
     "q.yaml:1: SPARSER.RATE: unknown key, allowed TYPE, STRATEGY, RATIO"},
};

/* Row i of a list: does the side have it, and does it have parameters? */
static const char *list_row(char side, char list, size_t i, bool *listed)
{
    sb_quant_kind kind = side == 'w' ? SB_QUANT_WEIGHT : SB_QUANT_ACTIVATION;
    unsigned flag = side == 'w' ? SB_OBS_WEIGHT : SB_OBS_ACTIVATION;

    if (list == 'o' || list == 'p') {
        const sb_observer_def *o = sb_observer_at(NULL, i);

        *listed = o && (o->flags & flag) && (list == 'o' || o->params);
        return o ? o->name : NULL;
    }
    const sb_quantizer_def *q = sb_quantizer_at(NULL, i);
    unsigned schemes = q ? q->uses[kind].schemes : 0;
    *listed = list == 'g'   ? (schemes & SB_SCHEMES_PER_GROUP) != 0
              : list == 'q' ? schemes != 0
                            : schemes != 0 && q->params;
    return q ? q->name : NULL;
}

static void add_list(sb_str *out, char side, char list)
{
    const char *name, *names[64];
    bool listed, keys = list == 'k' || list == 'p';
    size_t n = 0;

    for (size_t i = 0; (name = list_row(side, list, i, &listed)) != NULL; i++)
        if (listed)
            names[n++] = name;
    for (size_t i = 0; i < n; i++) {
        sb_str_add(out, keys || (i && i < n - 1) ? ", " : i ? " or " : "");
        for (const char *p = names[i]; *p; p++) {
            bool small = *p >= 'a' && *p <= 'z';
            char c = keys && small ? (char)(*p - 'a' + 'A') : *p;

            sb_str_addn(out, &c, 1);
        }
    }
}

/* The message with its lists written out. */
static void expand(const char *want, sb_str *out)
{
    sb_str_clear(out);
    for (; *want; want++)
        if (*want == '$') {
            add_list(out, want[1], want[2]);
            want += 2;
        } else {
            sb_str_addn(out, want, 1);
        }
}

static void test_every_error_has_its_whole_line(void **state)
{
    sb_str want;

    (void)state;
    sb_str_init(&want, test_ctx());
    for (size_t i = 0; i < SB_COUNT(wrong); i++) {
        sb_quant_config *cfg = NULL;

        assert_status(sb_quant_config_load_memory(
                          test_ctx(), "q.yaml", wrong[i].text,
                          strlen(wrong[i].text), SB_QUANT_CONFIG_ANY, &cfg),
                      SB_BAD_CONFIG);
        expand(wrong[i].want, &want);
        assert_string_equal(sb_ctx_error(test_ctx()), sb_str_text(&want));
        assert_null(cfg);
    }
    sb_str_free(&want);
    print_message("%zu wrong configs\n", SB_COUNT(wrong));
}

static void test_a_missing_half_is_told(void **state)
{
    sb_quant_config *cfg = NULL;
    const char *sparse =
        "SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIO: 0.3}\n";
    const char *quant = W8 A8;

    (void)state;
    assert_status(sb_quant_config_load_memory(test_ctx(), "s.yaml", sparse,
                                              strlen(sparse),
                                              SB_QUANT_CONFIG_QUANT, &cfg),
                  SB_BAD_CONFIG);
    assert_string_equal(
        sb_ctx_error(test_ctx()),
        "s.yaml: W and A are missing: nothing says how to quantize");
    assert_status(sb_quant_config_load_memory(test_ctx(), "q.yaml", quant,
                                              strlen(quant),
                                              SB_QUANT_CONFIG_SPARSE, &cfg),
                  SB_BAD_CONFIG);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "q.yaml: SPARSER is missing: nothing says how to "
                        "prune");
    assert_status(sb_quant_config_load(test_ctx(), "/nowhere/q.yaml", 0, &cfg),
                  SB_IO);
    assert_null(cfg);
    sb_quant_config_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_error_has_its_whole_line),
        cmocka_unit_test(test_a_missing_half_is_told),
    };
    return cmocka_run_group_tests_name("quant_config_errors", tests, NULL,
                                       NULL);
}
