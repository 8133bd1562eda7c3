/* Weights in the graph: as the file has them.
 *
 * Plain floats stay in the mapped file.  Float16 and bfloat16 get a Cast
 * behind them, which the executor takes into the product.  Blocks are repacked
 * into what MatMulNBits and GatherBlockQuantized read, which is as small. */
#include <string.h>

#include "base/threads.h"
#include "llm/arch.h"

sb_value_id sb_arch_fail(sb_arch *a, sb_status status)
{
    if (a->status == SB_OK)
        a->status = status;
    return SB_NONE;
}

const sb_weight *sb_arch_find(sb_arch *a, sb_module m, const char *ending)
{
    const char *names[] = {m.name, m.other};

    for (size_t i = 0; i < 2 && names[i]; i++) {
        const char *name =
            sb_arch_name(a, "%s%s.%s", a->prefix, names[i], ending);
        const sb_weight *w = name ? sb_checkpoint_find(a->weights, name) : NULL;
        const char *why = name ? sb_checkpoint_why_not(a->weights, name) : NULL;
        if (w)
            return w;
        if (why)
            (void)sb_arch_fail(a, sb_fail(a->ctx, SB_BAD_DATA,
                                          "%s: tensor '%s' %s",
                                          a->weights->path, name, why));
    }
    return NULL;
}

bool sb_arch_has(sb_arch *a, sb_module m)
{
    return sb_arch_find(a, m, "weight") || sb_arch_find(a, m, "qweight");
}

static void add_dims(sb_str *out, const int64_t *dims, int rank)
{
    for (int i = 0; i < rank; i++)
        sb_str_addf(out, "%s%lld", i ? ", " : "[", (long long)dims[i]);
    sb_str_add(out, rank ? "]" : "[]");
}

static sb_status fail_shape(const sb_arch *a, const sb_weight *w, int64_t rows,
                            int64_t cols)
{
    sb_str text;

    sb_str_init(&text, a->ctx);
    add_dims(&text, w->dims, w->rank);
    sb_str_add(&text, ", want ");
    add_dims(&text, (int64_t[]){rows, cols}, cols ? 2 : 1);
    sb_status status = sb_fail(a->ctx, SB_BAD_DATA, "%s: tensor '%s' is %s",
                               a->weights->path, w->name, sb_str_text(&text));
    sb_str_free(&text);
    return status;
}

/* The weight, of just these dimensions (cols 0: a vector). */
static const sb_weight *arch_want(sb_arch *a, sb_module m, const char *ending,
                                  int64_t rows, int64_t cols)
{
    const sb_weight *w = sb_arch_find(a, m, ending);

    if (a->status != SB_OK)
        return NULL;
    if (!w) {
        (void)sb_arch_fail(
            a, sb_fail(a->ctx, SB_BAD_DATA, "%s: there is no tensor '%s%s.%s'",
                       a->weights->path, a->prefix, m.name, ending));
        return NULL;
    }
    bool fits = cols ? w->rank == 2 && w->dims[0] == rows && w->dims[1] == cols
                     : w->rank == 1 && w->dims[0] == rows;
    if (fits && w->format->dtype == SB_DTYPE_I32) {
        (void)sb_arch_fail(a, sb_fail(a->ctx, SB_BAD_DATA,
                                      "%s: tensor '%s' is I32, want floats",
                                      a->weights->path, w->name));
        return NULL;
    }
    if (fits)
        return w;
    (void)sb_arch_fail(a, fail_shape(a, w, rows, cols));
    return NULL;
}

sb_value_id sb_arch_constant(sb_arch *a, const char *name, const sb_tensor *t)
{
    sb_value_id v = name ? sb_graph_find_value(a->g, name) : SB_NONE;

    if (a->status != SB_OK || !name || v != SB_NONE)
        return v;
    sb_status status = sb_graph_add_value(a->g, name, &v);
    /* A safetensors file may begin its elements anywhere. */
    size_t size = sb_dtype_size(t->dtype);
    if (status == SB_OK && size > 1 && (uintptr_t)t->data % size != 0) {
        sb_tensor copy;

        status = sb_tensor_clone(a->ctx, t, &copy);
        if (status == SB_OK) {
            status = sb_graph_set_constant(a->g, v, &copy);
            sb_tensor_drop(&copy);
        }
    } else if (status == SB_OK) {
        status = sb_graph_set_constant(a->g, v, t);
    }
    return status == SB_OK ? v : sb_arch_fail(a, status);
}

