/* prune.h - networks with fewer channels, or with weights that are zero.  Part
 * of sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_PRUNE_H
#define SPARSEBIT_PRUNE_H

#include <sparsebit/learn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_prune sb_prune; /* a model being pruned */

/** Options of sb_prune_create().  Start from SB_PRUNE_OPTIONS_INIT. */
typedef struct sb_prune_options {
    size_t struct_size;      /**< set by the INIT macro */
    const char *config;      /**< an sconfig.yaml */
    const char *config_text; /**< the text of one, instead of a file; or NULL */
    /** Patterns of nodes and modules that keep their channels or weights, as
     *  under EXCLUDE; one that matches nothing is an error. */
    const char *const *exclude;
    size_t n_exclude;
    /** Set the weights that make the channels to zero instead of removing
     *  them: the network keeps its size. */
    int masks_only;
    uint64_t seed; /**< of the criterion `random` */
    /** What must be left, as a share of the whole, 0: RATIO says it.  The ratio
     *  is searched for; patterns under SPECIFIC keep theirs. */
    double target_macs, target_params;
    /** The network before training, for the criterion `movement`; or NULL. */
    const sb_model *before;
    /** The same for the time of a run on the first batch that forward() is
     *  given, measured in turn with the whole network. */
    double target_latency;
    int scan; /**< keep samples for sb_prune_scan_groups() */
} sb_prune_options;

#define SB_PRUNE_OPTIONS_INIT                                                \
    {                                                                        \
        sizeof(sb_prune_options), NULL, NULL, NULL, 0, 0, 0, 0.0, 0.0, NULL, \
            0.0, 0                                                           \
    }

/** A model to prune, in the context of `model`, which is not changed and not
 *  needed later.  A network of which nothing can be removed is SB_UNSUPPORTED,
 *  with the reason.
 *
 *      create -> [forward ...] -> apply -> ... -> model, report -> free */
SB_API SB_MUST_USE sb_status sb_prune_create(const sb_model *model,
                                             const sb_prune_options *opt,
                                             sb_prune **out);
/** Frees it; NULL is allowed. */
SB_API void sb_prune_free(sb_prune *prune);

/** What samples are for. */
typedef enum sb_prune_data {
    SB_PRUNE_DATA_UNUSED, /**< nothing would look at them */
    SB_PRUNE_DATA_HELPS,  /**< weights and norms are fitted to them */
    SB_PRUNE_DATA_NEEDED  /**< the criterion needs them */
} sb_prune_data;
/** Whether forward() is to be called before apply(). */
SB_API sb_prune_data sb_prune_wants_data(const sb_prune *prune);
/** Runs the network, as it is now, on one batch, and looks at its values.
 *  @param inputs one for each input of the model */
SB_API SB_MUST_USE sb_status sb_prune_forward(sb_prune *prune,
                                              const sb_tensor *const *inputs,
                                              size_t n_inputs);
/** The same with samples of a data set, whose labels criteria of the loss
 *  (`taylor`, `fisher`) go by. */
SB_API SB_MUST_USE sb_status sb_prune_forward_batch(sb_prune *prune,
                                                    const sb_batch *batch);
/** Removes what one of ITERATIONS steps is to remove; criteria that change
 *  weights take some layers at a time.  If samples were given and the network
 *  has batch norms, a last call removes nothing: it sets their statistics to
 *  those that 64 samples or more show in the pruned network.  Until the last
 *  one, give samples again.
 *  @param more 0 after the last step; may be NULL */
SB_API SB_MUST_USE sb_status sb_prune_apply(sb_prune *prune, int *more);
/** The network as it is after apply(); free it. */
SB_API SB_MUST_USE sb_status sb_prune_model(const sb_prune *prune,
                                            sb_model **out);

/** One layer: a weight that makes channels, or whose elements become zero. */
typedef struct sb_prune_layer {
    const char *name;   /**< of its node */
    const char *op;     /**< operator of the node */
    const char *weight; /**< name of the initializer */
    /** Output channels; of unstructured pruning elements of the weight. */
    int64_t size;
    int64_t removable; /**< of these, what could go */
    int64_t removed;   /**< what went, or became zero */
    /** Why the rest of `size` cannot go, or NULL; and the node that says so,
     *  NULL for inputs and outputs of the network. */
    const char *reason;
    const char *reason_node;
    /** More stayed than the ratio said, so that something is left. */
    int held;
} sb_prune_layer;

