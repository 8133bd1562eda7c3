/* Learning one block.
 *
 * A step draws samples, runs the block on what it reads in the quantized
 * network, with elements of what it reads in float here and there (QDrop), and
 * follows the gradients of the squared difference from what the block makes in
 * float.  What was learned is taken if the block is then nearer to that than
 * with weights rounded to nearest and scales as calibrated. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "ops/learn/mix_train.h"
#include "quant/model/overlay.h"
#include "quant/model/weight.h"
#include "quant/reconstruct/blocks.h"
#include "tensor/mapped.h"

enum { LEARN_MEASURED = 8, LEARN_POLL = 8 };

/* ---- samples ------------------------------------------------------------ */

/* The tensors of a run, and memory for them. */
typedef struct block_feed {
    sb_layer_block *b;
    size_t units;            /* that a run joins */
    sb_tensor *in, *out;     /* memory, or one unit's own */
    const sb_tensor **given; /* inputs of the learner */
    const sb_tensor **features;
    int64_t counter;
    float share; /* of activations that are rounded */
    sb_tensor counter_tensor, share_tensor;
} block_feed;

/* Can units of the value be put behind one another? */
static bool feed_joins(const sb_staged *s, sb_value_id v)
{
    const sb_tensor *first = &s->kept[v][0].t;

    if (first->dtype != SB_DTYPE_F32 || first->rank < 2 || first->dims[0] != 1)
        return false;
    for (size_t i = 1; i < s->n_batches; i++) {
        const sb_tensor *t = &s->kept[v][i].t;

        if (t->dtype != first->dtype || t->rank != first->rank ||
            memcmp(t->dims, first->dims, (size_t)t->rank * sizeof *t->dims) !=
                0)
            return false;
    }
    return true;
}

static sb_status feed_room(const block_feed *f, sb_value_id v, sb_tensor *out)
{
    const sb_staged *s = &f->b->walk->plain;

    if (f->units == 1)
        return SB_OK;
    *out = s->kept[v][0].t;
    out->buf = NULL;
    out->data = NULL;
    out->dims[0] = (int64_t)f->units;
    return sb_tensor_alloc_raw(s->ctx, out);
}

/* Is there memory for so many samples of what the block reads and makes? */
static sb_status feed_expect(const block_feed *f)
{
    const sb_stage *k = &f->b->stage;
    const sb_staged *s = &f->b->walk->plain;
    size_t unit = 0, bytes = 0;

    if (f->units == 1)
        return SB_OK;
    for (size_t i = 0; i < k->n_in; i++)
        unit += sb_tensor_bytes(&s->kept[k->in[i]][0].t);
    for (size_t i = 0; i < f->b->n_loss; i++)
        unit += sb_tensor_bytes(&s->kept[f->b->loss[i]][0].t);
    if (!sb_mul_size(unit, f->units, &bytes))
        bytes = SIZE_MAX;
    if (sb_expect_memory(s->ctx, bytes) == SB_OK)
        return SB_OK;
    return sb_fail(s->ctx, SB_NO_MEMORY,
                   "SCHEDULE.BLOCKWISE.BATCH: %zu samples of what the block at "
                   "'%s' reads and makes take %.1f MB, more than there is "
                   "memory for: take fewer",
                   f->units, sb_graph_value(s->g, f->b->loss[0])->name,
                   (double)bytes / 1e6);
}

static sb_status feed_open(block_feed *f)
{
    const sb_stage *k = &f->b->stage;
    sb_ctx *ctx = k->s->ctx;
    bool joins = f->b->walk->samples && f->b->n_fixed == 0;

    f->in = sb_alloc(ctx, k->n_in + 1, sizeof *f->in);
    f->out = sb_alloc(ctx, f->b->n_loss + 1, sizeof *f->out);
    f->given = sb_alloc(ctx, k->n_in + 3, sizeof *f->given);
    f->features = sb_alloc(ctx, f->b->n_loss + 1, sizeof *f->features);
    if (!f->in || !f->out || !f->given || !f->features)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < k->n_in; i++)
        joins = joins && feed_joins(&f->b->walk->plain, k->in[i]);
    for (size_t i = 0; i < f->b->n_loss; i++)
        joins = joins && feed_joins(&f->b->walk->plain, f->b->loss[i]);
    f->units = joins ? (size_t)f->b->walk->how.batch : 1;
    SB_TRY(feed_expect(f));
    for (size_t i = 0; i < k->n_in; i++)
        SB_TRY(feed_room(f, k->in[i], &f->in[i]));
    for (size_t i = 0; i < f->b->n_loss; i++)
        SB_TRY(feed_room(f, f->b->loss[i], &f->out[i]));
    f->counter_tensor = sb_tensor_make(SB_DTYPE_I64, 0, NULL);
    f->counter_tensor.data = &f->counter;
    f->share_tensor = sb_tensor_make(SB_DTYPE_F32, 0, NULL);
    f->share_tensor.data = &f->share;
    f->given[k->n_in] = &f->counter_tensor;
    f->given[k->n_in + 1] = &f->share_tensor;
    return SB_OK;
}

