/* peak.h - how fast this machine can multiply and add at best. */
#ifndef SB_API_PEAK_H
#define SB_API_PEAK_H

#include "base/ctx.h"

/* Float32 operations a second, in 1e9, of independent multiply-adds in
 * registers, summed over all threads of the context; a multiply-add counts as
 * two.  Takes some ten milliseconds.  `how` receives the instructions used.  0
 * if memory is out. */
double sb_peak_gflops(sb_ctx *ctx, const char **how);

#endif
