/* The loop that RNN, GRU and LSTM share: shapes, products, steps. */
#include "ops/rnn/rnn_util.h"

#include <string.h>

#include "base/threads.h"

/* ---- shapes ------------------------------------------------------------- */

static int count_dirs(const sb_rnn_attrs *a)
{
    if (strcmp(a->direction, "bidirectional") == 0)
        return 2;
    return strcmp(a->direction, "forward") == 0 ||
                   strcmp(a->direction, "reverse") == 0
               ? 1
               : 0;
}

sb_status sb_rnn_check_dims(const sb_infer *in, uint32_t i, int rank,
                            const sb_dim *want)
{
    const sb_fact *f = sb_infer_in(in, i);

    if (!f || f->type.shape.rank < 0)
        return SB_OK;
    if (f->type.shape.rank != rank)
        return sb_infer_fail(in, "input %u has rank %d, want %d", i,
                             f->type.shape.rank, rank);
    for (int d = 0; d < rank; d++) {
        sb_dim have = f->type.shape.dim[d];
        if (sb_dim_known(have) && sb_dim_known(want[d]) && have != want[d])
            return sb_infer_fail(in,
                                 "input %u: dimension %d is %lld, want %lld", i,
                                 d, (long long)have, (long long)want[d]);
    }
    return SB_OK;
}

static sb_status check_weights(const sb_infer *in, uint32_t i, int dirs,
                               sb_dim rows, sb_dim n)
{
    const sb_rnn_cell *cell = sb_op_of(in->node)->aux;

    return sb_rnn_check_dims(in, i, 3,
                             cell->rounds ? (sb_dim[]){dirs, n, rows}
                                          : (sb_dim[]){dirs, rows, n});
}

sb_status sb_rnn_shapes_of(const sb_infer *in, sb_rnn_shapes *out)
{
    const sb_rnn_attrs *a = in->attrs;
    const sb_rnn_cell *cell = sb_op_of(in->node)->aux;
    const sb_shape *x = &in->in[SB_RNN_X]->type.shape;
    const sb_shape *r = &in->in[SB_RNN_R]->type.shape;
    int dirs = count_dirs(a);
    bool first = a->layout != 0; /* batch first */

    if (dirs == 0)
        return sb_infer_fail(in, "direction is '%s'", a->direction);
    if ((x->rank >= 0 && x->rank != 3) || (r->rank >= 0 && r->rank != 3))
        return sb_infer_fail(in, "inputs 0 and 2 want rank 3");
    sb_dim hidden =
        r->rank == 3 ? r->dim[cell->rounds ? 1 : 2] : SB_DIM_UNKNOWN;
    if (a->hidden_size > 0 && sb_dim_known(hidden) && hidden != a->hidden_size)
        return sb_infer_fail(in, "hidden_size is %lld, but R has %lld",
                             (long long)a->hidden_size, (long long)hidden);
    if (a->hidden_size > 0)
        hidden = a->hidden_size;
    sb_dim steps = x->rank == 3 ? x->dim[first ? 1 : 0] : SB_DIM_UNKNOWN;
    sb_dim batch = x->rank == 3 ? x->dim[first ? 0 : 1] : SB_DIM_UNKNOWN;
    sb_dim n_in = x->rank == 3 ? x->dim[2] : SB_DIM_UNKNOWN;
    sb_dim rows = sb_dim_mul(hidden, cell->gates);
    const sb_shape y = first ? (sb_shape){4, {batch, steps, dirs, hidden}}
                             : (sb_shape){4, {steps, dirs, batch, hidden}};
    const sb_shape state = {
        3, {first ? batch : dirs, first ? dirs : batch, hidden}};

    SB_TRY(check_weights(in, SB_RNN_W, dirs, rows, n_in));
    SB_TRY(check_weights(in, SB_RNN_R, dirs, rows, hidden));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_B, 2,
                             (sb_dim[]){dirs, sb_dim_mul(rows, 2)}));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_LENS, 1, &batch));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_H, 3, state.dim));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_C, 3, state.dim));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_P, 2,
                             (sb_dim[]){dirs, sb_dim_mul(hidden, 3)}));
    *out = (sb_rnn_shapes){.y = y,
                           .state = state,
                           .dirs = dirs,
                           .rows = sb_dim_mul(steps, batch),
                           .hidden = hidden};
    return SB_OK;
}

