/* Running a body again and again: what is carried along, and what is stacked.
 */
#include "ops/control/iterate.h"

#include <string.h>

#include "ops/move/move_util.h"

/* ---- inference ---------------------------------------------------------- */

sb_type sb_type_common(const sb_type *a, const sb_type *b)
{
    sb_type t = *a;

    if (a->dtype != b->dtype)
        t.dtype = a->dtype ? (b->dtype ? SB_DTYPE_NONE : a->dtype) : b->dtype;
    if (a->shape.rank != b->shape.rank)
        t.shape = sb_shape_unknown();
    for (int i = 0; i < t.shape.rank; i++)
        if (!sb_dim_same(a->shape.dim[i], b->shape.dim[i]))
            t.shape.dim[i] = SB_DIM_UNKNOWN;
    return t;
}

/* A slice with one more axis. */
static sb_status stacked_type(const sb_infer *in, const sb_type *slice,
                              int64_t axis, sb_dim n, sb_type *out)
{
    int rank = slice->shape.rank, at = 0;

    *out = (sb_type){.dtype = slice->dtype, .shape.rank = -1};
    if (rank < 0)
        return SB_OK;
    if (rank == SB_MAX_RANK)
        return sb_infer_fail(in, "a result has rank %d, at most %d", rank + 1,
                             SB_MAX_RANK);
    SB_TRY(sb_infer_axis(in, axis, rank + 1, &at));
    out->shape.rank = rank + 1;
    for (int i = 0; i <= rank; i++)
        out->shape.dim[i] = i == at ? n : slice->shape.dim[i < at ? i : i - 1];
    return SB_OK;
}

sb_status sb_iteration_infer(sb_infer *in, const sb_graph *body, uint32_t from,
                             size_t first_out, size_t n_carried,
                             const sb_ints *axes, sb_dim n)
{
    if (body->n_outputs != first_out + in->n_out || in->n_out < n_carried)
        return sb_infer_fail(in,
                             "%u outputs, %zu of them carried on; the body "
                             "has %zu, want %zu",
                             in->n_out, n_carried, body->n_outputs,
                             first_out + in->n_out);
    for (uint32_t i = 0; i < in->n_out; i++) {
        const sb_type *t =
            &sb_graph_value(body, body->outputs[first_out + i])->type;
        if (i >= n_carried) {
            size_t j = i - n_carried;
            int64_t axis = axes && j < axes->n ? axes->v[j] : 0;
            SB_TRY(stacked_type(in, t, axis, n, &in->out[i].type));
            continue;
        }
        if (!in->in[from + i])
            return sb_infer_fail(in, "input %u is absent", from + i);
        /* The body may never run. */
        in->out[i].type = sb_type_common(t, &in->in[from + i]->type);
    }
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

sb_status sb_kernel_give(sb_kernel *k, uint32_t i, const sb_tensor *t)
{
    if (!k->out[i])
        return SB_OK;
    SB_TRY(k->host->resize_out(k, i, t->dtype, t->rank, t->dims));
    size_t bytes = sb_tensor_bytes(t);
    if (bytes)
        memcpy(k->out[i]->data, t->data, bytes);
    return SB_OK;
}

sb_status sb_iteration_begin(sb_iteration *it, sb_kernel *k,
                             const sb_graph *body, uint32_t from,
                             size_t first_in, size_t first_out,
                             size_t n_carried)
{
    size_t n_stacks = k->n_out - n_carried;

    *it = (sb_iteration){.k = k, .body = body};
    it->carried = sb_alloc(k->ctx, n_carried + 1, sizeof *it->carried);
    it->stacks = sb_alloc(k->ctx, n_stacks + 1, sizeof *it->stacks);
    it->in = sb_alloc(k->ctx, body->n_inputs + 1, sizeof *it->in);
    it->out = sb_alloc(k->ctx, body->n_outputs + 1, sizeof *it->out);
    if (!it->carried || !it->stacks || !it->in || !it->out)
        return SB_NO_MEMORY;
    it->n_carried = n_carried;
    it->n_stacks = n_stacks;
    it->first_out = first_out;
    for (size_t i = 0; i < n_carried; i++) {
        const sb_tensor *t = k->in[from + i];
        /* Texts lie elsewhere, in memory that a run may give back. */
        if (t->dtype == SB_DTYPE_STRING)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "strings are carried on");
        it->carried[i].t = *t;
        it->carried[i].t.buf = NULL;
        it->in[first_in + i] = &it->carried[i].t;
    }
    return SB_OK;
}

/* Makes the buffer at least so large; old elements are kept if asked for. */
static sb_status room_for(sb_ctx *ctx, sb_buf **room, size_t used, size_t bytes)
{
    size_t old = *room ? sb_buf_size(*room) : 0;
    sb_buf *bigger = NULL;

    if (*room && old >= bytes)
        return SB_OK;
    if (old <= SIZE_MAX / 2 && bytes < old * 2)
        bytes = old * 2;
    SB_TRY(sb_buf_create_raw(ctx, bytes, &bigger));
    if (used)
        memcpy(sb_buf_data(bigger), sb_buf_data(*room), used);
    sb_buf_unref(*room);
    *room = bigger;
    return SB_OK;
}

/* Another result may still lie in the room that `c` has now. */
static sb_status iterate_carry(sb_ctx *ctx, sb_carried *c, const sb_tensor *t)
{
    size_t bytes = sb_tensor_bytes(t);

    c->at = !c->at;
    SB_TRY(room_for(ctx, &c->room[c->at], 0, bytes));
    c->t = *t;
    c->t.buf = NULL;
    c->t.data = sb_buf_data(c->room[c->at]);
    if (bytes)
        memcpy(c->t.data, t->data, bytes);
    return SB_OK;
}

