/* RandomUniform, RandomNormal (and their ...Like forms), Bernoulli and
 * Multinomial.
 *
 * Element i is a function of the seed and i, so results do not depend on the
 * thread count, and a node without seed gives the same numbers in each run:
 * a caller cannot ask for more, and tests can be repeated.  The numbers are not
 * those of any other runtime. */
#include <math.h>
#include <string.h>

#include "ops/infer_util.h"

typedef struct {
    int64_t dtype, sample_size;
    float seed, a, b; /* low and high, or mean and scale */
    sb_ints shape;
} random_attrs;

#define FIELD(name_, type_, field_, ...)                          \
    {                                                             \
        name_, type_, offsetof(random_attrs, field_), __VA_ARGS__ \
    }

static const sb_attr_def uniform_table[] = {
    FIELD("dtype", SB_ATTR_INT, dtype, .i = 0),
    FIELD("seed", SB_ATTR_FLOAT, seed, .f = 0),
    FIELD("low", SB_ATTR_FLOAT, a, .f = 0),
    FIELD("high", SB_ATTR_FLOAT, b, .f = 1),
    FIELD("shape", SB_ATTR_INTS, shape, .i = 0),
    {0},
};

static const sb_attr_def normal_table[] = {
    FIELD("dtype", SB_ATTR_INT, dtype, .i = 0),
    FIELD("seed", SB_ATTR_FLOAT, seed, .f = 0),
    FIELD("mean", SB_ATTR_FLOAT, a, .f = 0),
    FIELD("scale", SB_ATTR_FLOAT, b, .f = 1),
    FIELD("shape", SB_ATTR_INTS, shape, .i = 0),
    {0},
};

static const sb_attr_def draw_table[] = {
    FIELD("dtype", SB_ATTR_INT, dtype, .i = 0),
    FIELD("seed", SB_ATTR_FLOAT, seed, .f = 0),
    FIELD("sample_size", SB_ATTR_INT, sample_size, .i = 1),
    {0},
};

/* ---- numbers ------------------------------------------------------------ */

/* SplitMix64: a counter, well mixed. */
static uint64_t random_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t stream_of(const random_attrs *a)
{
    uint32_t bits;

    memcpy(&bits, &a->seed, sizeof bits);
    return random_mix(bits);
}

