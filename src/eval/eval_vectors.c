/* Embeddings, texts and maps. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

/* ---- embeddings ---------------------------------------------------------- */

/* The vectors of an output: one per sample if only one axis is longer than 1,
 * else along the last axis, one for each token. */
static int64_t vector_length(const sb_tensor *t, int64_t count)
{
    int64_t all = sb_tensor_count(t);
    int64_t last = t->rank > 0 ? t->dims[t->rank - 1] : 1;
    int long_axes = 0;

    for (int i = 1; i < t->rank; i++)
        long_axes += t->dims[i] != 1;
    return long_axes < 2 && t->rank > 0 && t->dims[0] == count ? all / count
                                                               : last;
}

sb_status sb_eval_vectors(sb_eval *e, int64_t count, const sb_tensor *a,
                          const sb_tensor *b)
{
    int64_t length = vector_length(a, count);
    int64_t n = length > 0 ? sb_tensor_count(a) / length : 0;

    SB_TRY(sb_grow(e->ctx, &e->cosines, &e->cap_cosines,
                   e->n_cosines + (size_t)n, sizeof *e->cosines));
    for (int64_t v = 0; v < n; v++) {
        sb_products p = {0};

        for (int64_t i = v * length; i < (v + 1) * length; i++) {
            double x = sb_eval_element(a, i), y = sb_eval_element(b, i);

            p.ab += x * y;
            p.aa += x * x;
            p.bb += y * y;
        }
        e->cosines[e->n_cosines++] = sb_eval_cosine(&p);
    }
    return SB_OK;
}

/* ---- texts --------------------------------------------------------------- */

/* The characters of a sample of [samples, time, characters] or [time, samples,
 * characters] as CTC reads them: the largest at each time, repetitions once,
 * and 0, the blank, not at all. */
typedef struct text_reader {
    const sb_tensor *t;
    int64_t first, step, steps, n;
    int64_t at, last;
} text_reader;

static text_reader open_text(const sb_tensor *t, int64_t count, int64_t sample)
{
    int64_t n = t->dims[t->rank - 1];
    bool time_first = t->rank == 3 && t->dims[0] != count;
    text_reader r = {.t = t, .n = n, .last = 0};

    r.steps = sb_tensor_count(t) / (n * count);
    r.step = time_first ? n * count : n;
    r.first = time_first ? sample * n : sample * n * r.steps;
    return r;
}

/* The next character, 0 at the end. */
static int64_t next_character(text_reader *r)
{
    while (r->at < r->steps) {
        int64_t c = sb_eval_largest(r->t, r->first + r->at * r->step, r->n, 1);
        bool again = c == r->last;

        r->at++;
        r->last = c;
        if (c != 0 && !again)
            return c;
    }
    return 0;
}

sb_status sb_eval_texts(sb_eval *e, int64_t count, const sb_tensor *a,
                        const sb_tensor *b)
{
    char found[128];

    if (a->rank < 2 || a->dims[a->rank - 1] < 1 ||
        (a->dims[0] != count && (a->rank != 3 || a->dims[1] != count)))
        return sb_fail(e->ctx, SB_BAD_DATA,
                       "--task text: output 0 is %s, want [samples, time, "
                       "characters] or [time, samples, characters]",
                       sb_tensor_describe(a, found, sizeof found));
    for (int64_t s = 0; s < count; s++) {
        text_reader x = open_text(a, count, s), y = open_text(b, count, s);
        int64_t p, q;

        do {
            p = next_character(&x);
            q = next_character(&y);
        } while (p == q && p != 0);
        e->texts++;
        e->texts_equal += p == q;
    }
    return SB_OK;
}

/* ---- maps ---------------------------------------------------------------- */

void sb_eval_maps(sb_eval *e, const sb_tensor *a, const sb_tensor *b)
{
    double bar = e->threshold >= 0 ? e->threshold : 0.5;
    int64_t n = sb_tensor_count(a);

    for (int64_t i = 0; i < n; i++) {
        bool x = sb_eval_element(a, i) > bar, y = sb_eval_element(b, i) > bar;

        e->map_both += x && y;
        e->map_any += x || y;
    }
}