static bool same_form(const sb_tensor *a, const sb_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, sizeof a->dims[0] * (size_t)a->rank) == 0;
}

static sb_status iterate_push(const sb_kernel *k, sb_stack *s,
                              const sb_tensor *t)
{
    size_t bytes = sb_tensor_bytes(t), used = 0, all = 0;
    char first[128], now[128];

    if (sb_dtype_size(t->dtype) == 0 || t->rank == SB_MAX_RANK)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "results %s cannot be stacked",
                              sb_tensor_describe(t, now, sizeof now));
    if (s->n == 0)
        s->slice = sb_tensor_make(t->dtype, t->rank, t->dims);
    if (!same_form(&s->slice, t))
        return sb_kernel_fail(
            k, SB_BAD_DATA, "iteration %lld gives %s, those before it %s",
            (long long)s->n, sb_tensor_describe(t, now, sizeof now),
            sb_tensor_describe(&s->slice, first, sizeof first));
    if (!sb_mul_size(bytes, (size_t)s->n, &used) || bytes > SIZE_MAX - used)
        return sb_kernel_fail(k, SB_NO_MEMORY, "the result is too large");
    all = used + bytes;
    SB_TRY(room_for(k->ctx, &s->room, used, all));
    if (bytes)
        memcpy((char *)sb_buf_data(s->room) + used, t->data, bytes);
    s->n++;
    return SB_OK;
}

sb_status sb_iteration_run(sb_iteration *it)
{
    sb_kernel *k = it->k;
    const sb_tensor **results = it->out + it->first_out;

    SB_TRY(sb_ctx_poll(k->ctx));
    SB_TRY(k->host->run_body(k, it->body, it->in, it->out));
    for (size_t i = 0; i < it->n_carried; i++)
        SB_TRY(iterate_carry(k->ctx, &it->carried[i], results[i]));
    for (size_t i = 0; i < it->n_stacks; i++)
        if (k->out[it->n_carried + i])
            SB_TRY(iterate_push(k, &it->stacks[i], results[it->n_carried + i]));
    return SB_OK;
}

sb_status sb_iteration_finish(sb_iteration *it)
{
    for (size_t i = 0; i < it->n_carried; i++)
        SB_TRY(sb_kernel_give(it->k, (uint32_t)i, &it->carried[i].t));
    return SB_OK;
}

/* What a slice would be if there were one. */
static sb_status never_seen(const sb_iteration *it, size_t i, sb_tensor *out)
{
    sb_value_id v = it->body->outputs[it->first_out + it->n_carried + i];
    const sb_type *t = &sb_graph_value(it->body, v)->type;
    int64_t dims[SB_MAX_RANK] = {0};

    if (t->dtype == SB_DTYPE_NONE)
        return sb_kernel_fail(it->k, SB_UNSUPPORTED,
                              "the body never ran, and nothing says of which "
                              "type output %zu is",
                              it->n_carried + i);
    int rank = t->shape.rank < 0 ? 0 : t->shape.rank;
    for (int d = 0; d < rank; d++)
        dims[d] = sb_dim_known(t->shape.dim[d]) ? t->shape.dim[d] : 0;
    *out = sb_tensor_make(t->dtype, rank, dims);
    return SB_OK;
}

sb_status sb_iteration_put_stack(const sb_iteration *it, size_t i,
                                 uint32_t output, int64_t axis, bool reverse)
{
    sb_kernel *k = it->k;
    const sb_stack *s = &it->stacks[i];
    sb_tensor slice = s->slice;
    int64_t dims[SB_MAX_RANK];

    if (!k->out[output])
        return SB_OK;
    if (s->n == 0)
        SB_TRY(never_seen(it, i, &slice));
    if (slice.rank == SB_MAX_RANK || axis < -slice.rank - 1 ||
        axis > slice.rank)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "axis %lld for slices of rank %d",
                              (long long)axis, slice.rank);
    int at = sb_axis_norm(axis, slice.rank + 1);
    for (int d = 0; d <= slice.rank; d++)
        dims[d] = d == at ? s->n : slice.dims[d < at ? d : d - 1];
    SB_TRY(k->host->resize_out(k, output, slice.dtype, slice.rank + 1, dims));
    size_t rows = (size_t)sb_dims_product(slice.dims, 0, at), n = (size_t)s->n;
    size_t bytes = sb_tensor_bytes(&slice), row = rows ? bytes / rows : 0;
    for (size_t j = 0; row && j < n; j++)
        for (size_t r = 0; r < rows; r++)
            memcpy((char *)k->out[output]->data +
                       (r * n + (reverse ? n - 1 - j : j)) * row,
                   (const char *)sb_buf_data(s->room) + j * bytes + r * row,
                   row);
    return SB_OK;
}

void sb_iteration_end(sb_iteration *it)
{
    for (size_t i = 0; i < it->n_carried; i++) {
        sb_buf_unref(it->carried[i].room[0]);
        sb_buf_unref(it->carried[i].room[1]);
    }
    for (size_t i = 0; i < it->n_stacks; i++)
        sb_buf_unref(it->stacks[i].room);
    sb_free(it->k->ctx, it->carried);
    sb_free(it->k->ctx, it->stacks);
    sb_free(it->k->ctx, it->in);
    sb_free(it->k->ctx, it->out);
}
