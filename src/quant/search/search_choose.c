/* Choosing widths: what each layer costs, the best mixture by the sum of these
 * costs, and the same again with costs measured around that mixture, since
 * errors of layers do not just add up. */
#include <math.h>
#include <string.h>

#include "quant/search/search.h"
#include "quant/search/solve.h"

enum { ROUNDS = 4, COSTLIEST = 10 };

static double *search_cost(const sb_search *s, size_t layer)
{
    return s->errors + layer * s->n_widths;
}

/* ---- the budget ---------------------------------------------------------- */

/* What a layer takes of the budget with a width. */
static double layer_size(const sb_search *s, const sb_mixed_layer *l, size_t c)
{
    return (s->opt.budget == SB_SEARCH_BUDGET_MAC_BITS ? l->macs
                                                       : l->elements) *
           l->bits[c];
}

/* A sum over layers for the budget. */
static double search_size(const sb_search *s, const uint32_t *choices)
{
    double sum = 0;

    for (size_t i = 0; i < s->m.n_layers; i++)
        sum += layer_size(s, &s->m.layers[i], choices[i]);
    return sum;
}

static double all_elements(const sb_search *s)
{
    double sum = 0;

    for (size_t i = 0; i < s->m.n_layers; i++)
        sum += s->m.layers[i].elements;
    return sum;
}

/* The largest sum that the budget allows. */
static double search_limit(const sb_search *s)
{
    switch (s->opt.budget) {
    case SB_SEARCH_BUDGET_BITS: /* a hair, for sums that are not whole */
        return s->opt.limit * all_elements(s) * (1 + 1e-12);
    case SB_SEARCH_BUDGET_SIZE:
        return 8 * (s->least_weights +
                    (floor(s->opt.limit) - s->excess - s->least_bytes) /
                        s->per_byte);
    case SB_SEARCH_BUDGET_MAC_BITS:
        return s->opt.limit * (1 + 1e-12);
    case SB_SEARCH_BUDGET_ERROR:
        break;
    }
    return (double)INFINITY;
}

/* No mixture fits: says the least that would. */
static sb_status search_refuse(const sb_search *s, double least)
{
    double all = all_elements(s);

    switch (s->opt.budget) {
    case SB_SEARCH_BUDGET_BITS:
        return sb_fail(s->ctx, SB_BAD_ARG,
                       "no mixture has %g bits on average: the smallest has %g",
                       s->opt.limit, least / all);
    case SB_SEARCH_BUDGET_SIZE:
        return sb_fail(s->ctx, SB_BAD_ARG,
                       "no mixture makes a file of %.0f bytes: the smallest "
                       "has %.0f",
                       s->opt.limit, s->least_bytes);
    case SB_SEARCH_BUDGET_MAC_BITS:
        return sb_fail(s->ctx, SB_BAD_ARG,
                       "no mixture has %g MAC-bits: the smallest has %g",
                       s->opt.limit, least);
    case SB_SEARCH_BUDGET_ERROR:
        break;
    }
    return sb_fail(s->ctx, SB_BAD_ARG,
                   "no mixture has an error of %g: the smallest is %g",
                   s->opt.limit, s->floor);
}

double sb_search_least(const sb_search *s, uint32_t *choices)
{
    for (size_t i = 0; i < s->m.n_layers; i++) {
        const sb_mixed_layer *l = &s->m.layers[i];

        choices[i] = 0;
        for (size_t c = 1; c < s->n_widths; c++)
            if (l->bits[c] < l->bits[choices[i]])
                choices[i] = (uint32_t)c;
    }
    return search_size(s, choices);
}

sb_status sb_search_check(const sb_search *s)
{
    double least = sb_search_least(s, s->trial);

    return least > search_limit(s) ? search_refuse(s, least) : SB_OK;
}

/* ---- the best mixture by sums -------------------------------------------- */

/* The solution to take; SB_NO_INDEX: none fits. */
static size_t pick_solution(const sb_search *s, const sb_solution *list,
                            size_t n)
{
    double limit = search_limit(s);
    size_t found = SB_NO_INDEX;

    if (s->opt.budget == SB_SEARCH_BUDGET_ERROR) {
        for (size_t i = 0; i < n && found == SB_NO_INDEX; i++)
            if (s->floor + list[i].error <= s->opt.limit)
                found = i;
        return found;
    }
    for (size_t i = 0; i < n && list[i].size <= limit; i++)
        found = i;
    return found;
}

sb_status sb_search_choose(sb_search *s)
{
    sb_frontier f;
    size_t n = 0;

    for (size_t i = 0; i < s->m.n_layers; i++)
        for (size_t c = 0; c < s->n_widths; c++)
            s->sizes[i * s->n_widths + c] = layer_size(s, &s->m.layers[i], c);
    sb_status status = sb_frontier_make(s->ctx, s->m.n_layers, s->n_widths,
                                        s->sizes, s->errors, &f);
    if (status == SB_OK) {
        const sb_solution *list = sb_frontier_solutions(&f, &n);
        size_t i = pick_solution(s, list, n);
        if (i == SB_NO_INDEX)
            status = search_refuse(s, n ? list[0].size : 0);
        else
            sb_frontier_choices(&f, i, s->trial);
    }
    sb_frontier_free(&f);
    return status;
}

