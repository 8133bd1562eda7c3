/* source.h - where samples come from: the row of a data source.
 *
 * There are two kinds.  A source of images hands out decoded images, each on
 * its own and from any thread; decoding them is worth threads.  A source of
 * arrays hands out slices of arrays that are there already, on the caller's
 * thread.
 *
 * To add one: write src/data/source_<name>.c ending with its row, add a line to
 * sources.def (sorted), add tests/unit/test_data_<name>.c or extend one. */
#ifndef SB_DATA_SOURCE_H
#define SB_DATA_SOURCE_H

#include "base/str.h"
#include "data/image/transform.h"
#include "tensor/tensor.h"

/* Keys that every source takes. */
typedef struct sb_data_keys {
    const char *source;
    sb_param_strings path;
    const char *labels;
    int64_t label_offset, ignore_label;
    int64_t batch;
    bool shuffle;
} sb_data_keys;

/* What one run of the model takes from arrays. */
typedef enum sb_feed_mode {
    SB_FEED_BATCHES, /* rows, side by side */
    SB_FEED_ROWS,    /* one row, as it is */
    SB_FEED_FILES,   /* all arrays of a file, as they are */
} sb_feed_mode;

/* Keys that every source of arrays takes; see array_keys.h. */
typedef struct sb_array_keys {
    int feed; /* an sb_feed_mode */
    const sb_yaml *axis, *state;
} sb_array_keys;

typedef struct sb_source_def sb_source_def;

/* An open source.  `open` fills in the lower part. */
typedef struct sb_source {
    sb_ctx *ctx;
    const sb_source_def *def;
    sb_yaml_doc *doc;
    const sb_data_keys *keys;
    const sb_array_keys *array_keys; /* of sources of arrays */
    void *own_keys;                  /* the struct that def->table fills */
    sb_arena *arena;                 /* lives as long as the source */

    size_t count;             /* samples */
    const int64_t *labels;    /* one per sample, or NULL: none */
    sb_color native;          /* images: COLOR if the file does not say */
    size_t n_inputs;          /* arrays: how many a sample has */
    const char **input_names; /* arrays: or NULL: by position */
    int *axes; /* arrays: which axis counts samples; -1: none, all have it */
    size_t text_from; /* as in sb_batch */
    bool text_labels; /* the second array is text_labels of sb_batch */
    /* What samples have instead of a label each; then it comes behind the
     * n_inputs arrays, as `targets` of sb_batch. */
    const char **masks; /* images: files of a class for each pixel; or NULL */
    sb_tensor rows;     /* the first axis counts samples; no data: none */
    bool own_targets;   /* arrays: the last of them is that already */
    size_t text_window; /* texts: tokens of a sample; 0: there is no text */
    size_t text_tokens; /* texts: all tokens are below */
    void *state;
} sb_source;

struct sb_source_def {
    const char *name;
    const char *summary;
    /* (optional) keys of its own, besides those of sb_data_keys. */
    const sb_param_def *table;
    size_t keys_size;
    /* Finds out what there is.  `close` is called in any case. */
    sb_status (*open)(sb_source *s);
    void (*close)(sb_source *s); /* (optional) */
    /* What messages call sample `i`; written to `out` if it must be made. */
    const char *(*name_of)(const sb_source *s, size_t i, char *out,
                           size_t size);
    /* Images: image `i`, into memory of `ctx`.  Any thread. */
    sb_status (*image)(const sb_source *s, sb_ctx *ctx, size_t i,
                       sb_image *out);
    /* Arrays: the n_inputs tensors of sample `i`, without the axis that counts
     * samples; they stay the source's, valid until the next call. */
    sb_status (*arrays)(sb_source *s, size_t i, sb_tensor *out);
    /* (optional) Arrays: does a sequence begin with sample `i`?  Without it
     * only with the first. */
    bool (*begins)(const sb_source *s, size_t i);
};

/* The row of the table, else what a plug-in added to the context (NULL: only
 * the table), else NULL. */
const sb_source_def *sb_source_find(const sb_ctx *ctx, const char *name);
const sb_source_def *const *sb_source_all(size_t *n);
/* "cifar10, idx, ..." with those of the context of `out`. */
void sb_source_names(sb_str *out);

/* ---- what sources share -------------------------------------------------- */

/* `name` as a path: as it is if absolute, else beside the data file.  In the
 * arena; NULL when memory is out. */
const char *sb_source_path(const sb_source *s, const char *name);
/* The only PATH, as a path; fails if there are none or several. */
SB_MUST_USE sb_status sb_source_one_path(const sb_source *s, const char **out);
/* Fails with `file:line: KEY: ...` */
sb_status sb_source_fail(const sb_source *s, const char *key, const char *fmt,
                         ...) SB_PRINTF(3, 4);

/* The samples are `window` of these tokens each: fills in text_*. */
void sb_source_set_text(sb_source *s, int64_t window, const uint32_t *ids,
                        size_t n);

/* A list of strings that grows in an arena. */
typedef struct sb_name_list {
    const char **v;
    size_t n, cap;
} sb_name_list;

/* Files under `dir` whose names end with one of `endings` (NULL-terminated,
 * compared without case), sorted by name folder for folder; `deep` descends
 * into folders.  Paths are relative to `dir`, in the arena; free `list->v`. */
SB_MUST_USE sb_status sb_files_find(sb_ctx *ctx, sb_arena *arena,
                                    const char *dir, const char *const *endings,
                                    bool deep, sb_name_list *list);
/* Folders right under `dir`, sorted. */
SB_MUST_USE sb_status sb_folders_find(sb_ctx *ctx, sb_arena *arena,
                                      const char *dir, sb_name_list *list);
SB_MUST_USE sb_status sb_name_list_add(sb_ctx *ctx, sb_name_list *list,
                                       const char *name);
bool sb_ends_with(const char *text, const char *ending); /* without case */

/* Lines `file label` (`label` is the last word) of a text file. */
typedef struct sb_label_line {
    const char *file; /* "" if the line is a label alone */
    int64_t label;    /* -1 if the line has none */
    int line;
} sb_label_line;

typedef struct sb_label_list {
    sb_label_line *v;
    size_t n, cap;
} sb_label_list;

/* Texts go to the arena; free `out->v`.  A line without label is allowed only
 * if `optional`. */
SB_MUST_USE sb_status sb_label_lines(sb_ctx *ctx, sb_arena *arena,
                                     const char *path, bool optional,
                                     sb_label_list *out);
/* LABELS as an .npy file whose first axis counts samples, or a text file with a
 * label a line; as many as there are samples.  Does nothing without LABELS. */
SB_MUST_USE sb_status sb_source_read_labels(sb_source *s);
/* LABELS as a folder of masks, named as the images of this source are. */
SB_MUST_USE sb_status sb_source_find_masks(sb_source *s, const char *dir);
/* Is an array of labels one integer for each of n samples? */
bool sb_labels_are_classes(const sb_tensor *t, size_t n);

/* Image files: the state of a source whose samples are files of their own, and
 * its functions. */
typedef struct sb_image_files {
    const char **paths;
    const char **names; /* as messages call them */
} sb_image_files;

const char *sb_image_files_name(const sb_source *s, size_t i, char *out,
                                size_t size);
sb_status sb_image_files_image(const sb_source *s, sb_ctx *ctx, size_t i,
                               sb_image *out);

#endif
