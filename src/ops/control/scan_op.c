/* Scan: runs its body once for each slice of its inputs.
 *
 *     for (i = 0; i < n; i++)
 *         states, y[i] = body(states, x[i])
 *
 * with an axis and a direction for each x and each y. */
#include <string.h>

#include "ops/control/iterate.h"
#include "ops/move/move_util.h"

typedef struct {
    sb_graph *body;
    int64_t num_scan_inputs;
    sb_ints scan_input_axes, scan_input_directions;
    sb_ints scan_output_axes, scan_output_directions;
} scan_attrs;

static const sb_attr_def attrs[] = {
    {"body", SB_ATTR_GRAPH, offsetof(scan_attrs, body), .required = true},
    {"num_scan_inputs", SB_ATTR_INT, offsetof(scan_attrs, num_scan_inputs),
     .required = true},
    {"scan_input_axes", SB_ATTR_INTS, offsetof(scan_attrs, scan_input_axes),
     .i = 0},
    {"scan_input_directions", SB_ATTR_INTS,
     offsetof(scan_attrs, scan_input_directions), .i = 0},
    {"scan_output_axes", SB_ATTR_INTS, offsetof(scan_attrs, scan_output_axes),
     .i = 0},
    {"scan_output_directions", SB_ATTR_INTS,
     offsetof(scan_attrs, scan_output_directions), .i = 0},
    {0},
};

static int64_t number_at(const sb_ints *list, size_t i)
{
    return i < list->n ? list->v[i] : 0;
}

static sb_status check_list(const sb_infer *in, const char *name,
                            const sb_ints *list, size_t n, bool flags)
{
    if (list->n != 0 && list->n != n)
        return sb_infer_fail(in, "%s has %zu numbers, want %zu", name, list->n,
                             n);
    for (size_t i = 0; flags && i < list->n; i++)
        if (list->v[i] != 0 && list->v[i] != 1)
            return sb_infer_fail(in, "%s has %lld, want 0 or 1", name,
                                 (long long)list->v[i]);
    return SB_OK;
}

static sb_status check_lists(const sb_infer *in)
{
    const scan_attrs *a = in->attrs;
    size_t n_x = (size_t)a->num_scan_inputs, n_states = in->n_in - n_x;

    if (in->n_out < n_states)
        return sb_infer_fail(in, "%u outputs, but %zu states", in->n_out,
                             n_states);
    size_t n_y = in->n_out - n_states;
    SB_TRY(check_list(in, "scan_input_axes", &a->scan_input_axes, n_x, false));
    SB_TRY(check_list(in, "scan_input_directions", &a->scan_input_directions,
                      n_x, true));
    SB_TRY(
        check_list(in, "scan_output_axes", &a->scan_output_axes, n_y, false));
    return check_list(in, "scan_output_directions", &a->scan_output_directions,
                      n_y, true);
}

static sb_status scan_infer(sb_infer *in)
{
    const scan_attrs *a = in->attrs;
    sb_dim n = SB_DIM_UNKNOWN;

    if (a->num_scan_inputs < 1 || a->num_scan_inputs > in->n_in ||
        a->body->n_inputs != in->n_in)
        return sb_infer_fail(in,
                             "%u inputs, %lld of them scanned; the body "
                             "has %zu",
                             in->n_in, (long long)a->num_scan_inputs,
                             a->body->n_inputs);
    SB_TRY(check_lists(in));
    size_t n_states = in->n_in - (size_t)a->num_scan_inputs;
    for (size_t i = n_states; i < in->n_in; i++) {
        int axis = 0;
        if (!in->in[i])
            return sb_infer_fail(in, "input %zu is absent", i);
        const sb_shape *s = &in->in[i]->type.shape;
        if (s->rank < 0)
            continue;
        SB_TRY(sb_infer_axis(in, number_at(&a->scan_input_axes, i - n_states),
                             s->rank, &axis));
        if (sb_dim_known(n) && sb_dim_known(s->dim[axis]) && s->dim[axis] != n)
            return sb_infer_fail(in, "input %zu has %lld slices, others %lld",
                                 i, (long long)s->dim[axis], (long long)n);
        if (!sb_dim_known(n) && s->dim[axis] != SB_DIM_UNKNOWN)
            n = s->dim[axis];
    }
    return sb_iteration_infer(in, a->body, 0, 0, n_states, &a->scan_output_axes,
                              n);
}