static void feed_close(block_feed *f)
{
    const sb_stage *k = &f->b->stage;

    for (size_t i = 0; f->in && i < k->n_in; i++)
        sb_tensor_drop(&f->in[i]);
    for (size_t i = 0; f->out && i < f->b->n_loss; i++)
        sb_tensor_drop(&f->out[i]);
    sb_free(k->s->ctx, f->in);
    sb_free(k->s->ctx, f->out);
    sb_free(k->s->ctx, f->given);
    sb_free(k->s->ctx, f->features);
}

/* Where unit `at` of a run goes; of its own memory if a run is one unit. */
static sb_status feed_place(const block_feed *f, const sb_tensor *like,
                            size_t at, sb_tensor *all, char **to)
{
    if (f->units == 1) {
        sb_tensor_drop(all);
        *all = *like;
        all->buf = NULL;
        SB_TRY(sb_tensor_alloc_raw(f->b->stage.s->ctx, all));
    }
    *to = (char *)all->data + at * sb_tensor_bytes(like);
    return SB_OK;
}

/* What the block reads: behind quantized layers, or in float. */
static sb_status feed_input(const block_feed *f, size_t i, size_t unit,
                            size_t at)
{
    const sb_blocks_walk *w = f->b->walk;
    sb_value_id v = f->b->stage.in[i];
    const sb_mix_choice choice = {.counter = (uint64_t)f->counter,
                                  .stream = (uint64_t)(at + 1) << 32 | i,
                                  .share = (double)f->share};
    sb_tensor q = {0}, x = {0};
    char *to = NULL;
    sb_status status =
        sb_spill_get(w->quantized.spill, &w->quantized.kept[v][unit], &q);

    if (status == SB_OK)
        status = sb_spill_get(w->plain.spill, &w->plain.kept[v][unit], &x);
    if (status == SB_OK)
        status = feed_place(f, &q, at, &f->in[i], &to);
    if (status == SB_OK && q.dtype == SB_DTYPE_F32 &&
        sb_tensor_count(&q) == sb_tensor_count(&x))
        sb_mix(w->qm->ctx, &choice, x.data, q.data, (float *)(void *)to,
               sb_tensor_count(&q));
    else if (status == SB_OK)
        memcpy(to, q.data, sb_tensor_bytes(&q));
    sb_tensor_drop(&q);
    sb_tensor_drop(&x);
    f->given[i] = &f->in[i];
    return status;
}

/* What it makes in float. */
static sb_status feed_target(const block_feed *f, size_t i, size_t unit,
                             size_t at)
{
    const sb_staged *s = &f->b->walk->plain;
    float gain = (float)f->b->gain[i];
    sb_tensor t = {0};
    char *to = NULL;

    SB_TRY(sb_spill_get(s->spill, &s->kept[f->b->loss[i]][unit], &t));
    sb_status status = feed_place(f, &t, at, &f->out[i], &to);
    if (status == SB_OK) {
        const float *from = t.data;
        float *y = (float *)(void *)to;
        int64_t n = sb_tensor_count(&t);

        for (int64_t k = 0; k < n; k++)
            y[k] = from[k] * gain;
    }
    sb_tensor_drop(&t);
    return status;
}

/* Loss and gradients for units of the list. */
static sb_status feed_run(block_feed *f, const size_t *units, double *loss)
{
    sb_layer_block *b = f->b;
    const sb_stage *k = &b->stage;

    for (size_t at = 0; at < f->units; at++) {
        for (size_t i = 0; i < k->n_in; i++)
            SB_TRY(feed_input(f, i, units[at], at));
        for (size_t i = 0; i < b->n_loss; i++)
            SB_TRY(feed_target(f, i, units[at], at));
    }
    for (size_t i = 1; i < b->n_loss; i++)
        f->features[i - 1] = &f->out[i];
    SB_TRY(sb_learner_set_features(b->learner, f->features, b->n_loss - 1));
    return sb_learner_gradient(b->learner, f->given,
                               k->n_in + (b->drops ? 2 : 0), &f->out[0], loss);
}

