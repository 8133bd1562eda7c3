/* One oneDNN primitive with its arguments. */
#include "dnn/dnn_prim.h"

#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    KERNELS_MOST = 64,    /* that an iterator is asked for */
    CODE_BYTES = 8 << 20, /* more than the code of a primitive takes */
};

sb_status sb_dnn_check(sb_ctx *ctx, dnnl_status_t status, const char *what,
                       const char *call)
{
    switch (status) {
    case dnnl_success:
        return SB_OK;
    case dnnl_out_of_memory:
        return sb_fail(ctx, SB_NO_MEMORY, "%s: out of memory in oneDNN's %s",
                       what, call);
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return sb_fail(ctx, SB_UNSUPPORTED, "%s: oneDNN has no %s for it", what,
                       call);
    default:
        return sb_fail(ctx, SB_BACKEND, "%s: oneDNN's %s failed with status %d",
                       what, call, (int)status);
    }
}

int sb_dnn_set_width(int n_threads)
{
#ifdef _OPENMP
    int before = omp_get_max_threads();

    if (before != n_threads)
        omp_set_num_threads(n_threads);
    return before;
#else
    return n_threads;
#endif
}

dnnl_status_t sb_dnn_md(dnnl_memory_desc_t *md, int rank, const int64_t *dims,
                        sb_dnn_layout layout)
{
    static const dnnl_format_tag_t plain[] = {dnnl_a, dnnl_ab, dnnl_abc,
                                              dnnl_abcd, dnnl_abcde};
    static const dnnl_format_tag_t last[] = {dnnl_acb, dnnl_acdb, dnnl_acdeb};
    dnnl_dims_t d = {0};
    dnnl_format_tag_t tag;

    if (rank < 1 || rank > 5)
        return dnnl_unimplemented;
    memcpy(d, dims, (size_t)rank * sizeof *dims);
    if (layout == SB_DNN_ANY)
        tag = dnnl_format_tag_any;
    else if (layout == SB_DNN_PLAIN)
        tag = plain[rank - 1];
    else if (rank >= 3 && layout == dims[1])
        tag = last[rank - 3];
    else
        return dnnl_unimplemented;
    return dnnl_memory_desc_init_by_tag(md, rank, d, dnnl_f32, tag);
}

void *sb_dnn_mutable(const void *p)
{
    void *q;

    memcpy(&q, &p, sizeof q);
    return q;
}

size_t sb_dnn_reserve(size_t *total, size_t bytes)
{
    size_t at = *total;

    *total += (bytes + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    return at;
}

size_t sb_dnn_md_bytes(const dnnl_memory_desc_t *md)
{
    size_t bytes = 0;

    (void)sb_dnn_reserve(&bytes, dnnl_memory_desc_get_size(md));
    return bytes;
}

const char *sb_dnn_kernel_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;

    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                  (void *)&name) != dnnl_success ||
        !name)
        return "";
    return name;
}

dnnl_status_t sb_dnn_matmul_pd(const dnnl_matmul_desc_t *op,
                               dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                               dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&it, op, attr, engine, NULL);

    *out = NULL;
    for (int i = 0; i < KERNELS_MOST && status == dnnl_success; i++) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(it);
        if (pd && (!*out || strstr(sb_dnn_kernel_name(pd), "brg"))) {
            if (*out)
                (void)dnnl_primitive_desc_destroy(*out);
            *out = pd;
        } else if (pd) {
            (void)dnnl_primitive_desc_destroy(pd);
        }
        if (!pd || strstr(sb_dnn_kernel_name(*out), "brg"))
            break;
        status = dnnl_primitive_desc_iterator_next(it);
    }
    if (it)
        (void)dnnl_primitive_desc_iterator_destroy(it);
    if (*out)
        return dnnl_success;
    return status == dnnl_success || status == dnnl_iterator_ends
               ? dnnl_unimplemented
               : status;
}

sb_status sb_dnn_prim_make(sb_ctx *ctx, const char *what, dnnl_engine_t engine,
                           const_dnnl_primitive_desc_t pd, sb_dnn_prim *out)
{
    /* oneDNN writes its code through a null pointer if it gets no memory. */
    SB_TRY(sb_expect_memory(ctx, CODE_BYTES));
    SB_TRY(sb_dnn_check(ctx, dnnl_primitive_create(&out->prim, pd), what,
                        "primitive"));
    return sb_dnn_check(
        ctx, dnnl_stream_create(&out->stream, engine, dnnl_stream_in_order),
        what, "stream");
}

sb_status sb_dnn_prim_arg(sb_ctx *ctx, const char *what, dnnl_engine_t engine,
                          sb_dnn_prim *prim, int arg,
                          const dnnl_memory_desc_t *md)
{
    dnnl_memory_t memory = NULL;

    SB_TRY(sb_dnn_check(
        ctx, dnnl_memory_create(&memory, md, engine, DNNL_MEMORY_NONE), what,
        "memory"));
    prim->args[prim->n_args++] = (dnnl_exec_arg_t){arg, memory};
    return SB_OK;
}

sb_status sb_dnn_prim_scratch(sb_ctx *ctx, const char *what,
                              dnnl_engine_t engine, sb_dnn_prim *prim,
                              const_dnnl_primitive_desc_t pd, size_t *bytes)
{
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);

    *bytes = md ? dnnl_memory_desc_get_size(md) : 0;
    if (*bytes == 0)
        return SB_OK;
    return sb_dnn_prim_arg(ctx, what, engine, prim, DNNL_ARG_SCRATCHPAD, md);
}