/* In (0, 1). */
static double random_uniform(uint64_t stream, uint64_t i)
{
    return ((double)(random_mix(stream ^ random_mix(i)) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller's normal numbers. */
static double random_normal(uint64_t stream, uint64_t i)
{
    double u = random_uniform(stream, 2 * i),
           v = random_uniform(stream, 2 * i + 1);

    return sqrt(-2 * log(u)) * cos(6.283185307179586477 * v);
}

static void random_store(sb_tensor *y, size_t i, double v)
{
    char *to = (char *)y->data + i * sb_dtype_size(y->dtype);

    sb_convert(SB_DTYPE_F64, &v, y->dtype, to, 1);
}

static sb_status uniform_forward(sb_kernel *k)
{
    const random_attrs *a = k->attrs;
    uint64_t stream = stream_of(a);
    double low = (double)a->a, high = (double)a->b;

    for (size_t i = 0; i < (size_t)sb_tensor_count(k->out[0]); i++)
        random_store(k->out[0], i,
                     low + (high - low) * random_uniform(stream, i));
    return SB_OK;
}

static sb_status normal_forward(sb_kernel *k)
{
    const random_attrs *a = k->attrs;
    uint64_t stream = stream_of(a);

    for (size_t i = 0; i < (size_t)sb_tensor_count(k->out[0]); i++)
        random_store(k->out[0], i,
                     (double)a->a + (double)a->b * random_normal(stream, i));
    return SB_OK;
}

static sb_status bernoulli_forward(sb_kernel *k)
{
    uint64_t stream = stream_of(k->attrs);

    for (size_t i = 0; i < (size_t)sb_tensor_count(k->out[0]); i++)
        random_store(k->out[0], i,
                     random_uniform(stream, i) <
                         sb_tensor_get_f64(k->in[0], (int64_t)i));
    return SB_OK;
}

/* Draws classes by their unnormalized log probabilities: the largest of
 * log p + Gumbel noise. */
static sb_status multinomial_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    uint64_t stream = stream_of(k->attrs), draw = 0;
    int64_t classes = x->dims[1], samples = y->dims[1];

    if (classes == 0 && sb_tensor_count(y) > 0)
        return sb_kernel_fail(k, SB_BAD_DATA, "there are no classes");
    for (int64_t i = 0; i < sb_tensor_count(y); i++) {
        int64_t row = i / samples, best = 0;
        double best_score = -(double)INFINITY;

        for (int64_t c = 0; c < classes; c++) {
            double score = sb_tensor_get_f64(x, row * classes + c) -
                           log(-log(random_uniform(stream, draw++)));
            if (score > best_score) {
                best_score = score;
                best = c;
            }
        }
        random_store(y, (size_t)i, (double)best);
    }
    return SB_OK;
}

/* ---- types and shapes --------------------------------------------------- */

static sb_status random_dtype(const sb_infer *in, sb_dtype dflt, sb_dtype *out)
{
    const random_attrs *a = in->attrs;

    if (a->dtype < 0 || a->dtype >= SB_DTYPE_COUNT)
        return sb_infer_fail(in, "dtype is %lld, which is no element type",
                             (long long)a->dtype);
    *out = a->dtype ? (sb_dtype)a->dtype : dflt;
    return SB_OK;
}

static sb_status random_infer(sb_infer *in)
{
    const random_attrs *a = in->attrs;
    sb_shape out = {.rank = (int)a->shape.n};
    sb_dtype dtype;

    SB_TRY(random_dtype(in, SB_DTYPE_F32, &dtype));
    if (a->shape.n > SB_MAX_RANK)
        return sb_infer_fail(in, "shape has %zu dimensions, want at most %d",
                             a->shape.n, SB_MAX_RANK);
    for (size_t d = 0; d < a->shape.n; d++) {
        if (a->shape.v[d] < 0)
            return sb_infer_fail(in, "dimension %zu is negative", d);
        out.dim[d] = a->shape.v[d];
    }
    sb_infer_set(in, 0, dtype, &out);
    return SB_OK;
}

static sb_status random_like_infer(sb_infer *in)
{
    sb_dtype dtype;

    SB_TRY(random_dtype(in, in->in[0]->type.dtype, &dtype));
    sb_infer_set(in, 0, dtype, &in->in[0]->type.shape);
    return SB_OK;
}

static sb_status multinomial_infer(sb_infer *in)
{
    const random_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape out = sb_shape_of_rank(2);
    sb_dtype dtype;

    SB_TRY(random_dtype(in, SB_DTYPE_I32, &dtype));
    if (a->sample_size < 1)
        return sb_infer_fail(in, "sample_size is %lld, want at least 1",
                             (long long)a->sample_size);
    if (x->rank >= 0 && x->rank != 2)
        return sb_infer_fail(in, "rank is %d, want 2", x->rank);
    if (x->rank == 2)
        out.dim[0] = x->dim[0];
    out.dim[1] = a->sample_size;
    sb_infer_set(in, 0, dtype, &out);
    return SB_OK;
}

static sb_status random_prepare(sb_kernel *k)
{
    const sb_tensor *y = k->out[0];
    bool reads = k->op->forward == bernoulli_forward ||
                 k->op->forward == multinomial_forward;

    if (sb_dtype_size(y->dtype) == 0 ||
        sb_dtype_get(y->dtype)->cls == SB_CLASS_OTHER)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(y->dtype));
    if (reads && !sb_dtype_is_float(k->in[0]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */

#define RANDOM(name_, since_, n_in, table_, infer_, forward_)                 \
    {                                                                         \
        .name = name_, .since = since_, .in_min = n_in, .in_max = n_in,       \
        .out_min = 1, .out_max = 1, .flags = SB_OP_IMPURE | SB_OP_FLAT,       \
        .attrs_size = sizeof(random_attrs), .attrs = table_, .infer = infer_, \
        .prepare = random_prepare, .forward = forward_,                       \
    }

/* clang-format off */
const sb_op_def sb_op_bernoulli = RANDOM("Bernoulli", 15, 1, draw_table, random_like_infer, bernoulli_forward);
const sb_op_def sb_op_multinomial = RANDOM("Multinomial", 7, 1, draw_table, multinomial_infer, multinomial_forward);
const sb_op_def sb_op_random_normal = RANDOM("RandomNormal", 1, 0, normal_table, random_infer, normal_forward);
const sb_op_def sb_op_random_normal_like = RANDOM("RandomNormalLike", 1, 1, normal_table, random_like_infer, normal_forward);
const sb_op_def sb_op_random_uniform = RANDOM("RandomUniform", 1, 0, uniform_table, random_infer, uniform_forward);
const sb_op_def sb_op_random_uniform_like = RANDOM("RandomUniformLike", 1, 1, uniform_table, random_like_infer, uniform_forward);
/* clang-format on */
