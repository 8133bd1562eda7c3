/* FNV-1a (64 bit) over words of eight bytes, the last one filled with zeros. */
#include "tensor/mark.h"

#include <string.h>

uint64_t sb_mark(uint64_t mark, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;

    while (n > 0) {
        uint64_t word = 0;
        size_t part = n < sizeof word ? n : sizeof word;

        memcpy(&word, at, part);
        mark = (mark ^ word) * UINT64_C(0x100000001b3);
        mark ^= mark >> 29; /* high bits count, too */
        at += part;
        n -= part;
    }
    return mark;
}
