/* file.h - reading by mapping, writing beside and renaming. */
#ifndef SB_BASE_FILE_H
#define SB_BASE_FILE_H

#include "base/alloc.h"

/* A file in memory.  Large ones are mapped (copy on write, so a page may be
 * changed privately) unless the context says otherwise; small ones and pipes
 * are read: there is no file then from which a page that was given back could
 * come again.  Empty files have size 0 and data NULL. */
typedef struct sb_mapping {
    sb_ctx *ctx;
    void *data;
    size_t size;
    bool is_file; /* mapped */
} sb_mapping;

/* Regular files only: for names that come from a file, behind which a pipe
 * would be waited for without end. */
SB_MUST_USE sb_status sb_file_map(sb_ctx *ctx, const char *path,
                                  sb_mapping *out);
/* Also pipes: for what the caller of the library named. */
SB_MUST_USE sb_status sb_file_map_input(sb_ctx *ctx, const char *path,
                                        sb_mapping *out);
void sb_file_unmap(sb_mapping *map);

/* A file being written without a name, or as `path.tmp-PID-N` where the file
 * system cannot do that; it takes the name `path` only when committed (fsync,
 * rename, fsync of the folder).  The first failure sticks and comes back from
 * commit; abort removes the temporary file. */
typedef struct sb_writer sb_writer;

SB_MUST_USE sb_status sb_writer_open(sb_ctx *ctx, const char *path,
                                     sb_writer **out);
void sb_writer_put(sb_writer *w, const void *data, size_t len);
/* Bytes written so far. */
uint64_t sb_writer_size(const sb_writer *w);
/* Takes another name in the same folder than the one that it was opened with;
 * before it is committed. */
SB_MUST_USE sb_status sb_writer_set_path(sb_writer *w, const char *path);
/* Flushes and closes without giving the file its name, so that several files
 * can be completed before the first one appears. */
SB_MUST_USE sb_status sb_writer_finish(sb_writer *w);
/* Finishes if need be, renames into place, and frees `w` in any case. */
SB_MUST_USE sb_status sb_writer_commit(sb_writer *w);
/* Removes the temporary file and frees `w`; NULL is allowed. */
void sb_writer_abort(sb_writer *w);

/* A file without a name, in $TMPDIR, else in /var/tmp or /tmp, so that nothing
 * is left behind however the program ends.  *folder is where, for messages. */
SB_MUST_USE sb_status sb_temp_open(sb_ctx *ctx, int *fd, const char **folder);
/* Says that `verb` failed there; returns SB_IO. */
sb_status sb_temp_fail(sb_ctx *ctx, const char *folder, const char *verb,
                       int error);

/* Folder part of `path` ("." if none) joined with `name`; sb_free() it. */
char *sb_path_beside(sb_ctx *ctx, const char *path, const char *name);
/* `folder/name`; sb_free() it. */
char *sb_path_join(sb_ctx *ctx, const char *folder, const char *name);
bool sb_path_exists(const char *path);
bool sb_is_folder(const char *path);

#endif
