/* Matrix product in tiles that depend on the sizes alone.
 *
 * Each item of the batch is cut into tiles of at most TILE_M x TILE_N over the
 * whole of k.  A tile is one single-threaded oneDNN primitive; threads take
 * tiles.  So no sum is ever divided and the result is the same for any number
 * of threads.  There are at most four shapes of tiles (inner, last row, last
 * column, corner), hence four primitives, copied for each thread because a
 * primitive's memory objects can point at one place only.
 *
 * A b that is worth it is packed tile by tile.  Small products, and what
 * oneDNN refuses, are done by plain loops. */
#include "dnn/dnn_prim.h"

#include <string.h>

#include "dnn/bf16_product.h"

#include "base/simd.h"
#include "base/threads.h"

enum {
    TILE_M = 192,
    TILE_M_MANY = 256, /* in a batch: other items are there to share */
    TILE_N = 256,
    TILE_M_LEAST = 24,
    TILE_N_LEAST = 64,
    TILES_WANTED = 4,
    ROW_PARTS_MOST = 16,
    ROWS_MOST = 1 << 19, /* elements of b */
    SHAPES = 4,          /* bit 0: last column, bit 1: last row */
    LOOPS_MOST = 8192,   /* multiplications below which a call costs more */
    GRAIN = 32768,       /* multiplications worth a thread */
    BRIEF_LEAST = 1 << 22,
};

typedef struct gemm_lane {
    sb_dnn_prim tile[SHAPES];
} gemm_lane;

struct sb_dnn_gemm {
    sb_ctx *ctx;
    char what[SB_DNN_WHAT_MAX];
    sb_dnn_gemm_desc desc;
    size_t n_inside; /* of the posts, that oneDNN computes */
    dnnl_engine_t engine;
    int64_t tile_m, tile_n; /* size of an inner tile */
    int64_t rows, cols;     /* number of tiles, partial ones included */
    bool brief;             /* factors are rounded to bfloat16 */
    gemm_lane *lanes;       /* NULL: plain loops */
    size_t n_lanes;
    size_t lane_bytes;      /* scratch of one lane */
    sb_dnn_prim reorder[2]; /* of inner columns, of the last */
    size_t packed_step;     /* between packed tiles of b */
    sb_dnn_form form;
    sb_dnn_packing packing;
};

/* ---- plain loops -------------------------------------------------------- */

typedef struct loop_job {
    const sb_dnn_gemm *gemm;
    const sb_dnn_gemm_args *args;
} loop_job;

/* Sum of products in eight parts, so that the compiler may use vectors; the
 * parts do not depend on anything but k. */
static float gemm_dot(const float *a, int64_t a_step, const float *b,
                      int64_t b_step, int64_t k)
{
    float part[8] = {0};
    int64_t i = 0;

    for (; a_step == 1 && b_step == 1 && i + 8 <= k; i += 8)
        for (int64_t j = 0; j < 8; j++)
            part[j] += a[i + j] * b[i + j];
    for (; i + 8 <= k; i += 8)
        for (int64_t j = 0; j < 8; j++)
            part[j] += a[(i + j) * a_step] * b[(i + j) * b_step];
    for (; i < k; i++)
        part[0] += a[i * a_step] * b[i * b_step];
    return ((part[0] + part[4]) + (part[1] + part[5])) +
           ((part[2] + part[6]) + (part[3] + part[7]));
}

/* A row by a column each: oneDNN has reference code for it. */
static bool gemm_is_dots(const sb_dnn_gemm_desc *d)
{
    return d->n == 1 && d->a_col == 1;
}

static bool gemm_accumulates(const sb_dnn_gemm_desc *d)
{
    return d->n_posts > 0 && d->posts[0].kind == SB_DNN_SUM;
}

