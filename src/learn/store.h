/* store.h - the parameters of a network by name: values, gradients, moments.
 *
 * Graphs that learn, update and evaluate bind these tensors as states, so that
 * there is one copy of each, whatever runs.  Names are those of the file, so
 * that what was learned can be put back into it. */
#ifndef SB_LEARN_STORE_H
#define SB_LEARN_STORE_H

#include <sparsebit/learn.h>

#include "exec/exec.h"

/* What is kept of a parameter.  All are float32, in the shape of the value,
 * with memory of their own but for gradients, which lie behind each other;
 * without data: not kept. */
typedef enum sb_store_kind {
    SB_STORE_VALUE,
    SB_STORE_GRADIENT, /* of the last run */
    SB_STORE_MEAN,     /* of the gradients since the last update */
    SB_STORE_MOMENTUM,
    SB_STORE_SQUARE,  /* second moment of Adam */
    SB_STORE_AVERAGE, /* of values */
    SB_STORE_NEXT,    /* of a statistic: after the run that is going on */
    SB_STORE_MASK,    /* 0 where the value stays zero */
    SB_STORE_KINDS
} sb_store_kind;

typedef struct sb_parameter {
    sb_parameter_info info;
    sb_state kept[SB_STORE_KINDS];
    bool next_made; /* the learn graph makes the next value of it */
} sb_parameter;

typedef struct sb_store {
    sb_ctx *ctx;
    sb_arena arena;
    sb_parameter *all;
    size_t n, cap;
    sb_map by_name;
    sb_tensor gradients; /* of all parameters, with zeros between */
    int64_t runs;        /* complete steps, that count random numbers */
    int64_t updates;     /* of the parameters */
    int64_t waiting;     /* gradients in MEAN since the last update */
    char *note; /* a text of the caller's, saved with the rest; or NULL */
} sb_store;

void sb_store_init(sb_store *store, sb_ctx *ctx);
void sb_store_free(sb_store *store);

/* Exporters write vectors that are equal once, and an Identity for each further
 * one: they become constants of their own again, under the names that they had.
 * Equal matrices are meant to be one (tied embeddings) and stay so. */
SB_MUST_USE sb_status sb_store_untie(sb_graph *graph);
/* Finds the parameters of a graph: constants that rows call so, that are added
 * behind a layer, or whose names say it; and those that opt->train names. Fills
 * in what options and groups say of each.  `roles`, unless NULL, decides for
 * the constants that it names: 1 + sb_parameter_role; 0: no parameter. */
SB_MUST_USE sb_status sb_store_find(sb_store *store, const sb_graph *graph,
                                    const sb_learn_options *opt,
                                    const sb_map *roles);
/* Copies of all values, and memory for what the options need. */
SB_MUST_USE sb_status sb_store_alloc(sb_store *store, const sb_graph *graph,
                                     const sb_learn_options *opt);
/* NULL if there is none. */
sb_parameter *sb_store_get(const sb_store *store, const char *name);
/* One that is trained, to take elements as `value` has them; messages call
 * these `what`. */
SB_MUST_USE sb_status sb_store_get_trained(const sb_store *store,
                                           const char *name, const char *what,
                                           const sb_tensor *value,
                                           sb_parameter **out);
static inline bool sb_parameter_has(const sb_parameter *p, sb_store_kind kind)
{
    return p->kept[kind].t.data != NULL;
}
/* learner_ranks.c: all ranks take over what rank `root` has of a parameter. */
SB_MUST_USE sb_status sb_store_share(sb_store *store, sb_parameter *p,
                                     int root);
/* A change of elements by other code than an executor. */
void sb_parameter_set(sb_parameter *p, sb_store_kind kind, const void *data);
/* learner_mask.c: zeros where the mask, if there is one, has them. */
void sb_parameter_apply_mask(sb_parameter *p);
/* Makes trained parameters of the graph inputs with a default, which no pass
 * folds or merges; of statistics those that follow the batches. */
SB_MUST_USE sb_status sb_store_lift(const sb_store *store, sb_graph *graph,
                                    sb_learn_norm norm);
/* Puts copies of the values (or averages) into the graph, by name. */
SB_MUST_USE sb_status sb_store_overlay(const sb_store *store, sb_graph *graph,
                                       sb_learn_values values);

SB_MUST_USE sb_status sb_store_set_note(sb_store *store, const char *text,
                                        size_t len);
/* store_file.c */
SB_MUST_USE sb_status sb_store_save(const sb_store *store, const char *path);
SB_MUST_USE sb_status sb_store_load(sb_store *store, const char *path);

#endif
