/* Writing text: prompt in, token by token out. */
#include <string.h>

#include "base/json.h"
#include "base/options.h"
#include "llm/generator.h"
#include "llm/llm_config.h"
#include "llm/llm_load.h"

/* ---- is it the model's tokenizer? --------------------------------------- */

/* Tokens of config.json that begin and end a text are no pieces of words.
 * Some files still have the defaults of their class, so this only warns. */
static void warn_of_token(const sb_generator *g, const char *key,
                          const sb_json *v)
{
    const sb_tokenizer *t = g->tokenizer;

    if (!sb_json_is(v, SB_JSON_NUMBER) || !(v->number >= 0 && v->number < 1e9))
        return;
    size_t id = (size_t)v->number;
    if (id < t->n_real &&
        (t->tokens[id].kind != SB_TOKEN_NORMAL || id == t->bos ||
         sb_tokenizer_is_end(t, (uint32_t)id)))
        return;
    sb_warn(g->ctx,
            "%s of the model is %zu, which %s%.64s%s: is it the model's own "
            "tokenizer?",
            key, id, id < t->n_real ? "is '" : "the tokenizer does not have",
            id < t->n_real ? t->tokens[id].text : "",
            id < t->n_real ? "' to the tokenizer" : "");
}

static sb_status warn_of_tokenizer(const sb_generator *g, const sb_graph *graph)
{
    const char *text = sb_graph_prop(graph, SB_PROP_CONFIG);
    sb_json_doc *doc = NULL;

    if (g->vocabulary > 0 && g->tokenizer->n_real > g->vocabulary)
        sb_warn(g->ctx,
                "the tokenizer has %zu tokens, the model %zu: is it the "
                "model's own tokenizer?",
                g->tokenizer->n_real, g->vocabulary);
    if (!text)
        return SB_OK;
    SB_TRY(sb_json_read(g->ctx, SB_PROP_CONFIG, text, strlen(text), &doc));
    const sb_json *config = sb_llm_config_object(doc->root);
    warn_of_token(g, "bos_token_id", sb_json_get(config, "bos_token_id"));
    warn_of_token(g, "eos_token_id", sb_json_get(config, "eos_token_id"));
    sb_json_free(doc);
    return SB_OK;
}

/* ---- life --------------------------------------------------------------- */

sb_status sb_generator_make(const sb_graph *graph,
                            const sb_tokenizer *tokenizer, int64_t context,
                            sb_generator **out)
{
    sb_generator *g = sb_alloc(graph->ctx, 1, sizeof *g);

    if (!g)
        return SB_NO_MEMORY;
    g->ctx = graph->ctx;
    g->tokenizer = tokenizer;
    g->context = context;
    g->vocabulary = sb_llm_vocabulary(graph);
    sb_str_init(&g->text, g->ctx);
    sb_status status = warn_of_tokenizer(g, graph);
    if (status == SB_OK)
        status = sb_kv_cache_create(graph, context, 1, &g->cache);
    if (status == SB_OK)
        *out = g;
    else
        sb_generator_free(g);
    return status;
}

void sb_generator_free(sb_generator *g)
{
    if (!g)
        return;
    sb_kv_cache_free(&g->cache);
    sb_sampler_free(g->ctx, &g->sampler);
    sb_str_free(&g->text);
    sb_free(g->ctx, g->ids.v);
    sb_free(g->ctx, g);
}

/* ---- text --------------------------------------------------------------- */

/* The first stop text at or after `from`; the end of the text: none. */
static size_t find_stop(const sb_generator *g, const sb_generate_options *opt,
                        size_t from)
{
    size_t best = g->text.len;

    for (size_t i = 0; i < opt->n_stop; i++) {
        size_t n = strlen(opt->stop[i]);

        for (size_t at = from; n && at + n <= g->text.len && at < best; at++)
            if (memcmp(g->text.data + at, opt->stop[i], n) == 0)
                best = at;
    }
    return best;
}

/* How much of the text is sure to stay: no beginning of a stop text, and no
 * beginning of a character. */
static size_t sure_length(const sb_generator *g, const sb_generate_options *opt)
{
    size_t len = g->text.len, sure = len;

    for (size_t i = 0; i < opt->n_stop; i++) {
        size_t n = strlen(opt->stop[i]);

        for (size_t k = n < len ? n : len; k > 0; k--)
            if (memcmp(g->text.data + len - k, opt->stop[i], k) == 0) {
                sure = len - k < sure ? len - k : sure;
                break;
            }
    }
    for (size_t back = 1; back <= 3 && back <= sure; back++) {
        unsigned char c = (unsigned char)g->text.data[sure - back];
        size_t wants = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if (c >= 0xc0)
            return wants > back ? sure - back : sure;
        if (c < 0x80)
            break;
    }
    return sure;
}

/* Hands on what was not handed on yet; false if the caller has enough. */
static bool hand_on(sb_generator *g, const sb_generate_options *opt,
                    size_t upto)
{
    size_t from = g->shown;

    if (!opt->text || upto <= from)
        return true;
    g->shown = upto;
    return opt->text(opt->text_user, g->text.data + from, upto - from) == 0;
}