/* ---- blocks ------------------------------------------------------------- */

typedef struct nbits {
    sb_value_id codes, scales, zeros; /* zeros: SB_NONE if symmetric */
    const sb_weight_format *format;
} nbits;

typedef struct repack_job {
    const sb_weight *w;
    uint8_t *codes;
    float *scales, *zeros;
} repack_job;

static void repack_rows(void *arg, size_t begin, size_t end)
{
    const repack_job *job = arg;
    const sb_weight_format *f = job->w->format;
    size_t cols = (size_t)job->w->dims[1], groups = cols / f->group;

    for (size_t r = begin; r < end; r++)
        sb_weight_to_nbits(f,
                           (const char *)sb_weight_data(job->w) +
                               r * (cols / f->block) * f->bytes,
                           cols, job->codes + r * cols * f->bits / 8,
                           job->scales + r * groups,
                           job->zeros ? job->zeros + r * groups : NULL);
}

/* Codes, scales and zero points of a weight. */
static void nbits_shapes(const sb_weight *w, sb_tensor parts[3])
{
    const sb_weight_format *f = w->format;
    int64_t groups = w->dims[1] / f->group;

    parts[0] =
        sb_tensor_make(SB_DTYPE_U8, 3,
                       (int64_t[]){w->dims[0], groups, f->group * f->bits / 8});
    parts[1] = sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){w->dims[0], groups});
    parts[2] = parts[1];
}

bool sb_arch_wants(sb_arch *a, const char *name)
{
    if (!a->only)
        return true;
    if (!name) /* no memory for it, which the constant will find out */
        return false;
    const char *rows = sb_arch_name(a, "%s.rows", name);

    return sb_map_get(a->only, name) != SB_MAP_NONE ||
           (rows && sb_map_get(a->only, rows) != SB_MAP_NONE);
}

/* All weights of blocks lie in one piece of memory, the shelf, of which the
 * system makes large pages: reading all of them for each token would miss small
 * ones all the time.  0: no size to reckon with. */
