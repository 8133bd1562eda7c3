/* Cast, CastLike: elements of one type as another; BitCast: the same bits
 * under another type.
 *
 * sb_convert does the work in chunks.  Only float8 needs more: ONNX lets a
 * node choose whether what is too large saturates or becomes infinite, and
 * for float8e8m0, which is a bare power of two, how to round. */
#include <string.h>

#include "base/threads.h"
#include "ops/elementwise/elementwise.h"
#include "ops/move/move_util.h"

enum { CAST_CHUNK = 1024 }; /* a multiple of 8, so packed types stay whole */

typedef struct {
    int64_t to, saturate;
    const char *round_mode;
} cast_attrs;

static const sb_attr_def cast_table[] = {
    {"to", SB_ATTR_INT, offsetof(cast_attrs, to), .required = true},
    {"saturate", SB_ATTR_INT, offsetof(cast_attrs, saturate), .i = 1,
     .flag = true},
    {"round_mode", SB_ATTR_STRING, offsetof(cast_attrs, round_mode), .s = "up"},
    {0},
};

/* CastLike takes the type from its second input. */
static const sb_attr_def cast_like_table[] = {
    {"saturate", SB_ATTR_INT, offsetof(cast_attrs, saturate), .i = 1,
     .flag = true},
    {"round_mode", SB_ATTR_STRING, offsetof(cast_attrs, round_mode), .s = "up"},
    {0},
};

typedef struct cast_job {
    const sb_tensor *x;
    sb_tensor *y;
    bool saturate;
    char round; /* 'u', 'd' or 'n' */
} cast_job;

/* ---- float8 ------------------------------------------------------------- */

/* The exponent of |f|, rounded; 255 is NaN. */
static uint8_t to_e8m0(float f, char round, bool saturate)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    bool up = (round == 'u' && fraction) ||
              (round == 'n' &&
               (fraction > 0x400000 || (fraction == 0x400000 && exponent > 0)));

    if (exponent == 0xff)
        return 0xff;
    if (up && !(saturate && exponent == 0xfe))
        exponent++;
    return (uint8_t)exponent;
}

static bool is_float8(sb_dtype t)
{
    return t == SB_DTYPE_F8E4M3FN || t == SB_DTYPE_F8E4M3FNUZ ||
           t == SB_DTYPE_F8E5M2 || t == SB_DTYPE_F8E5M2FNUZ ||
           t == SB_DTYPE_F8E8M0;
}

static void to_float8(const cast_job *job, const void *x, uint8_t *y, size_t n)
{
    float buffer[CAST_CHUNK];

    sb_convert(job->x->dtype, x, SB_DTYPE_F32, buffer, n);
    for (size_t i = 0; i < n; i++)
        y[i] = job->y->dtype == SB_DTYPE_F8E8M0
                   ? to_e8m0(buffer[i], job->round, job->saturate)
                   : sb_f32_to_small_float(job->y->dtype, buffer[i],
                                           job->saturate);
}

/* Floats wrap into int4 and the like, as ONNX's own cases want it, where wider
 * integers saturate. */
static void to_small_int(const cast_job *job, const void *x, void *y, size_t n)
{
    int64_t buffer[CAST_CHUNK];

    sb_convert(job->x->dtype, x, SB_DTYPE_I64, buffer, n);
    sb_convert(SB_DTYPE_I64, buffer, job->y->dtype, y, n);
}

/* ---- chunks ------------------------------------------------------------- */

static void cast_chunks(void *arg, size_t begin, size_t end)
{
    const cast_job *job = arg;
    size_t x_bits = sb_dtype_get(job->x->dtype)->bits;
    size_t y_bits = sb_dtype_get(job->y->dtype)->bits;
    size_t total = (size_t)sb_tensor_count(job->x);

    for (size_t c = begin; c < end; c++) {
        size_t at = c * CAST_CHUNK;
        size_t n = total - at < CAST_CHUNK ? total - at : CAST_CHUNK;
        const char *x = (const char *)job->x->data + at / 8 * x_bits;
        char *y = (char *)job->y->data + at / 8 * y_bits;

        if (is_float8(job->y->dtype))
            to_float8(job, x, (uint8_t *)y, n);
        else if (y_bits < 8 && sb_dtype_is_float(job->x->dtype) &&
                 sb_dtype_is_integral(job->y->dtype))
            to_small_int(job, x, y, n);
        else
            sb_convert(job->x->dtype, x, job->y->dtype, y, n);
    }
}