dnnl_status_t sb_dnn_prim_run(sb_dnn_prim *prim, void *const *pointers)
{
    /* Setting a handle may clear padding, so only do it when it changes. */
    for (int i = 0; i < prim->n_args; i++) {
        if (prim->handles[i] == pointers[i])
            continue;
        dnnl_status_t status =
            dnnl_memory_set_data_handle(prim->args[i].memory, pointers[i]);
        if (status != dnnl_success)
            return status;
        prim->handles[i] = pointers[i];
    }
    dnnl_status_t status = dnnl_primitive_execute(prim->prim, prim->stream,
                                                  prim->n_args, prim->args);
    return status != dnnl_success ? status : dnnl_stream_wait(prim->stream);
}

void sb_dnn_prim_free(sb_dnn_prim *prim)
{
    for (int i = 0; i < prim->n_args; i++)
        (void)dnnl_memory_destroy(prim->args[i].memory);
    if (prim->prim)
        (void)dnnl_primitive_destroy(prim->prim);
    if (prim->stream)
        (void)dnnl_stream_destroy(prim->stream);
    *prim = (sb_dnn_prim){0};
}

sb_status sb_dnn_prim_reorder(sb_ctx *ctx, const char *what,
                              dnnl_engine_t engine,
                              const dnnl_memory_desc_t *from,
                              const dnnl_memory_desc_t *to, sb_dnn_prim *out,
                              size_t *scratch)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    sb_status status = sb_dnn_attr(ctx, what, NULL, 0, &attr);

    if (status == SB_OK)
        status = sb_dnn_check(ctx,
                              dnnl_reorder_primitive_desc_create(
                                  &pd, from, engine, to, engine, attr),
                              what, "reorder");
    if (status == SB_OK)
        status = sb_dnn_prim_make(ctx, what, engine, pd, out);
    if (status == SB_OK)
        status = sb_dnn_prim_arg(ctx, what, engine, out, DNNL_ARG_FROM, from);
    if (status == SB_OK)
        status = sb_dnn_prim_arg(ctx, what, engine, out, DNNL_ARG_TO, to);
    if (status == SB_OK)
        status = sb_dnn_prim_scratch(ctx, what, engine, out, pd, scratch);
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

/* ---- attributes --------------------------------------------------------- */

static dnnl_status_t append_post(dnnl_post_ops_t ops, const sb_dnn_post *p)
{
    static const dnnl_alg_kind_t alg[] = {
        [SB_DNN_RELU] = dnnl_eltwise_relu,
        [SB_DNN_CLIP] = dnnl_eltwise_clip,
        [SB_DNN_LINEAR] = dnnl_eltwise_linear,
        [SB_DNN_SWISH] = dnnl_eltwise_swish,
        [SB_DNN_SIGMOID] = dnnl_eltwise_logistic,
        [SB_DNN_TANH] = dnnl_eltwise_tanh,
        [SB_DNN_HARDSWISH] = dnnl_eltwise_hardswish,
        [SB_DNN_GELU_ERF] = dnnl_eltwise_gelu_erf,
        [SB_DNN_GELU_TANH] = dnnl_eltwise_gelu_tanh,
    };

    if (p->kind == SB_DNN_SUM)
        return dnnl_post_ops_append_sum(ops, p->alpha);
    return dnnl_post_ops_append_eltwise(ops, 1.0f, alg[p->kind], p->alpha,
                                        p->beta);
}

sb_status sb_dnn_attr(sb_ctx *ctx, const char *what, const sb_dnn_post *posts,
                      size_t n_posts, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    size_t n_inside = sb_dnn_posts_inside(posts, n_posts);

    for (size_t i = n_inside; i < n_posts; i++)
        if (posts[i].kind == SB_DNN_SUM)
            return sb_fail(ctx, SB_UNSUPPORTED,
                           "%s: a sum after an activation of our own", what);
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(
            *out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && n_inside)
        status = dnnl_post_ops_create(&ops);
    for (size_t i = 0; i < n_inside && status == dnnl_success; i++)
        status = append_post(ops, &posts[i]);
    if (status == dnnl_success && n_inside)
        status = dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ops)
        (void)dnnl_post_ops_destroy(ops);
    return sb_dnn_check(ctx, status, what, "attributes");
}

/* ---- forms of packed weights -------------------------------------------- */

static bool form_set(sb_dnn_md_form *form, const dnnl_memory_desc_t *md)
{
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;

    if (md->format_kind != dnnl_blocked || md->ndims > SB_DNN_FORM_RANK ||
        b->inner_nblks > SB_DNN_FORM_BLOCKS)
        return false;
    form->rank = md->ndims;
    form->offset = md->offset0;
    form->flags = (int64_t)md->extra.flags;
    form->n_blocks = b->inner_nblks;
    for (int i = 0; i < md->ndims; i++) {
        form->dims[i] = md->dims[i];
        form->padded[i] = md->padded_dims[i];
        form->strides[i] = b->strides[i];
    }
    for (int i = 0; i < b->inner_nblks; i++) {
        form->blocks[i] = b->inner_blks[i];
        form->block_dims[i] = b->inner_idxs[i];
    }
    return true;
}

sb_status sb_dnn_form_seal(sb_ctx *ctx, const char *what, sb_dnn_form *form,
                           const dnnl_memory_desc_t *from,
                           const dnnl_memory_desc_t *to,
                           const dnnl_memory_desc_t *other,
                           sb_dnn_packing *packing)
{
    if (!form_set(&form->from, from) || !form_set(&form->to[0], to) ||
        (other && !form_set(&form->to[1], other)))
        return sb_fail(ctx, SB_UNSUPPORTED, "%s: weights of an unknown form",
                       what);
    packing->form = form;
    packing->form_size = sizeof *form;
    return SB_OK;
}
