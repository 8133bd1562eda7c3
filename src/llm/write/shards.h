/* shards.h - a folder that is being written: safetensors files and others
 * beside them, which all appear when the last one is complete. */
#ifndef SB_LLM_WRITE_SHARDS_H
#define SB_LLM_WRITE_SHARDS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/str.h"

/* One tensor; `fill` writes its bytes. */
typedef struct sb_shard_tensor {
    const char *name;
    const char *dtype; /* "F32", "I32" ... */
    int rank;
    int64_t dims[2];
    size_t bytes;
    sb_status (*fill)(sb_ctx *ctx, const void *arg, int what, void *to);
    const void *arg;
    int what;
} sb_shard_tensor;

typedef struct sb_shards {
    sb_ctx *ctx;
    sb_arena arena;
    const char *folder;
    bool made;     /* the folder is ours */
    uint64_t most; /* bytes of a file */
    sb_shard_tensor *v;
    size_t n, cap;
    sb_writer **files; /* finished ones, without a name yet */
    size_t n_files, cap_files;
    size_t count;     /* of files that hold the tensors */
    unsigned written; /* a bit for each name of which an old file would lie */
} sb_shards;

/* Makes the folder unless it is there.  Free it even if this fails. */
SB_MUST_USE sb_status sb_shards_open(sb_shards *s, sb_ctx *ctx,
                                     const char *folder, uint64_t most);
SB_MUST_USE sb_status sb_shards_add(sb_shards *s, const sb_shard_tensor *t);
/* A file beside them. */
SB_MUST_USE sb_status sb_shards_file(sb_shards *s, const char *name,
                                     const void *data, size_t size);
/* Writes all tensors: model.safetensors, or several and an index. */
SB_MUST_USE sb_status sb_shards_write(sb_shards *s);
/* Gives all files their names, in the order in which they were written, and
 * removes an earlier model's index, weights or settings that are none of
 * them. */
SB_MUST_USE sb_status sb_shards_commit(sb_shards *s);
/* What was not committed is removed, and so is a folder that was made for
 * it. */
void sb_shards_free(sb_shards *s);

/* hf_tokenizer.c: the tokenizer's files, or tokenizer.json made from another
 * file. */
SB_MUST_USE sb_status sb_hf_tokenizer(sb_shards *s, const char *path);
/* Whether it can be. */
SB_MUST_USE sb_status sb_hf_tokenizer_check(sb_ctx *ctx, const char *path);

#endif
