/* sparsebit generate - what a language model writes after a prompt. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <unistd.h>

typedef struct {
    const char *model;
    const char *prompt;
    const char *tokenizer;
    unsigned tokens, context, top_k;
    double temperature, top_p;
    cli_list stop;
    bool ignore_end;
} generate_args;

#define ARG(field) offsetof(generate_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,          ARG(model),       "MODEL", "language model: a Hugging Face folder, a GGUF file, a llama2.c checkpoint, or an ONNX file made from one", true},
    {CLI_STRING, 'p', "prompt",      ARG(prompt),      "TEXT",  "what the text begins with (default: nothing)", false},
    {CLI_SOME,   'n', "tokens",      ARG(tokens),      "N",     "most tokens to write (default: 128)", false},
    {CLI_REAL,   0,   "temperature", ARG(temperature), "X",     "0: always the most likely token (default); 1: as likely as the model says; above: wilder", false},
    {CLI_UINT,   0,   "top-k",       ARG(top_k),       "N",     "choose among the N most likely tokens (default: all)", false},
    {CLI_ABOVE,  0,   "top-p",       ARG(top_p),       "X",     "choose among the most likely tokens that make up this share, above 0, at most 1 (default: 1, all)", false},
    {CLI_LIST,   0,   "stop",        ARG(stop),        "TEXT",  "end before this text; repeatable", false},
    {CLI_FLAG,   0,   "ignore-end",  ARG(ignore_end),  NULL,    "go on after a token that ends a text", false},
    {CLI_UINT,   0,   "context",     ARG(context),     "N",     "tokens of prompt and result together (default: what the model was made for, at most 4096)", false},
    {CLI_FILE,   0,   "tokenizer",   ARG(tokenizer),   "FILE",  "tokenizer.json, tokenizer.model, tokenizer.bin, or a folder or GGUF file that has one (default: the model's own, or what is beside it)", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit generate model.gguf -p 'Once upon a time' -n 64",
     "The most likely continuation"},
    {"sparsebit generate model.gguf -p 'Q: why is the sky blue? A:' --temperature 0.8 --top-p 0.95 --seed 7 --stop 'Q:'",
     "Another one for each seed"},
    {0},
};
/* clang-format on */

/* On a terminal nothing but line ends and tabs may move the cursor. */
static int print_piece(void *user, const char *text, size_t len)
{
    const bool *terminal = user;

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;

        (void)putchar(control && *terminal ? '?' : c);
    }
    return fflush(stdout) != 0;
}

static double per_second(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static void print_summary(const sb_generation *g)
{
    (void)fprintf(stderr,
                  "\n%zu tokens of prompt, %.1f tokens/s; %zu tokens written, "
                  "%.1f tokens/s; ended by: %s\n",
                  g->prompt_tokens,
                  per_second(g->prompt_tokens, g->prompt_seconds), g->tokens,
                  per_second(g->tokens, g->seconds), g->end);
}

static void print_json(const generate_args *args, const sb_generation *g)
{
    cli_json j = {0};

    cli_json_begin(&j, "generate");
    cli_json_str(&j, "model", args->model);
    cli_json_bytes(&j, "text", g->text, g->len);
    cli_json_str(&j, "end", g->end);
    cli_json_int(&j, "prompt_tokens", (long long)g->prompt_tokens);
    cli_json_int(&j, "tokens", (long long)g->tokens);
    cli_json_num(&j, "prompt_tokens_per_second",
                 per_second(g->prompt_tokens, g->prompt_seconds));
    cli_json_num(&j, "tokens_per_second", per_second(g->tokens, g->seconds));
    cli_json_end(&j);
}

static sb_status write_text(cli_env *env, const generate_args *args,
                            sb_generator *generator)
{
    sb_generate_options opt = SB_GENERATE_OPTIONS_INIT;
    const sb_generation *result = NULL;
    bool terminal = isatty(STDOUT_FILENO) == 1;

    opt.max_tokens = args->tokens ? args->tokens : opt.max_tokens;
    opt.temperature = args->temperature;
    opt.top_k = args->top_k;
    opt.top_p = args->top_p > 0 ? args->top_p : 1;
    opt.seed = env->common.seed;
    opt.stop = args->stop.v;
    opt.n_stop = args->stop.n;
    opt.ignore_end = args->ignore_end;
    if (!env->common.json) {
        opt.text = print_piece;
        opt.text_user = &terminal;
    }
    sb_status status = sb_generator_run(
        generator, args->prompt ? args->prompt : "", &opt, &result);
    if (status != SB_OK)
        return status;
    if (env->common.json)
        print_json(args, result);
    else
        (void)putchar('\n');
    if (!env->common.json && !env->common.quiet)
        print_summary(result);
    return SB_OK;
}

extern const cli_cmd cmd_generate;

static int generate_run(cli_env *env, const void *parsed)
{
    const generate_args *args = parsed;
    sb_model *model = NULL;
    sb_tokenizer *tokenizer = NULL;
    sb_generator *generator = NULL;
    const char *from = args->tokenizer ? args->tokenizer : args->model;

    if (args->top_p > 1)
        return cli_usage(&cmd_generate,
                         "--top-p: found %g, want above 0, at most 1",
                         args->top_p);
    if (sb_model_load(env->ctx, args->model, &model) != SB_OK)
        return cli_fail(env, args->model);
    int rc = cli_want_language(model, args->model);
    if (rc == CLI_OK &&
        (sb_tokenizer_open(env->ctx, from, &tokenizer) != SB_OK ||
         sb_generator_create(model, tokenizer, args->context, &generator) !=
             SB_OK ||
         write_text(env, args, generator) != SB_OK))
        rc = cli_fail(env, args->model);
    sb_generator_free(generator);
    sb_tokenizer_free(tokenizer);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_generate = {
    .name = "generate",
    .summary = "let a language model write text",
    .description = "Writes what follows after a prompt, token by token, as "
                   "the model sees fit.  Language models are read from "
                   "Hugging Face folders, GGUF files and llama2.c "
                   "checkpoints, by every command.",
    .args_size = sizeof(generate_args),
    .opts = opts,
    .examples = examples,
    .run = generate_run,
};