/* ---- writing ------------------------------------------------------------ */

/* One token more; *end is set when there is a reason to end. */
static sb_status write_token(sb_generator *g, const sb_generate_options *opt,
                             uint32_t id, const char **end)
{
    sb_generation *r = &g->result;
    size_t before = g->text.len, longest = 0;

    if (!opt->ignore_end && sb_tokenizer_is_end(g->tokenizer, id)) {
        *end = "end of text";
        return SB_OK;
    }
    SB_TRY(sb_detokenize(g->tokenizer, id, false, &g->text));
    r->tokens++;
    for (size_t i = 0; i < opt->n_stop; i++) {
        size_t n = strlen(opt->stop[i]);
        longest = n > longest ? n : longest;
    }
    size_t stop = find_stop(g, opt, before > longest ? before - longest : 0);
    if (stop < g->text.len) {
        g->text.len = stop;
        g->text.data[stop] = '\0';
        *end = "stop";
    } else if (!hand_on(g, opt, sure_length(g, opt))) {
        *end = "caller";
    } else if (r->tokens >= opt->max_tokens) {
        *end = "tokens";
    }
    return SB_OK;
}

static sb_status write_all(sb_generator *g, const sb_generate_options *opt)
{
    const sb_tensor *logits = NULL;
    const char *end = !opt->max_tokens                  ? "tokens"
                      : (int64_t)g->ids.n >= g->context ? "context"
                                                        : NULL;

    SB_TRY(sb_kv_cache_prepare(&g->cache, g->ids.n));
    double start = sb_seconds_now();
    SB_TRY(sb_kv_cache_take(&g->cache, g->ids.v, g->ids.n, &logits));
    double ready = sb_seconds_now();
    g->result.prompt_seconds = ready - start;
    while (!end) {
        uint32_t id = 0;

        SB_TRY(sb_ctx_poll(g->ctx));
        SB_TRY(sb_sampler_pick(g->ctx, &g->sampler, logits->data,
                               (size_t)sb_tensor_count(logits), &id));
        SB_TRY(write_token(g, opt, id, &end));
        if (!end && g->cache.past + 1 >= g->context)
            end = "context";
        if (!end)
            SB_TRY(sb_kv_cache_take(&g->cache, &id, 1, &logits));
    }
    g->result.seconds = sb_seconds_now() - ready;
    g->result.end = end;
    (void)hand_on(g, opt, g->text.len);
    return SB_OK;
}

static sb_status check_options(sb_ctx *ctx, const sb_generate_options *opt)
{
    SB_TRY(sb_options_range(ctx, "temperature", opt->temperature, 0, 1e6));
    if (!(opt->top_p > 0 && opt->top_p <= 1))
        return sb_fail(ctx, SB_BAD_ARG, "top_p %g, want above 0, at most 1",
                       opt->top_p);
    return SB_OK;
}

static sb_status check_prompt(const sb_generator *g)
{
    if (g->ids.n == 0)
        return sb_fail(g->ctx, SB_BAD_ARG,
                       "the prompt is empty, and the tokenizer begins a text "
                       "with nothing");
    if ((int64_t)g->ids.n > g->context)
        return sb_fail(g->ctx, SB_BAD_ARG,
                       "the prompt has %zu tokens, want at most %lld", g->ids.n,
                       (long long)g->context);
    for (size_t i = 0; g->vocabulary > 0 && i < g->ids.n; i++)
        if (g->ids.v[i] >= g->vocabulary)
            return sb_fail(g->ctx, SB_BAD_ARG,
                           "the tokenizer made token %u, the model has tokens "
                           "below %zu: want the model's own tokenizer",
                           (unsigned)g->ids.v[i], g->vocabulary);
    return SB_OK;
}

sb_status sb_generator_run(sb_generator *g, const char *prompt,
                           const sb_generate_options *options,
                           const sb_generation **out)
{
    const sb_generate_options defaults = SB_GENERATE_OPTIONS_INIT;
    sb_generate_options opt;

    SB_TRY(sb_options_read(g->ctx, "sb_generate_options", options, &defaults,
                           sizeof opt, &opt));
    SB_TRY(check_options(g->ctx, &opt));
    g->ids.n = 0;
    sb_str_clear(&g->text);
    g->shown = 0;
    g->result = (sb_generation){.text = ""};
    sb_kv_cache_rewind(&g->cache, 0);
    SB_TRY(sb_tokenize(g->tokenizer, prompt, strlen(prompt), true, &g->ids));
    SB_TRY(check_prompt(g));
    g->result.prompt_tokens = g->ids.n;
    g->sampler.temperature = opt.temperature;
    g->sampler.top_k = opt.top_k;
    g->sampler.top_p = opt.top_p;
    sb_rng_init(&g->sampler.rng, opt.seed);
    SB_TRY(write_all(g, &opt));
    g->result.text = sb_str_text(&g->text);
    g->result.len = g->text.len;
    *out = &g->result;
    return SB_OK;
}
