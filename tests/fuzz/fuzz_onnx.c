/* Any bytes as an ONNX file: load, count, print, simplify, run, save.
 *
 * What must never happen: a crash, a hang, a read outside, a leak.  Statuses
 * are not looked at.  Sizes are bounded by the allocator, so that an absurd
 * tensor is an error and not minutes of work. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sparsebit/sparsebit.h>

enum { MOST_BYTES = 64 << 20, MOST_ELEMENTS = 1 << 16, MOST_INPUTS = 16 };

/* The size before each block, so that what lives can be added up. */
typedef struct {
    size_t live;
} budget;

typedef union {
    size_t size;
    max_align_t align;
} header;

static void budget_free(void *user, void *ptr)
{
    if (ptr) {
        header *h = (header *)ptr - 1;

        ((budget *)user)->live -= h->size;
        free(h);
    }
}

static void *budget_resize(void *user, void *ptr, size_t size)
{
    budget *b = user;
    header *old = ptr ? (header *)ptr - 1 : NULL;
    size_t before = old ? old->size : 0;

    if (size > MOST_BYTES || b->live - before + size > MOST_BYTES)
        return NULL;
    header *h = realloc(old, sizeof *h + size);
    if (!h)
        return NULL;
    b->live += size - before;
    h->size = size;
    return h + 1;
}

static void run(sb_ctx *ctx, const sb_model *model)
{
    sb_tensor *in[MOST_INPUTS] = {0};
    size_t n = sb_model_input_count(model);
    size_t n_out = sb_model_output_count(model);
    sb_session *session = NULL;
    int ok = n <= MOST_INPUTS && n_out <= MOST_INPUTS;

    for (size_t i = 0; i < n && ok; i++) {
        sb_value_info v = sb_model_input(model, i);
        int64_t dims[12], count = 1;

        ok = v.dtype != SB_DTYPE_NONE && v.dtype != SB_DTYPE_STRING &&
             v.rank >= 0 && v.rank <= 12;
        for (int d = 0; d < v.rank && ok; d++) {
            dims[d] = v.dims[d] < 0 ? 2 : v.dims[d];
            ok = dims[d] <= MOST_ELEMENTS;
            count *= ok ? dims[d] : 1;
            ok = ok && count <= MOST_ELEMENTS;
        }
        ok =
            ok && sb_tensor_create(ctx, v.dtype, v.rank, dims, &in[i]) == SB_OK;
        if (ok)
            sb_tensor_fill_random(in[i], i);
    }
    if (ok && sb_session_create(ctx, model, NULL, &session) == SB_OK) {
        const sb_tensor *out[MOST_INPUTS];

        ok =
            sb_session_run(session, (const sb_tensor *const *)in, out) == SB_OK;
        sb_session_free(session);
    }
    for (size_t i = 0; i < MOST_INPUTS; i++)
        sb_tensor_free(ctx, in[i]);
}

static void use(sb_ctx *ctx, sb_model *model)
{
    static const sb_graph_format formats[] = {SB_GRAPH_TEXT, SB_GRAPH_DOT,
                                              SB_GRAPH_MERMAID};
    sb_model_info info;

    if (sb_model_info_get(ctx, model, &info) != SB_OK)
        return;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char *text = NULL;

        if (sb_model_print(ctx, model, formats[i], &text) == SB_OK)
            sb_text_free(ctx, text);
    }
    if (info.macs > 1e8 || info.nodes > 2000)
        return;
    run(ctx, model);
    if (sb_model_simplify(ctx, model, NULL, NULL, NULL) == SB_OK)
        run(ctx, model);
    if (sb_model_save(ctx, model, "/dev/null/nowhere") == SB_OK)
        abort(); /* there is no such folder */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    budget b = {0};
    const sb_allocator alloc = {&b, budget_resize, budget_free};
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;

    if (sb_ctx_create(&alloc, &ctx) != SB_OK)
        return 0;
    sb_ctx_set_threads(ctx, 1);
    if (sb_model_load_memory(ctx, data, size, &model) == SB_OK)
        use(ctx, model);
    sb_model_free(model);
    sb_ctx_free(ctx);
    if (b.live != 0)
        abort(); /* a leak */
    return 0;
}
