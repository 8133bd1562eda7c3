/* sparsebit.h - public interface of libsparsebit.
 *
 * Life of a program:
 *
 *     sb_ctx_create -> sb_model_load (or _create and the builder calls)
 *         -> sb_model_simplify -> sb_session_create -> sb_session_run ...
 *         -> sb_model_save -> _free in any order, the context last
 *
 * Rules that hold for every function here
 *   status    A function that can fail returns sb_status; SB_OK is 0.  On any
 *             other value *out is untouched and sb_ctx_error() says why, in
 *             one line.
 *   ownership What comes back through an `out` parameter belongs to the caller
 *             until the matching _free().  What comes back as a return value
 *             is borrowed and lives as long as the object it came from.
 *   threads   One sb_ctx per thread; objects may move between threads, but
 *             are never used by two at once.  sb_ctx_interrupt() may be called
 *             from anywhere, a signal handler included.
 */
#ifndef SPARSEBIT_SPARSEBIT_H
#define SPARSEBIT_SPARSEBIT_H

#include <sparsebit/base.h>
#include <sparsebit/model.h>
#include <sparsebit/quantize.h>
#include <sparsebit/run.h>

#endif /* SPARSEBIT_SPARSEBIT_H */
