/* data.h - a data set: a source, transforms, and batches of both.
 *
 * The interface is in the public header (sb_data_open() and the rest), since
 * all of it is public.  Here is what is behind it. */
#ifndef SB_DATA_DATA_H
#define SB_DATA_DATA_H

#include <sparsebit/run.h>

#include "data/array_keys.h"
#include "data/prefetch.h"
#include "data/source.h"

enum { SB_SAMPLE_NAME = 256, SB_SHARED_BYTES = 16 };

/* The tensors of a batch and the memory behind them. */
typedef struct sb_batch_memory {
    size_t size;        /* samples that it is asked to hold */
    size_t whole;       /* the same of a batch of all ranks */
    sb_tensor *tensors; /* n_inputs; samples along the first axis, or one for
                           all of them */
    sb_tensor *moved;   /* n_inputs; samples along another axis */
    const sb_tensor **list;
    int *axes; /* n_inputs: where the samples are; -1: one for all */
    unsigned char (*shared)[SB_SHARED_BYTES]; /* such a one, as it was read */
    size_t *cap;                              /* bytes behind each */
    int64_t *labels;
    const char **names;
    char (*name_text)[SB_SAMPLE_NAME];
} sb_batch_memory;

struct sb_data {
    sb_ctx *ctx;
    sb_yaml_doc *doc;
    sb_yaml_doc *other_keys; /* sb_data_options.keys, or NULL */
    sb_arena arena;
    sb_data_keys keys;
    sb_array_keys array_keys;
    sb_state_names states;
    sb_transform transform, mask_transform;
    sb_source source;
    sb_data_options opt;
    size_t n_inputs; /* those of the source, and `targets` of sb_batch if ... */
    bool targets;    /* ... there are such: they are the last */
    size_t *order;   /* of samples when shuffled; NULL: as they come */
    size_t begin, end;  /* positions in it */
    size_t first, last; /* those that are read: all, or the part of a rank */
    /* With several ranks, each a slice of every batch: how many, and which;
     * then positions count the samples of this rank alone. */
    size_t slices, slice;
    bool training; /* samples are augmented, for `epoch` */
    uint64_t epoch;
    size_t at; /* next position to fetch */
    sb_prefetch *prefetch;
    /* The sample that was fetched and is in no batch yet. */
    bool pending;
    size_t pending_at;
    sb_tensor *sample; /* n_inputs, borrowed */
    sb_dtype *wanted;  /* n_inputs: types of the model's inputs, or none */
    bool *scalar;      /* n_inputs: the model wants one number for all */
    sb_batch_memory batch;
    sb_batch given; /* the last one, as the caller sees it */
    sb_name_list broken;
    const char *why; /* the first of them is */
    size_t good;     /* samples delivered since the last rewind */
};

/* Keys that every source takes; those of images are in transform.h, and a
 * source may have its own. */
extern const sb_param_def sb_data_table[];

/* From the next sample on, tensor `k` is for this input of a model. */
SB_MUST_USE sb_status sb_data_want(sb_data *data, size_t k,
                                   const sb_value_info *in);
/* Fails if texts do not fit a language model of so many positions, and so many
 * tokens (0: it does not say). */
SB_MUST_USE sb_status sb_data_want_text(const sb_data *data, size_t positions,
                                        size_t tokens);
/* What samples are for. */
typedef struct sb_data_model {
    const sb_value_info *inputs;
    size_t n_inputs;
    size_t positions; /* of a language model, 0: it is none */
    const char *path; /* its file, or NULL */
} sb_data_model;

/* sb_data_describe() for such a model. */
SB_MUST_USE sb_status sb_data_suggest(sb_ctx *ctx, const sb_data_model *to,
                                      const char *path, const char *keys,
                                      char **out);
/* Reads the options (NULL: none) and the description, and opens the source. */
SB_MUST_USE sb_status sb_data_setup(sb_data *data, const sb_data_options *opt);
/* labels.c.  The last of data->sample and its type, of a sample with targets:
 * classes are int64, other numbers float. */
void sb_data_fetch_target(sb_data *data, size_t row);
/* Integers of a batch in place. */
void sb_data_settle_target(const sb_data *data, int64_t *v, size_t n);
/* Puts the chosen samples, from `begin` to `end`, into another order. */
void sb_data_shuffle(sb_data *data, uint64_t epoch);

#endif
