/* How long each step of a plan takes.
 *
 * A plan that is measured has a row for every kernel and for every group of
 * reorders and conversions around one, so that what layouts cost is seen
 * beside what operators cost.  The first run is left out: it touches memory
 * for the first time.  Of the others the last RUNS_MOST are kept, for the best
 * and the median; no run allocates. */
#include <stdlib.h>

#include "base/map.h"
#include "exec/plan.h"

enum { RUNS_MOST = 1024, LABEL_MOST = 96 };

/* Three rows a step: before the kernel, the kernel, after it; the last row of
 * all stands for the reorders of results. */
enum { PART_BEFORE, PART_KERNEL, PART_AFTER, PARTS };

typedef struct sb_plan_profile {
    size_t n_rows;   /* PARTS * steps + 1 */
    float *ms;       /* [RUNS_MOST][n_rows + 1]; the last is the whole run */
    uint64_t runs;   /* measured; the first is not */
    bool started;    /* the first run is over */
    float *sorted;   /* room for RUNS_MOST */
    sb_arena answer; /* of the last question */
} sb_plan_profile;

sb_status sb_profile_create(sb_plan *plan)
{
    sb_ctx *ctx = plan->exec->ctx;
    sb_plan_profile *p = sb_alloc(ctx, 1, sizeof *p);

    if (!p)
        return SB_NO_MEMORY;
    plan->profile = p;
    sb_arena_init(&p->answer, ctx);
    p->n_rows = PARTS * plan->n_steps + 1;
    p->ms = sb_alloc_raw(ctx, (p->n_rows + 1) * RUNS_MOST, sizeof *p->ms);
    p->sorted = sb_alloc(ctx, RUNS_MOST, sizeof *p->sorted);
    return p->ms && p->sorted ? SB_OK : SB_NO_MEMORY;
}

void sb_profile_free(sb_plan *plan)
{
    sb_plan_profile *p = plan->profile;

    if (!p)
        return;
    sb_free(plan->exec->ctx, p->ms);
    sb_free(plan->exec->ctx, p->sorted);
    sb_arena_free(&p->answer);
    sb_free(plan->exec->ctx, p);
    plan->profile = NULL;
}

/* ---- measuring ---------------------------------------------------------- */

/* Milliseconds since then, which becomes now. */
static float profile_lap(double *since)
{
    double now = sb_seconds_now(), seconds = now - *since;

    *since = now;
    return (float)(1e3 * seconds);
}

sb_status sb_profile_run(sb_plan *plan)
{
    sb_plan_profile *p = plan->profile;
    float *ms = p->ms + (p->runs % RUNS_MOST) * (p->n_rows + 1);
    double begin = sb_seconds_now(), at = begin;

    for (size_t i = 0; i < plan->n_steps; i++) {
        sb_step *st = plan->steps[i];

        SB_TRY(sb_ctx_poll(plan->exec->ctx));
        sb_step_before(st);
        ms[PARTS * i + PART_BEFORE] = profile_lap(&at);
        bool outer = sb_ctx_cut_allow(plan->exec->ctx);
        sb_status status = sb_step_kernel(st);
        sb_status cut = sb_ctx_cut_end(plan->exec->ctx, outer);
        SB_TRY(status);
        SB_TRY(cut);
        ms[PARTS * i + PART_KERNEL] = profile_lap(&at);
        sb_step_after(st);
        ms[PARTS * i + PART_AFTER] = profile_lap(&at);
    }
    sb_plan_finish(plan);
    ms[p->n_rows - 1] = profile_lap(&at);
    ms[p->n_rows] = (float)(1e3 * (at - begin));
    p->runs += p->started;
    p->started = true;
    return SB_OK;
}

/* ---- answering ---------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void times_of(const sb_plan_profile *p, size_t row, double *best,
                     double *median)
{
    size_t n = p->runs < RUNS_MOST ? (size_t)p->runs : RUNS_MOST;

    for (size_t i = 0; i < n; i++)
        p->sorted[i] = p->ms[i * (p->n_rows + 1) + row];
    qsort(p->sorted, n, sizeof *p->sorted, by_value);
    *best = n ? (double)p->sorted[0] : 0;
    *median = n ? (double)p->sorted[n / 2] : 0;
}

static double bytes_of(const sb_step *st)
{
    uint32_t n = st->k.node->n_in + st->k.node->n_implicit;
    double bytes = 0;

    if (st->k.op->flags & SB_OP_SHAPE_ONLY)
        return 0;
    /* A result that lies where its input lies unchanged cost nothing. */
    if (st->out[0] && st->in[0] && st->out[0]->root == st->in[0]->root &&
        st->out[0]->version == st->in[0]->version &&
        st->out[0]->kind != SLOT_DYNAMIC)
        return 0;
    for (uint32_t i = 0; i < st->k.n_out; i++)
        if (st->out[i])
            bytes += (double)sb_tensor_bytes(&st->out[i]->t);
    double made = bytes;
    for (uint32_t i = 0; i < n; i++) {
        double read = st->in[i] ? (double)sb_tensor_bytes(&st->in[i]->t) : 0;
        if (i == 0 && (st->k.op->flags & SB_OP_PICKS) && read > made)
            read = made;
        bytes += read;
    }
    return bytes;
}

