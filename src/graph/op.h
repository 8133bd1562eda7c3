/* op.h - what one operator is: a row of facts and functions.
 *
 * Other code asks the row instead of switching over operator names.  To add
 * an operator write src/ops/<family>/<name>.c ending with its row, add a line
 * to src/ops/ops.def, add a test; see src/ops/TEMPLATE.c. */
#ifndef SB_GRAPH_OP_H
#define SB_GRAPH_OP_H

#include "base/threads.h"
#include "graph/graph.h"

typedef struct sb_op_def sb_op_def;

/* The opset that every node of the main domain is written in after load. */
enum { SB_CANONICAL_OPSET = 25 };

/* The domain of operators that exist only inside an executor's graph. */
#define SB_FUSED_DOMAIN "sparsebit"

/* ---- attributes ---------------------------------------------------------
 * The framework reads a node's attributes into a struct by this table before
 * any of the operator's functions is called, and refuses wrong types. */
typedef struct sb_ints {
    const int64_t *v;
    size_t n; /* 0 if the attribute is absent */
} sb_ints;

typedef struct sb_floats {
    const float *v;
    size_t n;
} sb_floats;

typedef struct sb_strings {
    const sb_bytes *v;
    size_t n;
} sb_strings;

/* Field types: INT int64_t, FLOAT float, STRING const char *, INTS sb_ints,
 * FLOATS sb_floats, STRINGS sb_strings, TENSOR const sb_tensor *, GRAPH
 * sb_graph *.  Absent: `i`, `f`, `s`; arrays empty, tensors and graphs NULL. */
typedef struct sb_attr_def {
    const char *name;
    sb_attr_type type;
    size_t offset;
    int64_t i;
    float f;
    const char *s;
    bool required;
    bool flag; /* of INT: 0 or 1, nothing else */
} sb_attr_def;

/* ---- shape inference ----------------------------------------------------
 * Called with whatever is known: symbolic dimensions while a model is being
 * inspected, numbers only when a plan is made.  An operator sets dtype and
 * shape of its outputs as far as it can and leaves the rest unknown; it fails
 * (SB_BAD_MODEL) only on what can never be right. */
typedef struct sb_fact {
    sb_type type;
    const sb_tensor *constant; /* elements, if they are known */
    /* For int64/int32 tensors of rank 0 or 1 that compute shapes: the elements
     * as dimensions, some of them symbols.  `rank` is the element count, or
     * -1 if nothing is known.  Known constants appear here too. */
    sb_shape content;
} sb_fact;

typedef struct sb_infer {
    sb_ctx *ctx;
    const sb_graph *graph;
    const sb_node *node;
    const void *attrs; /* the operator's struct */
    uint32_t n_in, n_out;
    const sb_fact *const *in; /* NULL where an optional input is absent */
    sb_fact *out;             /* dtype NONE, rank -1, content.rank -1 */
} sb_infer;

/* ---- execution ----------------------------------------------------------
 * prepare() sees concrete shapes of all inputs and outputs, and the data of
 * constant inputs (in[i]->data; NULL for others).  It may set `state`
 * (released by release()), and `scratch_size`.  forward() sees all data and
 * allocates nothing.  A node with shapes that depend on data is prepared anew
 * at each run, then all inputs have data. */
typedef struct sb_kernel sb_kernel;

/* An input (a weight) in the form that a kernel reads it in.  The executor
 * keeps it and gives the same one to every kernel, in any plan, that wants the
 * same form of the same value; the kernel fills it when it is stale.  See
 * ops/packed_input.h. */
typedef struct sb_pack {
    void *data; /* there from forward() on; with `current`, in prepare() too */
    uint64_t version; /* of the value when it was packed; UINT64_MAX: never */
    const uint64_t *current; /* of the value now; NULL: new at each run */
} sb_pack;

typedef struct sb_pack_form {
    size_t bytes;     /* of the packed elements */
    int64_t at;       /* first element of the input that they come from */
    const void *form; /* two forms are the same if these bytes are */
    size_t form_size;
} sb_pack_form;

