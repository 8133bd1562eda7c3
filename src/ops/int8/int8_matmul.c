/* Matrix products of 8-bit tensors; see int8_matmul.h.
 *
 * If B is one matrix, all leading dimensions of A are folded into its rows and
 * there is one product; else the products of a batch run one after another,
 * each on all threads: items are (panel of B, group of row blocks of A). */
#include "ops/int8/int8_matmul.h"

#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

/* ---- shapes ------------------------------------------------------------- */

/* The last two dimensions of an operand, a vector counting as [1, k] on the
 * left and [k, 1] on the right, and what is before them. */
static sb_shape split_matrix(const sb_shape *s, bool right, bool trans,
                             sb_dim *rows, sb_dim *cols)
{
    sb_shape batch = {.rank = s->rank > 2 ? s->rank - 2 : 0};

    for (int i = 0; i < batch.rank; i++)
        batch.dim[i] = s->dim[i];
    if (s->rank == 1) {
        *rows = right ? s->dim[0] : 1;
        *cols = right ? 1 : s->dim[0];
        return batch;
    }
    *rows = s->dim[s->rank - 2 + trans];
    *cols = s->dim[s->rank - 1 - trans];
    return batch;
}

sb_status sb_int8_matmul_infer(sb_infer *in, const sb_int8_operands *ops,
                               sb_dtype dtype)
{
    const sb_shape *a = &in->in[ops->a]->type.shape;
    const sb_shape *b = &in->in[ops->b]->type.shape;
    sb_shape out = sb_shape_unknown();

    if (a->rank < 0 || b->rank < 0) {
        sb_infer_set(in, 0, dtype, &out);
        return SB_OK;
    }
    if (a->rank == 0 || b->rank == 0)
        return sb_infer_fail(in, "a matrix has rank 0");

    sb_dim m, ka, kb, n;
    out = split_matrix(a, false, ops->trans_a && a->rank > 1, &m, &ka);
    sb_shape b_batch =
        split_matrix(b, true, ops->trans_b && b->rank > 1, &kb, &n);
    if (sb_dim_known(ka) && sb_dim_known(kb) && ka != kb)
        return sb_infer_fail(in, "inner dimensions are %lld and %lld",
                             (long long)ka, (long long)kb);
    if (!sb_shape_broadcast(&out, &b_batch))
        return sb_infer_fail(in, "leading dimensions do not broadcast");
    if (a->rank > 1)
        out.dim[out.rank++] = m;
    if (b->rank > 1)
        out.dim[out.rank++] = n;
    sb_infer_set(in, 0, dtype, &out);
    return SB_OK;
}

/* Steps of an operand over the broadcast batch, in matrices. */
static void batch_steps(const sb_shape *own, const sb_int8_matmul *mm,
                        int64_t *step)
{
    int64_t stride = 1;

    for (int d = mm->rank - 1; d >= 0; d--) {
        int i = d - (mm->rank - own->rank);

        step[d] = i < 0 || own->dim[i] == 1 ? 0 : stride;
        if (i >= 0)
            stride *= own->dim[i];
    }
}

static void set_shape(sb_int8_matmul *mm, const sb_tensor *a,
                      const sb_tensor *b)
{
    sb_shape a_shape = sb_shape_of(a), b_shape = sb_shape_of(b);
    sb_dim kb;
    sb_shape batch = split_matrix(
        &a_shape, false, mm->in.trans_a && a->rank > 1, &mm->m, &mm->k);
    sb_shape a_batch = batch;
    sb_shape b_batch = split_matrix(&b_shape, true,
                                    mm->in.trans_b && b->rank > 1, &kb, &mm->n);

    (void)sb_shape_broadcast(&batch, &b_batch); /* infer() checked it */
    mm->rank = batch.rank;
    mm->n_batch = mm->n_b = 1;
    for (int i = 0; i < batch.rank; i++) {
        mm->batch[i] = batch.dim[i];
        mm->n_batch *= batch.dim[i];
    }
    for (int i = 0; i < b_batch.rank; i++)
        mm->n_b *= b_batch.dim[i];
    mm->rows = mm->m;
    mm->products = mm->n_batch;
    batch_steps(&a_batch, mm, mm->a_step);
    batch_steps(&b_batch, mm, mm->b_step);
}

