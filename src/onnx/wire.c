/* The skeleton of a protobuf message: a walk over its fields that is guided by
 * protobuf-c's own descriptors and copies everything except big payloads.
 *
 * Lengths of nested messages are not known before their content is written,
 * so each takes a fixed five bytes, a padded varint, filled in afterwards. */
#include "onnx/wire.h"

#include <string.h>

enum {
    WIRE_VARINT = 0,
    WIRE_64BIT = 1,
    WIRE_BYTES = 2,
    WIRE_32BIT = 5,
    LENGTH_BYTES = 5,
    FIELD_MAPPED_OFFSET = 300000001,
    FIELD_MAPPED_SIZE = 300000002,
    FIELD_MAPPED_FIELD = 300000003,
};

typedef struct wire_field {
    uint32_t number;
    unsigned type;
    const uint8_t *begin; /* of the tag */
    const uint8_t *value; /* after the tag, and the length of bytes */
    const uint8_t *end;
    uint64_t missing; /* bytes that are not there any more */
} wire_field;

typedef struct wire_walk {
    sb_ctx *ctx;
    const char *what;
    const uint8_t *base; /* offsets count from here */
    uint8_t *out;
    size_t n_out, cap_out;
    size_t n_messages;
} wire_walk;

static bool read_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (*p == end)
            return false;
        uint8_t byte = *(*p)++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

