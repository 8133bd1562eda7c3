/* blocks.h - writing blocks: scales that a format holds, and their bytes. */
#ifndef SB_LLM_BLOCKS_BLOCKS_H
#define SB_LLM_BLOCKS_BLOCKS_H

#include "llm/weight_format.h"

/* ---- bytes (k_pack.c) --------------------------------------------------- */

/* Blocks of 256 whose scales and offsets are whole numbers times a float16.
 * If those of `from` are such, they are kept; else the nearest are taken. */
void sb_pack_q2_k(const sb_block *from, uint8_t *to);
void sb_pack_q3_k(const sb_block *from, uint8_t *to);
void sb_pack_q4_k(const sb_block *from, uint8_t *to);
void sb_pack_q5_k(const sb_block *from, uint8_t *to);
void sb_pack_q6_k(const sb_block *from, uint8_t *to);

/* ---- scales (block_search.c) -------------------------------------------- */

/* The format that takes the place of `f`, or `f` itself, for rows of `cols`
 * elements; NULL: none. */
const sb_weight_format *sb_block_format(const sb_weight_format *f,
                                        int64_t cols);
/* Bits of an element with its share of scales. */
double sb_block_bits(const sb_weight_format *f);
/* Scales and offsets for the elements of a block that `f` holds exactly, with a
 * small sum of squared errors, each times its weight; NULL: all weigh the
 * same.  Scales are not 0.  Codes are to nearest. */
void sb_block_search(const sb_weight_format *f, const float *x,
                     const float *weight, sb_block *out);

#endif
