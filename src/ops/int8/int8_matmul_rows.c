/* Products with a known matrix, as a convolution; see int8_matmul.h.
 *
 * Rows of A are pixels that lie channel beside channel, columns of B output
 * channels of a window of one pixel, so A is read as it lies (int8_conv_last.h)
 * if B has no zero points and results need nothing that differs by row. */
#include "ops/int8/int8_conv_last.h"
#include "ops/int8/int8_matmul.h"

bool sb_int8_rows_fit(const sb_kernel *k, const sb_int8_matmul *mm)
{
    const sb_tensor *b = k->in[mm->in.b], *z = sb_kernel_in(k, mm->in.b_zero);
    const int32_t none = mm->b_signed ? 0 : SB_INT_FLIP;

    if (!b->data || (z && !z->data) || (!z && none != 0) || mm->n_b != 1 ||
        mm->n_batch != 1 || mm->n_a_zero != 1 || mm->in.trans_a || mm->m == 0 ||
        mm->k == 0 || mm->n == 0)
        return false;
    for (int64_t i = 0; z && i < mm->n_b_zero; i++)
        if (sb_byte_at(z, i) != none)
            return false;
    return true;
}

sb_status sb_int8_rows_create(sb_kernel *k, sb_int8_matmul *mm, size_t *weights,
                              size_t *scratch)
{
    sb_int8_conv *c = sb_alloc(k->ctx, 1, sizeof *c);

    if (!c)
        return SB_NO_MEMORY;
    *c = (sb_int8_conv){
        .n_batch = 1,
        .group = 1,
        .c_in = mm->k,
        .c_out = mm->n,
        .x = {1, 1, mm->m},
        .y = {1, 1, mm->m},
        .kernel = {1, 1, 1},
        .stride = {1, 1, 1},
        .dilation = {1, 1, 1},
        .k = mm->k,
        .n_pixel = mm->m,
        .x_signed = mm->a_signed,
        .w_signed = mm->b_signed,
        .w_across = !mm->in.trans_b,
    };
    mm->rows_conv = c;
    SB_TRY(sb_int8_last_create(k->ctx, c));
    if (!sb_int8_last_sizes(c, weights, scratch))
        return sb_kernel_fail(k, SB_BAD_MODEL, "matrices are too large");
    return SB_OK;
}

void sb_int8_rows_pack(const sb_int8_matmul *mm, const void *b, uint8_t *out)
{
    sb_int8_last_pack(mm->rows_conv, b, out);
}

size_t sb_int8_rows_lines(const sb_int8_matmul *mm)
{
    return 2 * (size_t)mm->n * sizeof(float);
}

void sb_int8_rows_run(const sb_kernel *k, const sb_int8_matmul *mm,
                      const void *a, int32_t a_zero, const sb_int8_epilogue *e)
{
    char *scratch = k->scratch;
    float *multiplier = (float *)(void *)(scratch + mm->at_b);
    int32_t *bias = (int32_t *)(void *)(multiplier + mm->n);
    float row = e->dtype == SB_DTYPE_I32 ? 0 : e->alpha * e->row_scale[0];

    for (int64_t j = 0; j < mm->n && e->dtype != SB_DTYPE_I32; j++) {
        float scale = row * e->col_scale[e->n_col_scale > 1 ? j : 0];

        multiplier[j] = e->dtype == SB_DTYPE_F32 ? scale : scale / e->out.scale;
    }
    for (int64_t j = 0; j < mm->n && e->bias; j++)
        bias[j] = e->bias[j * e->bias_col];
    const sb_int8_conv_end end = {
        .dtype = e->dtype,
        .y = e->y,
        .bias = e->bias ? bias : NULL,
        .multiplier = e->dtype == SB_DTYPE_I32 ? NULL : multiplier,
        .zero = e->out.zero,
        .add = e->bias_float,
    };
    const sb_int8_direct_args args = {
        .c = mm->rows_conv,
        .end = &end,
        .x = a,
        .x_zero = a_zero + (mm->a_signed ? SB_INT_FLIP : 0),
        .w = mm->packed,
        .scratch = scratch + mm->at_a,
    };

    sb_int8_last_run(k->ctx, &args);
}

void sb_int8_rows_release(sb_ctx *ctx, sb_int8_matmul *mm)
{
    if (mm && mm->rows_conv)
        sb_free(ctx, mm->rows_conv->last);
    if (mm)
        sb_free(ctx, mm->rows_conv);
}