/* What the executor offers to a running kernel. */
typedef struct sb_kernel_host {
    /* Asked in prepare(): a place for input i in another form. */
    sb_status (*pack)(sb_kernel *k, uint32_t i, const sb_pack_form *form,
                      sb_pack **out);
    /* Gives output i its shape and memory, for operators whose infer() could
     * not know the shape even with all input data at hand. */
    sb_status (*resize_out)(sb_kernel *k, uint32_t i, sb_dtype dtype, int rank,
                            const int64_t *dims);
    /* Runs a sub-graph of the node with these inputs; the values it captures
     * are found by the executor.  `outputs` are borrowed until the next
     * call. */
    sb_status (*run_body)(sb_kernel *k, const sb_graph *body,
                          const sb_tensor *const *inputs,
                          const sb_tensor **outputs);
    /* Shows the tensor to the observer with that ID. */
    sb_status (*observe)(sb_kernel *k, int64_t id, const sb_tensor *x);
    /* The same observer wants, if tap->look is set, to see x in pieces while
     * it is made; observe() follows. */
    sb_status (*tap)(sb_kernel *k, int64_t id, const sb_tensor *x, sb_tap *tap);
    /* How many ranks run this graph together, each on its part of a batch, and
     * which of them this is; 1 if it runs alone. */
    int (*ranks)(const sb_kernel *k, int *rank);
    /* Adds up numbers over these ranks; alone they stay as they are. */
    sb_status (*sum)(sb_kernel *k, double *x, size_t n);
} sb_kernel_host;

struct sb_kernel {
    sb_ctx *ctx;
    const sb_graph *graph;
    const sb_node *node;
    const sb_op_def *op;
    const void *attrs;
    uint32_t n_in, n_out;
    sb_tensor *const *in;  /* NULL where absent; implicit inputs follow n_in */
    sb_tensor *const *out; /* NULL for outputs that are not needed */
    void *state;
    /* Bit i says that input i is a constant, or a state that changes now and
     * then: packed, it serves many runs. */
    uint32_t lasting;
    /* Set by prepare(): bit i says that constant input i was packed and its
     * elements are not read again, so that the executor may drop its copy. */
    uint32_t packed;
    size_t scratch_size;
    void *scratch;
    bool exact; /* no faster algorithms that round differently */
    bool brief; /* factors of products may be rounded to bfloat16 */
    /* (optional) Wants to see output 0 in pieces while it is made.  A kernel
     * that does not make it so leaves it alone; one that does shows all. */
    const sb_tap *tap;
    const sb_kernel_host *host;
    void *host_data; /* the executor's own */
};

/* ---- samples of a batch --------------------------------------------------
 * Where the samples are in a value: index i of `axis` belongs to sample
 * i / step.  A value that is the same for all samples (weights, shapes) has
 * axis SB_BATCH_NONE. */
enum { SB_BATCH_NONE = -1 };

typedef struct sb_samples {
    int axis;
    int64_t step;
} sb_samples;

typedef struct sb_batch_trace {
    const sb_graph *graph; /* with shapes, the batch a symbol */
    const sb_node *node;
    const sb_op_def *op;
    const sb_samples *in; /* by input; at least one has samples */
    sb_samples *out;      /* by output, none have samples yet */
} sb_batch_trace;

/* ---- gradients ----------------------------------------------------------
 * grad() adds the nodes that compute the gradients of a node's inputs from
 * those of its outputs, once, when a graph is differentiated.  What it adds
 * with is in ops/grad/grad.h. */
typedef struct sb_grad {
    sb_graph *graph;
    const sb_node *node; /* a copy: adding nodes moves the array */
    const sb_op_def *op;
    const void *attrs;
    const sb_value_id *dy; /* by output; SB_NONE: zero */
    const bool *wanted;    /* by input */
    sb_value_id *dx;       /* by input, all SB_NONE: zero */
    sb_status status;      /* of the first addition that failed */
    char reason[96];       /* why this node cannot be learned through */
} sb_grad;

/* ---- indices that stand and fall together (pruning) ----------------------
 * tie() says which indices of the axes of a node's operands belong together;
 * recut() restates, when some are cut away, what a node says about sizes.  Both
 * are written with ops/tie/tie.h. */
typedef struct sb_ties sb_ties;
typedef struct sb_cut sb_cut;

