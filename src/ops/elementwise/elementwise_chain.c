/* ElementwiseChain: several elementwise operators in one pass over memory.
 *
 * Step k computes operator ops[k] of float32 operands; operand numbers below
 * the count of inputs are inputs, then come the results of earlier steps, -1
 * is an absent input.  The last step makes the output.  For example x * s + b:
 *
 *     ops = ["Mul", "Add"], operands = [0, 1, -1, 3, 2, -1]
 *
 * Inputs have the shape of input 0, or one element.  Every step is done on one
 * strip, whose intermediate results stay in the first cache, before the next
 * strip; with the same functions as the operators alone, so results are the
 * same.  Only the last step writes to the output, which may therefore lie where
 * input 0 lies. */
#include <stdio.h>
#include <string.h>

#include "base/threads.h"
#include "ops/elementwise/elementwise.h"

enum {
    STRIP = 1024,      /* elements */
    GRAIN = 16 * 1024, /* elements times steps that are worth a thread */
    MAX_NAME = 32,     /* of an operator */
};

#define NOTHING UINT32_MAX /* an operand that is absent */

typedef struct {
    sb_strings ops;
    sb_ints operands;
    sb_floats params;
} chain_attrs;

static const sb_attr_def attrs[] = {
    {"operands", SB_ATTR_INTS, offsetof(chain_attrs, operands),
     .required = true},
    {"ops", SB_ATTR_STRINGS, offsetof(chain_attrs, ops), .required = true},
    {"params", SB_ATTR_FLOATS, offsetof(chain_attrs, params), .i = 0},
    {0},
};

/* One operator. */
typedef struct chain_step {
    const sb_op_def *op;
    sb_strip_fn fn;
    uint32_t n_in;
    uint32_t operand[SB_EW_INPUTS];   /* numbered as in the attribute */
    uint32_t buffer;                  /* where the result goes */
    double param[SB_CHAIN_PARAM / 8]; /* the operator's attributes */
} chain_step;

typedef struct chain {
    size_t n_steps;
    chain_step step[SB_CHAIN_STEPS];
} chain;

/* ---- reading the program ------------------------------------------------ */

static sb_status read_operator(const sb_kernel *k, size_t i, chain_step *st)
{
    const chain_attrs *a = k->attrs;
    const int64_t *operand = a->operands.v + i * SB_EW_INPUTS;
    char name[MAX_NAME] = "";

    if (a->ops.v[i].len < sizeof name)
        memcpy(name, a->ops.v[i].data, a->ops.v[i].len);
    for (uint32_t j = 0; j < SB_EW_INPUTS; j++) {
        if (operand[j] < -1 || operand[j] >= (int64_t)(k->n_in + i) ||
            (operand[j] >= 0 && operand[j] < k->n_in && !k->in[operand[j]]))
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "step %zu has no operand %lld", i,
                                  (long long)operand[j]);
        st->operand[j] = operand[j] < 0 ? NOTHING : (uint32_t)operand[j];
        if (operand[j] >= 0)
            st->n_in = j + 1;
    }
    st->op = sb_op_find("", name);
    st->fn = st->op ? sb_ew_chain_fn(st->op, st->n_in) : NULL;
    if (!st->fn)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "step %zu: '%s' of %u inputs cannot be one", i,
                              name, st->n_in);
    return SB_OK;
}

/* At least one operand has the full shape, those that must be there are, and
 * those that must be single elements are. */
static sb_status check_operands(const sb_kernel *k, size_t i,
                                const chain_step *st)
{
    int64_t n = sb_tensor_count(k->out[0]);
    bool full = false;

    for (uint32_t j = 0; j < st->n_in; j++) {
        uint32_t v = st->operand[j];
        bool single = sb_ew_chain_single(st->op, j);
        if (v == NOTHING && single)
            continue;
        bool one = n == 1 || (v < k->n_in && sb_tensor_count(k->in[v]) == 1);
        if (v == NOTHING || (single && !one))
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "step %zu: operand %u does not fit %s", i, j,
                                  st->op->name);
        full = full || n == 1 || !one;
    }
    return full ? SB_OK
                : sb_kernel_fail(k, SB_BAD_MODEL,
                                 "step %zu has single elements only", i);
}

static sb_status read_params(const sb_kernel *k, size_t *at, chain_step *st)
{
    const chain_attrs *a = k->attrs;

    for (const sb_attr_def *d = st->op->attrs; d && d->name; d++) {
        if (*at == a->params.n)
            return sb_kernel_fail(k, SB_BAD_MODEL, "params has %zu elements",
                                  a->params.n);
        memcpy((char *)st->param + d->offset, &a->params.v[(*at)++],
               sizeof(float));
    }
    return SB_OK;
}