/* An input that is read in slices. */
typedef struct sliced {
    sb_tensor t;
    const sb_tensor *x;
    size_t rows, row; /* pieces that a slice consists of, and bytes of each */
    int64_t n;
    bool reverse;
} sliced;

static sb_status slice_open(sb_kernel *k, const sb_tensor *x, int64_t axis,
                            bool reverse, sliced *s)
{
    int64_t dims[SB_MAX_RANK] = {0};

    if (sb_dtype_size(x->dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "elements of type %s cannot be sliced",
                              sb_dtype_name(x->dtype));
    int at = sb_axis_norm(axis, x->rank);
    for (int i = 0, d = 0; i < x->rank; i++)
        if (i != at)
            dims[d++] = x->dims[i];
    *s = (sliced){.x = x, .n = x->dims[at], .reverse = reverse};
    s->t = sb_tensor_make(x->dtype, x->rank - 1, dims);
    s->rows = (size_t)sb_dims_product(x->dims, 0, at);
    s->row = s->rows ? sb_tensor_bytes(&s->t) / s->rows : 0;
    return sb_tensor_alloc(k->ctx, &s->t);
}

static void slice_read(const sliced *s, int64_t i)
{
    size_t n = (size_t)s->n, at = (size_t)(s->reverse ? s->n - 1 - i : i);

    for (size_t r = 0; s->row && r < s->rows; r++)
        memcpy((char *)s->t.data + r * s->row,
               (const char *)s->x->data + (r * n + at) * s->row, s->row);
}

static sb_status scan_slices(sb_kernel *k, sb_iteration *it, sliced *x,
                             size_t n_x)
{
    const scan_attrs *a = k->attrs;

    for (size_t i = 0; i < n_x; i++) {
        SB_TRY(slice_open(k, k->in[it->n_carried + i],
                          number_at(&a->scan_input_axes, i),
                          number_at(&a->scan_input_directions, i) != 0, &x[i]));
        if (x[i].n != x[0].n)
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "an input has %lld slices, another %lld",
                                  (long long)x[i].n, (long long)x[0].n);
        it->in[it->n_carried + i] = &x[i].t;
    }
    for (int64_t i = 0; i < x[0].n; i++) {
        for (size_t j = 0; j < n_x; j++)
            slice_read(&x[j], i);
        SB_TRY(sb_iteration_run(it));
    }
    SB_TRY(sb_iteration_finish(it));
    for (size_t s = 0; s < it->n_stacks; s++)
        SB_TRY(sb_iteration_put_stack(
            it, s, (uint32_t)(it->n_carried + s),
            number_at(&a->scan_output_axes, s),
            number_at(&a->scan_output_directions, s) != 0));
    return SB_OK;
}

static sb_status scan_forward(sb_kernel *k)
{
    const scan_attrs *a = k->attrs;
    size_t n_x = (size_t)a->num_scan_inputs;
    sliced *x = sb_alloc(k->ctx, n_x, sizeof *x);
    sb_iteration it;
    sb_status status =
        sb_iteration_begin(&it, k, a->body, 0, 0, 0, k->n_in - n_x);

    if (status == SB_OK)
        status = x ? scan_slices(k, &it, x, n_x) : SB_NO_MEMORY;
    for (size_t i = 0; x && i < n_x; i++)
        sb_tensor_drop(&x[i].t);
    sb_free(k->ctx, x);
    sb_iteration_end(&it);
    return status;
}

const sb_op_def sb_op_scan = {
    .name = "Scan",
    .since = 9,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = SB_ARITY_ANY,
    .flags = SB_OP_DATA_SHAPE,
    .attrs_size = sizeof(scan_attrs),
    .attrs = attrs,
    .infer = scan_infer,
    .forward = scan_forward,
};