SB_HOT static void loop_row(const sb_dnn_gemm_desc *d, const float *a,
                            const float *b, const float *bias, float *c)
{
    if (!gemm_accumulates(d))
        for (int64_t j = 0; j < d->n; j++)
            c[j] = bias ? bias[j] : 0;
    else if (bias)
        for (int64_t j = 0; j < d->n; j++)
            c[j] += bias[j];
    if (d->b_col != 1 || d->n == 1) {
        for (int64_t j = 0; j < d->n; j++)
            c[j] += gemm_dot(a, d->a_col, b + j * d->b_col, d->b_row, d->k);
    } else {
        for (int64_t l = 0; l < d->k; l++) {
            const float *row = b + l * d->b_row;
            float f = a[l * d->a_col];
            SB_SIMD
            for (int64_t j = 0; j < d->n; j++)
                c[j] += f * row[j];
        }
    }
    size_t first = gemm_accumulates(d) ? 1 : 0;
    sb_dnn_posts_row(d->posts + first, d->n_posts - first, c, (size_t)d->n);
}

static void run_loops(void *arg, size_t begin, size_t end)
{
    const loop_job *job = arg;
    const sb_dnn_gemm_desc *d = &job->gemm->desc;
    const sb_dnn_gemm_args *x = job->args;

    for (size_t i = begin; i < end; i++) {
        int64_t batch = (int64_t)i / d->m, row = (int64_t)i % d->m;
        const float *a = x->a + (x->a_at ? x->a_at[batch] : 0);
        const float *b = x->b + (x->b_at ? x->b_at[batch] : 0);
        float *c = x->c + (x->c_at ? x->c_at[batch] : 0);

        loop_row(d, a + row * d->a_row, b, d->has_bias ? x->bias : NULL,
                 c + row * d->c_row);
    }
}

/* ---- tiles -------------------------------------------------------------- */

static dnnl_status_t gemm_matrix(dnnl_memory_desc_t *md, int64_t rows,
                                 int64_t cols, int64_t row_step,
                                 int64_t col_step)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row_step, col_step};

    /* The step of a single row or column does not matter to the result, but
     * oneDNN picks slower kernels for odd ones. */
    if (rows == 1 && col_step == 1)
        strides[0] = cols;
    if (cols == 1 && row_step == 1)
        strides[1] = rows;
    return dnnl_memory_desc_init_by_strides(md, 2, dims, dnnl_f32, strides);
}

typedef struct tile_mds {
    dnnl_memory_desc_t a, b, c, bias;
} tile_mds;

/* `b` is what the packed tiles look like, NULL if they are not packed, or has
 * no dimensions yet: then the primitive chooses. */
static dnnl_status_t tile_pd(const sb_dnn_gemm *g, int64_t m, int64_t n,
                             const dnnl_memory_desc_t *b,
                             dnnl_primitive_attr_t attr,
                             dnnl_primitive_desc_t *out)
{
    const sb_dnn_gemm_desc *d = &g->desc;
    dnnl_dims_t b_dims = {d->k, n};
    tile_mds t;
    dnnl_matmul_desc_t op;
    dnnl_status_t status = gemm_matrix(&t.a, m, d->k, d->a_row, d->a_col);

    if (status == dnnl_success && b && b->ndims)
        t.b = *b;
    else if (status == dnnl_success && b)
        status = dnnl_memory_desc_init_by_tag(&t.b, 2, b_dims, dnnl_f32,
                                              dnnl_format_tag_any);
    else if (status == dnnl_success)
        status = gemm_matrix(&t.b, d->k, n, d->b_row, d->b_col);
    if (status == dnnl_success)
        status = gemm_matrix(&t.c, m, n, d->c_row, 1);
    if (status == dnnl_success)
        status = gemm_matrix(&t.bias, 1, n, n, 1);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&op, &t.a, &t.b,
                                       d->has_bias ? &t.bias : NULL, &t.c);
    if (status == dnnl_success)
        status = sb_dnn_matmul_pd(&op, attr, g->engine, out);
    return status;
}

