/* kv_cache.h - a causal language model that takes a text piece by piece.
 *
 * The graph of a network that sees a whole text, input_ids -> logits, is
 * changed so that keys and values of earlier tokens are states of the executor:
 * each attention writes its new ones into a cache of fixed size and reads as
 * much of it as is filled.  Shapes do not change from token to token, so one
 * plan serves all; nothing is copied. */
#ifndef SB_LLM_KV_CACHE_H
#define SB_LLM_KV_CACHE_H

#include "exec/exec.h"

typedef struct sb_kv_cache {
    sb_ctx *ctx;
    sb_graph *graph; /* inputs: input_ids [batch, n], past [batch], last
                        [batch], and the states; outputs: logits [batch,
                        tokens] of rows `last` of the piece, and the states */
    sb_exec *exec;
    sb_exec_state *binds;
    sb_state *states;
    size_t n_states;
    int64_t batch;                       /* texts that go on together */
    int64_t capacity;                    /* positions */
    int64_t past;                        /* filled */
    const sb_tensor **inputs, **outputs; /* of a run */
    size_t at_ids, at_past, at_last;     /* in `inputs` */
} sb_kv_cache;

/* `graph` is copied.  SB_UNSUPPORTED, with the reason, unless it is a causal
 * language model of the form that this library builds.  Free it in any case.
 */
SB_MUST_USE sb_status sb_kv_cache_create(const sb_graph *graph,
                                         int64_t capacity, int64_t batch,
                                         sb_kv_cache *out);
void sb_kv_cache_free(sb_kv_cache *c);

/* Plans what a prompt of `n` tokens and a text after it need, so that neither
 * has to wait for that. */
SB_MUST_USE sb_status sb_kv_cache_prepare(sb_kv_cache *c, size_t n);
/* Of one text takes `n` more tokens; *logits, borrowed, has one number for each
 * token of the vocabulary that may follow. */
SB_MUST_USE sb_status sb_kv_cache_take(sb_kv_cache *c, const uint32_t *ids,
                                       size_t n, const sb_tensor **logits);
/* Of all texts takes one more token each; *logits is [batch, tokens]. */
SB_MUST_USE sb_status sb_kv_cache_step(sb_kv_cache *c, const int64_t *ids,
                                       const sb_tensor **logits);
/* Forgets all but the first `n` positions. */
void sb_kv_cache_rewind(sb_kv_cache *c, int64_t n);

/* ---- for other changes of such graphs ----------------------------------- */
/* A node with one result; `attr`: one, or NULL. */
SB_MUST_USE sb_status sb_llm_add_node(sb_graph *g, const char *op,
                                      const sb_value_id *in, size_t n_in,
                                      const sb_attr *attr, sb_value_id *out);
SB_MUST_USE sb_status sb_llm_add_input(sb_graph *g, const char *name,
                                       sb_type type, sb_value_id *out);

#endif
