/* fuzz_model.h - what fuzz targets over ONNX files share: inputs that a model
 * can be run with. */
#ifndef SB_TESTS_FUZZ_MODEL_H
#define SB_TESTS_FUZZ_MODEL_H

#include <stdint.h>
#include <stdlib.h>

#include <sparsebit/experimental.h>

#include "fuzz_budget.h"

enum { MOST_ELEMENTS = 1 << 16, MOST_INPUTS = 16 };

/* Random inputs, unknown dimensions 2; 0 if they would be too large or are of
 * types that cannot be made up.  free_inputs() in any case. */
static int make_inputs(sb_ctx *ctx, const sb_model *model, sb_tensor **in)
{
    size_t n = sb_model_input_count(model);
    int ok = n <= MOST_INPUTS && sb_model_output_count(model) <= MOST_INPUTS;

    for (size_t i = 0; i < n && ok; i++) {
        const sb_value_info *v = sb_model_input(model, i);
        int64_t dims[12], count = 1;

        ok = v->dtype != SB_DTYPE_NONE && v->dtype != SB_DTYPE_STRING &&
             v->rank >= 0 && v->rank <= 12;
        for (int d = 0; d < v->rank && ok; d++) {
            dims[d] = v->dims[d] < 0 ? 2 : v->dims[d];
            ok = dims[d] <= MOST_ELEMENTS;
            count *= ok ? dims[d] : 1;
            ok = ok && count <= MOST_ELEMENTS;
        }
        ok = ok &&
             sb_tensor_create(ctx, v->dtype, v->rank, dims, &in[i]) == SB_OK;
        if (ok)
            sb_tensor_fill_random(in[i], i);
    }
    return ok;
}

static void free_inputs(sb_tensor **in)
{
    for (size_t i = 0; i < MOST_INPUTS; i++)
        sb_tensor_free(in[i]);
}

/* Loads the bytes and hands the model to `use`; whatever happens there, nothing
 * may be left. */
static int with_model(const uint8_t *data, size_t size,
                      void (*use)(sb_ctx *ctx, sb_model *model, size_t size))
{
    budget b = {0};
    const sb_allocator alloc = {sizeof alloc, &b, budget_resize, budget_free};
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;

    if (sb_ctx_create(&alloc, &ctx) != SB_OK)
        return 0;
    sb_ctx_set_threads(ctx, 1);
    if (sb_model_load_memory(ctx, data, size, NULL, &model) == SB_OK)
        use(ctx, model, size);
    sb_model_free(model);
    sb_ctx_free(ctx);
    if (b.live != 0)
        abort(); /* a leak */
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
