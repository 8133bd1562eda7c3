/* llm_write.h - graphs of language models as files of other programs. */
#ifndef SB_LLM_WRITE_LLM_WRITE_H
#define SB_LLM_WRITE_LLM_WRITE_H

#include "base/file.h"
#include "llm/write/parts.h"

typedef enum sb_llm_file {
    SB_LLM_FILE_GGUF,
    SB_LLM_FILE_FLOAT, /* a Hugging Face folder of floats */
    SB_LLM_FILE_GPTQ,  /* a Hugging Face folder with packed weights */
    SB_LLM_FILE_GENAI, /* a folder for onnxruntime-genai */
} sb_llm_file;

typedef struct sb_llm_write_options {
    sb_llm_file file;
    /* Where the tokenizer is: what sb_tokenizer_open() takes; NULL: none. */
    const char *tokenizer;
    /* What matrices of floats become; NULL: as they are. */
    const char *float_as;
    /* Round scales and offsets that the format does not hold exactly. */
    bool round;
    uint64_t shard_bytes; /* of a safetensors file at most; 0: 4 GB */
    int gptq_version;     /* 1, 2, or 0: the one that most programs read */
} sb_llm_write_options;

/* Writes the graph.  SB_UNSUPPORTED names the module that the format cannot
 * hold, and why.  Files appear only when all are complete. */
SB_MUST_USE sb_status sb_llm_write(const sb_graph *g, const char *path,
                                   const sb_llm_write_options *opt);

/* What it would refuse whatever the weights of linear layers become: the
 * architecture, the tokenizer, names of types. */
SB_MUST_USE sb_status sb_llm_write_check(const sb_graph *g,
                                         const sb_llm_write_options *opt);

/* ---- its parts ---------------------------------------------------------- */
SB_MUST_USE sb_status sb_gguf_write(sb_parts *p, const char *path,
                                    const sb_llm_write_options *opt);
SB_MUST_USE sb_status sb_gguf_check(sb_parts *p,
                                    const sb_llm_write_options *opt);
SB_MUST_USE sb_status sb_hf_check(const sb_parts *p,
                                  const sb_llm_write_options *opt);
SB_MUST_USE sb_status sb_hf_write(sb_parts *p, const char *path,
                                  const sb_llm_write_options *opt);

SB_MUST_USE sb_status sb_genai_write(const sb_parts *p, const sb_graph *from,
                                     const char *path,
                                     const sb_llm_write_options *opt);
/* genai_graph.c: changes the graph; *positions: it has an input of them. */
SB_MUST_USE sb_status sb_genai_graph(const sb_parts *p, sb_graph *g,
                                     bool *positions);

/* gguf_choose.c, gguf_blocks.c: the format that holds a matrix or vector; its
 * rows. */
SB_MUST_USE sb_status sb_gguf_choose(const sb_parts *p, const sb_part *part,
                                     const sb_llm_write_options *opt,
                                     const sb_weight_format **out);
/* The codes from `at` on, in a row that `f` holds, with their scales. */
void sb_gguf_block(const sb_matrix *m, const sb_weight_format *f,
                   const sb_matrix_row *row, int64_t at, sb_block *to);
/* `to` receives all rows; SB_BAD_MODEL if an element is beyond the format. */
SB_MUST_USE sb_status sb_gguf_fill(sb_ctx *ctx, const sb_part *part,
                                   const sb_weight_format *f, uint8_t *to);

/* gguf_keys.c, gguf_tokenizer.c: appended to the header; *n counts them. */
void sb_gguf_put_text(sb_str *out, const char *text, size_t len);
void sb_gguf_put_number(sb_str *out, uint64_t x, int bytes);
void sb_gguf_put_key(sb_str *out, const char *key, uint32_t type, uint64_t *n);
void sb_gguf_key_u32(sb_str *out, const char *key, uint64_t x, uint64_t *n);
void sb_gguf_key_f32(sb_str *out, const char *key, double x, uint64_t *n);
void sb_gguf_key_bool(sb_str *out, const char *key, bool x, uint64_t *n);
void sb_gguf_key_text(sb_str *out, const char *key, const char *x, uint64_t *n);
SB_MUST_USE sb_status sb_gguf_put_config(sb_parts *p, int file_type,
                                         sb_str *out, uint64_t *n);
SB_MUST_USE sb_status sb_gguf_put_tokenizer(sb_ctx *ctx, const char *path,
                                            int64_t vocabulary, sb_str *out,
                                            uint64_t *n);

#endif