/* All matrices of `a` as one, if they meet the same `b` and their rows do not
 * share zero points across matrices. */
static void merge_rows(sb_int8_matmul *mm, const sb_tensor *b)
{
    if (mm->n_b != 1 || mm->in.trans_a || b->rank > 2 ||
        (mm->n_a_zero != 1 && mm->n_a_zero != mm->m * mm->n_batch))
        return;
    mm->m *= mm->n_batch;
    mm->n_batch = 1;
    mm->rank = 0;
}

/* ---- preparing ---------------------------------------------------------- */

/* One number for all, or one for each line (row, column) of a matrix, or of
 * some matrices that come again and again. */
static bool fits_lines(int64_t n, int64_t lines, int64_t matrices)
{
    int64_t all = 0;

    return n == 1 || (n > 0 && lines > 0 && n % lines == 0 &&
                      sb_mul_i64(lines, matrices, &all) && all % n == 0);
}

static sb_status check_zero(const sb_kernel *k, uint32_t input, sb_dtype dtype,
                            int64_t lines, int64_t matrices, int64_t *n)
{
    const sb_tensor *z = sb_kernel_in(k, input);

    *n = 1;
    if (!z)
        return SB_OK;
    *n = sb_tensor_count(z);
    if (z->dtype != dtype)
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "zero point (input %u) has type %s, want %s",
            input, sb_dtype_name(z->dtype), sb_dtype_name(dtype));
    if (!fits_lines(*n, lines, matrices))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "zero point (input %u) has %lld elements for "
                              "%lld rows or columns",
                              input, (long long)*n, (long long)lines);
    return SB_OK;
}

static void load_zero(const sb_tensor *z, int64_t n, int32_t *out)
{
    out[0] = 0;
    for (int64_t i = 0; z && i < n; i++)
        out[i] = sb_byte_at(z, i);
}

static sb_bytes_view view_a(const sb_int8_matmul *mm, const void *data)
{
    return (sb_bytes_view){
        .data = data,
        .row = mm->in.trans_a ? 1 : mm->k,
        .col = mm->in.trans_a ? mm->m : 1,
        .is_signed = mm->a_signed,
    };
}

static sb_bytes_view view_b(const sb_int8_matmul *mm, const void *data,
                            int64_t matrix)
{
    return (sb_bytes_view){
        .data = (const char *)data + matrix * mm->k * mm->n,
        .row = mm->in.trans_b ? 1 : mm->n,
        .col = mm->in.trans_b ? mm->k : 1,
        .is_signed = mm->b_signed,
    };
}

/* Bytes of the packed operands; false on overflow. */
static bool packed_sizes(const sb_int8_matmul *mm, size_t *a, size_t *b)
{
    return mm->k <= INT64_MAX / (8 * SB_INT_NR) - 4 &&
           sb_mul_size((size_t)sb_int8_block_size(mm->k),
                       (size_t)sb_int8_blocks(mm->m), a) &&
           sb_mul_size((size_t)sb_int8_panel_size(mm->k),
                       (size_t)sb_int8_panels(mm->n), b);
}

static void pack_all_b(const sb_int8_matmul *mm, const void *b,
                       const int32_t *zero, uint8_t *out)
{
    int64_t n_panel = sb_int8_panels(mm->n), size = sb_int8_panel_size(mm->k);

    for (int64_t i = 0; i < mm->n_b; i++) {
        int64_t first = i * mm->n % mm->n_b_zero;

        for (int64_t p = 0; p < n_panel; p++)
            sb_int8_pack_panel(view_b(mm, b, i), mm->k, mm->n, p, zero + first,
                               mm->n_b_zero > 1,
                               out + (i * n_panel + p) * size);
    }
}