sb_status sb_rnn_infer(sb_infer *in)
{
    sb_dtype dtype = in->in[SB_RNN_X]->type.dtype;
    sb_rnn_shapes shapes;

    SB_TRY(sb_rnn_shapes_of(in, &shapes));
    sb_infer_set(in, 0, dtype, &shapes.y);
    sb_infer_set(in, 1, dtype, &shapes.state);
    sb_infer_set(in, 2, dtype, &shapes.state);
    return SB_OK;
}

/* ---- preparing ---------------------------------------------------------- */

/* Reads the activation list; alphas and betas go, in order, to the activations
 * that take one. */
static sb_status read_acts(sb_kernel *k, sb_rnn_state *s)
{
    const sb_rnn_attrs *a = k->attrs;
    const sb_rnn_cell *cell = k->op->aux;
    size_t n = (size_t)(cell->n_acts * s->dirs), alphas = 0, betas = 0;

    if (a->activations.n && a->activations.n != n)
        return sb_kernel_fail(k, SB_BAD_MODEL, "%zu activations, want %zu",
                              a->activations.n, n);
    for (size_t i = 0; i < n; i++) {
        const char *name = cell->acts[i % (size_t)cell->n_acts];
        size_t len = strlen(name);
        sb_rnn_act *act =
            &s->acts[i / (size_t)cell->n_acts][i % (size_t)cell->n_acts];
        bool takes_alpha, takes_beta;

        if (a->activations.n) {
            name = a->activations.v[i].data;
            len = a->activations.v[i].len;
        }
        if (!sb_rnn_act_find(name, len, act, &takes_alpha, &takes_beta))
            return sb_kernel_fail(k, SB_BAD_MODEL, "unknown activation '%.*s'",
                                  (int)(len < 32 ? len : 32), name);
        if (takes_alpha && alphas < a->activation_alpha.n)
            act->alpha = a->activation_alpha.v[alphas++];
        if (takes_beta && betas < a->activation_beta.n)
            act->beta = a->activation_beta.v[betas++];
        act->clip = a->clip;
    }
    return SB_OK;
}

/* c [m, n] = a [m, k] b', where b is [n, k] of input `in` from element `at` on
 * (b itself, [k, n], where the cell rounds).
 * R meets the hidden state at each step, so packing what will not last does not
 * pay. */
static sb_status make_product(sb_kernel *k, uint32_t in, int64_t at,
                              sb_dnn_gemm_desc d, size_t *scratch,
                              sb_rnn_product *out)
{
    const sb_rnn_cell *cell = k->op->aux;

    d.what = sb_node_label(k->graph, k->node);
    d.a_row = d.k;
    d.a_col = 1;
    d.b_row = cell->rounds ? d.n : 1;
    d.b_col = cell->rounds ? 1 : d.k;
    d.pack = !cell->rounds && (k->lasting >> in & 1);
    SB_TRY(sb_dnn_gemm_create(k->ctx, &d, &out->gemm));
    out->n = d.m * d.k;
    if (cell->rounds) /* among the floats in scratch: R lies behind W */
        out->b.at =
            at + (in == SB_RNN_R ? sb_tensor_count(k->in[SB_RNN_W]) : 0);
    else
        SB_TRY(sb_packed_input_gemm(k, in, at, out->gemm, &out->b));
    if (sb_dnn_gemm_scratch(out->gemm) > *scratch)
        *scratch = sb_dnn_gemm_scratch(out->gemm);
    if (out->b.scratch > *scratch)
        *scratch = out->b.scratch;
    return SB_OK;
}

