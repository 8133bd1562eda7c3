/* llm_config.h - the numbers of a language model, from whatever file they come,
 * and the architectures that are known. */
#ifndef SB_LLM_LLM_CONFIG_H
#define SB_LLM_LLM_CONFIG_H

#include "base/json.h"
#include "llm/gguf.h"

typedef struct sb_arch sb_arch;

/* Positions that we make tables for: models that know more of them would need
 * more than 16 MB. */
enum { SB_POSITIONS_MOST = 1 << 15 };

/* Rotary position embeddings: frequencies and how long contexts change them. */
typedef enum sb_rope_scaling {
    SB_ROPE_PLAIN,
    SB_ROPE_LINEAR, /* all divided by the factor */
    SB_ROPE_LLAMA3, /* low ones divided, high ones kept, a ramp between */
    SB_ROPE_TENSOR, /* divided by a tensor of a GGUF file */
} sb_rope_scaling;

typedef struct sb_rope {
    double theta;
    sb_rope_scaling scaling;
    double factor, low_factor, high_factor, original_positions;
} sb_rope;

typedef struct sb_llm_config {
    const struct sb_llm_arch *arch;
    int64_t layers, hidden, feed_forward, heads, kv_heads, head_size;
    int64_t vocabulary, positions;
    double norm_epsilon;
    sb_rope rope, local_rope; /* the second for layers with a window */
    int64_t rope_size;        /* elements of a head that are rotated */
    bool interleaved;         /* pairs of neighbors are rotated */
    int64_t window;           /* positions that a query sees; 0: all before */
    int64_t window_pattern;   /* every n-th layer sees all; 0: none does */
    double attention_scale;   /* 0: 1 / sqrt(head_size) */
    bool norm_plus_one;       /* norms multiply by 1 + weight */
    bool transposed;          /* linear weights are [in, out] */
    bool untied;              /* the last layer is no embedding */
    const char *text;         /* config.json; NULL: the file has none */
    /* Packed weights: those of AWQ, else of GPTQ; zero points are stored less
     * one. */
    bool awq, zeros_less_one;
} sb_llm_config;

/* Properties of a graph that say what the network was, so that it can be
 * written as a language model again: config.json, and which elements of a head
 * rotary embeddings turn together. */
#define SB_PROP_CONFIG      "sparsebit.config"
#define SB_PROP_ROTARY      "sparsebit.rotary"
#define SB_ROTARY_NEIGHBORS "neighbors"
#define SB_ROTARY_HALVES    "halves"

enum {
    /* GGUF files have the pairs of rotary embeddings side by side. */
    SB_LLM_GGUF_INTERLEAVED = 1 << 0,
    /* Embeddings are multiplied by sqrt(hidden). */
    SB_LLM_SCALED_EMBEDDING = 1 << 1,
    /* Norms behind attention and feed-forward as well, 1 + weight in files of
     * Hugging Face, tanh-Gelu as activation. */
    SB_LLM_GEMMA = 1 << 2,
    /* Linear weights of Hugging Face files are [in, out]. */
    SB_LLM_TRANSPOSED = 1 << 3,
    /* Has a window only where config.json says use_sliding_window, and then
     * from layer max_window_layers on. */
    SB_LLM_WINDOW_ASKED = 1 << 4,
    /* Positions are a table of weights: nothing is rotated. */
    SB_LLM_LEARNED_POSITIONS = 1 << 5,
    /* Sees all positions, whatever the file says of windows. */
    SB_LLM_NO_WINDOW = 1 << 6,
};

typedef struct sb_llm_arch {
    const char *hf;       /* model_type in config.json */
    const char *hf_class; /* its class in the transformers library */
    const char *gguf;     /* general.architecture; NULL: none */
    unsigned flags;
    sb_llm_config absent; /* what config.json need not say */
    sb_status (*build)(sb_arch *a);
} sb_llm_arch;

/* Where config.json speaks of the language model: in text_config, if it is a
 * part of a network that sees as well. */
const sb_json *sb_llm_config_object(const sb_json *root);
/* Reads config.json of a Hugging Face folder. */
SB_MUST_USE sb_status sb_llm_config_read_hf(sb_llm_config *c,
                                            const sb_json_doc *doc);
/* How weights were packed; all else is seen in the tensors.  `q` is an object
 * of config.json, or the root of a file of its own, which older programs wrote
 * for GPTQ only. */
SB_MUST_USE sb_status sb_llm_config_read_packing(sb_llm_config *c,
                                                 const sb_json_doc *doc,
                                                 const sb_json *q);
/* Appends the numbers as a config.json. */
void sb_llm_config_write_hf(const sb_llm_config *c, sb_str *out);
/* What `window_pattern` is in GGUF files that do not say. */
int64_t sb_llm_gguf_pattern(const sb_llm_config *c);
/* Reads the keys of a GGUF file. */
SB_MUST_USE sb_status sb_llm_config_read_gguf(sb_llm_config *c,
                                              const sb_gguf *g);
/* By the name in the one or the other kind of file; SB_UNSUPPORTED names what
 * is known. */
SB_MUST_USE sb_status sb_llm_arch_find(sb_ctx *ctx, const char *file,
                                       const char *name, bool gguf,
                                       const sb_llm_arch **out);
/* Fills in what follows from the rest; SB_BAD_DATA unless all numbers are of
 * possible sizes and fit each other. */
SB_MUST_USE sb_status sb_llm_config_check(sb_ctx *ctx, const char *file,
                                          sb_llm_config *c);

#endif