static void pack_rows_b(const sb_int8_matmul *mm, const void *b,
                        const int32_t *zero, uint8_t *out)
{
    (void)zero; /* there are none */
    sb_int8_rows_pack(mm, b, out);
}

/* What packed matrices depend on; zero points follow. */
typedef struct packed_form {
    char kind[8];
    int64_t k, n, n_b, n_zero, is_signed, transposed;
    int32_t zero[];
} packed_form;

static sb_status pack_constant_b(sb_kernel *k, sb_int8_matmul *mm, size_t bytes)
{
    const sb_tensor *b = k->in[mm->in.b];
    const sb_tensor *z = sb_kernel_in(k, mm->in.b_zero);
    size_t zeros = (size_t)mm->n_b_zero * sizeof(int32_t);
    sb_pack_form want = {.form_size = sizeof(packed_form) + zeros};
    sb_pack *pack = NULL;

    if (!b->data || (z && !z->data))
        return SB_OK;
    if (!sb_mul_size((size_t)mm->n_b, bytes, &want.bytes))
        return sb_kernel_fail(k, SB_BAD_MODEL, "matrices are too large");
    packed_form *form = sb_alloc(k->ctx, want.form_size, 1);
    if (!form)
        return SB_NO_MEMORY;
    *form = (packed_form){"int8_b",     mm->k,        mm->n,         mm->n_b,
                          mm->n_b_zero, mm->b_signed, mm->in.trans_b};
    if (mm->rows_conv)
        memcpy(form->kind, "int8_r", sizeof "int8_r");
    load_zero(z, mm->n_b_zero, form->zero);
    want.form = form;
    sb_status status = k->host->pack(k, mm->in.b, &want, &pack);
    if (status == SB_OK) {
        if (!pack->current || pack->version != *pack->current)
            (mm->rows_conv ? pack_rows_b : pack_all_b)(mm, b->data, form->zero,
                                                       pack->data);
        pack->version = pack->current ? *pack->current : 0;
        mm->packed = pack->data;
        k->packed |= 1u << mm->in.b;
    }
    sb_free(k->ctx, form);
    return status;
}

/* Takes `bytes` of scratch, aligned; false on overflow. */
static bool int8_matmul_reserve(sb_int8_matmul *mm, size_t bytes, size_t *at)
{
    size_t end = 0;

    *at = mm->scratch;
    if (!sb_add_size(mm->scratch, bytes, &end) ||
        !sb_add_size(end, SB_ALIGN - 1, &end))
        return false;
    mm->scratch = end / SB_ALIGN * SB_ALIGN;
    return true;
}

static sb_status int8_matmul_fill(sb_kernel *k, sb_int8_matmul *mm, bool alike)
{
    const sb_tensor *a = k->in[mm->in.a], *b = k->in[mm->in.b];
    sb_dtype a_dtype = mm->in.a_is_float ? SB_DTYPE_U8 : a->dtype;
    size_t a_bytes = 0, b_bytes = 0;

    if (!mm->in.a_is_float)
        SB_TRY(sb_byte_check(k, mm->in.a));
    SB_TRY(sb_byte_check(k, mm->in.b));
    mm->a_signed = a_dtype == SB_DTYPE_I8;
    mm->b_signed = b->dtype == SB_DTYPE_I8;
    set_shape(mm, a, b);
    mm->n_a_zero = 1;
    if (!mm->in.a_is_float)
        SB_TRY(check_zero(k, mm->in.a_zero, a_dtype, mm->m, mm->n_batch,
                          &mm->n_a_zero));
    SB_TRY(
        check_zero(k, mm->in.b_zero, b->dtype, mm->n, mm->n_b, &mm->n_b_zero));
    merge_rows(mm, b);
    if (!packed_sizes(mm, &a_bytes, &b_bytes))
        return sb_kernel_fail(k, SB_BAD_MODEL, "matrices are too large");
    if (alike && sb_int8_rows_fit(k, mm))
        SB_TRY(sb_int8_rows_create(k, mm, &b_bytes, &a_bytes));
    SB_TRY(pack_constant_b(k, mm, b_bytes));
    if (!int8_matmul_reserve(mm, (size_t)mm->n_a_zero * sizeof(int32_t),
                             &mm->at_a_zero) ||
        !int8_matmul_reserve(mm, (size_t)mm->n_b_zero * sizeof(int32_t),
                             &mm->at_b_zero) ||
        !int8_matmul_reserve(mm, a_bytes, &mm->at_a) ||
        !int8_matmul_reserve(mm,
                             mm->rows_conv ? sb_int8_rows_lines(mm)
                             : mm->packed  ? 0
                                           : b_bytes,
                             &mm->at_b))
        return sb_kernel_fail(k, SB_BAD_MODEL, "matrices are too large");
    return SB_OK;
}

