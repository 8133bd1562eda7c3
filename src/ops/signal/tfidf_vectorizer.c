/* TfIdfVectorizer for integers: counts n-grams of a pool in each row.
 *
 * The pool lists all n-grams one after another, those of one element first;
 * ngram_counts[n - 1] is where those of n elements start.  The i-th n-gram of
 * the pool counts in output column ngram_indexes[i].  A window of n elements
 * takes every (skip + 1)-th one, for skip from 0 to max_skip_count; single
 * elements have no gaps and are counted once. */
#include <string.h>

#include "ops/infer_util.h"

typedef struct tfidf_attrs {
    int64_t max_gram_length, max_skip_count, min_gram_length;
    const char *mode;
    sb_ints ngram_counts, ngram_indexes, pool;
    sb_strings pool_strings;
    sb_floats weights;
} tfidf_attrs;

#define ATTR(field) offsetof(tfidf_attrs, field)

static const sb_attr_def tfidf_attr_defs[] = {
    {.name = "max_gram_length",
     SB_ATTR_INT,
     ATTR(max_gram_length),
     .required = true},
    {.name = "max_skip_count",
     SB_ATTR_INT,
     ATTR(max_skip_count),
     .required = true},
    {.name = "min_gram_length",
     SB_ATTR_INT,
     ATTR(min_gram_length),
     .required = true},
    {.name = "mode", SB_ATTR_STRING, ATTR(mode), .required = true},
    {.name = "ngram_counts",
     SB_ATTR_INTS,
     ATTR(ngram_counts),
     .required = true},
    {.name = "ngram_indexes",
     SB_ATTR_INTS,
     ATTR(ngram_indexes),
     .required = true},
    {.name = "pool_int64s", SB_ATTR_INTS, ATTR(pool)},
    {.name = "pool_strings", SB_ATTR_STRINGS, ATTR(pool_strings)},
    {.name = "weights", SB_ATTR_FLOATS, ATTR(weights)},
    {0},
};

static sb_status tfidf_infer(sb_infer *in)
{
    const tfidf_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape out = sb_shape_unknown();
    int64_t columns = 0;

    for (size_t i = 0; i < a->ngram_indexes.n; i++) {
        int64_t at = a->ngram_indexes.v[i];

        if (at < 0 || at > INT32_MAX)
            return sb_infer_fail(in, "ngram_indexes has %lld", (long long)at);
        columns = at >= columns ? at + 1 : columns;
    }
    if (x->rank > 2)
        return sb_infer_fail(in, "input has rank %d, want 1 or 2", x->rank);
    if (x->rank >= 0) {
        out = sb_shape_of_rank(x->rank < 2 ? 1 : 2);
        out.dim[out.rank - 1] = columns;
        if (x->rank == 2)
            out.dim[0] = x->dim[0];
    }
    sb_infer_set(in, 0, SB_DTYPE_F32, &out);
    return SB_OK;
}

/* Where the n-grams of n elements end in the pool. */
static int64_t pool_end(const tfidf_attrs *a, int64_t n)
{
    return (size_t)n < a->ngram_counts.n ? a->ngram_counts.v[n]
                                         : (int64_t)a->pool.n;
}

static sb_status tfidf_prepare(sb_kernel *k)
{
    const tfidf_attrs *a = k->attrs;
    int64_t last = 0, n_gram = 0;

    if (k->in[0]->dtype != SB_DTYPE_I32 && k->in[0]->dtype != SB_DTYPE_I64)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input has type %s",
                              sb_dtype_name(k->in[0]->dtype));
    if (a->pool_strings.n > 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "pool_strings with integers");
    if (a->min_gram_length < 1 || a->max_gram_length < a->min_gram_length ||
        (uint64_t)a->max_gram_length > a->ngram_counts.n ||
        a->max_skip_count < 0 || a->max_skip_count > INT32_MAX)
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "gram lengths %lld to %lld, skip %lld do not fit",
            (long long)a->min_gram_length, (long long)a->max_gram_length,
            (long long)a->max_skip_count);
    for (size_t i = 0; i < a->ngram_counts.n; i++) {
        int64_t begin = a->ngram_counts.v[i], n = (int64_t)i + 1;
        int64_t end = pool_end(a, n);

        if (begin < last || end < begin || end > (int64_t)a->pool.n ||
            (end - begin) % n != 0)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "ngram_counts does not divide the pool");
        last = begin;
        n_gram += (end - begin) / n;
    }
    if (n_gram != (int64_t)a->ngram_indexes.n ||
        (a->weights.n != 0 && a->weights.n != a->ngram_indexes.n))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "%zu ngram_indexes and %zu weights for %lld "
                              "n-grams",
                              a->ngram_indexes.n, a->weights.n,
                              (long long)n_gram);
    if (strcmp(a->mode, "TF") != 0 && strcmp(a->mode, "IDF") != 0 &&
        strcmp(a->mode, "TFIDF") != 0)
        return sb_kernel_fail(k, SB_BAD_MODEL, "mode is '%s'", a->mode);
    return SB_OK;
}

/* Does the window that starts at element `at` hold this n-gram? */
static bool tfidf_vectorizer_matches(const sb_tensor *x, int64_t at,
                                     int64_t step, const int64_t *gram,
                                     int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (sb_tensor_get_i64(x, at + i * step) != gram[i])
            return false;
    return true;
}

/* Counts one n-gram of the pool in a row that starts at element `first`. */
static int64_t count_gram(const sb_kernel *k, int64_t first, int64_t length,
                          const int64_t *gram, int64_t n)
{
    const tfidf_attrs *a = k->attrs;
    int64_t count = 0;

    for (int64_t step = 1; step <= a->max_skip_count + 1; step++) {
        if ((n - 1) * step >= length || (n == 1 && step > 1))
            break;
        for (int64_t i = 0; i + (n - 1) * step < length; i++)
            count +=
                tfidf_vectorizer_matches(k->in[0], first + i, step, gram, n);
    }
    return count;
}

static sb_status tfidf_forward(sb_kernel *k)
{
    const tfidf_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    int64_t n_row = x->rank == 2 ? x->dims[0] : 1;
    int64_t length = x->rank == 0 ? 1 : x->dims[x->rank - 1];
    int64_t columns = y->dims[y->rank - 1];
    bool tf = strcmp(a->mode, "IDF") != 0, idf = strcmp(a->mode, "TF") != 0;

    memset(y->data, 0, sb_tensor_bytes(y));
    for (int64_t row = 0; row < n_row; row++) {
        float *out = (float *)y->data + row * columns;
        size_t id = 0;

        for (int64_t n = 1; n <= (int64_t)a->ngram_counts.n; n++)
            for (int64_t p = a->ngram_counts.v[n - 1]; p < pool_end(a, n);
                 p += n, id++) {
                if (n < a->min_gram_length || n > a->max_gram_length)
                    continue;
                int64_t count =
                    count_gram(k, row * length, length, a->pool.v + p, n);
                float weight = idf && a->weights.n ? a->weights.v[id] : 1;

                if (count > 0)
                    out[a->ngram_indexes.v[id]] +=
                        (tf ? (float)count : 1) * weight;
            }
    }
    return SB_OK;
}

const sb_op_def sb_op_tfidf_vectorizer = {
    .name = "TfIdfVectorizer",
    .since = 9,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(tfidf_attrs),
    .attrs = tfidf_attr_defs,
    .infer = tfidf_infer,
    .prepare = tfidf_prepare,
    .forward = tfidf_forward,
};