/* ---- facts -------------------------------------------------------------- */
enum {
    /* Output 0 has the elements of input 0 in the same order: no copy needed
     * (Reshape, Squeeze, Identity ...). */
    SB_OP_VIEW = 1 << 0,
    /* Output 0 may be written over input 0 of the same size. */
    SB_OP_INPLACE = 1 << 1,
    /* Output elements depend on nothing but corresponding input elements, so
     * any memory layout shared by inputs and output is fine. */
    SB_OP_ELEMENTWISE = 1 << 2,
    /* Kernels take f32 only: the executor converts f16, bf16 and f64 inputs,
     * and the outputs back. */
    SB_OP_F32 = 1 << 3,
    /* Not a function of the inputs alone (random): never folded or merged. */
    SB_OP_IMPURE = 1 << 4,
    /* forward() calls host->resize_out for its outputs, because their shape is
     * itself the result of the computation (NonZero, Unique, If ...). */
    SB_OP_DATA_SHAPE = 1 << 5,
    /* Reads only the shape of input 0, never its elements (Shape, Size). */
    SB_OP_SHAPE_ONLY = 1 << 6,
    /* Inputs 0 and 1 may change places. */
    SB_OP_COMMUTES = 1 << 7,
    /* Output 0 may be written over input 3, an addend of the same size. */
    SB_OP_INPLACE_SUM = 1 << 8,
    /* Reads no more of input 0 than it writes (Gather, Slice). */
    SB_OP_PICKS = 1 << 9,
    /* `aux` is an sb_ew_def (ops/elementwise.h) whose f32 function does all
     * the work for f32 inputs; of any number of inputs, for two. */
    SB_OP_STRIPS = 1 << 10,
    /* Computes with quantized integers (QLinearConv, MatMulNBits ...). */
    SB_OP_INTEGER = 1 << 11,
    /* Slides its weight over the dimensions behind the channels: a weight is
     * [channels, channels, window...]. */
    SB_OP_CONV = 1 << 12,
    /* Output 0 consists of the elements of all inputs (Concat). */
    SB_OP_JOINS = 1 << 13,
    /* Results do not change smoothly with the inputs (Shape, ArgMax, Floor,
     * comparisons): gradients are zero. */
    SB_OP_FLAT = 1 << 14,
    /* Output i may be written over input i, if that is a state, for every
     * output (optimizer steps). */
    SB_OP_INPLACE_EACH = 1 << 15,
    /* Inputs may be sequences; for all others they are refused. */
    SB_OP_SEQUENCES = 1 << 16,
    /* Output 0 is s times as large for an input 0 s times as large, for any
     * s > 0, be it another one for each channel (pools, LeakyRelu). */
    SB_OP_HOMOGENEOUS = 1 << 17,
    /* Output 0 is a product with input 1, plus input 2 if there is one, each
     * with an element for each index of the last axis (norms). */
    SB_OP_GAINS = 1 << 18,
    /* Input i from 2 on is input i of the body in its first run (Loop). */
    SB_OP_CARRIES = 1 << 19,
    /* Output 0 is as long in steps as input 0 in factors: 0.001 and 0.01 are
     * as far apart as 1 and 10 (Log). */
    SB_OP_LOG = 1 << 20,
    /* And the other way round (Exp). */
    SB_OP_EXP = 1 << 21,
};

enum { SB_ARITY_ANY = 255 };

/* How quantization treats an operator.  A quantizer sits on an input; the
 * result is quantized, if at all, where it is read. */
typedef enum sb_quant_role {
    SB_ROLE_UNKNOWN,   /* not thought of: stays in float */
    SB_ROLE_PASS,      /* moves or picks elements: none of its own */
    SB_ROLE_SINGLE,    /* input 0 */
    SB_ROLE_ACT,       /* the same, and joins the layer before it; which ones
                          do is what the original does */
    SB_ROLE_RELU,      /* the same, and joins a sum as well */
    SB_ROLE_NORM,      /* BatchNormalization: joins the layer before it */
    SB_ROLE_WEIGHTED,  /* input 0, and input 1 if it is constant: a weight */
    SB_ROLE_TABLE,     /* input 0 if it is constant: rows of an embedding */
    SB_ROLE_RECURRENT, /* inputs 1 and 2 if they are constant: weights; where
                          nothing is calibrated */
    SB_ROLE_MULTI,     /* every computed input, if there are several */
    SB_ROLE_SUM,       /* the same, where the settings ask for it */
    SB_ROLE_QUANTIZE,  /* QuantizeLinear: is itself a quantizer */
    SB_ROLE_DEQUANTIZE,
} sb_quant_role;

/* What output 0 is for any input, and how much of input 0 it tells apart. */
typedef struct sb_result_range {
    double lo, hi; /* bounds of output 0; infinite where there are none */
    /* (optional) Inputs that are bounds where they are constant scalars
     * (Clip); without them: as lo and hi say. */
    uint8_t lo_in, hi_in;
    /* Output 0 is input 0 where that is within the bounds. */
    bool clips;
    /* (optional) Output 0 as a function of input 0, for functions that come
     * from 0 at -infinity, fall to their least value at `turn` and rise from
     * there on: numbers far below `turn` are not told apart. */
    double (*curve)(double x);
    double turn;
} sb_result_range;