/* ---- what is learned ---------------------------------------------------- */

/* Where learning starts: at the fraction of the float weight; of one that is
 * rounded already (gptq, adaround) at that number, from where it may go one
 * step towards the float weight. */
static float weight_begin(float plain, float rounded, bool decided, float scale)
{
    const float away = 0.1F;

    if (!decided)
        return plain;
    return plain > rounded ? rounded + away * scale : rounded - away * scale;
}

static sb_status weight_start(const sb_layer_block *b, sb_block_weight *w)
{
    const sb_quant_model *qm = b->walk->qm;
    const sb_tensor *t = &sb_graph_value(qm->graph, w->q->value)->constant;
    const sb_tensor *now = sb_overlay_constant(qm, w->q->value);
    const sb_qparams *p = sb_quantizer_qparams(qm, w->q);
    int64_t n = sb_tensor_count(t);

    SB_TRY(sb_soft_init(qm->ctx, (size_t)n, &w->soft));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = sb_quantizer_scale_at(w->q, t, i);
        float begin =
            weight_begin(sb_tensor_float(t, i), sb_tensor_float(now, i),
                         now != t, p->scale[at]);

        sb_soft_set(&w->soft, (size_t)i, begin, p->scale[at], p->zero_point[at],
                    p->qmin, p->qmax);
    }
    return SB_OK;
}

typedef void (*weight_values_fn)(const sb_soft_rounding *s, float *out);

static void weight_soft(const sb_soft_rounding *s, float *out)
{
    sb_soft_values(s, NULL, out);
}

static void block_set_weights(const sb_layer_block *b, weight_values_fn values)
{
    for (size_t i = 0; i < b->n_learned; i++) {
        sb_state *state = &b->weights[i].p->kept[SB_STORE_VALUE];

        values(&b->weights[i].soft, state->t.data);
        state->version++;
    }
}

/* What makes up for moments that began at zero, at one step. */
typedef struct moments_fix {
    double m, u;
} moments_fix;

static moments_fix moments_fix_of(int64_t step)
{
    return (moments_fix){1 / (1 - pow(0.9, (double)step + 1)),
                         1 / (1 - pow(0.999, (double)step + 1))};
}

/* Which way Adam goes, for number i. */
static double moments_step(sb_block_moments *s, int64_t i, moments_fix fix,
                           double g)
{
    s->m[i] = 0.9 * s->m[i] + 0.1 * g;
    s->u[i] = 0.999 * s->u[i] + 0.001 * g * g;
    return s->m[i] * fix.m / (sqrt(s->u[i] * fix.u) + 1e-8);
}

/* Of logarithms: a scale stays positive, and steps are parts of it. */
static void scale_step(sb_block_scale *s, double rate, int64_t step,
                       const float *gradient, double factor)
{
    const moments_fix fix = moments_fix_of(step);
    sb_state *state = &s->p->kept[SB_STORE_VALUE];
    float *v = state->t.data;

    for (int64_t i = 0; i < sb_tensor_count(&state->t); i++) {
        double g = (double)gradient[i] * factor * (double)v[i];

        v[i] *= (float)exp(-rate * moments_step(&s->moments, i, fix, g));
        if (s->most > 0 && v[i] > s->most)
            v[i] = s->most;
    }
    state->version++;
}

static void bias_step(sb_block_weight *w, double rate, int64_t step,
                      const float *gradient, double factor)
{
    const moments_fix fix = moments_fix_of(step);
    sb_state *state = &w->bias_p->kept[SB_STORE_VALUE];
    float *v = state->t.data;

    for (int64_t i = 0; i < sb_tensor_count(&state->t); i++) {
        double g = (double)gradient[i] * factor * w->unit;

        v[i] -= (float)(rate * w->unit * moments_step(&w->moments, i, fix, g));
    }
    state->version++;
}

/* ---- steps -------------------------------------------------------------- */

typedef struct block_steps {
    sb_layer_block *b;
    block_feed feed;
    sb_rng rng;
    size_t runs;   /* of a step */
    size_t *units; /* of a run */
    sb_tensor sum; /* of gradients, if there are several runs */
} block_steps;

static float *steps_sum(const block_steps *s, const sb_parameter *p)
{
    const sb_tensor *all = &s->b->learner->store.gradients;
    const float *own = p->kept[SB_STORE_GRADIENT].t.data;

    return s->runs == 1 ? p->kept[SB_STORE_GRADIENT].t.data
                        : (float *)s->sum.data + (own - (float *)all->data);
}

