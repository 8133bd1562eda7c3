/* array_files.h - samples that are rows of arrays in one or several files.
 *
 * A part is a file (or one file an input) whose arrays all have as many rows;
 * a row of each is a sample.  Parts may differ in all dimensions but the one
 * that counts rows, so a folder of files holds texts of different lengths. With
 * FEED: files a part is one sample.  A scalar, or an array whose AXIS is none,
 * belongs to all samples of its part.  One part is in memory at a time, and of
 * a mapped file little more than what is being read. */
#ifndef SB_DATA_ARRAY_FILES_H
#define SB_DATA_ARRAY_FILES_H

#include "data/source.h"

typedef struct sb_array_part {
    const char **paths;  /* npy: one per input; the first names the part */
    size_t first, count; /* samples */
} sb_array_part;

typedef struct sb_array_files sb_array_files;
struct sb_array_files {
    sb_array_part *parts;
    size_t n_parts;
    /* Loads the n_inputs arrays of a part, and its labels if `labels` is not
     * NULL and it has some. */
    sb_status (*load)(sb_source *s, const sb_array_part *part, sb_tensor *out,
                      sb_tensor *labels);
    sb_tensor *loaded; /* n_inputs; of part `at` */
    sb_tensor *rows;   /* n_inputs; a row that is not in one piece */
    size_t at;         /* SIZE_MAX: none */
    size_t touched;    /* bytes handed out since memory was given back */
    int64_t *labels;   /* gathered from the parts, or NULL */
    size_t n_labels, cap_labels;
};

/* Goes through all parts once: counts samples, checks that arrays fit each
 * other, gathers labels.  The state must be in place with s->n_inputs. */
SB_MUST_USE sb_status sb_array_files_scan(sb_source *s);
void sb_array_files_close(sb_source *s);
const char *sb_array_files_name(const sb_source *s, size_t i, char *out,
                                size_t size);
sb_status sb_array_files_arrays(sb_source *s, size_t i, sb_tensor *out);
bool sb_array_files_begins(const sb_source *s, size_t i);

/* The files that PATHs name: each as it is, a folder as its files with this
 * ending.  Full paths in the arena; free list->v. */
SB_MUST_USE sb_status sb_array_files_list(sb_source *s, const char *const *path,
                                          size_t n, const char *ending,
                                          sb_name_list *list);

#endif
