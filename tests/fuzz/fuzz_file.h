/* fuzz_file.h - bytes as a file, for readers that take a path, and a context
 * that refuses absurd amounts of memory. */
#ifndef SB_TESTS_FUZZ_FILE_H
#define SB_TESTS_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#include "fuzz_budget.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int with_file(const uint8_t *data, size_t size,
                     void (*use)(sb_ctx *ctx, const char *path))
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    budget b = {0};
    const sb_allocator alloc = {sizeof alloc, &b, budget_resize, budget_free};
    sb_ctx *ctx = NULL;

    (void)snprintf(path, sizeof path, "%s/fuzz-%ld", folder ? folder : "/tmp",
                   (long)getpid());
    FILE *f = fopen(path, "wb");
    if (!f)
        return 0;
    size_t n = fwrite(data, 1, size, f);
    if (fclose(f) == 0 && n == size && sb_ctx_create(&alloc, &ctx) == SB_OK) {
        use(ctx, path);
        sb_ctx_free(ctx);
    }
    (void)unlink(path);
    if (b.live)
        abort(); /* a leak */
    return 0;
}

#endif
