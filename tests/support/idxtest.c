/* A small set of images to train on (idxtest.h). */
#include "idxtest.h"

#include "sbtest.h"

#include <stdio.h>

static FILE *idx_open(const char *folder, const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}

static void idx_put(FILE *f, int v)
{
    for (int i = 24; i >= 0; i -= 8)
        fputc((int)((unsigned)v >> i & 255), f);
}

void test_write_idx(const char *folder, int samples, int side, int classes)
{
    FILE *x = idx_open(folder, "x.idx"), *y = idx_open(folder, "y.idx");
    unsigned noise = 1;

    idx_put(x, 0x803);
    idx_put(x, samples);
    idx_put(x, side);
    idx_put(x, side);
    idx_put(y, 0x801);
    idx_put(y, samples);
    for (int i = 0; i < samples; i++) {
        int label = i * 7 % classes;

        fputc(label, y);
        for (int p = 0; p < side * side; p++) {
            noise = noise * 1664525u + 1013904223u;
            fputc((int)(noise >> 26) + (p % side == label ? 120 : 0), x);
        }
    }
    assert_int_equal(fclose(x), 0);
    assert_int_equal(fclose(y), 0);
}
