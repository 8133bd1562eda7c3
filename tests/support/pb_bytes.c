/* Protobuf by hand: tag, length, bytes. */
#include "pb_bytes.h"

#include <assert.h>
#include <string.h>

enum { TYPE_INT = 2, TYPE_INTS = 7, FLOAT32 = 1 };

void pb_clear(pb *m)
{
    m->n = 0;
}

static void put(pb *m, const void *data, size_t n)
{
    assert(n <= sizeof m->data - m->n);
    if (n)
        memcpy(m->data + m->n, data, n);
    m->n += n;
}

static void put_varint(pb *m, uint64_t v)
{
    while (v >= 0x80) {
        put(m, &(unsigned char){(unsigned char)(v | 0x80)}, 1);
        v >>= 7;
    }
    put(m, &(unsigned char){(unsigned char)v}, 1);
}

void pb_int(pb *m, unsigned field, int64_t value)
{
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, (uint64_t)value);
}

void pb_float(pb *m, unsigned field, float value)
{
    put_varint(m, (uint64_t)field << 3 | 5);
    put(m, &value, sizeof value);
}

void pb_raw(pb *m, unsigned field, const void *data, size_t n)
{
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
    put(m, data, n);
}

void pb_text(pb *m, unsigned field, const char *text)
{
    pb_raw(m, field, text, strlen(text));
}

void pb_msg(pb *m, unsigned field, const pb *inner)
{
    pb_raw(m, field, inner->data, inner->n);
}

void pb_value(pb *graph, unsigned field, const char *name, int rank,
              const int64_t *dims)
{
    pb shape = {.n = 0}, tensor = {.n = 0}, type = {.n = 0}, info = {.n = 0};

    for (int i = 0; i < rank; i++) {
        pb dim = {.n = 0};
        pb_int(&dim, 1, dims[i]);
        pb_msg(&shape, 1, &dim);
    }
    pb_int(&tensor, 1, FLOAT32);
    if (rank >= 0)
        pb_msg(&tensor, 2, &shape);
    pb_msg(&type, 1, &tensor);
    pb_text(&info, 1, name);
    pb_msg(&info, 2, &type);
    pb_msg(graph, field, &info);
}

static void put_words(pb *m, unsigned field, const char *words)
{
    while (*words) {
        size_t n = strcspn(words, " ");
        /* `_` stands for an absent one. */
        pb_raw(m, field, words, n == 1 && *words == '_' ? 0 : n);
        words += n;
        words += strspn(words, " ");
    }
}

void pb_node(pb *graph, unsigned field, const char *op, const char *inputs,
             const char *outputs, const pb *attr)
{
    pb node = {.n = 0};

    put_words(&node, NODE_INPUT, inputs);
    put_words(&node, NODE_OUTPUT, outputs);
    pb_text(&node, NODE_OP, op);
    if (attr)
        pb_msg(&node, NODE_ATTR, attr);
    pb_msg(graph, field, &node);
}

pb *pb_attr_int(pb *m, const char *name, int64_t value)
{
    pb_clear(m);
    pb_text(m, ATTR_NAME, name);
    pb_int(m, ATTR_I, value);
    pb_int(m, ATTR_TYPE, TYPE_INT);
    return m;
}

pb *pb_attr_ints(pb *m, const char *name, const int64_t *v, size_t n)
{
    pb_clear(m);
    pb_text(m, ATTR_NAME, name);
    for (size_t i = 0; i < n; i++)
        pb_int(m, ATTR_INTS, v[i]);
    pb_int(m, ATTR_TYPE, TYPE_INTS);
    return m;
}

void pb_model(pb *model, const pb *graph, int64_t opset)
{
    pb id = {.n = 0};

    pb_clear(model);
    pb_int(model, MODEL_IR, 8);
    pb_int(&id, OPSET_VERSION, opset);
    pb_msg(model, MODEL_OPSET, &id);
    pb_msg(model, MODEL_GRAPH, graph);
}

void pb_relu_graph(pb *g)
{
    static const int64_t dims[] = {2, 3};

    pb_clear(g);
    pb_text(g, GRAPH_NAME, "main");
    pb_node(g, GRAPH_NODE, "Relu", "x", "y", NULL);
    pb_value(g, GRAPH_INPUT, "x", 2, dims);
    pb_value(g, GRAPH_OUTPUT, "y", 2, dims);
}

void pb_tensor_model(pb *m, const pb *tensor)
{
    pb g;

    pb_relu_graph(&g);
    pb_msg(&g, GRAPH_INITIALIZER, tensor);
    pb_model(m, &g, 17);
}

void pb_float_tensor(pb *t, int64_t d0, int64_t d1)
{
    pb_clear(t);
    pb_int(t, TENSOR_DIMS, d0);
    pb_int(t, TENSOR_DIMS, d1);
    pb_int(t, TENSOR_TYPE, 1); /* float */
    pb_text(t, TENSOR_NAME, "w");
}
