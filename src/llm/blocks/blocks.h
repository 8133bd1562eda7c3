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

/* ---- formats of a whole file (block_mix.c) ------------------------------ */

typedef struct sb_block_mix sb_block_mix;

/* What decides beside the name of a module. */
typedef struct sb_block_place {
    int64_t layers;  /* blocks of the network */
    int64_t sharing; /* heads of queries for each of values */
} sb_block_place;

/* By the name of a format, or of what llama.cpp calls a file; NULL: none. */
const sb_block_mix *sb_block_mix_find(const char *name);
/* For messages. */
const char *sb_block_mix_names(void);
/* Several formats by design. */
bool sb_block_mix_is_mixed(const sb_block_mix *mix);
/* The one of most matrices. */
const sb_weight_format *sb_block_mix_most(const sb_block_mix *mix);
/* The one of a module, `model.layers.3.mlp.down_proj`; NULL is one of no role.
 */
const sb_weight_format *sb_block_mix_for(const sb_block_mix *mix,
                                         const char *module,
                                         const sb_block_place *at);
/* The number of its layer; -1: it is in none. */
int64_t sb_block_mix_layer(const char *module);

/* ---- scales (block_search.c) -------------------------------------------- */

/* The format that takes the place of `f`, or `f` itself, for rows of `cols`
 * elements; NULL: none. */
const sb_weight_format *sb_block_format(const sb_weight_format *f,
                                        int64_t cols);
/* Bits of an element with its share of scales. */
double sb_block_bits(const sb_weight_format *f);
/* Elements that are searched together, at most, and how many blocks these are.
 */
enum { SB_BATCH_MOST = 2 * SB_BLOCK_MOST };
int sb_block_batch(const sb_weight_format *f);
/* Are elements within what scales of float16 reach?  Not if one is no number.
 */
bool sb_block_holds(const sb_weight_format *f, const float *x, size_t n);
/* Scales and offsets for the elements of n <= sb_block_batch(f) blocks that `f`
 * holds exactly, with a small sum of squared errors, each times its weight;
 * NULL: all weigh the same.  The format holds elements of their size.  Scales
 * are not 0.  Codes are to nearest. */
void sb_block_search(const sb_weight_format *f, const float *x,
                     const float *weight, int n, sb_block *out);

#endif