static sb_status make_products(sb_kernel *k, sb_rnn_state *s, size_t *scratch)
{
    int64_t rows = s->gates * s->hidden;

    for (int d = 0; d < (int)s->dirs; d++) {
        int64_t r_at = d * rows * s->hidden;
        sb_dnn_gemm_desc by_w = {.m = s->n_steps * s->n_batch,
                                 .n = rows,
                                 .k = s->n_in,
                                 .c_row = rows,
                                 .has_bias = sb_kernel_in(k, SB_RNN_B) != NULL};
        sb_dnn_gemm_desc by_r = {
            .m = s->n_batch, .n = rows, .k = s->hidden, .c_row = rows};

        SB_TRY(make_product(k, SB_RNN_W, d * rows * s->n_in, by_w, scratch,
                            &s->by_w[d]));
        if (s->two_phases) { /* the last gate's product comes later */
            sb_dnn_gemm_desc by_rh = by_r;
            by_r.n = 2 * s->hidden;
            by_rh.n = s->hidden;
            SB_TRY(make_product(k, SB_RNN_R, r_at + 2 * s->hidden * s->hidden,
                                by_rh, scratch, &s->by_rh[d]));
        }
        SB_TRY(make_product(k, SB_RNN_R, r_at, by_r, scratch, &s->by_r[d]));
    }
    /* All products of an input must have packed theirs. */
    const sb_rnn_cell *cell = k->op->aux;
    for (int d = 0; !cell->rounds && d < (int)s->dirs; d++) {
        if (!s->by_w[d].b.pack)
            k->packed &= ~(1u << SB_RNN_W);
        if (!s->by_r[d].b.pack || (s->two_phases && !s->by_rh[d].b.pack))
            k->packed &= ~(1u << SB_RNN_R);
    }
    return SB_OK;
}

size_t sb_rnn_room(size_t *total, int64_t count)
{
    size_t at = *total;

    *total +=
        ((size_t)count * sizeof(float) + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    return at;
}

sb_status sb_rnn_setup(sb_kernel *k, sb_rnn_state *s)
{
    const sb_rnn_attrs *a = k->attrs;
    const sb_rnn_cell *cell = k->op->aux;
    const sb_tensor *x = k->in[SB_RNN_X], *r = k->in[SB_RNN_R];
    const sb_tensor *lens = sb_kernel_in(k, SB_RNN_LENS);
    size_t gemm = 0;

    if (x->dtype != SB_DTYPE_F32 || (lens && lens->dtype != SB_DTYPE_I32))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "inputs of these types");
    s->n_steps = x->dims[a->layout ? 1 : 0];
    s->n_batch = x->dims[a->layout ? 0 : 1];
    s->n_in = x->dims[2];
    s->hidden = r->dims[cell->rounds ? 1 : 2];
    s->gates = cell->gates;
    s->dirs = count_dirs(a);
    s->two_phases = cell->is_gru && !a->linear_before_reset;
    SB_TRY(read_acts(k, s));
    if (cell->rounds)
        SB_TRY(sb_rnn_rounds_check(k));
    SB_TRY(make_products(k, s, &gemm));
    if ((double)s->n_steps * (double)s->n_batch * (double)s->hidden > 1e15)
        return sb_kernel_fail(k, SB_NO_MEMORY, "the sequence is too large");
    size_t total = 0;
    int64_t state = s->n_batch * s->hidden;
    s->at_x = sb_rnn_room(&total, s->n_steps * state * s->gates);
    s->at_h_part = sb_rnn_room(&total, state * s->gates);
    s->at_bias = sb_rnn_room(&total, s->gates * s->hidden);
    s->at_h = sb_rnn_room(&total, state);
    s->at_c = sb_rnn_room(&total, state);
    s->at_extra = sb_rnn_room(&total, state);
    if (cell->rounds) {
        s->at_weights =
            sb_rnn_room(&total, sb_tensor_count(k->in[SB_RNN_W]) +
                                    sb_tensor_count(k->in[SB_RNN_R]));
        s->at_rounded = sb_rnn_room(
            &total, s->by_w[0].n > s->by_r[0].n ? s->by_w[0].n : s->by_r[0].n);
    }
    s->at_gemm = total;
    k->scratch_size = total + gemm;
    return SB_OK;
}

sb_status sb_rnn_prepare(sb_kernel *k)
{
    sb_rnn_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    return sb_rnn_setup(k, s);
}

void sb_rnn_setup_free(sb_rnn_state *s)
{
    for (int d = 0; s && d < 2; d++) {
        sb_dnn_gemm_free(s->by_w[d].gemm);
        sb_dnn_gemm_free(s->by_r[d].gemm);
        sb_dnn_gemm_free(s->by_rh[d].gemm);
    }
}

void sb_rnn_release(sb_kernel *k)
{
    sb_rnn_setup_free(k->state);
    sb_free(k->ctx, k->state);
}

/* ---- running ------------------------------------------------------------ */

