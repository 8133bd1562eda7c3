/* A stack of matrix products with packed right sides, one thread each.
 *
 *     c[i] = a[i] b[i]      for i in [0, depth), all of one size
 *
 * The stack is one oneDNN primitive, copied for each thread because a
 * primitive's memory objects can point at one place only.  Nothing is divided
 * among threads: callers run different blocks of rows on different threads. */
#include <string.h>

#include "dnn/dnn_prim.h"

struct sb_dnn_stack {
    sb_ctx *ctx;
    char what[SB_DNN_WHAT_MAX];
    sb_dnn_stack_desc desc;
    dnnl_engine_t engine;
    sb_dnn_prim *lanes;
    size_t n_lanes, lane_bytes;
    sb_dnn_prim reorder;
    sb_dnn_form form;
    sb_dnn_packing packing;
};

static dnnl_status_t stack_pd(const sb_dnn_stack *s, dnnl_primitive_attr_t attr,
                              dnnl_primitive_desc_t *out)
{
    const sb_dnn_stack_desc *d = &s->desc;
    dnnl_dims_t a_dims = {d->depth, d->rows, d->k};
    dnnl_dims_t b_dims = {d->depth, d->k, d->n};
    dnnl_dims_t c_dims = {d->depth, d->rows, d->n};
    dnnl_memory_desc_t a_md, b_md, c_md;
    dnnl_matmul_desc_t op;
    dnnl_status_t status =
        dnnl_memory_desc_init_by_tag(&a_md, 3, a_dims, dnnl_f32, dnnl_abc);

    if (status == dnnl_success)
        status =
            dnnl_memory_desc_init_by_tag(&c_md, 3, c_dims, dnnl_f32, dnnl_abc);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&b_md, 3, b_dims, dnnl_f32,
                                              dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&op, &a_md, &b_md, NULL, &c_md);
    if (status == dnnl_success)
        status = sb_dnn_matmul_pd(&op, attr, s->engine, out);
    return status;
}

static sb_status add_lane(sb_dnn_stack *s, const_dnnl_primitive_desc_t pd,
                          sb_dnn_prim *prim)
{
    size_t pad = 0;

    SB_TRY(sb_dnn_prim_make(s->ctx, s->what, s->engine, pd, prim));
    SB_TRY(sb_dnn_prim_arg(
        s->ctx, s->what, s->engine, prim, DNNL_ARG_SRC,
        dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0)));
    SB_TRY(sb_dnn_prim_arg(
        s->ctx, s->what, s->engine, prim, DNNL_ARG_WEIGHTS,
        dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0)));
    SB_TRY(sb_dnn_prim_arg(
        s->ctx, s->what, s->engine, prim, DNNL_ARG_DST,
        dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0)));
    SB_TRY(sb_dnn_prim_scratch(s->ctx, s->what, s->engine, prim, pd, &pad));
    s->lane_bytes = pad > s->lane_bytes ? pad : s->lane_bytes;
    return SB_OK;
}

static sb_status plan_packing(sb_dnn_stack *s, const dnnl_memory_desc_t *want)
{
    dnnl_dims_t dims = {s->desc.depth, s->desc.k, s->desc.n};
    dnnl_memory_desc_t plain;

    SB_TRY(sb_dnn_check(
        s->ctx,
        dnnl_memory_desc_init_by_tag(&plain, 3, dims, dnnl_f32, dnnl_abc),
        s->what, "layout"));
    SB_TRY(sb_dnn_prim_reorder(s->ctx, s->what, s->engine, &plain, want,
                               &s->reorder, &s->packing.scratch));
    s->packing.bytes = sb_dnn_md_bytes(want);
    (void)strcpy(s->form.kind, "stack");
    return sb_dnn_form_seal(s->ctx, s->what, &s->form, &plain, want, NULL,
                            &s->packing);
}

static sb_status stack_make(sb_dnn_stack *s)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    sb_status status = sb_dnn_attr(s->ctx, s->what, NULL, 0, &attr);

    if (status == SB_OK)
        status = sb_dnn_check(s->ctx, stack_pd(s, attr, &pd), s->what,
                              "matrix product");
    for (size_t i = 0; i < s->n_lanes && status == SB_OK; i++)
        status = add_lane(s, pd, &s->lanes[i]);
    if (status == SB_OK)
        status = plan_packing(
            s, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

sb_status sb_dnn_stack_create(sb_ctx *ctx, const sb_dnn_stack_desc *desc,
                              sb_dnn_stack **out)
{
    sb_dnn_stack *s = sb_alloc(ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    s->ctx = ctx;
    s->desc = *desc;
    strncpy(s->what, desc->what, sizeof s->what - 1);
    s->desc.what = s->what;
    s->n_lanes = (size_t)ctx->n_threads;
    s->lanes = sb_alloc(ctx, s->n_lanes, sizeof *s->lanes);
    sb_status status = s->lanes ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_dnn_check(ctx, dnnl_engine_create(&s->engine, dnnl_cpu, 0),
                              s->what, "engine");
    int width = sb_dnn_set_width(1);
    if (status == SB_OK)
        status = stack_make(s);
    (void)sb_dnn_set_width(width);
    if (status != SB_OK) {
        sb_dnn_stack_free(s);
        return status;
    }
    *out = s;
    return SB_OK;
}

size_t sb_dnn_stack_lanes(const sb_dnn_stack *stack)
{
    return stack->n_lanes;
}

size_t sb_dnn_stack_scratch(const sb_dnn_stack *stack)
{
    size_t total = 0;

    (void)sb_dnn_reserve(&total, stack->lane_bytes);
    return total;
}

const sb_dnn_packing *sb_dnn_stack_packing(const sb_dnn_stack *stack)
{
    return &stack->packing;
}

sb_status sb_dnn_stack_pack(sb_dnn_stack *stack, const float *b, void *packed,
                            void *scratch)
{
    int width = sb_dnn_set_width(1);
    void *args[] = {sb_dnn_mutable(b), packed, scratch};
    dnnl_status_t status = sb_dnn_prim_run(&stack->reorder, args);

    (void)sb_dnn_set_width(width);
    return sb_dnn_check(stack->ctx, status, stack->what, "weight reorder");
}

bool sb_dnn_stack_run(sb_dnn_stack *stack, size_t lane, const float *a,
                      const float *packed, float *c, void *scratch)
{
    int width = sb_dnn_set_width(1);
    void *args[] = {sb_dnn_mutable(a), sb_dnn_mutable(packed), c, scratch};
    dnnl_status_t status = sb_dnn_prim_run(&stack->lanes[lane], args);

    (void)sb_dnn_set_width(width);
    return status == dnnl_success;
}

void sb_dnn_stack_free(sb_dnn_stack *stack)
{
    if (!stack)
        return;
    for (size_t i = 0; stack->lanes && i < stack->n_lanes; i++)
        sb_dnn_prim_free(&stack->lanes[i]);
    sb_free(stack->ctx, stack->lanes);
    sb_dnn_prim_free(&stack->reorder);
    if (stack->engine)
        (void)dnnl_engine_destroy(stack->engine);
    sb_free(stack->ctx, stack);
}
