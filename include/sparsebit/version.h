/* version.h - the version of the headers, and of the library that is linked.
 *
 * Before 1.0 a new minor version may break programs, and has another soname
 * (libsparsebit.so.0.MINOR); a new patch version may not.  The build system
 * reads the three numbers from here. */
#ifndef SPARSEBIT_VERSION_H
#define SPARSEBIT_VERSION_H

#include <sparsebit/export.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SB_VERSION_MAJOR 0
#define SB_VERSION_MINOR 1
#define SB_VERSION_PATCH 0

/** One number that grows with the version, for `#if`. */
#define SB_VERSION_NUMBER \
    (SB_VERSION_MAJOR * 1000000 + SB_VERSION_MINOR * 1000 + SB_VERSION_PATCH)

/** The version of the library as text: "0.1.0". */
SB_API const char *sb_version(void);
/** The version of the library as SB_VERSION_NUMBER has it.  A program compares
 *  it with the macro to see whether it runs with the library it was built for.
 */
SB_API int sb_version_number(void);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_VERSION_H */