static sb_status steps_run(block_steps *s)
{
    const sb_staged *units = &s->b->walk->quantized;
    const sb_tensor *gradients = &s->b->learner->store.gradients;

    for (size_t run = 0; run < s->runs; run++) {
        double loss = 0;

        for (size_t i = 0; i < s->feed.units; i++)
            s->units[i] = sb_rng_below(&s->rng, units->n_batches);
        s->feed.counter++;
        SB_TRY(feed_run(&s->feed, s->units, &loss));
        float *sum = s->sum.data;
        const float *g = gradients->data;
        for (int64_t i = 0; s->runs > 1 && i < sb_tensor_count(gradients); i++)
            sum[i] = run ? sum[i] + g[i] : g[i];
    }
    return SB_OK;
}

static void steps_learn(const block_steps *s, int64_t step)
{
    const sb_layer_block *b = s->b;
    const sb_quant_blockwise *how = &b->walk->how;
    /* Each weight must have the time to come to either side, which takes v from
     * -2.4 to 2.4, and to change its mind. */
    const double half_turn = acos(-1.0), way = 10;
    double rate = 0.5 * how->scale_rate *
                  (1 + cos(half_turn * (double)step / (double)how->steps));

    for (size_t i = 0; i < b->n_learned; i++) {
        const sb_soft_step one = {.step = step,
                                  .steps = how->steps,
                                  .rate =
                                      sb_soft_rate(how->rate, way, how->steps),
                                  .lambda = how->lambda,
                                  .gradient = steps_sum(s, b->weights[i].p),
                                  .factor = 1 / (double)s->runs};

        sb_soft_learn(&b->weights[i].soft, &one);
        if (b->weights[i].bias_p)
            bias_step(&b->weights[i], rate, step,
                      steps_sum(s, b->weights[i].bias_p), one.factor);
    }
    for (size_t i = 0; i < b->n_scales; i++)
        if (b->scales[i].p)
            scale_step(&b->scales[i], rate, step, steps_sum(s, b->scales[i].p),
                       1 / (double)s->runs);
}

/* The loss with all activations rounded, on samples from all over. */
static sb_status steps_measure(block_steps *s, double *out)
{
    size_t n = s->b->walk->quantized.n_batches, runs = LEARN_MEASURED * s->runs;
    size_t all = runs * s->feed.units, unit = 0;

    s->feed.share = 1;
    *out = 0;
    for (size_t run = 0; run < runs; run++) {
        double loss = 0;

        SB_TRY(sb_ctx_poll(s->b->walk->qm->ctx));
        for (size_t i = 0; i < s->feed.units; i++, unit++)
            s->units[i] = all < n ? unit * n / all : unit % n;
        SB_TRY(feed_run(&s->feed, s->units, &loss));
        *out += loss / (double)runs;
    }
    s->feed.share = (float)(1 - s->b->walk->how.drop);
    return SB_OK;
}

static sb_status steps_all(block_steps *s)
{
    const sb_blocks_walk *w = s->b->walk;
    size_t steps = (size_t)w->how.steps,
           done = (size_t)s->b->stage.level * steps;

    block_set_weights(s->b, sb_soft_rounded);
    SB_TRY(steps_measure(s, &s->b->before));
    for (size_t step = 0; step < steps; step++) {
        if (step % LEARN_POLL == 0)
            SB_TRY(sb_progress(w->qm->ctx, "learn blocks", done + step,
                               (size_t)w->n_blocks * steps));
        block_set_weights(s->b, weight_soft);
        SB_TRY(steps_run(s));
        steps_learn(s, (int64_t)step);
    }
    block_set_weights(s->b, sb_soft_rounded);
    return steps_measure(s, &s->b->after);
}

/* ---- what comes of it --------------------------------------------------- */

static void block_take_scale(const sb_layer_block *b, const sb_block_scale *s)
{
    sb_quant_model *qm = b->walk->qm;

    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        sb_qparams *p = &qm->state.quantizers[i].qparams;

        if (qm->place.points[q->point].same_as != s->point)
            continue;
        for (int64_t c = 0; c < p->n; c++)
            p->scale[c] = ((const float *)s->p->kept[SB_STORE_VALUE].t.data)[c];
    }
}

static sb_status block_take_constant(const sb_layer_block *b, sb_value_id v,
                                     const sb_parameter *p)
{
    sb_tensor t;

    SB_TRY(sb_tensor_clone(b->walk->qm->ctx, &p->kept[SB_STORE_VALUE].t, &t));
    sb_overlay_set(b->walk->qm, v, &t);
    sb_tensor_drop(&t);
    return SB_OK;
}

