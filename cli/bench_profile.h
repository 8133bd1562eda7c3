/* bench_profile.h - what `sparsebit bench --profile` prints. */
#ifndef SB_CLI_BENCH_PROFILE_H
#define SB_CLI_BENCH_PROFILE_H

#include "cli.h"

typedef struct bench_peak {
    double gflops;
    const char *how;
} bench_peak;

/* Two tables: by operator type, and the `top` most expensive steps (0: all of
 * them, in order of execution). */
void bench_profile_print(const sb_profile *p, const bench_peak *peak,
                         size_t top);
/* The same as the member "profile" of an object that is open; all steps. */
void bench_profile_json(cli_json *j, const sb_profile *p,
                        const bench_peak *peak);

#endif
