/* Language models: how well each token of a text was predicted, and how far two
 * models differ in what they predict.
 *
 * Output 0 is [samples, sequence, tokens], and the input of the batch has the
 * tokens.  Each position's logits predict the next token; perplexity is exp of
 * the mean of -log p. */
#include <math.h>

#include "eval/eval.h"

/* log(sum(exp(row))) of the `n` elements from `first` on, in double. */
static double log_sum_exp(const sb_tensor *t, int64_t first, int64_t n)
{
    double most = (double)-INFINITY, sum = 0;

    for (int64_t i = first; i < first + n; i++)
        most = sb_eval_element(t, i) > most ? sb_eval_element(t, i) : most;
    for (int64_t i = first; i < first + n; i++)
        sum += exp(sb_eval_element(t, i) - most);
    return most + log(sum);
}

static sb_status language_check(const sb_eval *e, const sb_batch *b,
                                const sb_tensor *logits, const sb_tensor *ids)
{
    char got[128];

    if (!ids || ids->dtype != SB_DTYPE_I64 || ids->rank != 2 ||
        !sb_dtype_is_float(logits->dtype) || logits->rank != 3 ||
        logits->dims[0] != ids->dims[0] || logits->dims[1] != ids->dims[1] ||
        (size_t)ids->dims[0] != b->count)
        return sb_fail(e->ctx, SB_BAD_DATA,
                       "perplexity wants output 0 as float[samples, sequence, "
                       "tokens], is %s",
                       sb_tensor_describe(logits, got, sizeof got));
    const sb_tensor *labels = b->text_labels;
    if (labels &&
        (labels->dtype != SB_DTYPE_I64 || labels->rank != 2 ||
         labels->dims[0] != ids->dims[0] || labels->dims[1] != ids->dims[1]))
        return sb_fail(e->ctx, SB_BAD_DATA,
                       "the labels of texts are not like their tokens");
    for (int64_t i = 0; i < sb_tensor_count(ids); i++) {
        int64_t id = ((const int64_t *)ids->data)[i];

        if (id < 0 || id >= logits->dims[2])
            return sb_fail(e->ctx, SB_BAD_DATA,
                           "token %lld, the model knows %lld", (long long)id,
                           (long long)logits->dims[2]);
    }
    return SB_OK;
}

/* Is token number i to be predicted? */
static bool is_counted(const sb_batch *b, int64_t i)
{
    return !b->text_labels || ((const int64_t *)b->text_labels->data)[i] >= 0;
}

sb_status sb_eval_language(sb_eval *e, const sb_batch *b,
                           const sb_tensor *logits)
{
    const sb_tensor *ids = b->n_inputs ? b->inputs[0] : NULL;

    SB_TRY(language_check(e, b, logits, ids));
    int64_t len = ids->dims[1], n = logits->dims[2];
    for (int64_t s = 0; s < ids->dims[0]; s++)
        for (int64_t at = (int64_t)b->text_from; at < len; at++) {
            int64_t first = (s * len + at - 1) * n;
            int64_t id = ((const int64_t *)ids->data)[s * len + at];

            if (at % 64 == 0)
                SB_TRY(sb_ctx_poll(e->ctx));
            if (!is_counted(b, s * len + at))
                continue;
            e->log_loss += log_sum_exp(logits, first, n) -
                           sb_eval_element(logits, first + id);
            e->tokens++;
        }
    return SB_OK;
}

/* sum(p log(p / q)) with p of the reference; what is not a number stays so. */
static double row_divergence(const sb_tensor *p, const sb_tensor *q,
                             int64_t first, int64_t n)
{
    double lp = log_sum_exp(p, first, n), lq = log_sum_exp(q, first, n);
    double sum = 0;

    for (int64_t i = first; i < first + n; i++) {
        double log_p = sb_eval_element(p, i) - lp, share = exp(log_p);

        if (share != 0) /* a token that cannot be has a logarithm of -inf */
            sum += share * (log_p - (sb_eval_element(q, i) - lq));
    }
    return sum < 0 ? 0 : sum;
}

sb_status sb_eval_language_compare(sb_eval *e, const sb_batch *b,
                                   const sb_tensor *logits,
                                   const sb_tensor *reference)
{
    const sb_tensor *ids = b->n_inputs ? b->inputs[0] : NULL;

    SB_TRY(language_check(e, b, logits, ids));
    SB_TRY(language_check(e, b, reference, ids));
    int64_t len = ids->dims[1], n = logits->dims[2];
    for (int64_t s = 0; s < ids->dims[0]; s++)
        for (int64_t at = (int64_t)b->text_from; at < len; at++) {
            int64_t first = (s * len + at - 1) * n;

            if (at % 64 == 0)
                SB_TRY(sb_ctx_poll(e->ctx));
            if (!is_counted(b, s * len + at))
                continue;
            e->divergence += row_divergence(reference, logits, first, n);
            e->places++;
            e->equal += sb_eval_largest(logits, first, n, 1) ==
                        sb_eval_largest(reference, first, n, 1);
        }
    return SB_OK;
}