static sb_status block_take(const sb_layer_block *b)
{
    for (size_t i = 0; i < b->n_learned; i++) {
        const sb_block_weight *w = &b->weights[i];

        SB_TRY(block_take_constant(b, w->q->value, w->p));
        if (w->bias_p)
            SB_TRY(block_take_constant(b, w->bias, w->bias_p));
    }
    for (size_t i = 0; i < b->n_scales; i++)
        if (b->scales[i].p)
            block_take_scale(b, &b->scales[i]);
    return SB_OK;
}

static sb_status steps_open(block_steps *s)
{
    sb_ctx *ctx = s->b->walk->qm->ctx;
    const sb_tensor *all = &s->b->learner->store.gradients;
    const sb_quant_blockwise *how = &s->b->walk->how;

    for (size_t i = 0; i < s->b->n_learned; i++)
        SB_TRY(weight_start(s->b, &s->b->weights[i]));
    SB_TRY(feed_open(&s->feed));
    /* Units that hold several samples make up a batch with fewer of them. */
    size_t each = 1;
    if (!s->b->walk->samples)
        each = (size_t)sb_batch_store_samples(s->b->walk->qm->state.batches, 0);
    s->runs = (size_t)how->batch / (s->feed.units * (each ? each : 1));
    s->runs = s->runs ? s->runs : 1;
    s->feed.share = (float)(1 - how->drop);
    s->units = sb_alloc(ctx, s->feed.units, sizeof *s->units);
    if (!s->units)
        return SB_NO_MEMORY;
    if (s->runs == 1)
        return SB_OK;
    s->sum = sb_tensor_make(all->dtype, all->rank, all->dims);
    return sb_tensor_alloc(ctx, &s->sum);
}

/* ---- on disk ------------------------------------------------------------ */

static size_t parts_add(sb_journal_part *parts, size_t n, sb_parameter *p)
{
    if (!p)
        return n;
    sb_tensor *t = &p->kept[SB_STORE_VALUE].t;
    parts[n] = (sb_journal_part){t->data, sb_tensor_bytes(t)};
    return n + 1;
}

/* What a learned block is: all parameters, and what it gained. */
static sb_status block_parts(sb_layer_block *b, sb_journal_part **out,
                             size_t *n)
{
    size_t most = 2 * b->n_learned + b->n_scales + 2;
    sb_journal_part *parts = sb_alloc(b->walk->qm->ctx, most, sizeof *parts);

    if (!parts)
        return SB_NO_MEMORY;
    parts[0] = (sb_journal_part){&b->before, sizeof b->before};
    parts[1] = (sb_journal_part){&b->after, sizeof b->after};
    *n = 2;
    for (size_t i = 0; i < b->n_learned; i++) {
        *n = parts_add(parts, *n, b->weights[i].p);
        *n = parts_add(parts, *n, b->weights[i].bias_p);
    }
    for (size_t i = 0; i < b->n_scales; i++)
        *n = parts_add(parts, *n, b->scales[i].p);
    *out = parts;
    return SB_OK;
}

/* Steps, unless an earlier run has made them. */
static sb_status block_steps_or_journal(block_steps *s)
{
    sb_layer_block *b = s->b;
    sb_journal *journal = &b->walk->journal;
    size_t at = (size_t)b->stage.level, n = 0;
    sb_journal_part *parts = NULL;
    bool there = false;

    SB_TRY(block_parts(b, &parts, &n));
    sb_status status = sb_journal_read(journal, at, parts, n, &there);
    if (status == SB_OK && !there)
        status = steps_open(s);
    if (status == SB_OK && !there)
        status = steps_all(s);
    if (status == SB_OK && !there)
        status = sb_journal_write(journal, at, parts, n);
    sb_free(b->walk->qm->ctx, parts);
    return status;
}

sb_status sb_block_learn(sb_layer_block *b)
{
    sb_quant_model *qm = b->walk->qm;
    block_steps s = {.b = b, .feed = {.b = b}};

    sb_rng_init(&s.rng, qm->state.calibration.seed + (uint64_t)b->stage.level);
    sb_status status = block_steps_or_journal(&s);
    if (status == SB_OK && b->after < b->before)
        status = block_take(b);
    feed_close(&s.feed);
    sb_free(qm->ctx, s.units);
    sb_tensor_drop(&s.sum);
    return status;
}