sb_status sb_int8_matmul_create(sb_kernel *k, const sb_int8_operands *ops,
                                bool alike, sb_int8_matmul **out)
{
    sb_int8_matmul *mm = sb_alloc(k->ctx, 1, sizeof *mm);

    if (!mm)
        return SB_NO_MEMORY;
    mm->in = *ops;
    sb_status status = int8_matmul_fill(k, mm, alike);
    if (status != SB_OK) {
        sb_int8_rows_release(k->ctx, mm);
        sb_free(k->ctx, mm);
        return status;
    }
    *out = mm;
    return SB_OK;
}

/* ---- the end of each tile ----------------------------------------------- */

typedef struct tile_end {
    const sb_int8_epilogue *end;
    int64_t n;      /* columns of the result */
    int64_t row0;   /* row of the whole result where this product starts */
    int64_t scale0; /* first column scale of this B */
} tile_end;

static int32_t with_bias(const sb_int8_epilogue *e, int32_t sum, int64_t row,
                         int64_t col)
{
    if (!e->bias)
        return sum;
    int32_t bias = e->bias[row * e->bias_row + col * e->bias_col];
    return (int32_t)((uint32_t)sum + (uint32_t)bias);
}

SB_HOT static void end_row_quantized(const sb_int8_epilogue *e,
                                     const float *col_scale, float row_scale,
                                     const int32_t *sum, int64_t n, uint8_t *y)
{
    const float lo = (float)(sb_quant_min(e->dtype) - e->out.zero);
    const float hi = (float)(sb_quant_max(e->dtype) - e->out.zero);
    const float y_scale = e->out.scale;
    const int32_t zero = e->out.zero;
    const int64_t step = e->n_col_scale > 1;

    SB_SIMD
    for (int64_t j = 0; j < n; j++) {
        float multiplier = row_scale * col_scale[j * step] / y_scale;

        y[j] = (uint8_t)(sb_round_clamp((float)sum[j] * multiplier, lo, hi) +
                         zero);
    }
}

SB_HOT static void end_row_float(const sb_int8_epilogue *e,
                                 const float *col_scale, float row_scale,
                                 const int32_t *sum, int64_t col, int64_t n,
                                 float *y)
{
    const int64_t step = e->n_col_scale > 1;

    SB_SIMD
    for (int64_t j = 0; j < n; j++)
        y[j] = (float)sum[j] * (row_scale * col_scale[j * step]);
    for (int64_t j = 0; e->bias_float && j < n; j++)
        y[j] += e->bias_float[col + j];
}

