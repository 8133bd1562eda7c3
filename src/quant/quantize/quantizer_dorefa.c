/* Quantizer "dorefa": x <- tanh(x) / max|tanh(x)|, then as "uniform".
 *
 * DoReFa-Net, arXiv 1606.06160.  The network computes with values in [-1, 1]
 * from then on, so it has to be trained for that; calibration alone gives
 * what the original gives, not accuracy. */
#include <math.h>

#include "passes/rewrite.h"
#include "quant/quantize/quantizer.h"

static void dorefa_map_weight(const sb_quant_spec *spec, float *w, int64_t n)
{
    float most = 0;

    (void)spec;
    for (int64_t i = 0; i < n; i++) {
        w[i] = tanhf(w[i]);
        most = fmaxf(most, fabsf(w[i]));
    }
    for (int64_t i = 0; most > 0 && i < n; i++)
        w[i] /= most;
}

static sb_status quantizer_dorefa_add(sb_graph *g, sb_node_id like,
                                      const char *op, const sb_value_id *in,
                                      size_t n_in, sb_value_id *out)
{
    sb_node_id node = SB_NONE;
    sb_type type = {.dtype = sb_graph_value(g, in[0])->type.dtype,
                    .shape = {.rank = -1}};

    SB_TRY(sb_rewrite_add(g, like, op, in, n_in, &type, &node));
    *out = sb_graph_node(g, node)->outputs[0];
    return SB_OK;
}

/* The largest |tanh(x)| is taken over the whole tensor at each run. */
static sb_status dorefa_map_activation(const sb_quant_spec *spec, sb_graph *g,
                                       sb_node_id like, sb_value_id x,
                                       sb_value_id *out)
{
    sb_value_id t = SB_NONE, size = SB_NONE, most = SB_NONE, tiny = SB_NONE;
    const float least = 1e-30f; /* a tensor of zeros stays one */
    sb_value_id in[2];

    (void)spec;
    SB_TRY(quantizer_dorefa_add(g, like, "Tanh", &x, 1, &t));
    SB_TRY(quantizer_dorefa_add(g, like, "Abs", &t, 1, &size));
    SB_TRY(quantizer_dorefa_add(g, like, "ReduceMax", &size, 1, &most));
    SB_TRY(sb_graph_add_constant(g, "dorefa_least", SB_DTYPE_F32, 0, NULL,
                                 &least, &tiny));
    in[0] = most;
    in[1] = tiny;
    SB_TRY(quantizer_dorefa_add(g, like, "Max", in, 2, &most));
    in[0] = t;
    in[1] = most;
    return quantizer_dorefa_add(g, like, "Div", in, 2, out);
}

/* Scales are those of [-1, 1]; a weight is brought there by nodes as well. */
static sb_value_id dorefa_add(const sb_quant_nodes *n)
{
    sb_value_id mapped = SB_NONE;

    if (n->to->status == SB_OK)
        n->to->status = dorefa_map_activation(n->spec, n->to->graph, n->like,
                                              n->x, &mapped);
    if (n->to->status != SB_OK)
        return SB_NONE;
    return sb_quant_add_fake(n, mapped, n->scale, n->zero_point, SB_FAKE_PLAIN);
}

static const sb_quant_training dorefa_training = {.add = dorefa_add};

const sb_quantizer_def sb_quantizer_dorefa = {
    .name = "dorefa",
    .summary = "squashes by tanh into [-1, 1], then rounds; needs training",
    .uses = {[SB_QUANT_WEIGHT] = {.schemes = SB_SCHEMES_PER_TENSOR |
                                             SB_SCHEMES_PER_CHANNEL},
             [SB_QUANT_ACTIVATION] = {.schemes = SB_SCHEMES_PER_TENSOR |
                                                 SB_SCHEMES_PER_CHANNEL}},
    .training = {&dorefa_training, &dorefa_training},
    .map_weight = dorefa_map_weight,
    .map_activation = dorefa_map_activation,
};
