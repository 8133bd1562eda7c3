/* pb_bytes.h - protobuf messages put together by hand, field by field, with
 * ONNX's published field numbers, so that tests can write what no library
 * would. */
#ifndef SB_TESTS_PB_BYTES_H
#define SB_TESTS_PB_BYTES_H

#include <stddef.h>
#include <stdint.h>

typedef struct pb {
    unsigned char data[1 << 14];
    size_t n;
} pb;

/* Field numbers of the messages that tests write. */
enum {
    MODEL_IR = 1,
    MODEL_PRODUCER = 2,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_PROPS = 14,
    MODEL_TRAINING = 20,
    MODEL_FUNCTIONS = 25,
    OPSET_DOMAIN = 1,
    OPSET_VERSION = 2,
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE_INFO = 13,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP = 4,
    NODE_ATTR = 5,
    NODE_DOMAIN = 7,
    ATTR_NAME = 1,
    ATTR_F = 2,
    ATTR_I = 3,
    ATTR_S = 4,
    ATTR_T = 5,
    ATTR_G = 6,
    ATTR_INTS = 8,
    ATTR_TYPE = 20,
    ATTR_REF = 21,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_FLOATS = 4,
    TENSOR_INT32S = 5,
    TENSOR_STRINGS = 6,
    TENSOR_INT64S = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    TENSOR_UINT64S = 11,
    TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14,
    FUNCTION_NAME = 1,
    FUNCTION_INPUT = 4,
    FUNCTION_OUTPUT = 5,
    FUNCTION_NODE = 7,
    FUNCTION_OPSET = 9,
    FUNCTION_DOMAIN = 10,
};

void pb_clear(pb *m);
void pb_int(pb *m, unsigned field, int64_t value);
void pb_float(pb *m, unsigned field, float value);
void pb_raw(pb *m, unsigned field, const void *data, size_t n);
void pb_text(pb *m, unsigned field, const char *text);
void pb_msg(pb *m, unsigned field, const pb *inner);

/* A ValueInfo of a float tensor: field `field` of a graph. */
void pb_value(pb *graph, unsigned field, const char *name, int rank,
              const int64_t *dims);
/* A node with inputs and outputs separated by spaces, and one attribute (or
 * NULL) that is already a message. */
void pb_node(pb *graph, unsigned field, const char *op, const char *inputs,
             const char *outputs, const pb *attr);
/* One attribute. */
pb *pb_attr_int(pb *m, const char *name, int64_t value);
pb *pb_attr_ints(pb *m, const char *name, const int64_t *v, size_t n);
/* A model of opset `opset` around a graph. */
void pb_model(pb *model, const pb *graph, int64_t opset);
/* x -> Relu -> y, both float [2, 3]. */
void pb_relu_graph(pb *g);
/* A model with a tensor as its only weight; a float tensor without data. */
void pb_tensor_model(pb *m, const pb *tensor);
void pb_float_tensor(pb *t, int64_t d0, int64_t d1);

#endif