static void end_tile(const void *arg, const sb_int8_tile *t)
{
    const tile_end *te = arg;
    const sb_int8_epilogue *e = te->end;

    for (int64_t i = 0; i < t->n_row; i++) {
        int64_t row = te->row0 + t->row + i, at = row * te->n + t->col;
        int32_t sum[SB_INT_NR];

        memcpy(sum, t->acc + i * SB_INT_NR, sizeof sum);
        for (int64_t j = 0; e->bias && j < t->n_col; j++)
            sum[j] = with_bias(e, sum[j], row, t->col + j);
        if (e->dtype == SB_DTYPE_I32) {
            memcpy((int32_t *)e->y + at, sum, (size_t)t->n_col * sizeof *sum);
            continue;
        }
        float row_scale = e->alpha * e->row_scale[row % e->n_row_scale];
        const float *col_scale = e->col_scale;
        if (e->n_col_scale > 1)
            col_scale += te->scale0 + t->col;
        if (e->dtype == SB_DTYPE_F32)
            end_row_float(e, col_scale, row_scale, sum, t->col, t->n_col,
                          (float *)e->y + at);
        else
            end_row_quantized(e, col_scale, row_scale, sum, t->n_col,
                              (uint8_t *)e->y + at);
    }
}

/* ---- running ------------------------------------------------------------ */

enum { GROUP = 16 }; /* row blocks of one item */

typedef struct product {
    const sb_int8_matmul *mm;
    const int32_t *a_zero, *b_zero; /* of the first row, column */
    const void *a;                  /* elements of this A */
    const void *b;                  /* elements of all B; NULL: packed */
    int64_t b_index;
    uint8_t *a_packed, *b_packed;
    tile_end end;
} product;

static void pack_a_range(void *arg, size_t begin, size_t end)
{
    const product *p = arg;
    const sb_int8_matmul *mm = p->mm;

    for (size_t i = begin; i < end; i++)
        sb_int8_pack_block(view_a(mm, p->a), mm->m, mm->k, (int64_t)i,
                           p->a_zero, mm->n_a_zero > 1,
                           p->a_packed +
                               (int64_t)i * sb_int8_block_size(mm->k));
}

static void pack_b_range(void *arg, size_t begin, size_t end)
{
    const product *p = arg;
    const sb_int8_matmul *mm = p->mm;

    for (size_t i = begin; i < end; i++)
        sb_int8_pack_panel(view_b(mm, p->b, p->b_index), mm->k, mm->n,
                           (int64_t)i, p->b_zero, mm->n_b_zero > 1,
                           p->b_packed +
                               (int64_t)i * sb_int8_panel_size(mm->k));
}

static void multiply_range(void *arg, size_t begin, size_t end)
{
    const product *p = arg;
    const sb_int8_matmul *mm = p->mm;
    int64_t n_group = (sb_int8_blocks(mm->m) + GROUP - 1) / GROUP;

    for (size_t i = begin; i < end; i++) {
        int64_t panel = (int64_t)i / n_group, group = (int64_t)i % n_group;
        int64_t col = panel * SB_INT_NR, row = group * GROUP * SB_INT_MR;
        int64_t rows = mm->m - row, cols = mm->n - col;
        tile_end te = p->end;

        te.row0 += row;
        sb_int8_gemm_panel(
            p->a_packed + group * GROUP * sb_int8_block_size(mm->k),
            rows < GROUP * SB_INT_MR ? rows : GROUP * SB_INT_MR, mm->k,
            p->b_packed + panel * sb_int8_panel_size(mm->k), col,
            cols < SB_INT_NR ? cols : SB_INT_NR, end_tile, &te);
    }
}

/* Index of the matrix that product `t` of the batch takes. */
static int64_t matrix_of(const sb_int8_matmul *mm, const int64_t *step,
                         int64_t t)
{
    int64_t at = 0;

    for (int d = mm->rank - 1; d >= 0; d--) {
        at += t % mm->batch[d] * step[d];
        t /= mm->batch[d];
    }
    return at;
}

