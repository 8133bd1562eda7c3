/* mark.h - a number by which files tell whether something is still the same:
 * the weights that a run began with, the samples that layers were rounded for.
 * It guards against mistakes, not against malice.  Files keep it, so it must
 * not change. */
#ifndef SB_TENSOR_MARK_H
#define SB_TENSOR_MARK_H

#include <stddef.h>
#include <stdint.h>

#define SB_MARK_BEGIN UINT64_C(0xcbf29ce484222325)

/* The mark of everything so far and these bytes. */
uint64_t sb_mark(uint64_t mark, const void *bytes, size_t n);

#endif