static size_t shelf_bytes(const sb_tensor *t)
{
    size_t bytes = sb_tensor_size_ok(t) ? sb_tensor_bytes(t) : 0;

    return (bytes + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

/* Of all weights that are wanted. */
static size_t shelf_total(sb_arch *a)
{
    size_t sum = 0;

    for (size_t i = 0; i < a->weights->n; i++) {
        const sb_weight *w = &a->weights->weights[i];
        sb_tensor parts[3];

        if (!w->format->unpack || w->rank != 2 || !sb_arch_wants(a, w->name))
            continue;
        nbits_shapes(w, parts);
        for (size_t k = 0; k < (w->format->symmetric ? 2 : 3); k++)
            sum += shelf_bytes(&parts[k]);
    }
    return sum;
}

/* A program that counts memory gets what it asks for. */
static sb_status shelf_create(sb_arch *a)
{
    size_t total = a->ctx->budget->chosen ? 0 : shelf_total(a);

    a->has_shelf = true;
    if (total > 0)
        SB_TRY(sb_buf_create_raw(a->ctx, total, &a->shelf));
    return SB_OK;
}

static sb_status arch_memory(sb_arch *a, sb_tensor *t)
{
    size_t bytes = shelf_bytes(t);

    if (!a->has_shelf)
        SB_TRY(shelf_create(a));
    if (!a->shelf || bytes == 0 ||
        bytes > sb_buf_size(a->shelf) - a->shelf_used)
        return sb_tensor_alloc_raw(a->ctx, t);
    t->buf = sb_buf_ref(a->shelf);
    t->data = (char *)sb_buf_data(a->shelf) + a->shelf_used;
    a->shelf_used += bytes;
    return SB_OK;
}

/* All such tensors are the same memory, of which no page is ever taken. */
typedef struct hollow {
    sb_ctx *ctx;
    void *data;
    size_t bytes;
} hollow;

static void hollow_release(void *user)
{
    hollow *h = user;

    sb_free_pages(h->ctx, h->data, h->bytes);
    sb_free(h->ctx, h);
}

static sb_status hollow_create(sb_ctx *ctx, size_t bytes, sb_buf **out)
{
    hollow *h = sb_alloc(ctx, 1, sizeof *h);

    if (!h)
        return SB_NO_MEMORY;
    *h = (hollow){ctx, sb_alloc_pages(ctx, bytes), bytes};
    sb_status status =
        h->data ? sb_buf_wrap(ctx, h->data, bytes, hollow_release, h, out)
                : SB_NO_MEMORY;
    if (status != SB_OK)
        hollow_release(h);
    return status;
}

sb_status sb_arch_hollow(sb_arch *a, sb_tensor *t)
{
    size_t bytes = sb_tensor_size_ok(t) ? sb_tensor_bytes(t) : 0;

    if (bytes == 0)
        return sb_fail(a->ctx, SB_NO_MEMORY, "%s: a weight is too large",
                       a->weights->path);
    if (!a->hollow || sb_buf_size(a->hollow) < bytes) {
        sb_buf_unref(a->hollow);
        a->hollow = NULL;
        SB_TRY(hollow_create(a->ctx, bytes, &a->hollow));
    }
    t->buf = sb_buf_ref(a->hollow);
    t->data = sb_buf_data(a->hollow);
    return SB_OK;
}

static sb_status arch_repack(sb_arch *a, const sb_weight *w, sb_tensor parts[3])
{
    bool wanted = sb_arch_wants(a, w->name);

    nbits_shapes(w, parts);
    for (int i = 0; i < (w->format->symmetric ? 2 : 3); i++)
        SB_TRY(wanted ? arch_memory(a, &parts[i])
                      : sb_arch_hollow(a, &parts[i]));
    if (!wanted)
        return SB_OK;
    repack_job job = {w, parts[0].data, parts[1].data, parts[2].data};
    sb_parallel_for(a->ctx, (size_t)w->dims[0], 64, repack_rows, &job);
    return SB_OK;
}

/* Codes, scales and zero points of a weight, made once: an embedding may be
 * the last layer as well. */
static nbits arch_nbits(sb_arch *a, const sb_weight *w)
{
    const char *scales_name = sb_arch_name(a, "%s.scales", w->name);
    const char *zeros_name = sb_arch_name(a, "%s.zeros", w->name);
    nbits n = {.codes = sb_graph_find_value(a->g, w->name),
               .zeros = SB_NONE,
               .format = w->format};

    if (a->status != SB_OK)
        return n;
    if (n.codes != SB_NONE) {
        n.scales = sb_graph_find_value(a->g, scales_name);
        n.zeros = sb_graph_find_value(a->g, zeros_name);
        return n;
    }
    sb_tensor parts[3] = {{0}};
    sb_status status = arch_repack(a, w, parts);
    if (status == SB_OK) {
        n.codes = sb_arch_constant(a, w->name, &parts[0]);
        n.scales = sb_arch_constant(a, scales_name, &parts[1]);
        n.zeros = w->format->symmetric
                      ? SB_NONE
                      : sb_arch_constant(a, zeros_name, &parts[2]);
    } else {
        (void)sb_arch_fail(a, status);
    }
    for (int i = 0; i < 3; i++)
        sb_tensor_drop(&parts[i]);
    return n;
}

/* ---- layers ------------------------------------------------------------- */

static sb_attr int_attr(const char *name, int64_t i)
{
    return (sb_attr){.name = name, .type = SB_ATTR_INT, .i = i};
}

/* A plain weight as it is, and as float32. */
static sb_value_id arch_plain(sb_arch *a, const char *module,
                              const sb_weight *w, bool widen)
{
    sb_tensor t = sb_weight_tensor(w);
    sb_value_id v = sb_arch_constant(a, w->name, &t);
    const sb_attr to = int_attr("to", SB_DTYPE_F32);

    if (!widen || w->format->dtype == SB_DTYPE_F32 || a->status != SB_OK)
        return v;
    return sb_arch_node(a, module, "Cast", &v, 1, &to, 1);
}

static sb_value_id linear_nbits(sb_arch *a, const char *module,
                                const sb_weight *w, sb_value_id x,
                                sb_value_id bias)
{
    nbits n = arch_nbits(a, w);
    const sb_attr attrs[] = {int_attr("K", w->dims[1]),
                             int_attr("N", w->dims[0]),
                             int_attr("bits", n.format->bits),
                             int_attr("block_size", n.format->group)};
    const sb_value_id in[] = {x, n.codes, n.scales, n.zeros, SB_NONE, bias};
    size_t n_in = bias != SB_NONE ? 6 : n.zeros != SB_NONE ? 4 : 3;

    return sb_arch_node(a, module, "com.microsoft::MatMulNBits", in, n_in,
                        attrs, SB_COUNT(attrs));
}

sb_value_id sb_arch_linear(sb_arch *a, sb_module m, sb_value_id x, int64_t in,
                           int64_t out)
{
    bool turned = a->config->transposed;
    bool biased = sb_arch_find(a, m, "bias") != NULL;
    sb_value_id bias = biased ? sb_arch_vector(a, m, "bias", out, 0) : SB_NONE;
    const sb_attr trans = int_attr("transB", 1);

    if (sb_arch_find(a, m, "qweight"))
        return sb_arch_packed_linear(a, m, x, in, out, bias);
    const sb_weight *w = turned ? arch_want(a, m, "weight", in, out)
                                : arch_want(a, m, "weight", out, in);
    if (a->status != SB_OK)
        return SB_NONE;
    if (w->format->unpack)
        return linear_nbits(a, m.name, w, x, bias);
    const sb_value_id v[] = {x, arch_plain(a, m.name, w, true), bias};
    return sb_arch_node(a, m.name, "Gemm", v, biased ? 3 : 2, &trans,
                        turned ? 0 : 1);
}

static sb_value_id embed_nbits(sb_arch *a, const char *module,
                               const sb_weight *w, sb_value_id ids)
{
    nbits n = arch_nbits(a, w);
    const char *name = sb_arch_name(a, "%s.rows", w->name);
    const sb_attr attrs[] = {int_attr("bits", n.format->bits),
                             int_attr("block_size", n.format->group)};

    if (a->status != SB_OK)
        return SB_NONE;
    sb_tensor rows = sb_graph_value(a->g, n.codes)->constant;
    rows.rank = 2;
    rows.dims[1] *= rows.dims[2];
    const sb_value_id in[] = {sb_arch_constant(a, name, &rows), ids, n.scales,
                              n.zeros};
    return sb_arch_node(a, module, "com.microsoft::GatherBlockQuantized", in,
                        n.zeros != SB_NONE ? 4 : 3, attrs, SB_COUNT(attrs));
}

sb_value_id sb_arch_embed(sb_arch *a, sb_module m, sb_value_id ids,
                          int64_t rows, int64_t cols)
{
    const sb_weight *w = arch_want(a, m, "weight", rows, cols);
    const sb_attr to = int_attr("to", SB_DTYPE_F32);

    if (a->status != SB_OK)
        return SB_NONE;
    if (w->format->unpack)
        return embed_nbits(a, m.name, w, ids);
    sb_value_id x =
        sb_arch_node(a, m.name, "Gather",
                     SB_ARCH_IN(arch_plain(a, m.name, w, false), ids), NULL, 0);
    return w->format->dtype == SB_DTYPE_F32
               ? x
               : sb_arch_node(a, m.name, "Cast", &x, 1, &to, 1);
}

sb_value_id sb_arch_vector(sb_arch *a, sb_module m, const char *ending,
                           int64_t n, float add)
{
    const sb_weight *w = arch_want(a, m, ending, n, 0);
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 1, &n);

    if (a->status != SB_OK)
        return SB_NONE;
    sb_status status = sb_tensor_alloc_raw(a->ctx, &t);
    if (status != SB_OK)
        return sb_arch_fail(a, status);
    sb_weight_to_f32(w->format, sb_weight_data(w), t.data, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        ((float *)t.data)[i] += add;
    sb_value_id v = sb_arch_constant(a, w->name, &t);
    sb_tensor_drop(&t);
    return v;
}