static sb_status rnn_util_multiply(const sb_kernel *k,
                                   const sb_rnn_product *product,
                                   const float *a, const float *bias, float *c)
{
    const sb_rnn_state *s = k->state;
    sb_dnn_gemm_args args = {.a = a,
                             .bias = bias,
                             .c = c,
                             .scratch = (char *)k->scratch + s->at_gemm};

    if (((const sb_rnn_cell *)k->op->aux)->rounds) {
        float *rounded = (float *)((char *)k->scratch + s->at_rounded);

        sb_rnn_rounds_values(a, product->n, rounded);
        args.a = rounded;
        args.b =
            (const float *)((char *)k->scratch + s->at_weights) + product->b.at;
    } else {
        SB_TRY(sb_packed_input_get(k, &product->b, args.scratch, &args.b));
    }
    return sb_dnn_gemm_run(product->gemm, &args);
}

bool sb_rnn_reverses(const sb_rnn_attrs *a, int64_t dir)
{
    return dir == 1 || strcmp(a->direction, "reverse") == 0;
}

/* Copies a row of [B, width] to one of what is kept. */
static void rnn_util_keep(float *kept, int64_t row, const float *own, int64_t b,
                          int64_t width)
{
    if (kept)
        memcpy(kept + row * width, own + b * width,
               (size_t)width * sizeof(float));
}

static void step_rows(void *arg, size_t begin, size_t end)
{
    const sb_rnn_run *run = arg;
    const sb_rnn_state *s = run->s;
    int64_t rows = s->gates * s->hidden, layout = run->attrs->layout;

    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)i;
        int64_t t = sb_rnn_time(s, run->reverse, run->step, b);
        if (t < 0)
            continue;
        int64_t row = sb_rnn_x_row(s, layout, t, b);
        if (run->phase == 0) {
            rnn_util_keep(run->kept.h, row, run->h, b, s->hidden);
            rnn_util_keep(run->kept.c, row, run->c, b, s->hidden);
        }
        run->cell->row(run, b, run->x_part + row * rows,
                       run->h_part + b * rows);
        if (s->two_phases && run->phase == 0)
            continue;
        rnn_util_keep(run->kept.gates, row, run->h_part, b, rows);
        rnn_util_keep(run->kept.extra, row, run->extra, b, s->hidden);
        rnn_util_keep(run->y, sb_rnn_y_row(s, layout, t, run->dir, b), run->h,
                      b, s->hidden);
    }
}

static sb_status run_step(sb_kernel *k, sb_rnn_run *run)
{
    sb_rnn_state *s = k->state;
    int64_t hidden = s->hidden;
    size_t grain = (size_t)(2048 / (hidden + 1) + 1);

    run->phase = 0;
    SB_TRY(rnn_util_multiply(k, &s->by_r[run->dir], run->h, NULL, run->h_part));
    sb_parallel_for(k->ctx, (size_t)s->n_batch, grain, step_rows, run);
    if (!s->two_phases)
        return SB_OK;
    run->phase = 1;
    SB_TRY(rnn_util_multiply(k, &s->by_rh[run->dir], run->extra, NULL,
                             run->h_part + 2 * hidden));
    sb_parallel_for(k->ctx, (size_t)s->n_batch, grain, step_rows, run);
    return SB_OK;
}

void sb_rnn_copy_state(const sb_kernel *k, int64_t dir, float *own,
                       sb_tensor *t, bool out)
{
    const sb_rnn_attrs *a = k->attrs;
    const sb_rnn_state *s = k->state;
    size_t bytes = (size_t)s->hidden * sizeof(float);

    for (int64_t b = 0; b < s->n_batch; b++) {
        int64_t at = a->layout ? b * s->dirs + dir : dir * s->n_batch + b;
        float *mine = own + b * s->hidden;
        float *other = t ? (float *)t->data + at * s->hidden : NULL;
        if (out && other)
            memcpy(other, mine, bytes);
        else if (!out && other)
            memcpy(mine, other, bytes);
        else if (!out)
            memset(mine, 0, bytes);
    }
}

/* Wb + Rb; the GRU that resets after the product keeps the last Rb apart. */
static const float *sum_bias(sb_kernel *k, int64_t dir, float *sum)
{
    const sb_rnn_attrs *a = k->attrs;
    const sb_rnn_cell *cell = k->op->aux;
    const sb_rnn_state *s = k->state;
    const sb_tensor *t = sb_kernel_in(k, SB_RNN_B);
    int64_t rows = s->gates * s->hidden;

    if (!t)
        return NULL;
    const float *w = (const float *)t->data + dir * 2 * rows, *r = w + rows;
    bool apart = cell->is_gru && a->linear_before_reset;
    for (int64_t i = 0; i < rows; i++)
        sum[i] = w[i] + (apart && i >= 2 * s->hidden ? 0 : r[i]);
    return r;
}