static sb_status check_inputs(const sb_kernel *k)
{
    const sb_tensor *y = k->out[0];

    for (uint32_t i = 0; i < k->n_in; i++) {
        const sb_tensor *x = k->in[i];
        bool same = x && x->rank == y->rank;
        for (int d = 0; same && d < y->rank; d++)
            same = x->dims[d] == y->dims[d];
        if (x && !same && sb_tensor_count(x) != 1)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "input %u has neither the output's shape nor "
                                  "one element",
                                  i);
    }
    return SB_OK;
}

/* ---- buffers ------------------------------------------------------------ */

/* Is the result `v` read by step `from` or a later one? */
static bool read_from(const chain *c, size_t from, uint32_t v)
{
    for (size_t i = from; i < c->n_steps; i++)
        for (uint32_t j = 0; j < c->step[i].n_in; j++)
            if (c->step[i].operand[j] == v)
                return true;
    return false;
}

/* Each result but the last gets a buffer: that of operand 0 where no later step
 * needs it any more, else one in which nothing is needed. */
static void give_buffers(chain *c, uint32_t n_in)
{
    uint32_t holds[SB_CHAIN_STEPS]; /* the result in each buffer */

    memset(holds, 0xff, sizeof holds);
    for (size_t i = 0; i < c->n_steps; i++) {
        chain_step *st = &c->step[i];
        uint32_t b = 0, first = st->operand[0];
        bool reuse =
            first != NOTHING && first >= n_in && !read_from(c, i + 1, first);
        /* Steps before this one hold fewer buffers than there are. */
        while (reuse ? holds[b] != first
                     : holds[b] != NOTHING && read_from(c, i, holds[b]))
            b++;
        holds[b] = n_in + (uint32_t)i;
        st->buffer = b;
    }
}

/* ---- running ------------------------------------------------------------ */

static sb_status chain_prepare(sb_kernel *k)
{
    const chain_attrs *a = k->attrs;
    size_t n = a->ops.n, n_params = 0;

    if (n < 1 || n > SB_CHAIN_STEPS || a->operands.n != n * SB_EW_INPUTS)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "%zu steps with %zu operands, want 1 to %d steps "
                              "of %d",
                              n, a->operands.n, SB_CHAIN_STEPS, SB_EW_INPUTS);
    SB_TRY(check_inputs(k));
    chain *c = sb_alloc(k->ctx, 1, sizeof *c);
    if (!c)
        return SB_NO_MEMORY;
    k->state = c;
    c->n_steps = n;
    for (size_t i = 0; i < n; i++) {
        SB_TRY(read_operator(k, i, &c->step[i]));
        SB_TRY(check_operands(k, i, &c->step[i]));
        SB_TRY(read_params(k, &n_params, &c->step[i]));
    }
    give_buffers(c, k->n_in);
    return SB_OK;
}

/* Elements [at, at + n) of the output. */
static void run_strip(const sb_kernel *k, size_t at, size_t n)
{
    float buffer[SB_CHAIN_STEPS][STRIP]; /* what is not used is not touched */
    const chain *c = k->state;
    bool many = sb_tensor_count(k->out[0]) > 1;

    for (size_t i = 0; i < c->n_steps; i++) {
        const chain_step *st = &c->step[i];
        sb_strip s = {.n = n, .param = st->param, .y = buffer[st->buffer]};

        for (uint32_t j = 0; j < st->n_in; j++) {
            uint32_t v = st->operand[j];
            if (v == NOTHING)
                continue;
            if (v >= k->n_in) {
                s.x[j] = buffer[c->step[v - k->n_in].buffer];
                continue;
            }
            s.one[j] = many && sb_tensor_count(k->in[v]) == 1;
            s.x[j] = (const float *)k->in[v]->data + (s.one[j] ? 0 : at);
        }
        if (i + 1 == c->n_steps)
            s.y = (float *)k->out[0]->data + at;
        st->fn(&s);
    }
}

static void run_strips(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    size_t n = (size_t)sb_tensor_count(k->out[0]);

    for (size_t i = begin; i < end; i++) {
        size_t at = i * STRIP;
        run_strip(k, at, n - at < STRIP ? n - at : STRIP);
    }
}

static sb_status chain_forward(sb_kernel *k)
{
    const chain *c = k->state;
    size_t n = (size_t)sb_tensor_count(k->out[0]);
    size_t each = STRIP * c->n_steps;

    sb_parallel_for(k->ctx, (n + STRIP - 1) / STRIP, (GRAIN + each - 1) / each,
                    run_strips, k);
    return SB_OK;
}

static void chain_label(const sb_kernel *k, char *out, size_t size)
{
    const chain_attrs *a = k->attrs;
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < a->ops.n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%.*s",
                                 i ? "+" : "", (int)a->ops.v[i].len,
                                 (const char *)a->ops.v[i].data);
}

const sb_op_def sb_op_elementwise_chain = {
    .name = "ElementwiseChain",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .attrs_size = sizeof(chain_attrs),
    .attrs = attrs,
    .infer = sb_infer_same,
    .prepare = chain_prepare,
    .forward = chain_forward,
    .label = chain_label,
};
