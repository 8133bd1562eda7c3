/* gguf.h - a GGUF file: keys with values, and where its tensors are.
 *
 * Opening checks all of the header, so that what is asked later lies inside the
 * file.  Texts are not NUL-terminated: they stay in the mapping. */
#ifndef SB_LLM_GGUF_H
#define SB_LLM_GGUF_H

#include "llm/llm_checkpoint.h"

/* Types of values, as the file numbers them. */
enum {
    SB_GGUF_U8,
    SB_GGUF_I8,
    SB_GGUF_U16,
    SB_GGUF_I16,
    SB_GGUF_U32,
    SB_GGUF_I32,
    SB_GGUF_F32,
    SB_GGUF_BOOL,
    SB_GGUF_STRING,
    SB_GGUF_ARRAY,
    SB_GGUF_U64,
    SB_GGUF_I64,
    SB_GGUF_F64,
    SB_GGUF_COUNT
};

enum { SB_GGUF_ALIGNMENT = 32 }; /* of tensors, unless the file says another */

/* A text in the file. */
typedef struct sb_gguf_text {
    const char *data;
    size_t len;
} sb_gguf_text;

typedef struct sb_gguf_value {
    const char *key; /* NUL-terminated */
    uint32_t type;   /* as in the file; of arrays that of the elements */
    bool is_array;
    uint64_t n;        /* elements */
    const uint8_t *at; /* the first one */
    size_t bytes;      /* of all of them */
} sb_gguf_value;

typedef struct sb_gguf {
    sb_ctx *ctx;
    const char *path;
    sb_buf *file;
    sb_arena arena;
    sb_gguf_value *values;
    size_t n_values;
    sb_map keys;
    size_t tensors_at, data_at; /* in the file */
    uint64_t n_tensors;
} sb_gguf;

/* Free it even if this fails. */
SB_MUST_USE sb_status sb_gguf_open(sb_gguf *g, sb_ctx *ctx, const char *path);
void sb_gguf_free(sb_gguf *g);
bool sb_gguf_is(const void *head, size_t size);

/* NULL if absent. */
const sb_gguf_value *sb_gguf_find(const sb_gguf *g, const char *key);
/* Numbers and texts; false if absent or of another kind. */
bool sb_gguf_number(const sb_gguf *g, const char *key, double *out);
bool sb_gguf_string(const sb_gguf *g, const char *key, sb_gguf_text *out);
/* Element `i` of an array of numbers. */
double sb_gguf_number_at(const sb_gguf_value *v, uint64_t i);
bool sb_gguf_is_numeric(const sb_gguf_value *v);
/* An array of texts, in the arena; SB_BAD_DATA unless it is one. */
SB_MUST_USE sb_status sb_gguf_strings(sb_gguf *g, const sb_gguf_value *v,
                                      sb_gguf_text **out);

/* The name that Hugging Face gives to a tensor of a GGUF file; the same name if
 * it is not known. */
SB_MUST_USE sb_status sb_gguf_rename(sb_arena *arena, const char *name,
                                     const char **out);
/* The other way round, for weights that an architecture of these flags names;
 * NULL if GGUF has no name for it. */
SB_MUST_USE sb_status sb_gguf_name_of(sb_arena *arena, unsigned flags,
                                      const char *module, const char *ending,
                                      const char **out);
/* Adds all tensors, named as Hugging Face does where the file's names are
 * known. */
SB_MUST_USE sb_status sb_gguf_weights(sb_gguf *g, sb_checkpoint *c);

#endif
