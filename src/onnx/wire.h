/* wire.h - protobuf bytes, before protobuf-c sees them.
 *
 * protobuf-c copies every byte field.  For a file of weights that would be
 * the whole file, so the file is first rewritten into a skeleton: the same
 * message with each large tensor payload replaced by its place in the file
 * (Tensor.mapped_offset, mapped_size).  Only the skeleton is unpacked.
 *
 * The walk also checks what protobuf-c leaves open: nesting depth, and single
 * sub-messages given twice (legal, merged at quadratic cost, never written by
 * anyone). */
#ifndef SB_ONNX_WIRE_H
#define SB_ONNX_WIRE_H

#include "base/arena.h"
#include "tensor/tensor.h"

#include "onnx_schema.pb-c.h"

/* Tensor.mapped_field is one of these field numbers. */
enum { SB_WIRE_FLOAT_DATA = 4, SB_WIRE_RAW_DATA = 9, SB_WIRE_DOUBLE_DATA = 10 };

enum {
    SB_WIRE_MAX_DEPTH = 64, /* messages inside messages */
    /* An empty message takes 2 bytes in the file and 200 in memory. */
    SB_WIRE_MAX_MESSAGES = 8000000,
    SB_WIRE_MAPPED_MIN = 65 /* payloads of fewer bytes are copied */
};

/* Unpacks a message of type `desc` from `data`.  The result lives in `arena`;
 * `what` names the input in errors (SB_BAD_MODEL). */
SB_MUST_USE sb_status sb_wire_unpack(sb_arena *arena, const char *what,
                                     const ProtobufCMessageDescriptor *desc,
                                     const void *data, size_t size,
                                     const ProtobufCMessage **out);

/* The unknown fields of a message as one run of bytes in `arena`, ready to be
 * written again. */
SB_MUST_USE sb_status sb_wire_unknown(sb_arena *arena,
                                      const ProtobufCMessage *msg,
                                      sb_bytes *out);
/* The way back: attaches such bytes to a message that will be packed.  They
 * come from our own memory; broken ones are SB_BAD_ARG. */
SB_MUST_USE sb_status sb_wire_set_unknown(sb_arena *arena, sb_bytes bytes,
                                          ProtobufCMessage *msg);
/* A whole message as bytes in `arena`. */
SB_MUST_USE sb_status sb_wire_pack(sb_arena *arena, const ProtobufCMessage *msg,
                                   sb_bytes *out);

#endif