/** What an index of a removed channel was. */
typedef enum sb_prune_role {
    SB_PRUNE_ROLE_MAKES, /**< it made the channel */
    SB_PRUNE_ROLE_READS, /**< it read the channel, in a sum */
    SB_PRUNE_ROLE_OTHER  /**< biases, norms, and others that go along */
} sb_prune_role;

/** Indices that were cut from an initializer. */
typedef struct sb_prune_cut {
    const char *value; /**< name of the initializer */
    int axis;
    sb_prune_role role;
    const int64_t *indices;
    size_t n_indices;
} sb_prune_cut;

/** What has been, and can be, removed. */
typedef struct sb_prune_report {
    const sb_prune_layer *const *layers;
    size_t n_layers;
    int64_t size, removable, removed; /**< summed up over the layers */
    const sb_prune_cut *const *cuts;  /**< of the last step */
    size_t n_cuts;
    /** That was applied, or found for a target; 0: each group has its own. */
    double ratio;
    int structured; /**< sizes are channels, otherwise weights */
    /** RATIO or one of SPECIFIC is above 0, or there is NM, or a target. */
    int asked;
} sb_prune_report;

/** What was done by the last apply(), or what could be done before it; borrowed
 *  until the next call.  Sizes are those before the first step. */
SB_API SB_MUST_USE sb_status sb_prune_report_get(sb_prune *prune,
                                                 const sb_prune_report **out);

/* ---- what channels are worth ---------------------------------------------- */

/** A group of channels, and all others whole. */
typedef struct sb_prune_point {
    double ratio;    /**< of its channels */
    int64_t removed; /**< channels */
    double error;    /**< of the outputs, relative, root of mean square */
    double accuracy; /**< top-1, 0 to 1; NaN without labels */
    double macs, params;
} sb_prune_point;

/** Channels that come out of the same layers. */
typedef struct sb_prune_group {
    const char *name; /**< of the first of these layers */
    const char *op;
    int64_t channels;
    size_t index; /**< among all groups of the network */
    const sb_prune_point *const *points;
    size_t n_points;
} sb_prune_group;

/** What each group of channels can spare. */
typedef struct sb_prune_scan {
    const sb_prune_group *const *groups;
    size_t n_groups;
    size_t samples;
    double accuracy; /**< of the whole network; NaN without labels */
    double macs, params;
} sb_prune_scan;

/** Prunes each group by itself, at each of these ratios (with re-fit, if the
 *  configuration has it), and runs all samples that forward() was given.  After
 *  it, targets choose a ratio for each group: those first whose error rises
 *  least for what they save.  Before apply().
 *  @param ratios rising, above 0 and below 1
 *  @param out    borrowed until the next scan, or free; may be NULL */
SB_API SB_MUST_USE sb_status sb_prune_scan_groups(sb_prune *prune,
                                                  const double *ratios,
                                                  size_t n,
                                                  const sb_prune_scan **out);

/* ---- while a network is trained ------------------------------------------- */

/** With a SCHEDULE, and of single weights, pruning goes on while the network is
 *  trained, by masks of a learner; otherwise apply() comes before training.
 *
 *      source -> sb_learner_create -> attach
 *      steps; when share() has grown: follow -> [forward ...] -> mask
 *      sb_learner_model -> finish */
SB_API int sb_prune_is_gradual(const sb_prune *prune);
/** The share of every ratio that SCHEDULE has reached.
 *  @param epoch  now, a real number from 0
 *  @param epochs in all */
SB_API double sb_prune_share(const sb_prune *prune, double epoch,
                             double epochs);
/** The network as it is pruned, to be trained; free it. */
SB_API SB_MUST_USE sb_status sb_prune_source(const sb_prune *prune,
                                             sb_model **out);
/** Gives the learner masks, of ones, where there will be zeros. */
SB_API SB_MUST_USE sb_status sb_prune_attach(sb_prune *prune,
                                             sb_learner *learner);
/** Takes over the learner's parameters. */
SB_API SB_MUST_USE sb_status sb_prune_follow(sb_prune *prune,
                                             const sb_learner *learner);
/** Chooses what goes, besides what is gone, and sets the masks.
 *  @param share of every ratio
 *  @param more  not 0: give all samples and call it again; may be NULL */
SB_API SB_MUST_USE sb_status sb_prune_mask(sb_prune *prune, sb_learner *learner,
                                           double share, int *more);
/** A trained network without the channels that masks hold at zero; free it. */
SB_API SB_MUST_USE sb_status sb_prune_finish(sb_prune *prune,
                                             const sb_learner *learner,
                                             const sb_model *trained,
                                             sb_model **out);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_PRUNE_H */
