/* Rows of matrices. */
#include "llm/write/matrix.h"

#include "base/threads.h"
#include "ops/int8/nbits_int8.h"

/* Where row `row` of the file comes from. */
static int64_t source_row(const sb_matrix *m, int64_t row)
{
    if (m->heads == 0)
        return row;
    int64_t size = m->rows / m->heads, half = m->rotated / 2;
    int64_t head = row / size, at = row % size;

    if (at >= m->rotated)
        return row;
    return head * size + (m->to_neighbors ? at % 2 * half + at / 2
                                          : at % half * 2 + at / half);
}

static void floats_of(const sb_tensor *t, int64_t at, int64_t n, float *to)
{
    sb_convert(t->dtype,
               (const char *)t->data + (size_t)at * sb_dtype_size(t->dtype),
               SB_DTYPE_F32, to, (size_t)n);
}

/* ---- sizes -------------------------------------------------------------- */

bool sb_is_plain_float(const sb_tensor *t)
{
    return sb_dtype_is_float(t->dtype) && sb_dtype_size(t->dtype) > 0;
}

static bool has_count(const sb_tensor *t, int64_t rows, int64_t per_row)
{
    int64_t want = 0;

    return t->data && sb_mul_i64(rows, per_row, &want) &&
           sb_tensor_count(t) == want;
}

static bool zeros_fit(const sb_matrix *m)
{
    int64_t n = sb_matrix_groups(m);

    if (!m->zeros)
        return true;
    if (m->zeros->dtype == SB_DTYPE_U8)
        return has_count(m->zeros, m->rows, (n * m->bits + 7) / 8);
    return sb_is_plain_float(m->zeros) && has_count(m->zeros, m->rows, n);
}

bool sb_matrix_fits(const sb_matrix *m)
{
    enum { COLS_MOST = INT32_MAX, GROUP_MOST = 1 << 20 };

    if (m->rows < 1 || m->cols < 1 || m->cols > COLS_MOST)
        return false;
    if (m->bits == 0)
        return sb_is_plain_float(m->t) && has_count(m->t, m->rows, m->cols);
    if ((m->bits != 2 && m->bits != 3 && m->bits != 4 && m->bits != 8) ||
        m->group < 16 || m->group > GROUP_MOST || m->group % 16)
        return false;
    int64_t n = sb_matrix_groups(m);
    return m->t->dtype == SB_DTYPE_U8 && sb_is_plain_float(m->scales) &&
           has_count(m->scales, m->rows, n) &&
           has_count(m->t, m->rows, n * m->group * m->bits / 8) && zeros_fit(m);
}

/* ---- elements ----------------------------------------------------------- */

static const uint8_t *codes_row(const sb_matrix *m, int64_t from)
{
    return (const uint8_t *)m->t->data +
           from * (sb_matrix_groups(m) * m->group * m->bits / 8);
}

static float zero_at(const sb_matrix *m, int64_t from, int64_t group)
{
    int64_t n = sb_matrix_groups(m);
    float zero = (float)(1 << (m->bits - 1));

    if (m->zeros && m->zeros->dtype != SB_DTYPE_U8)
        floats_of(m->zeros, from * n + group, 1, &zero);
    else if (m->zeros)
        zero = (float)sb_nbits_code((const uint8_t *)m->zeros->data +
                                        from * ((n * m->bits + 7) / 8),
                                    group, m->bits);
    return zero;
}

void sb_matrix_codes(const sb_matrix *m, int64_t row, uint8_t *codes)
{
    const uint8_t *packed = codes_row(m, source_row(m, row));

    if (m->bits == 4) /* most matrices; the compiler knows where codes are */
        for (int64_t i = 0; i < m->cols; i++)
            codes[i] = (uint8_t)sb_nbits_code(packed, i, 4);
    else
        for (int64_t i = 0; i < m->cols; i++)
            codes[i] = (uint8_t)sb_nbits_code(packed, i, m->bits);
}

void sb_matrix_scales(const sb_matrix *m, int64_t row, float *scales,
                      float *zeros)
{
    int64_t from = source_row(m, row), n = sb_matrix_groups(m);

    floats_of(m->scales, from * n, n, scales);
    for (int64_t g = 0; g < n; g++)
        zeros[g] = zero_at(m, from, g);
}

void sb_matrix_floats(const sb_matrix *m, int64_t row, float *to)
{
    int64_t from = source_row(m, row), n = m->cols;

    if (m->bits == 0 && !m->turned) {
        floats_of(m->t, from * n, n, to);
        return;
    }
    if (m->bits == 0) {
        for (int64_t i = 0; i < n; i++)
            floats_of(m->t, i * m->rows + from, 1, &to[i]);
        return;
    }
    const uint8_t *packed = codes_row(m, from);
    float scale = 0, zero = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % m->group == 0) {
            floats_of(m->scales, from * sb_matrix_groups(m) + i / m->group, 1,
                      &scale);
            zero = zero_at(m, from, i / m->group);
        }
        to[m->order ? m->order[i] : i] =
            ((float)sb_nbits_code(packed, i, m->bits) - zero) * scale;
    }
}

/* ---- what they are like ------------------------------------------------- */

static bool is_half(float x)
{
    float back = sb_f16_to_f32(sb_f32_to_f16(x));

    /* Infinities and NaN are no scales. */
    return isfinite(back) && !(back < x) && !(back > x);
}