static double bytes_moved(const sb_conversion *list, size_t n)
{
    double bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += (double)sb_tensor_bytes(&list[i].from->t) +
                 (double)sb_tensor_bytes(&list[i].to->t);
    return bytes;
}

typedef struct answer {
    sb_plan *plan;
    sb_arena *arena;
    sb_profile_row *rows;
    size_t n;
} answer;

static sb_status add_row(answer *a, size_t row, const char *name,
                         const char *op, const sb_tensor *shape, double bytes)
{
    sb_profile_row *r = &a->rows[a->n++];
    char text[160] = "";

    if (shape)
        (void)sb_tensor_describe(shape, text, sizeof text);
    *r = (sb_profile_row){.nodes = 1, .bytes = bytes};
    r->name = sb_arena_str(a->arena, name);
    r->op = sb_arena_str(a->arena, op);
    r->shape = sb_arena_str(a->arena, text);
    times_of(a->plan->profile, row, &r->best_ms, &r->median_ms);
    return r->name && r->op && r->shape ? SB_OK : SB_NO_MEMORY;
}

static sb_status add_moves(answer *a, size_t row, const char *name,
                           const sb_conversion *list, size_t n)
{
    if (n == 0)
        return SB_OK;
    bool reorder = list[0].from->t.layout != list[0].to->t.layout;
    return add_row(a, row, name, reorder ? "Reorder" : "Convert",
                   &list[0].to->t, bytes_moved(list, n));
}

static sb_status add_step(answer *a, size_t i)
{
    const sb_step *st = a->plan->steps[i];
    const sb_kernel *k = &st->k;
    const char *name = sb_node_label(k->graph, k->node);
    char label[LABEL_MOST] = "";

    if (k->op->label)
        k->op->label(k, label, sizeof label);
    if (!st->dynamic)
        SB_TRY(add_moves(a, PARTS * i + PART_BEFORE, name, st->before,
                         st->n_before));
    SB_TRY(add_row(
        a, PARTS * i + PART_KERNEL, name, label[0] ? label : k->node->op,
        k->n_out && st->out[0] ? &st->out[0]->t : NULL, bytes_of(st)));
    if (k->op->macs)
        a->rows[a->n - 1].macs = k->op->macs(k);
    return add_moves(a, PARTS * i + PART_AFTER, name, st->after, st->n_after);
}

static int by_time(const void *a, const void *b)
{
    double x = ((const sb_profile_row *)a)->median_ms;
    double y = ((const sb_profile_row *)b)->median_ms;

    return (x < y) - (x > y);
}

/* Sums over rows that do the same, the most expensive first. */
static sb_status sum_up(const answer *a, sb_profile_row *types, size_t *n)
{
    sb_map map;
    sb_status status = SB_OK;

    sb_map_init(&map, a->plan->exec->ctx);
    *n = 0;
    for (size_t i = 0; i < a->n && status == SB_OK; i++) {
        const sb_profile_row *r = &a->rows[i];
        uint32_t at = sb_map_get(&map, r->op);

        if (at == SB_MAP_NONE) {
            at = (uint32_t)(*n)++;
            types[at] = (sb_profile_row){.name = r->op, .op = r->op};
            types[at].shape = "";
            status = sb_map_put(&map, r->op, at);
        }
        types[at].nodes++;
        types[at].best_ms += r->best_ms;
        types[at].median_ms += r->median_ms;
        types[at].macs += r->macs;
        types[at].bytes += r->bytes;
    }
    sb_map_free(&map);
    qsort(types, *n, sizeof *types, by_time);
    return status;
}

static sb_status profile_index(sb_arena *arena, const sb_profile_row *rows,
                               size_t n, const sb_profile_row *const **out)
{
    const sb_profile_row **list = sb_arena_alloc(arena, n, sizeof(*list));

    for (size_t i = 0; list && i < n; i++)
        list[i] = &rows[i];
    *out = list;
    return list ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_exec_profile(sb_exec *exec, const sb_profile **out)
{
    sb_plan *plan = exec->last;
    sb_plan_profile *p = plan ? plan->profile : NULL;

    if (!p || p->runs == 0)
        return sb_fail(exec->ctx, SB_BAD_ARG,
                       "nothing was measured: a session that profiles must "
                       "have run twice");
    sb_arena_free(&p->answer);
    sb_arena_init(&p->answer, exec->ctx);
    answer a = {.plan = plan, .arena = &p->answer};
    a.rows = sb_arena_alloc(a.arena, p->n_rows, sizeof *a.rows);
    sb_profile_row *types = sb_arena_alloc(a.arena, p->n_rows, sizeof *types);
    sb_profile *result = sb_arena_alloc(a.arena, 1, sizeof *result);
    if (!a.rows || !types || !result)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < plan->n_steps; i++)
        SB_TRY(add_step(&a, i));
    SB_TRY(
        add_moves(&a, p->n_rows - 1, "results", plan->finals, plan->n_finals));
    SB_TRY(sum_up(&a, types, &result->n_types));
    result->runs = (size_t)p->runs;
    result->n_nodes = a.n;
    SB_TRY(profile_index(a.arena, a.rows, a.n, &result->nodes));
    SB_TRY(profile_index(a.arena, types, result->n_types, &result->types));
    times_of(p, p->n_rows, &result->best_ms, &result->median_ms);
    *out = result;
    return SB_OK;
}
