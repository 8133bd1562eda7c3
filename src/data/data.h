/* data.h - a data set: a source, transforms, and batches of both.
 *
 * The interface is in the public header (sb_data_open() and the rest), since
 * all of it is public.  Here is what is behind it. */
#ifndef SB_DATA_DATA_H
#define SB_DATA_DATA_H

#include "data/prefetch.h"
#include "data/source.h"

enum { SB_SAMPLE_NAME = 256 };

/* The tensors of a batch and the memory behind them. */
typedef struct sb_batch_memory {
    size_t size;        /* samples that it is asked to hold */
    sb_tensor *tensors; /* n_inputs */
    const sb_tensor **list;
    size_t *cap; /* bytes behind each */
    int64_t *labels;
    const char **names;
    char (*name_text)[SB_SAMPLE_NAME];
} sb_batch_memory;

struct sb_data {
    sb_ctx *ctx;
    sb_yaml_doc *doc;
    sb_arena arena;
    sb_data_keys keys;
    sb_transform transform;
    sb_source source;
    sb_data_options opt;
    size_t n_inputs;
    size_t *order;     /* of samples when shuffled; NULL: as they come */
    size_t begin, end; /* positions in it */
    size_t at;         /* next position to fetch */
    sb_prefetch *prefetch;
    /* The sample that was fetched and is in no batch yet. */
    bool pending;
    size_t pending_at;
    sb_tensor *sample; /* n_inputs, borrowed */
    sb_dtype *wanted;  /* n_inputs: types of the model's inputs, or none */
    sb_batch_memory batch;
    sb_name_list broken;
    size_t seen; /* broken samples at lower positions were told of */
    size_t good; /* samples delivered since the last rewind */
};

/* Keys that every source takes; those of images are in transform.h, and a
 * source may have its own. */
extern const sb_param_def sb_data_table[];

/* Reads the description and opens the source. */
SB_MUST_USE sb_status sb_data_setup(sb_data *data, const sb_data_options *opt);

#endif
