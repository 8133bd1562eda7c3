/* export.h - visibility and attributes of the public functions. */
#ifndef SPARSEBIT_EXPORT_H
#define SPARSEBIT_EXPORT_H

#if defined(__GNUC__)
#define SB_API           __attribute__((visibility("default")))
#define SB_MUST_USE      __attribute__((warn_unused_result))
#define SB_DEPRECATED(m) __attribute__((deprecated(m)))
#else
#define SB_API
#define SB_MUST_USE
#define SB_DEPRECATED(m)
#endif

#endif /* SPARSEBIT_EXPORT_H */