/* ---- costs --------------------------------------------------------------- */

/* An error that is not a number is as bad as can be. */
static sb_status measure_trial(sb_search *s, double *error)
{
    SB_TRY(sb_measure_run(&s->m, s->trial, error));
    if (!isfinite(*error))
        *error = 1e30;
    return SB_OK;
}

sb_status sb_search_measure(sb_search *s)
{
    size_t n = s->m.n_layers;

    memset(s->trial, 0, n * sizeof *s->trial);
    SB_TRY(measure_trial(s, &s->floor));
    for (size_t i = 0; i < n; i++) {
        SB_TRY(sb_progress(s->ctx, "layers", i, n));
        search_cost(s, i)[0] = 0;
        for (size_t c = 1; c < s->n_widths; c++) {
            double error;
            s->trial[i] = (uint32_t)c;
            SB_TRY(measure_trial(s, &error));
            search_cost(s, i)[c] = fmax(0, error - s->floor);
        }
        s->trial[i] = 0;
    }
    return SB_OK;
}

/* Measures the costs of a layer again, all others as in the trial. */
static sb_status measure_around(sb_search *s, size_t layer, double now)
{
    uint32_t own = s->trial[layer];
    double error[SB_SEARCH_WIDTHS_MOST];

    for (size_t c = 0; c < s->n_widths; c++) {
        s->trial[layer] = (uint32_t)c;
        error[c] = now;
        if (c != own)
            SB_TRY(measure_trial(s, &error[c]));
    }
    s->trial[layer] = own;
    for (size_t c = 0; c < s->n_widths; c++)
        search_cost(s, layer)[c] = fmax(0, error[c] - error[0]);
    return SB_OK;
}

/* The layers that cost most in the trial, each once. */
static sb_status measure_costliest(sb_search *s, double now)
{
    size_t done[COSTLIEST];

    for (size_t k = 0; k < COSTLIEST && k < s->m.n_layers; k++) {
        double most = -1;
        for (size_t i = 0; i < s->m.n_layers; i++) {
            double cost = search_cost(s, i)[s->trial[i]];
            bool taken = false;
            for (size_t t = 0; t < k; t++)
                taken = taken || done[t] == i;
            if (!taken && cost > most) {
                most = cost;
                done[k] = i;
            }
        }
        SB_TRY(measure_around(s, done[k], now));
    }
    return SB_OK;
}

static bool search_fits(const sb_search *s, const uint32_t *choices,
                        double error)
{
    return s->opt.budget == SB_SEARCH_BUDGET_ERROR
               ? error <= s->opt.limit
               : search_size(s, choices) <= search_limit(s);
}

/* Is the trial better than what was found: less error, or smaller where error
 * is the budget? */
static bool search_better(const sb_search *s, double error)
{
    if (!search_fits(s, s->trial, error))
        return false;
    if (!search_fits(s, s->choices, s->error))
        return true;
    return s->opt.budget == SB_SEARCH_BUDGET_ERROR
               ? search_size(s, s->trial) < search_size(s, s->choices)
               : error < s->error;
}

static void search_take(sb_search *s, double error)
{
    memcpy(s->choices, s->trial, s->m.n_layers * sizeof *s->choices);
    s->error = error;
}

/* Room that is left: each layer once with the next larger width, where that
 * fits and helps. */
static sb_status search_fill(sb_search *s)
{
    size_t n = s->m.n_layers;
    double error;

    if (s->opt.budget == SB_SEARCH_BUDGET_ERROR)
        return SB_OK;
    for (size_t i = 0; i < n; i++) {
        memcpy(s->trial, s->choices, n * sizeof *s->trial);
        if (s->trial[i] == 0)
            continue;
        s->trial[i]--;
        if (search_size(s, s->trial) > search_limit(s))
            continue;
        SB_TRY(measure_trial(s, &error));
        if (search_better(s, error))
            search_take(s, error);
    }
    return SB_OK;
}

sb_status sb_search_refine(sb_search *s)
{
    size_t n = s->m.n_layers;
    double error;

    for (int round = 0; round < ROUNDS; round++) {
        SB_TRY(sb_progress(s->ctx, "mixtures", (size_t)round, ROUNDS));
        SB_TRY(sb_search_choose(s));
        if (round > 0 &&
            memcmp(s->trial, s->choices, n * sizeof *s->trial) == 0)
            break;
        SB_TRY(measure_trial(s, &error));
        if (round == 0 || search_better(s, error))
            search_take(s, error);
        SB_TRY(measure_costliest(s, error));
    }
    for (size_t c = 0; c < s->n_widths; c++) { /* all alike */
        for (size_t i = 0; i < n; i++)
            s->trial[i] = (uint32_t)c;
        SB_TRY(measure_trial(s, &error));
        if (search_better(s, error))
            search_take(s, error);
    }
    if (!search_fits(s, s->choices, s->error)) { /* it is so by sums only */
        memset(s->choices, 0, n * sizeof *s->choices);
        s->error = s->floor;
    }
    return search_fill(s);
}