sb_status sb_rnn_direction(sb_kernel *k, int64_t dir, int64_t n_steps,
                           sb_tensor *const out[3], const sb_rnn_kept *kept)
{
    sb_rnn_state *s = k->state;
    char *scratch = k->scratch;
    const sb_tensor *p = sb_kernel_in(k, SB_RNN_P);
    const sb_rnn_cell *cell = k->op->aux;
    sb_rnn_run run = {
        .s = s,
        .cell = cell,
        .attrs = k->attrs,
        .acts = s->acts[dir],
        .x_part = (float *)(scratch + s->at_x),
        .h_part = (float *)(scratch + s->at_h_part),
        .h = (float *)(scratch + s->at_h),
        .c = (float *)(scratch + s->at_c),
        .extra = (float *)(scratch + s->at_extra),
        .peephole = p ? (const float *)p->data + dir * 3 * s->hidden : NULL,
        .y = out[0] ? out[0]->data : NULL,
        .dir = dir,
        .reverse = sb_rnn_reverses(k->attrs, dir),
        .kept = *kept,
    };
    float *bias = (float *)(scratch + s->at_bias);

    run.r_bias = sum_bias(k, dir, bias);
    sb_rnn_copy_state(k, dir, run.h, sb_kernel_in(k, SB_RNN_H), false);
    sb_rnn_copy_state(k, dir, run.c, sb_kernel_in(k, SB_RNN_C), false);
    SB_TRY(rnn_util_multiply(k, &s->by_w[dir], k->in[SB_RNN_X]->data,
                             run.r_bias ? bias : NULL, run.x_part));
    for (run.step = 0; run.step < n_steps; run.step++) {
        SB_TRY(sb_ctx_poll(k->ctx));
        SB_TRY(run_step(k, &run));
    }
    sb_rnn_copy_state(k, dir, run.h, out[1], true);
    if (cell->has_c)
        sb_rnn_copy_state(k, dir, run.c, out[2], true);
    return SB_OK;
}

sb_status sb_rnn_lengths(sb_kernel *k, int64_t *n_steps)
{
    sb_rnn_state *s = k->state;
    const sb_tensor *lens = sb_kernel_in(k, SB_RNN_LENS);
    int64_t longest = lens ? 0 : s->n_steps;

    s->lens = lens ? lens->data : NULL;
    for (int64_t b = 0; lens && b < s->n_batch; b++) {
        if (s->lens[b] < 0 || s->lens[b] > s->n_steps)
            return sb_kernel_fail(
                k, SB_BAD_DATA, "sequence_lens[%lld] is %d, want 0 to %lld",
                (long long)b, (int)s->lens[b], (long long)s->n_steps);
        longest = s->lens[b] > longest ? s->lens[b] : longest;
    }
    *n_steps = longest;
    return SB_OK;
}

sb_status sb_rnn_forward(sb_kernel *k)
{
    sb_rnn_state *s = k->state;
    sb_tensor *const out[3] = {sb_kernel_out(k, 0), sb_kernel_out(k, 1),
                               sb_kernel_out(k, 2)};
    int64_t n_steps;

    SB_TRY(sb_rnn_lengths(k, &n_steps));
    if (out[0] && s->lens) /* what lies beyond the ends */
        memset(out[0]->data, 0, sb_tensor_bytes(out[0]));
    if (((const sb_rnn_cell *)k->op->aux)->rounds)
        sb_rnn_rounds_weights(k);
    for (int64_t d = 0; d < s->dirs; d++)
        SB_TRY(sb_rnn_direction(k, d, n_steps, out, &(sb_rnn_kept){0}));
    return SB_OK;
}

double sb_rnn_macs(const sb_kernel *k)
{
    const sb_tensor *x = k->in[SB_RNN_X], *w = k->in[SB_RNN_W],
                    *r = k->in[SB_RNN_R];

    if (x->rank != 3 || w->rank != 3 || r->rank != 3)
        return 0;
    return (double)x->dims[0] * (double)x->dims[1] *
           ((double)sb_tensor_count(w) + (double)sb_tensor_count(r));
}
