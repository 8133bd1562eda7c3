/* experimental.h - functions that the command `sparsebit` is made with and that
 * may change or go away in any version.  Not part of sparsebit.h. */
#ifndef SPARSEBIT_EXPERIMENTAL_H
#define SPARSEBIT_EXPERIMENTAL_H

#include <sparsebit/sparsebit.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the UTF-8 character at the start of `text`; 0 if there is none.
 *  Names come from files as they are, and may be anything. */
SB_API size_t sb_utf8_length(const char *text, size_t size);
/** Whether a file could be written at `path`, for asking before long work.
 *  Nothing is written.
 *  @return SB_IO, with what would go wrong */
SB_API SB_MUST_USE sb_status sb_output_check(sb_ctx *ctx, const char *path);
/** Makes a text fit to be shown as a part of one line: everything that would
 *  move the cursor of a terminal, break the line or change the direction of
 *  text, and bytes that are no UTF-8, become '?'. */
SB_API void sb_make_printable(char *text);
/** Fills with numbers that depend only on the seed: floats normal(0, 1),
 *  integers 0 or 1. */
SB_API void sb_tensor_fill_random(sb_tensor *tensor, uint64_t seed);
/** The result of sb_session_profile() as an HTML page with charts, complete in
 *  one file.
 *  @param title       for the head of the page, e.g. the model's name
 *  @param subtitle    a line below it
 *  @param peak_gflops for shares of the peak; 0: leave them out */
SB_API SB_MUST_USE sb_status sb_session_profile_save(sb_session *session,
                                                     const char *title,
                                                     const char *subtitle,
                                                     double peak_gflops,
                                                     const char *path);
/** Float32 operations per second in 1e9 that all threads of the context reach
 *  at best, measured with multiply-adds in registers (each counts as two);
 *  takes some ten milliseconds.
 *  @param how receives what was used, e.g. "AVX2 FMA"; may be NULL */
SB_API double sb_peak_measure(sb_ctx *ctx, const char **how);
/** Writes a text to a file, whole or not at all. */
SB_API SB_MUST_USE sb_status sb_text_save(sb_ctx *ctx, const char *path,
                                          const char *text);
/** sb_quant_model_print() in Mermaid's language, into a file. */
SB_API SB_MUST_USE sb_status
sb_quant_model_dump_mermaid(const sb_quant_model *qm, const char *path);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_EXPERIMENTAL_H */