/* The same for a product that a zero point was divided out of: it is off by
 * one rounding of float32 or two. */
static bool is_near_half(float x)
{
    float back = sb_f16_to_f32(sb_f32_to_f16(x));

    return fabsf(back - x) <= fabsf(x) * 0x1p-21F;
}

static void look_at_group(sb_matrix_facts *f, const uint8_t *codes, int64_t n,
                          float scale, float zero)
{
    int lo = 255, hi = 0;

    for (int64_t i = 0; i < n; i++) {
        lo = codes[i] < lo ? codes[i] : lo;
        hi = codes[i] > hi ? codes[i] : hi;
    }
    f->code_lo = lo < f->code_lo ? lo : f->code_lo;
    f->code_hi = hi > f->code_hi ? hi : f->code_hi;
    f->lo = fminf(f->lo, (float)lo - zero);
    f->hi = fmaxf(f->hi, (float)hi - zero);
    f->zero_lo = fminf(f->zero_lo, zero);
    f->zero_hi = fmaxf(f->zero_hi, zero);
    f->whole = f->whole && isfinite(zero) && !(rintf(zero) < zero) &&
               !(rintf(zero) > zero);
    if (f->half && !is_half(scale)) {
        f->half = false;
        f->odd = scale;
    }
    if (fabsf(scale) > 0 && !(fabsf(scale) > 0x1p-25F))
        f->lost = scale;
    f->half_offsets = f->half_offsets && is_near_half(zero * scale);
    f->scale_most = sb_larger_size(f->scale_most, scale);
    f->offset_most = sb_larger_size(f->offset_most, zero * scale);
}

sb_status sb_matrix_row_make(sb_ctx *ctx, const sb_matrix *m,
                             sb_matrix_row *out)
{
    size_t n = (size_t)sb_matrix_groups(m);

    out->codes = sb_alloc_raw(ctx, (size_t)m->cols, 1);
    out->scales = sb_alloc_raw(ctx, 2 * n, sizeof *out->scales);
    out->zeros = out->scales ? out->scales + n : NULL;
    if (out->codes && out->scales)
        return SB_OK;
    sb_matrix_row_free(ctx, out);
    return SB_NO_MEMORY;
}

void sb_matrix_row_free(sb_ctx *ctx, sb_matrix_row *row)
{
    sb_free(ctx, row->codes);
    sb_free(ctx, row->scales);
}

sb_status sb_matrix_look(sb_ctx *ctx, const sb_matrix *m, sb_matrix_facts *out)
{
    int64_t n = sb_matrix_groups(m);
    sb_matrix_row r;
    sb_status status = SB_OK;

    *out = (sb_matrix_facts){.whole = true,
                             .half = true,
                             .half_offsets = true,
                             .code_lo = 255,
                             .lo = INFINITY,
                             .hi = -INFINITY,
                             .zero_lo = INFINITY,
                             .zero_hi = -INFINITY};
    SB_TRY(sb_matrix_row_make(ctx, m, &r));
    for (int64_t row = 0; status == SB_OK && row < m->rows; row++) {
        sb_matrix_codes(m, row, r.codes);
        sb_matrix_scales(m, row, r.scales, r.zeros);
        for (int64_t g = 0; g < n; g++) {
            int64_t at = g * m->group, left = m->cols - at;

            look_at_group(out, r.codes + at, left < m->group ? left : m->group,
                          r.scales[g], r.zeros[g]);
        }
        if (row % 256 == 0)
            status = sb_ctx_poll(ctx);
    }
    sb_matrix_row_free(ctx, &r);
    return status;
}

enum { SAME_ROWS = 16 };

/* n rows from `first` on.  Of a matrix that lies turned, neighbors of a column
 * are read together. */
static void rows_of(const sb_matrix *m, int64_t first, int64_t n, float *to)
{
    float column[SAME_ROWS];

    if (m->bits || !m->turned || m->heads) {
        for (int64_t r = 0; r < n; r++)
            sb_matrix_floats(m, first + r, to + r * m->cols);
        return;
    }
    for (int64_t i = 0; i < m->cols; i++) {
        floats_of(m->t, i * m->rows + first, n, column);
        for (int64_t r = 0; r < n; r++)
            to[r * m->cols + i] = column[r];
    }
}

sb_status sb_matrix_same(sb_ctx *ctx, const sb_matrix *a, const sb_matrix *b,
                         bool *same)
{
    size_t n = SAME_ROWS * (size_t)a->cols;

    *same = a->rows == b->rows && a->cols == b->cols && a->bits == b->bits &&
            (a->bits == 0 || a->group == b->group);
    if (!*same || a->t->data == b->t->data)
        return SB_OK;
    float *x = sb_alloc_raw(ctx, 2 * n, sizeof *x);
    if (!x)
        return SB_NO_MEMORY;
    for (int64_t row = 0; *same && row < a->rows; row += SAME_ROWS) {
        int64_t left = a->rows - row;
        int64_t rows = left < SAME_ROWS ? left : SAME_ROWS;

        rows_of(a, row, rows, x);
        rows_of(b, row, rows, x + n);
        for (size_t i = 0; *same && i < (size_t)(rows * a->cols); i++)
            *same = !(x[i] < x[n + i]) && !(x[i] > x[n + i]);
    }
    sb_free(ctx, x);
    return SB_OK;
}
