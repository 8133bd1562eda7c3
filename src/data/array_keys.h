/* array_keys.h - how samples that are arrays become the inputs of a run: rows
 * side by side in a batch, or arrays as they are; states between runs. */
#ifndef SB_DATA_ARRAY_KEYS_H
#define SB_DATA_ARRAY_KEYS_H

#include "data/source.h"

extern const sb_param_def sb_array_table[];

/* AXIS as a number for each input, in s->axes; names must be known, if there
 * are some.  Does nothing if that was done. */
SB_MUST_USE sb_status sb_source_read_axes(sb_source *s);

/* STATE: inputs, and the outputs that they follow. */
typedef struct sb_state_names {
    const char **inputs, **outputs;
    size_t n;
} sb_state_names;

SB_MUST_USE sb_status sb_source_read_states(const sb_source *s,
                                            sb_state_names *out);

#endif
