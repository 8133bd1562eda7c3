/* weight_format.h - how weights are stored in files: floats, or blocks of
 * integers with scales, as GGUF has them.
 *
 * Each format is a row.  A block format can be read as floats, or as what
 * MatMulNBits wants: packed codes, a scale for each group of neighbors, and
 * zero points. */
#ifndef SB_LLM_WEIGHT_FORMAT_H
#define SB_LLM_WEIGHT_FORMAT_H

#include "tensor/dtype.h"

enum { SB_BLOCK_MOST = 256, SB_BLOCK_GROUPS = 16 };

/* One block: element i of group g is scale[g] * code[i] + offset[g]. */
typedef struct sb_block {
    uint8_t code[SB_BLOCK_MOST];
    float scale[SB_BLOCK_GROUPS], offset[SB_BLOCK_GROUPS];
} sb_block;

typedef struct sb_weight_format {
    const char *name;
    int gguf;       /* its number in GGUF files */
    sb_dtype dtype; /* of plain elements; SB_DTYPE_NONE: blocks */
    uint16_t block; /* elements of a block; 1: plain */
    uint16_t bytes; /* of a block */
    /* Of blocks: bits of a code as we pack it, elements that share a scale. */
    uint8_t bits, group;
    /* Offsets are -2^(bits - 1) scales, so zero points need not be stored. */
    bool symmetric;
    /* Least and greatest code; of symmetric ones less 2^(bits - 1). */
    int16_t lo, hi;
    void (*unpack)(const uint8_t *from, sb_block *to);
    /* (optional) The other way round, from codes as `unpack` gives them; scales
     * and offsets are rounded to what the block holds. */
    void (*pack)(const sb_block *from, uint8_t *to);
    int file_type; /* general.file_type of files that have mostly it */
} sb_weight_format;

/* By the number in a GGUF file, or by dtype; NULL if there is none. */
const sb_weight_format *sb_weight_format_gguf(uint32_t number);
const sb_weight_format *sb_weight_format_plain(sb_dtype dtype);
/* By name, of any case. */
const sb_weight_format *sb_weight_format_find(const char *name);
/* "F32, F16, ..." for messages. */
const char *sb_weight_format_names(void);

/* The first `n` elements, whole blocks, as floats. */
void sb_weight_to_f32(const sb_weight_format *f, const void *from, float *to,
                      size_t n);
/* The same of blocks as packed codes, scales and (unless symmetric) zero
 * points: element = (code - zero) * scale. */
void sb_weight_to_nbits(const sb_weight_format *f, const void *from, size_t n,
                        uint8_t *codes, float *scales, float *zeros);

#endif