static sb_status add_tile_args(sb_dnn_gemm *g, sb_dnn_prim *prim,
                               const_dnnl_primitive_desc_t pd)
{
    static const struct {
        int arg, index;
        dnnl_query_t query;
    } rows[] = {
        {DNNL_ARG_SRC, 0, dnnl_query_src_md},
        {DNNL_ARG_WEIGHTS, 0, dnnl_query_weights_md},
        {DNNL_ARG_DST, 0, dnnl_query_dst_md},
        {DNNL_ARG_BIAS, 1, dnnl_query_weights_md},
    };
    size_t pad = 0;

    SB_TRY(sb_dnn_prim_make(g->ctx, g->what, g->engine, pd, prim));
    for (size_t i = 0; i < (g->desc.has_bias ? 4u : 3u); i++)
        SB_TRY(sb_dnn_prim_arg(
            g->ctx, g->what, g->engine, prim, rows[i].arg,
            dnnl_primitive_desc_query_md(pd, rows[i].query, rows[i].index)));
    SB_TRY(sb_dnn_prim_scratch(g->ctx, g->what, g->engine, prim, pd, &pad));
    if (pad > g->lane_bytes)
        g->lane_bytes = pad;
    return SB_OK;
}

static int64_t size_of_tile(int64_t total, int64_t tile, bool last)
{
    return last ? total - (total - 1) / tile * tile : tile;
}

/* True if tiles of that shape occur. */
static bool shape_used(const sb_dnn_gemm *g, int shape)
{
    bool last_col = shape & 1, last_row = shape & 2;
    bool part_col = g->desc.n % g->tile_n, part_row = g->desc.m % g->tile_m;

    return (last_col ? part_col : g->desc.n >= g->tile_n) &&
           (last_row ? part_row : g->desc.m >= g->tile_m);
}

