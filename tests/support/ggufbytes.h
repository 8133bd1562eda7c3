/* ggufbytes.h - GGUF files built from pieces, and a file to put bytes in.  A
 * test that includes it defines _POSIX_C_SOURCE before all else. */
#ifndef SB_TESTS_GGUFBYTES_H
#define SB_TESTS_GGUFBYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sbtest.h"

static char tmp_path[512];

static inline const char *write_file(const void *data, size_t size)
{
    const char *folder = getenv("TMPDIR");

    (void)snprintf(tmp_path, sizeof tmp_path, "%s/sb-llm-%ld",
                   folder ? folder : "/tmp", (long)getpid());
    FILE *f = fopen(tmp_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return tmp_path;
}

typedef struct {
    uint8_t data[1024];
    size_t n;
} gguf_bytes;

static inline void put(gguf_bytes *b, uint64_t x, int size)
{
    for (int i = 0; i < size; i++, x >>= 8)
        b->data[b->n++] = (uint8_t)x;
}

static inline void put_text(gguf_bytes *b, const char *text)
{
    put(b, strlen(text), 8);
    memcpy(b->data + b->n, text, strlen(text));
    b->n += strlen(text);
}

static inline gguf_bytes gguf_start(uint64_t tensors, uint64_t values)
{
    gguf_bytes b = {.n = 0};

    put(&b, 0x46554747, 4);
    put(&b, 3, 4);
    put(&b, tensors, 8);
    put(&b, values, 8);
    return b;
}

#endif
