/* llama_driver - perplexity and speed of a GGUF file in llama.cpp itself, and
 * what it quantizes itself.
 *
 *     llama_driver ppl MODEL.gguf TOKENS WINDOW COUNT
 *     llama_driver speed MODEL.gguf PROMPT DECODE THREADS    best of three
 *     llama_driver once MODEL.gguf PROMPT DECODE THREADS     the first of them
 *     llama_driver quantize MODEL.gguf OUT.gguf FILE_TYPE THREADS
 *
 * TOKENS is a file of token numbers, so that both programs predict the same
 * tokens.  LLAMA_LIB names the folder of libllama, against which it is compiled
 * by hand; it is not a part of the project's own build. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ggml-backend.h>
#include <llama.h>

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct llama_context *make_context(struct llama_model *model, int n,
                                          int threads)
{
    struct llama_context_params p = llama_context_default_params();

    p.n_ctx = (uint32_t)n;
    p.n_batch = p.n_ubatch = (uint32_t)n;
    p.n_threads = p.n_threads_batch = threads;
    return llama_init_from_model(model, p);
}

/* Log probability of `token`. */
static double log_p(const float *logits, int n, int token)
{
    double most = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        most = fmax(most, logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp(logits[i] - most);
    return logits[token] - most - log(sum);
}

static int perplexity(struct llama_model *model, const char *file, int window,
                      int count)
{
    struct llama_context *ctx = make_context(model, window, 1);
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_batch batch = llama_batch_init(window, 0, 1);
    FILE *f = fopen(file, "r");
    double loss = 0;
    long n = 0;

    for (int w = 0; f && w < count; w++) {
        batch.n_tokens = window;
        for (int i = 0; i < window; i++) {
            if (fscanf(f, "%d", &batch.token[i]) != 1)
                return fprintf(stderr, "too few tokens\n"), 1;
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        llama_memory_clear(llama_get_memory(ctx), true);
        if (llama_decode(ctx, batch) != 0)
            return fprintf(stderr, "decode failed\n"), 1;
        for (int i = 0; i + 1 < window; i++, n++)
            loss -= log_p(llama_get_logits_ith(ctx, i), n_vocab,
                          batch.token[i + 1]);
    }
    printf("%.4f\n", exp(loss / (double)n));
    return f ? 0 : 1;
}

static int speed(struct llama_model *model, int rounds, int prompt, int decode,
                 int threads)
{
    struct llama_context *ctx = make_context(model, prompt + decode, threads);
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_batch batch = llama_batch_init(prompt, 0, 1);
    double best_prompt = 1e9, best = 1e9;

    for (int round = 0; round < rounds; round++) {
        llama_memory_clear(llama_get_memory(ctx), true);
        batch.n_tokens = prompt;
        for (int i = 0; i < prompt; i++) {
            batch.token[i] = (i * 7919 + 13) % n_vocab;
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = i + 1 == prompt;
        }
        double start = seconds();
        if (llama_decode(ctx, batch) != 0)
            return 1;
        double mid = seconds();
        for (int i = 0; i < decode; i++) {
            llama_token token = (i * 104729 + 7) % n_vocab;
            if (llama_decode(ctx, llama_batch_get_one(&token, 1)) != 0)
                return 1;
            (void)llama_get_logits_ith(ctx, 0)[0];
        }
        double end = seconds();
        best_prompt = fmin(best_prompt, mid - start);
        best = fmin(best, end - mid);
    }
    printf("%.1f %.1f\n", prompt / best_prompt, decode / best);
    return 0;
}

static int quantize(const char *from, const char *to, int type, int threads)
{
    struct llama_model_quantize_params p =
        llama_model_quantize_default_params();

    p.ftype = (enum llama_ftype)type;
    p.nthread = threads;
    p.allow_requantize = true; /* type 0: to floats */
    return llama_model_quantize(from, to, &p) != 0;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return fprintf(stderr, "usage: %s ppl|speed|once|quantize MODEL ...\n",
                       argv[0]),
               2;
    llama_log_set(quiet, NULL);
    ggml_backend_load_all_from_path(getenv("LLAMA_LIB"));
    if (strcmp(argv[1], "quantize") == 0)
        return quantize(argv[2], argv[3], atoi(argv[4]), atoi(argv[5]));
    struct llama_model *model =
        llama_model_load_from_file(argv[2], llama_model_default_params());
    if (!model)
        return fprintf(stderr, "%s: cannot be loaded\n", argv[2]), 1;
    return strcmp(argv[1], "ppl") == 0
               ? perplexity(model, argv[3], atoi(argv[4]), atoi(argv[5]))
               : speed(model, strcmp(argv[1], "once") == 0 ? 1 : 3,
                       atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
}
