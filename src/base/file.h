/* file.h - reading by mapping, writing beside and renaming. */
#ifndef SB_BASE_FILE_H
#define SB_BASE_FILE_H

#include "base/alloc.h"

/* A file mapped read-only (copy on write, so a page may be changed privately).
 * Empty files have size 0 and data NULL.  Pipes are read into memory: there is
 * no file then from which a page that was given back could come again. */
typedef struct sb_mapping {
    void *data;
    size_t size;
    bool is_file;
} sb_mapping;

SB_MUST_USE sb_status sb_file_map(sb_ctx *ctx, const char *path,
                                  sb_mapping *out);
void sb_file_unmap(sb_mapping *map);

/* A file being written as `path.tmp-PID-N`; it takes the name `path` only when
 * committed (fsync, rename, fsync of the folder).  The first failure sticks
 * and comes back from commit; abort removes the temporary file. */
typedef struct sb_writer sb_writer;

SB_MUST_USE sb_status sb_writer_open(sb_ctx *ctx, const char *path,
                                     sb_writer **out);
void sb_writer_put(sb_writer *w, const void *data, size_t len);
/* Bytes written so far. */
uint64_t sb_writer_size(const sb_writer *w);
/* Flushes and closes without giving the file its name, so that several files
 * can be completed before the first one appears. */
SB_MUST_USE sb_status sb_writer_finish(sb_writer *w);
/* Finishes if need be, renames into place, and frees `w` in any case. */
SB_MUST_USE sb_status sb_writer_commit(sb_writer *w);
/* Removes the temporary file and frees `w`; NULL is allowed. */
void sb_writer_abort(sb_writer *w);

/* Folder part of `path` ("." if none) joined with `name`; sb_free() it. */
char *sb_path_beside(sb_ctx *ctx, const char *path, const char *name);

#endif