static sb_status make_shape(sb_dnn_gemm *g, int shape,
                            dnnl_memory_desc_t *packed,
                            dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t pd = NULL;
    int64_t m = size_of_tile(g->desc.m, g->tile_m, shape & 2);
    int64_t n = size_of_tile(g->desc.n, g->tile_n, shape & 1);
    dnnl_memory_desc_t *b = g->desc.pack ? &packed[shape & 1] : NULL;
    sb_status status = sb_dnn_check(g->ctx, tile_pd(g, m, n, b, attr, &pd),
                                    g->what, "matrix product");

    for (size_t i = 0; i < g->n_lanes && status == SB_OK; i++)
        status = add_tile_args(g, &g->lanes[i].tile[shape], pd);
    if (status == SB_OK && b && !b->ndims)
        *b = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

/* Reorders from plain b to the packed tiles of inner columns and the last. */
static sb_status plan_packing(sb_dnn_gemm *g, const dnnl_memory_desc_t *packed)
{
    const sb_dnn_gemm_desc *d = &g->desc;
    sb_dnn_packing *how = &g->packing;
    dnnl_memory_desc_t whole, plain;

    for (int last = 0; last < 2; last++) {
        size_t pad = 0;
        if (!packed[last].ndims)
            continue;
        SB_TRY(sb_dnn_check(g->ctx,
                            gemm_matrix(&plain, d->k,
                                        size_of_tile(d->n, g->tile_n, last),
                                        d->b_row, d->b_col),
                            g->what, "layout"));
        SB_TRY(sb_dnn_prim_reorder(g->ctx, g->what, g->engine, &plain,
                                   &packed[last], &g->reorder[last], &pad));
        how->scratch = pad > how->scratch ? pad : how->scratch;
        size_t step = sb_dnn_md_bytes(&packed[last]);
        g->packed_step = step > g->packed_step ? step : g->packed_step;
    }
    if (!sb_mul_size(g->packed_step, (size_t)g->cols, &how->bytes))
        return sb_fail(g->ctx, SB_NO_MEMORY, "%s: weights too large", g->what);
    SB_TRY(sb_dnn_check(g->ctx,
                        gemm_matrix(&whole, d->k, d->n, d->b_row, d->b_col),
                        g->what, "layout"));
    (void)strcpy(g->form.kind, "gemm");
    g->form.sizes[0] = g->tile_n;
    int only = packed[0].ndims ? 0 : 1;
    return sb_dnn_form_seal(g->ctx, g->what, &g->form, &whole, &packed[only],
                            only == 0 && packed[1].ndims ? &packed[1] : NULL,
                            how);
}

static sb_status make_tiles(sb_dnn_gemm *g)
{
    dnnl_memory_desc_t packed[2] = {{0}};
    dnnl_primitive_attr_t attr = NULL;
    sb_status status =
        sb_dnn_attr(g->ctx, g->what, g->desc.posts, g->desc.n_posts, &attr);

    if (status == SB_OK) {
        g->n_lanes = (size_t)g->ctx->n_threads;
        g->lanes = sb_alloc(g->ctx, g->n_lanes, sizeof *g->lanes);
        status = g->lanes ? SB_OK : SB_NO_MEMORY;
    }
    for (int shape = 0; shape < SHAPES && status == SB_OK; shape++)
        if (shape_used(g, shape))
            status = make_shape(g, shape, packed, attr);
    if (status == SB_OK && g->desc.pack)
        status = plan_packing(g, packed);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    size_t lane = 0;
    (void)sb_dnn_reserve(&lane, g->lane_bytes);
    g->lane_bytes = lane;
    return status;
}

/* ---- the object --------------------------------------------------------- */

static void free_lanes(sb_dnn_gemm *g)
{
    for (size_t i = 0; g->lanes && i < g->n_lanes; i++)
        for (int s = 0; s < SHAPES; s++)
            sb_dnn_prim_free(&g->lanes[i].tile[s]);
    sb_free(g->ctx, g->lanes);
    g->lanes = NULL;
    g->n_lanes = 0;
    sb_dnn_prim_free(&g->reorder[0]);
    sb_dnn_prim_free(&g->reorder[1]);
    g->packing = (sb_dnn_packing){0};
    g->lane_bytes = 0;
}

/* Equal parts of at most `most`, each a multiple of `unit` but the last. */
static int64_t even_tile(int64_t total, int64_t most, int64_t unit)
{
    int64_t parts = (total + most - 1) / most;
    int64_t tile = parts ? (total + parts - 1) / parts : total;

    tile = (tile + unit - 1) / unit * unit;
    return tile < total ? tile : total;
}

/* Whole rows, where b is small enough for every thread to read all of it: then
 * c lies without gaps, as BRGEMM's kernels want it. */
static bool choose_rows(sb_dnn_gemm *g)
{
    const sb_dnn_gemm_desc *d = &g->desc;
    int64_t parts = 2;

    if (!d->pack || d->a_col != 1 || d->c_row != d->n ||
        d->m < 2 * TILE_M_LEAST || (double)d->n * (double)d->k > ROWS_MOST)
        return false;
    while (parts < ROW_PARTS_MOST && d->m / (2 * parts) >= TILE_M_LEAST)
        parts *= 2;
    g->tile_n = d->n;
    g->tile_m = (d->m + parts - 1) / parts;
    return true;
}

/* Tiles of even size, so that threads finish together.  A product that stands
 * alone, as one with packed b does, is cut further until there are some tiles
 * to share. */
static void choose_tiles(sb_dnn_gemm *g)
{
    const sb_dnn_gemm_desc *d = &g->desc;
    int64_t most_m = d->pack || d->alone ? TILE_M : TILE_M_MANY;
    int64_t most_n = TILE_N;

    if (choose_rows(g))
        return;
    for (;;) {
        g->tile_m = even_tile(d->m, most_m, 1);
        g->tile_n = even_tile(d->n, most_n, 16);
        if (!(d->pack || d->alone) || g->tile_m < 1 || g->tile_n < 1 ||
            (d->m + g->tile_m - 1) / g->tile_m *
                    ((d->n + g->tile_n - 1) / g->tile_n) >=
                TILES_WANTED)
            return;
        if (most_n > TILE_N_LEAST)
            most_n /= 2;
        else if (most_m > TILE_M_LEAST)
            most_m /= 2;
        else
            return;
    }
}

/* ---- rounded to bfloat16 ------------------------------------------------ */

static bool brief_set(sb_dnn_gemm *g)
{
    const sb_dnn_gemm_desc *d = &g->desc;
    const int64_t form[] = {d->k, d->n, d->b_row, d->b_col};

    if (!d->brief || !d->pack || d->a_col != 1 ||
        (double)d->m * (double)d->n * (double)d->k < BRIEF_LEAST ||
        !sb_bf16_is_fast() || !sb_bf16_bytes(d->k, d->n, &g->packing.bytes))
        return false;
    (void)strcpy(g->form.kind, "bf16");
    memcpy(g->form.sizes, form, sizeof form);
    g->packing.form = &g->form;
    g->packing.form_size = sizeof g->form;
    return true;
}

static void brief_run(const sb_dnn_gemm *g, const sb_dnn_gemm_args *x)
{
    const sb_dnn_gemm_desc *d = &g->desc;
    sb_bf16_product p = {.m = d->m,
                         .n = d->n,
                         .k = d->k,
                         .a = x->scratch,
                         .b = (const uint32_t *)(const void *)x->b,
                         .c = x->c,
                         .c_row = d->c_row,
                         .add = gemm_accumulates(d),
                         .bias = d->has_bias ? x->bias : NULL,
                         .posts = d->posts + gemm_accumulates(d),
                         .n_posts = d->n_posts - gemm_accumulates(d)};

    sb_bf16_rows(g->ctx, x->a, d->a_row, d->m, d->k, x->scratch);
    sb_bf16_multiply(g->ctx, &p);
}

sb_status sb_dnn_gemm_create(sb_ctx *ctx, const sb_dnn_gemm_desc *desc,
                             sb_dnn_gemm **out)
{
    sb_dnn_gemm *g = sb_alloc(ctx, 1, sizeof *g);
    sb_status status = SB_OK;

    if (!g)
        return SB_NO_MEMORY;
    g->ctx = ctx;
    g->desc = *desc;
    g->n_inside = sb_dnn_posts_inside(desc->posts, desc->n_posts);
    strncpy(g->what, desc->what, sizeof g->what - 1);
    g->desc.what = g->what;
    choose_tiles(g);
    g->brief = brief_set(g);
    if (!g->brief && desc->m && desc->n && desc->k && !gemm_is_dots(desc) &&
        (double)desc->m * (double)desc->n * (double)desc->k > LOOPS_MOST) {
        g->rows = (desc->m + g->tile_m - 1) / g->tile_m;
        g->cols = (desc->n + g->tile_n - 1) / g->tile_n;
        status = sb_dnn_check(ctx, dnnl_engine_create(&g->engine, dnnl_cpu, 0),
                              g->what, "engine");
        int width = sb_dnn_set_width(1);
        if (status == SB_OK)
            status = make_tiles(g);
        (void)sb_dnn_set_width(width);
        if (status == SB_UNSUPPORTED) {
            free_lanes(g);
            status = SB_OK;
        }
    }
    if (status != SB_OK) {
        sb_dnn_gemm_free(g);
        return status;
    }
    *out = g;
    return SB_OK;
}

size_t sb_dnn_gemm_scratch(const sb_dnn_gemm *gemm)
{
    const sb_dnn_gemm_desc *d = &gemm->desc;

    return gemm->brief ? (size_t)(d->m * sb_bf16_pairs(d->k)) * sizeof(uint32_t)
                       : gemm->n_lanes * gemm->lane_bytes;
}

const sb_dnn_packing *sb_dnn_gemm_packing(const sb_dnn_gemm *gemm)
{
    return &gemm->packing;
}

sb_status sb_dnn_gemm_pack(sb_dnn_gemm *gemm, const float *b, void *packed,
                           void *scratch)
{
    const sb_dnn_gemm_desc *d = &gemm->desc;
    dnnl_status_t status = dnnl_success;
    int width;

    if (gemm->brief) {
        const sb_bf16_source from = {b, d->b_row, d->b_col, d->k, d->n};

        sb_bf16_pack(gemm->ctx, &from, packed);
        return SB_OK;
    }
    width = sb_dnn_set_width(1);
    for (int64_t col = 0; col < gemm->cols && status == dnnl_success; col++) {
        bool last = d->n - col * gemm->tile_n < gemm->tile_n;
        void *args[] = {sb_dnn_mutable(b + col * gemm->tile_n * d->b_col),
                        (char *)packed + (size_t)col * gemm->packed_step,
                        scratch};
        status = sb_dnn_prim_run(&gemm->reorder[last], args);
    }
    (void)sb_dnn_set_width(width);
    return sb_dnn_check(gemm->ctx, status, gemm->what, "weight reorder");
}

typedef struct tile_job {
    sb_dnn_gemm *gemm;
    const sb_dnn_gemm_args *args;
    atomic_int status;
} tile_job;

/* The posts that oneDNN was not given. */
static void tile_rest(const sb_dnn_gemm *g, int shape, float *c)
{
    const sb_dnn_gemm_desc *d = &g->desc;
    int64_t rows = size_of_tile(d->m, g->tile_m, shape & 2);
    int64_t cols = size_of_tile(d->n, g->tile_n, shape & 1);

    for (int64_t i = 0; i < rows; i++)
        sb_dnn_posts_row(d->posts + g->n_inside, d->n_posts - g->n_inside,
                         c + i * d->c_row, (size_t)cols);
}

static void run_tile(void *arg, size_t lane, size_t index)
{
    tile_job *job = arg;
    sb_dnn_gemm *g = job->gemm;
    int64_t item = (int64_t)index;
    const sb_dnn_gemm_desc *d = &g->desc;
    const sb_dnn_gemm_args *x = job->args;
    int64_t row = item % g->rows, col = item / g->rows % g->cols;
    int64_t batch = item / g->rows / g->cols;
    int64_t m = row * g->tile_m, n = col * g->tile_n;
    int shape = (d->n - n < g->tile_n ? 1 : 0) | (d->m - m < g->tile_m ? 2 : 0);
    const float *a = x->a + (x->a_at ? x->a_at[batch] : 0) + m * d->a_row;
    float *c = x->c + (x->c_at ? x->c_at[batch] : 0) + m * d->c_row + n;
    char *pad = sb_dnn_at(x->scratch, lane * g->lane_bytes);
    char *b = sb_dnn_mutable(x->b);
    if (g->packing.bytes)
        b += (size_t)col * g->packed_step;
    else
        b = sb_dnn_mutable(x->b + (x->b_at ? x->b_at[batch] : 0) +
                           n * d->b_col);
    void *args[] = {sb_dnn_mutable(a), b, c,
                    d->has_bias ? sb_dnn_mutable(x->bias + n) : pad, pad};
    int width = sb_dnn_set_width(1);
    dnnl_status_t status = sb_dnn_prim_run(&g->lanes[lane].tile[shape], args);

    (void)sb_dnn_set_width(width);
    if (status != dnnl_success)
        atomic_store(&job->status, (int)status);
    if (g->n_inside < d->n_posts)
        tile_rest(g, shape, c);
}

sb_status sb_dnn_gemm_run(sb_dnn_gemm *gemm, const sb_dnn_gemm_args *args)
{
    const sb_dnn_gemm_desc *d = &gemm->desc;
    int64_t n_batch = args->n_batch ? args->n_batch : 1;

    if (gemm->brief) {
        brief_run(gemm, args);
        return SB_OK;
    }
    if (!gemm->lanes) {
        loop_job job = {gemm, args};
        int64_t grain = GRAIN / (d->n * d->k + 1) + 1;
        sb_parallel_for(gemm->ctx, (size_t)(n_batch * d->m), (size_t)grain,
                        run_loops, &job);
        return SB_OK;
    }
    tile_job job = {.gemm = gemm, .args = args};
    sb_parallel_lanes(gemm->ctx, (size_t)(n_batch * gemm->rows * gemm->cols),
                      gemm->n_lanes, run_tile, &job);
    return sb_dnn_check(gemm->ctx, (dnnl_status_t)atomic_load(&job.status),
                        gemm->what, "execution");
}

void sb_dnn_gemm_free(sb_dnn_gemm *gemm)
{
    if (!gemm)
        return;
    free_lanes(gemm);
    if (gemm->engine)
        (void)dnnl_engine_destroy(gemm->engine);
    sb_free(gemm->ctx, gemm);
}
