/* arch.h - architectures as graphs: what their builders share.
 *
 * A builder adds nodes and carries on after a failure, which is kept and
 * returned at the end, so that a network reads like its formula.  Activations
 * are [tokens, hidden] between layers, so that every linear layer is a Gemm
 * over weights as files have them, [out, in]; attention sees [batch, sequence,
 * hidden].  All modules are named as in Hugging Face's library. */
#ifndef SB_LLM_ARCH_H
#define SB_LLM_ARCH_H

#include "graph/graph.h"
#include "llm/llm_config.h"

struct sb_arch {
    sb_ctx *ctx;
    sb_graph *g;
    const sb_checkpoint *weights;
    const sb_llm_config *config;
    const char *prefix; /* before all names of weights */
    sb_status status;
    sb_value_id ids;       /* [batch, sequence] */
    sb_value_id positions; /* the same shape */
    sb_value_id shape;     /* of both */
    sb_buf *shelf;         /* memory for packed weights, or NULL */
    size_t shelf_used;
    bool has_shelf;     /* was it decided whether there is one? */
    const sb_map *only; /* names of the weights to unpack; NULL: all */
    sb_buf *hollow;     /* what the others are, or NULL */
};

/* Where a module's weights may be found: its own name, and another that some
 * files use; NULL: no other. */
typedef struct sb_module {
    const char *name, *other;
} sb_module;

/* Graphs of architectures. */
SB_MUST_USE sb_status sb_arch_llama(sb_arch *a);
SB_MUST_USE sb_status sb_arch_gpt2(sb_arch *a);

/* Angle per position of pair `i`; files of llama.cpp hold divisors of it, or
 * NULL. */
double sb_rope_frequency(const sb_llm_config *c, const sb_rope *r,
                         const float *divisors, int64_t i);

/* Builds the graph of a network: input_ids -> logits.  Packed weights that are
 * not among the names of `only` (NULL: all are) become zeros without memory. */
SB_MUST_USE sb_status sb_arch_build(sb_ctx *ctx, const sb_checkpoint *weights,
                                    const sb_llm_config *config,
                                    const sb_map *only, sb_graph **out);

/* ---- what builders call ------------------------------------------------- */
/* Looks for the weight `name` behind each of the prefixes that files have. */
void sb_arch_find_prefix(sb_arch *a, const char *name, const char *other);
/* "model.layers.7.NAME" and the like in the arena; NULL after a failure. */
const char *sb_arch_name(sb_arch *a, const char *fmt, ...) SB_PRINTF(2, 3);
/* Does any file have MODULE.weight? */
bool sb_arch_has(sb_arch *a, sb_module m);

/* A node with one output; `module` names it. */
sb_value_id sb_arch_node(sb_arch *a, const char *module, const char *op,
                         const sb_value_id *in, size_t n_in,
                         const sb_attr *attrs, size_t n_attrs);
#define SB_ARCH_IN(...)                 \
    (const sb_value_id[]){__VA_ARGS__}, \
        sizeof((sb_value_id[]){__VA_ARGS__}) / sizeof(sb_value_id)
sb_value_id sb_arch_binary(sb_arch *a, const char *module, const char *op,
                           sb_value_id x, sb_value_id y);
sb_value_id sb_arch_unary(sb_arch *a, const char *module, const char *op,
                          sb_value_id x);
sb_value_id sb_arch_ints(sb_arch *a, const int64_t *v, size_t n);
sb_value_id sb_arch_float(sb_arch *a, double x);
/* [tokens, n] <-> [batch, sequence, n]. */
sb_value_id sb_arch_split_rows(sb_arch *a, const char *module, sb_value_id x,
                               int64_t n);
sb_value_id sb_arch_join_rows(sb_arch *a, const char *module, sb_value_id x,
                              int64_t n);

/* MODULE.ENDING, or NULL; fails if the file has it in a type that nothing
 * reads. */
const sb_weight *sb_arch_find(sb_arch *a, sb_module m, const char *ending);
/* Keeps the first failure; always SB_NONE. */
sb_value_id sb_arch_fail(sb_arch *a, sb_status status);
/* A constant under this name, or the one that is there already. */
sb_value_id sb_arch_constant(sb_arch *a, const char *name, const sb_tensor *t);
/* Is a packed weight of this name to be unpacked?  Else its parts are made by
 * sb_arch_hollow(). */
bool sb_arch_wants(sb_arch *a, const char *name);
/* Elements of a tensor that no node of the stage reads: zeros without memory.
 */
SB_MUST_USE sb_status sb_arch_hollow(sb_arch *a, sb_tensor *t);
/* arch_packed.c: a linear layer whose weight GPTQ or AWQ packed. */
sb_value_id sb_arch_packed_linear(sb_arch *a, sb_module m, sb_value_id x,
                                  int64_t in, int64_t out, sb_value_id bias);
/* x [tokens, in] times the module's weight, plus its bias if there is one. */
sb_value_id sb_arch_linear(sb_arch *a, sb_module m, sb_value_id x, int64_t in,
                           int64_t out);
/* Rows of a table [rows, cols], picked by `ids`, as floats. */
sb_value_id sb_arch_embed(sb_arch *a, sb_module m, sb_value_id ids,
                          int64_t rows, int64_t cols);
/* A vector MODULE.ENDING of `n` floats, plus `add`. */
sb_value_id sb_arch_vector(sb_arch *a, sb_module m, const char *ending,
                           int64_t n, float add);

/* causal softmax(q k') v; q, k, v are [batch, sequence, ...].  `window`:
 * positions that a query sees, 0: all before it. */
sb_value_id sb_arch_attention(sb_arch *a, const char *module, sb_value_id q,
                              sb_value_id k, sb_value_id v, int64_t window);
/* The last layer: the output `logits`. */
void sb_arch_logits(sb_arch *a, sb_module head, sb_module embedding,
                    sb_value_id x);

#endif
