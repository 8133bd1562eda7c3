/* sparsebit.h - public interface of libsparsebit: all that is stable.
 *
 * Two more headers are included by name: plugin.h, to add operators, passes,
 * observers, quantizers and data sources; experimental.h, whose functions may
 * change in any version.
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
 *   ownership What comes back through an `out` parameter of type T ** belongs
 *             to the caller until the matching _free(); texts and bytes until
 *             sb_memory_free().  What comes back as `const T **`, or as a
 *             return value, is borrowed: it lives as long as the comment says,
 *             else as long as the object it came from.
 *   contexts  Functions that make something from nothing take a context.
 *             Objects carry it: functions on them, _free() included, do not
 *             take one.  A call with objects of two contexts fails with
 *             SB_BAD_ARG; sb_model_clone() brings a model into another context.
 *             Tensors are free of this rule: any function may read them.
 *   threads   One context per thread at a time; a context and its objects may
 *             move between threads, but are never used by two at once.
 *             Contexts do not know of each other.  sb_ctx_interrupt() may be
 *             called from anywhere, a signal handler included.  Callbacks run
 *             on the thread that made the call, unless their comment says
 *             otherwise.
 *   forks     A context and its objects may be used, and freed, in a child
 *             process as well if no call was running at the fork; the child
 *             starts threads of its own when it needs them.
 *   stack     Calls take up to 256 kB of the caller's stack, most of it for
 *             graphs inside of graphs; models are refused at 64 messages
 *             inside each other.
 *   structs   Those that the caller fills begin with `struct_size`, are
 *             initialized with their INIT macro and may grow at the end: a
 *             program built with an older header gives a shorter one, and the
 *             rest has its default.  Those that the library fills belong to it,
 *             are reached by pointer, and may grow at the end as well: never
 *             step through an array of them, arrays hold pointers.
 *   indices   Functions with an index return NULL or 0 out of range.
 */
#ifndef SPARSEBIT_SPARSEBIT_H
#define SPARSEBIT_SPARSEBIT_H

#include <sparsebit/analyze.h>
#include <sparsebit/base.h>
#include <sparsebit/comm.h>
#include <sparsebit/language.h>
#include <sparsebit/learn.h>
#include <sparsebit/model.h>
#include <sparsebit/prune.h>
#include <sparsebit/quantize.h>
#include <sparsebit/report.h>
#include <sparsebit/run.h>
#include <sparsebit/search.h>
#include <sparsebit/tensor.h>
#include <sparsebit/train.h>
#include <sparsebit/version.h>

#endif /* SPARSEBIT_SPARSEBIT_H */