static void int8_matmul_run(const sb_kernel *k, const sb_int8_matmul *mm,
                            const void *a, const sb_int8_epilogue *end)
{
    char *scratch = k->scratch;
    const int32_t *a_zero =
        (const int32_t *)(const void *)(scratch + mm->at_a_zero);
    int32_t *b_zero = (int32_t *)(void *)(scratch + mm->at_b_zero);
    int64_t n_block = sb_int8_blocks(mm->m), n_panel = sb_int8_panels(mm->n);
    size_t n_item = (size_t)(n_panel * ((n_block + GROUP - 1) / GROUP));

    if (mm->rows_conv) {
        sb_int8_rows_run(k, mm, a, a_zero[0], end);
        return;
    }
    if (!mm->packed)
        load_zero(sb_kernel_in(k, mm->in.b_zero), mm->n_b_zero, b_zero);
    for (int64_t t = 0; t < mm->n_batch; t++) {
        int64_t ia = matrix_of(mm, mm->a_step, t);
        int64_t ib = matrix_of(mm, mm->b_step, t);
        product p = {
            .mm = mm,
            .a_zero = a_zero + ia * mm->m % mm->n_a_zero,
            .b_zero = b_zero + ib * mm->n % mm->n_b_zero,
            .a = (const char *)a + ia * mm->m * mm->k,
            .b = mm->packed ? NULL : k->in[mm->in.b]->data,
            .b_index = ib,
            .a_packed = (uint8_t *)scratch + mm->at_a,
            .b_packed = (uint8_t *)scratch + mm->at_b,
            .end = {end, mm->n, t * mm->m,
                    end->n_col_scale > 1 ? ib * mm->n % end->n_col_scale : 0},
        };
        sb_parallel_for(k->ctx, (size_t)n_block, 8, pack_a_range, &p);
        if (mm->packed)
            p.b_packed = mm->packed + ib * n_panel * sb_int8_panel_size(mm->k);
        else
            sb_parallel_for(k->ctx, (size_t)n_panel, 2, pack_b_range, &p);
        sb_parallel_for(k->ctx, n_item, 1, multiply_range, &p);
    }
}

void sb_int8_matmul_run(const sb_kernel *k, const sb_int8_matmul *mm,
                        const sb_int8_epilogue *end)
{
    int32_t *zero = (int32_t *)(void *)((char *)k->scratch + mm->at_a_zero);

    load_zero(sb_kernel_in(k, mm->in.a_zero), mm->n_a_zero, zero);
    int8_matmul_run(k, mm, k->in[mm->in.a]->data, end);
}

void sb_int8_matmul_run_u8(const sb_kernel *k, const sb_int8_matmul *mm,
                           const uint8_t *a, int32_t a_zero,
                           const sb_int8_epilogue *end)
{
    int32_t *zero = (int32_t *)(void *)((char *)k->scratch + mm->at_a_zero);

    zero[0] = a_zero;
    int8_matmul_run(k, mm, a, end);
}

double sb_int8_matmul_macs(const sb_kernel *k, const sb_int8_operands *ops)
{
    const sb_tensor *a = k->in[ops->a];
    int trans = ops->trans_a && a->rank > 1;

    if (a->rank == 0)
        return 0;
    return (double)sb_tensor_count(k->out[0]) *
           (double)a->dims[a->rank - 1 - trans];
}

void sb_int8_matmul_release(sb_kernel *k)
{
    sb_int8_rows_release(k->ctx, k->state);
    sb_free(k->ctx, k->state);
    k->state = NULL;
}

/* ---- scales ------------------------------------------------------------- */

sb_status sb_int8_scales_check(const sb_kernel *k, uint32_t input,
                               int64_t lines, int64_t matrices)
{
    const sb_tensor *s = sb_kernel_in(k, input);
    int64_t n = s ? sb_tensor_count(s) : 0;

    if (!s || s->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "scale (input %u) has type %s, want float", input,
                              s ? sb_dtype_name(s->dtype) : "none");
    if (!fits_lines(n, lines, matrices))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "scale (input %u) has %lld elements for %lld "
                              "rows or columns",
                              input, (long long)n, (long long)lines);
    return SB_OK;
}