struct sb_op_def {
    const char *name;
    const char *domain; /* NULL for ai.onnx */
    /* Lowest opset in which a node written as we write it means what we mean;
     * additions of element types do not count. */
    int since;
    uint8_t in_min, in_max; /* SB_ARITY_ANY: no limit */
    uint8_t out_min, out_max;
    uint32_t flags;
    /* With SB_OP_F32: bit i is set if input i need not be a float; the executor
     * refuses other types for all others. */
    uint32_t any_type;
    size_t attrs_size; /* 0: no attributes are read */
    const sb_attr_def *attrs;
    const void *aux; /* (optional) shared by a family, e.g. its function */
    sb_quant_role quant;
    /* Bit i says that input i, where it is a constant, is learned: weights,
     * biases, tables; a scale or zero point of a quantizer; or a statistic that
     * follows the batches, whose next value is output i. */
    uint32_t parameters, scales, statistics;
    /* (optional) Of SB_OP_INTEGER: the input that is the weight. */
    uint8_t weight_input;
    /* (optional) The axis of a weight that counts output channels, negative
     * from the end.  Without it: 0.  Ask sb_op_weight_axis(). */
    int (*weight_axis)(const sb_node *node);
    /* (optional) Without it nothing is known of the numbers. */
    const sb_result_range *range;
    /* (optional) The operator of the main domain that computes the same of
     * integers, with int32 results whose scale is applied behind it.  Without
     * it: none. */
    const char *integer;
    /* (optional) The operator of com.microsoft that computes the same of
     * weights in bytes, and rounds to bytes what meets them.  Without it:
     * none. */
    const char *dynamic;
    /* (optional) For rows that pick elements in some modes and compute new
     * ones between them in others (Resize): does this node compute?  Without
     * it the role says it. */
    bool (*interpolates)(const sb_node *node);
    /* (optional) Where the samples are in the outputs (ops/batch_rules.h);
     * false if a sample's results may depend on other samples.  Without it:
     * ELEMENTWISE rows follow their inputs, others are not trusted. */
    bool (*batch)(sb_batch_trace *t);
    sb_status (*infer)(sb_infer *in);
    /* (optional) Memory layouts that the kernel wants, asked between infer()
     * and prepare(): k->in[i]->layout says how inputs lie now, `in` and `out`
     * come in as PLAIN and may be set to CHANNELS_LAST.  The executor brings
     * inputs into the layout asked for.  Without it: plain throughout, but
     * ELEMENTWISE rows follow their inputs. */
    void (*layout)(const sb_kernel *k, sb_layout *in, sb_layout *out);
    /* (optional) For rows that are views in some layouts only (Transpose),
     * asked when layouts are settled: does output 0 lie in memory as input 0
     * does?  Without it: as SB_OP_VIEW says. */
    bool (*is_view)(const sb_kernel *k);
    sb_status (*prepare)(sb_kernel *k); /* (optional) nothing to prepare */
    sb_status (*forward)(sb_kernel *k); /* (optional) known but cannot run */
    void (*release)(sb_kernel *k);      /* (optional) sb_free(state) */
    /* (optional) Sets dx of the inputs that are wanted.  Results other than
     * floats have no gradient, whatever the row says.  Without it the node
     * cannot be learned through, unless the row is SB_OP_FLAT. */
    sb_status (*grad)(sb_grad *g);
    /* (optional) An axis that it does not mention is fixed.  Without it:
     * ELEMENTWISE rows tie equal axes, with broadcasting; of others every axis
     * is fixed. */
    sb_status (*tie)(sb_ties *t);
    /* (optional) Nodes of this row say nothing about sizes. */
    sb_status (*recut)(sb_cut *c);
    /* (optional) For rows that look at input 0: asked before it is made, may
     * set `tap`, which is empty, to see it in pieces. */
    sb_status (*tap)(sb_kernel *k, sb_tap *tap);
    /* (optional) multiply-accumulates of one run; 0 otherwise */
    double (*macs)(const sb_kernel *k);
    /* (optional) What a fused node consists of, for people ("Conv+Relu"), into
     * `out`; its name otherwise. */
    void (*label)(const sb_kernel *k, char *out, size_t size);
};

#endif
