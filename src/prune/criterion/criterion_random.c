/* Criterion "random": what all others have to beat. */
#include "base/rng.h"
#include "prune/criterion/criterion.h"

static void random_start(sb_rng *rng, uint64_t seed, uint64_t which)
{
    sb_rng_init(rng, seed ^ (which + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

static sb_status random_score(const sb_criterion_ask *ask, double *out)
{
    sb_rng rng;

    random_start(&rng, ask->seed, ask->group->first);
    for (uint32_t i = 0; i < ask->group->n; i++)
        out[i] = sb_rng_uniform(&rng);
    return SB_OK;
}

static sb_status random_weigh(const sb_criterion_ask *ask, float *out)
{
    const sb_tensor *t = sb_const_of(ask->channels->graph, ask->weight);
    sb_rng rng;

    random_start(&rng, ask->seed, ask->weight);
    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        out[i] = (float)sb_rng_uniform(&rng);
    return SB_OK;
}

const sb_criterion_def sb_criterion_random = {
    .name = "random",
    .summary = "by chance, from the seed",
    .score = random_score,
    .weigh = random_weigh,
};
