/* llm_checkpoint.h - the weights of a language model by name, where they lie in
 * mapped files.
 *
 * Readers of files fill it; architectures take what they need from it.  Names
 * are those of Hugging Face, whatever the file calls them, so that modules and
 * weights have the same names for every file of the same network. */
#ifndef SB_LLM_LLM_CHECKPOINT_H
#define SB_LLM_LLM_CHECKPOINT_H

#include "base/map.h"
#include "llm/weight_format.h"
#include "tensor/tensor.h"

enum { SB_WEIGHT_RANK = 4 };

typedef struct sb_weight {
    const char *name;
    const sb_weight_format *format;
    int rank;
    int64_t dims[SB_WEIGHT_RANK]; /* slowest first; rows are whole blocks */
    size_t at, bytes;             /* in `buf` */
    sb_buf *buf;                  /* of the checkpoint */
} sb_weight;

/* A weight of a type that nothing reads. */
typedef struct sb_left_out {
    const char *name, *why;
    struct sb_left_out *next;
} sb_left_out;

typedef struct sb_checkpoint {
    sb_ctx *ctx;
    sb_arena arena;
    const char *path; /* for messages */
    sb_weight *weights;
    size_t n, cap;
    sb_map names; /* -> index */
    sb_buf **files;
    size_t n_files, cap_files;
    uint64_t file_bytes;
    sb_left_out *left_out;
} sb_checkpoint;

void sb_checkpoint_init(sb_checkpoint *c, sb_ctx *ctx, const char *path);
void sb_checkpoint_free(sb_checkpoint *c);
/* Takes the reference of `file`, also on failure. */
SB_MUST_USE sb_status sb_checkpoint_keep(sb_checkpoint *c, sb_buf *file);
/* Adds a weight whose format, dimensions, place and file are set, after
 * checking that it lies inside its file; the name is copied.  `file` is for
 * messages. */
SB_MUST_USE sb_status sb_checkpoint_add(sb_checkpoint *c, const char *file,
                                        const char *name, const sb_weight *w);
/* NULL if there is none of that name. */
const sb_weight *sb_checkpoint_find(const sb_checkpoint *c, const char *name);
/* Notes that the file has a weight which is not added, and why not. */
SB_MUST_USE sb_status sb_checkpoint_leave_out(sb_checkpoint *c,
                                              const char *name,
                                              const char *why);
/* What was noted of that name, or NULL. */
const char *sb_checkpoint_why_not(const sb_checkpoint *c, const char *name);
const void *sb_weight_data(const sb_weight *w);
/* Elements; never overflows for weights of a checkpoint. */
int64_t sb_weight_count(const sb_weight *w);
/* The bytes of a plain weight as a tensor that shares the file. */
sb_tensor sb_weight_tensor(const sb_weight *w);

/* ---- readers ------------------------------------------------------------ */
/* Weights of one safetensors file; its mapping is added to the checkpoint. */
SB_MUST_USE sb_status sb_safetensors_load(sb_checkpoint *c, const char *path);
/* All shards of a Hugging Face folder: model.safetensors, or those that
 * model.safetensors.index.json names. */
SB_MUST_USE sb_status sb_safetensors_load_folder(sb_checkpoint *c,
                                                 const char *folder);

#endif