static bool cast_castable(sb_dtype t)
{
    return sb_dtype_get(t)->cls != SB_CLASS_OTHER;
}

static sb_status cast_prepare(sb_kernel *k)
{
    const cast_attrs *a = k->attrs;

    if (!cast_castable(k->in[0]->dtype) || !cast_castable(k->out[0]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "from %s to %s",
                              sb_dtype_name(k->in[0]->dtype),
                              sb_dtype_name(k->out[0]->dtype));
    if (strcmp(a->round_mode, "up") != 0 &&
        strcmp(a->round_mode, "down") != 0 &&
        strcmp(a->round_mode, "nearest") != 0)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "round_mode is '%s', want up, down or nearest",
                              a->round_mode);
    return SB_OK;
}

static sb_status cast_forward(sb_kernel *k)
{
    const cast_attrs *a = k->attrs;
    cast_job job = {k->in[0], k->out[0], a->saturate != 0, a->round_mode[0]};
    size_t n = (size_t)sb_tensor_count(k->in[0]);

    if (k->in[0]->dtype == k->out[0]->dtype) {
        if (k->in[0]->data != k->out[0]->data)
            memcpy(k->out[0]->data, k->in[0]->data, sb_tensor_bytes(k->in[0]));
        return SB_OK;
    }
    sb_parallel_for(k->ctx, (n + CAST_CHUNK - 1) / CAST_CHUNK, 16, cast_chunks,
                    &job);
    return SB_OK;
}

/* ---- types -------------------------------------------------------------- */

static void cast_infer_to(sb_infer *in, sb_dtype to)
{
    sb_shape content;

    sb_infer_set(in, 0, to, &in->in[0]->type.shape);
    /* Shape vectors are often cast between int32 and int64. */
    if (sb_dtype_is_integral(in->in[0]->type.dtype) &&
        sb_infer_content(in, 0, &content))
        sb_infer_set_content(in, 0, &content);
}

static sb_status cast_infer(sb_infer *in)
{
    const cast_attrs *a = in->attrs;

    if (a->to < 1 || a->to >= SB_DTYPE_COUNT)
        return sb_infer_fail(in, "to is %lld, which is no element type",
                             (long long)a->to);
    cast_infer_to(in, (sb_dtype)a->to);
    return SB_OK;
}

static sb_status cast_like_infer(sb_infer *in)
{
    cast_infer_to(in, in->in[1]->type.dtype);
    return SB_OK;
}

static sb_status bit_cast_infer(sb_infer *in)
{
    const cast_attrs *a = in->attrs;
    sb_dtype from = in->in[0]->type.dtype;

    if (a->to < 1 || a->to >= SB_DTYPE_COUNT)
        return sb_infer_fail(in, "to is %lld, which is no element type",
                             (long long)a->to);
    if (from != SB_DTYPE_NONE &&
        (sb_dtype_get(from)->bits != sb_dtype_get((sb_dtype)a->to)->bits ||
         from == SB_DTYPE_STRING || a->to == SB_DTYPE_STRING))
        return sb_infer_fail(in, "from %s to %s: different sizes",
                             sb_dtype_name(from),
                             sb_dtype_name((sb_dtype)a->to));
    sb_infer_set(in, 0, (sb_dtype)a->to, &in->in[0]->type.shape);
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */

const sb_op_def sb_op_cast = {
    .name = "Cast",
    .since = 6,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_ELEMENTWISE,
    .attrs_size = sizeof(cast_attrs),
    .attrs = cast_table,
    .infer = cast_infer,
    .prepare = cast_prepare,
    .forward = cast_forward,
    .grad = sb_grad_cast,
};

const sb_op_def sb_op_cast_like = {
    .name = "CastLike",
    .since = 15,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(cast_attrs),
    .attrs = cast_like_table,
    .infer = cast_like_infer,
    .prepare = cast_prepare,
    .forward = cast_forward,
    .grad = sb_grad_cast,
};

const sb_op_def sb_op_bit_cast = {
    .name = "BitCast",
    .since = 26,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_VIEW,
    .attrs_size = sizeof(cast_attrs),
    .attrs = cast_table,
    .infer = bit_cast_infer,
    .forward = sb_view_forward,
};