static size_t write_varint(uint8_t *out, uint64_t v)
{
    size_t n = 0;

    while (v >= 0x80) {
        out[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    out[n++] = (uint8_t)v;
    return n;
}

/* Reads the field at *p and moves behind it; false if it is cut short or of a
 * kind that ONNX does not use. */
static bool next_field(const uint8_t **p, const uint8_t *end, wire_field *f)
{
    uint64_t tag = 0;
    uint64_t len = 0;

    f->begin = *p;
    f->missing = 0;
    if (!read_varint(p, end, &tag) || tag >> 32 || tag >> 3 == 0)
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->type = (unsigned)(tag & 7);
    f->value = *p;
    switch (f->type) {
    case WIRE_VARINT:
        if (!read_varint(p, end, &len))
            return false;
        f->end = *p;
        return true;
    case WIRE_64BIT:
        len = 8;
        break;
    case WIRE_32BIT:
        len = 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(p, end, &len))
            return false;
        f->value = *p;
        break;
    default:
        return false;
    }
    if (len > (uint64_t)(end - *p)) {
        f->missing = len - (uint64_t)(end - *p);
        return false;
    }
    *p += len;
    f->end = *p;
    return true;
}

static sb_status wire_put(wire_walk *w, const void *data, size_t len)
{
    /* protobuf-c itself works with 31-bit lengths. */
    if (len > (size_t)INT32_MAX - w->n_out)
        return sb_fail(w->ctx, SB_UNSUPPORTED,
                       "%s: more than 2 GB besides the tensors", w->what);
    SB_TRY(sb_grow(w->ctx, &w->out, &w->cap_out, w->n_out + len, 1));
    if (len)
        memcpy(w->out + w->n_out, data, len);
    w->n_out += len;
    return SB_OK;
}

static sb_status put_number(wire_walk *w, uint32_t field, uint64_t value)
{
    uint8_t bytes[20];
    size_t n = write_varint(bytes, (uint64_t)field << 3 | WIRE_VARINT);

    n += write_varint(bytes + n, value);
    return wire_put(w, bytes, n);
}

static void patch_length(uint8_t *out, size_t len)
{
    for (int i = 0; i < LENGTH_BYTES; i++)
        out[i] = (uint8_t)((len >> (7 * i) & 0x7f) |
                           (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

static sb_status wire_broken(const wire_walk *w, const uint8_t *at)
{
    return sb_fail(w->ctx, SB_BAD_MODEL,
                   "%s: not a valid ONNX file: broken field at byte %zu",
                   w->what, (size_t)(at - w->base));
}

/* A field that should go on where the file ends: most often half a download. */
static sb_status wire_cut(const wire_walk *w, const wire_field *f)
{
    return sb_fail(w->ctx, SB_BAD_MODEL,
                   "%s: not a valid ONNX file: cut short, the field at byte "
                   "%zu goes on for %llu B behind the end",
                   w->what, (size_t)(f->begin - w->base),
                   (unsigned long long)f->missing);
}

/* The field of a tensor that may stay in the file: raw_data, or float_data or
 * double_data (the same bytes on a little-endian machine) if it is in one
 * piece.  0 if there is none. */
static uint32_t mapped_field(const uint8_t *p, const uint8_t *end)
{
    uint32_t found = 0;
    wire_field f;

    while (p < end && next_field(&p, end, &f)) {
        if (f.number != SB_WIRE_FLOAT_DATA && f.number != SB_WIRE_RAW_DATA &&
            f.number != SB_WIRE_DOUBLE_DATA)
            continue;
        if (found || f.type != WIRE_BYTES ||
            f.end - f.value < SB_WIRE_MAPPED_MIN)
            return 0;
        found = f.number;
    }
    return found;
}

typedef struct wire_frame {
    const ProtobufCMessageDescriptor *desc;
    const uint8_t *p, *end;
    uint32_t mapped;  /* field of a tensor that is left in the file */
    uint64_t seen;    /* single sub-messages, by index in `desc` */
    size_t length_at; /* where the length goes when the message is done */
    bool whole;       /* inside a sparse tensor: everything is copied */
    bool metadata;    /* for people: a text may hold anything */
} wire_frame;

static sb_status wire_enter(wire_walk *w, wire_frame *stack, int depth,
                            const ProtobufCMessageDescriptor *desc,
                            const wire_field *f)
{
    static const uint8_t zero[LENGTH_BYTES] = {0};
    wire_frame *frame = &stack[depth];

    *frame = (wire_frame){.desc = desc, .p = f->value, .end = f->end};
    frame->whole = desc == &pb__sparse_tensor__descriptor ||
                   (depth > 0 && stack[depth - 1].whole);
    frame->metadata =
        desc == &pb__prop__descriptor &&
        (depth == 0 || stack[depth - 1].desc != &pb__tensor__descriptor);
    if (desc == &pb__tensor__descriptor && !frame->whole)
        frame->mapped = mapped_field(f->value, f->end);
    if (depth == 0)
        return SB_OK;
    uint8_t tag[10];
    SB_TRY(wire_put(w, tag,
                    write_varint(tag, (uint64_t)f->number << 3 | WIRE_BYTES)));
    frame->length_at = w->n_out;
    return wire_put(w, zero, sizeof zero);
}

/* Copies one field; a sub-message that must be looked into comes back in
 * *inner instead. */
static sb_status copy_field(wire_walk *w, wire_frame *frame,
                            const wire_field *f,
                            const ProtobufCMessageDescriptor **inner)
{
    const ProtobufCFieldDescriptor *fd =
        protobuf_c_message_descriptor_get_field(frame->desc, f->number);

    if (fd && fd->type == PROTOBUF_C_TYPE_MESSAGE) {
        uint64_t bit = UINT64_C(1) << (fd - frame->desc->fields);
        if (f->type != WIRE_BYTES)
            return wire_broken(w, f->begin);
        if (fd->label != PROTOBUF_C_LABEL_REPEATED) {
            if (frame->seen & bit)
                return sb_fail(w->ctx, SB_BAD_MODEL,
                               "%s: field '%s' is given twice at byte %zu",
                               w->what, fd->name, (size_t)(f->begin - w->base));
            frame->seen |= bit;
        }
        *inner = fd->descriptor;
        return SB_OK;
    }
    if (fd && fd->type == PROTOBUF_C_TYPE_STRING && !frame->metadata &&
        strcmp(fd->name, "doc_string") != 0 && f->type == WIRE_BYTES &&
        f->end > f->value && memchr(f->value, 0, (size_t)(f->end - f->value)))
        return sb_fail(w->ctx, SB_BAD_MODEL,
                       "%s: field '%s' has a zero byte in its text at byte %zu",
                       w->what, fd->name, (size_t)(f->begin - w->base));
    if (frame->desc == &pb__tensor__descriptor) {
        if (f->number >= FIELD_MAPPED_OFFSET && f->number <= FIELD_MAPPED_FIELD)
            return wire_broken(w, f->begin);
        if (f->number == frame->mapped) {
            SB_TRY(put_number(w, FIELD_MAPPED_OFFSET,
                              (uint64_t)(f->value - w->base)));
            SB_TRY(put_number(w, FIELD_MAPPED_SIZE,
                              (uint64_t)(f->end - f->value)));
            return put_number(w, FIELD_MAPPED_FIELD, f->number);
        }
    }
    return wire_put(w, f->begin, (size_t)(f->end - f->begin));
}

static sb_status
wire_walk_one(wire_walk *w, const ProtobufCMessageDescriptor *desc, size_t size)
{
    wire_frame stack[SB_WIRE_MAX_DEPTH];
    const wire_field all = {.value = w->base, .end = w->base + size};
    int depth = 0;

    SB_TRY(wire_enter(w, stack, 0, desc, &all));
    for (;;) {
        wire_frame *top = &stack[depth];
        if (top->p == top->end) {
            if (depth == 0)
                return SB_OK;
            patch_length(w->out + top->length_at,
                         w->n_out - top->length_at - LENGTH_BYTES);
            depth--;
            continue;
        }
        wire_field f;
        const uint8_t *at = top->p;
        if (!next_field(&top->p, top->end, &f))
            return depth == 0 && f.missing &&
                           protobuf_c_message_descriptor_get_field(desc,
                                                                   f.number)
                       ? wire_cut(w, &f)
                       : wire_broken(w, at);
        const ProtobufCMessageDescriptor *inner = NULL;
        SB_TRY(copy_field(w, top, &f, &inner));
        if (!inner)
            continue;
        if (++w->n_messages > SB_WIRE_MAX_MESSAGES)
            return sb_fail(w->ctx, SB_UNSUPPORTED,
                           "%s: more than %d nodes, values and the like",
                           w->what, SB_WIRE_MAX_MESSAGES);
        if (++depth == SB_WIRE_MAX_DEPTH)
            return sb_fail(w->ctx, SB_BAD_MODEL,
                           "%s: messages are nested deeper than %d", w->what,
                           SB_WIRE_MAX_DEPTH);
        SB_TRY(wire_enter(w, stack, depth, inner, &f));
    }
}

/* ---- protobuf-c's allocator over an arena ------------------------------- */
typedef struct wire_memory {
    sb_arena *arena;
    bool failed;
} wire_memory;

static void *memory_alloc(void *user, size_t size)
{
    wire_memory *m = user;
    void *p = sb_arena_alloc(m->arena, 1, size);

    m->failed = m->failed || !p;
    return p;
}

static void memory_free(void *user, void *ptr)
{
    (void)user;
    (void)ptr;
}

sb_status sb_wire_unpack(sb_arena *arena, const char *what,
                         const ProtobufCMessageDescriptor *desc,
                         const void *data, size_t size,
                         const ProtobufCMessage **out)
{
    wire_walk w = {.ctx = arena->ctx, .what = what, .base = data};
    wire_memory memory = {.arena = arena};
    ProtobufCAllocator alloc = {memory_alloc, memory_free, &memory};
    const uint8_t empty = 0;

    if (!w.base)
        w.base = &empty;
    sb_status status = wire_walk_one(&w, desc, size);
    if (status == SB_OK) {
        *out = protobuf_c_message_unpack(desc, &alloc, w.n_out,
                                         w.out ? w.out : &empty);
        if (!*out)
            status = memory.failed ? SB_NO_MEMORY
                                   : sb_fail(w.ctx, SB_BAD_MODEL,
                                             "%s: not a valid ONNX file", what);
    }
    sb_free(w.ctx, w.out);
    return status;
}

sb_status sb_wire_unknown(sb_arena *arena, const ProtobufCMessage *msg,
                          sb_bytes *out)
{
    size_t size = 0;

    *out = (sb_bytes){0};
    for (unsigned i = 0; i < msg->n_unknown_fields; i++)
        size += 10 + msg->unknown_fields[i].len;
    if (size == 0)
        return SB_OK;
    uint8_t *bytes = sb_arena_alloc(arena, size, 1);
    if (!bytes)
        return SB_NO_MEMORY;
    size_t n = 0;
    for (unsigned i = 0; i < msg->n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *f = &msg->unknown_fields[i];
        n += write_varint(bytes + n,
                          (uint64_t)f->tag << 3 | (unsigned)f->wire_type);
        memcpy(bytes + n, f->data, f->len);
        n += f->len;
    }
    *out = (sb_bytes){(const char *)bytes, n};
    return SB_OK;
}

sb_status sb_wire_set_unknown(sb_arena *arena, sb_bytes bytes,
                              ProtobufCMessage *msg)
{
    const uint8_t *begin = (const uint8_t *)bytes.data;
    const uint8_t *end = begin ? begin + bytes.len : begin;
    const uint8_t *p = begin;
    unsigned n = 0;
    wire_field f;

    while (p < end && next_field(&p, end, &f))
        n++;
    if (p < end)
        return sb_fail(arena->ctx, SB_BAD_ARG, "unknown fields are broken");
    if (n == 0)
        return SB_OK;
    msg->unknown_fields = sb_arena_alloc(arena, n, sizeof *msg->unknown_fields);
    if (!msg->unknown_fields)
        return SB_NO_MEMORY;
    for (p = begin; p < end && next_field(&p, end, &f);) {
        ProtobufCMessageUnknownField *u =
            &msg->unknown_fields[msg->n_unknown_fields++];
        /* protobuf-c counts the length prefix of bytes as data. */
        const uint8_t *data = f.begin;
        uint64_t tag = 0;
        (void)read_varint(&data, end, &tag);
        u->tag = f.number;
        u->wire_type = (ProtobufCWireType)f.type;
        u->len = (size_t)(f.end - data);
        u->data = sb_arena_copy(arena, data, u->len);
        if (!u->data)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

sb_status sb_wire_pack(sb_arena *arena, const ProtobufCMessage *msg,
                       sb_bytes *out)
{
    size_t size = protobuf_c_message_get_packed_size(msg);
    uint8_t *bytes = sb_arena_alloc(arena, size + 1, 1);

    if (!bytes)
        return SB_NO_MEMORY;
    size_t n = protobuf_c_message_pack(msg, bytes);
    *out = (sb_bytes){(const char *)bytes, n};
    return SB_OK;
}
