/* Bytes as characters that can be printed, as GPT-2's vocabulary has them:
 * those that can be stay, the others follow from U+0100 on. */
#include <string.h>

#include "llm/tokenizer/tokenizer.h"

static bool byte_stays(int b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

size_t sb_byte_to_char(uint8_t byte, char out[4])
{
    int code = byte;

    if (!byte_stays(byte)) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !byte_stays(b);
    }
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

int sb_char_to_byte(const char *text, size_t len, size_t *used)
{
    const unsigned char *p = (const unsigned char *)text;

    *used = len ? sb_utf8_size(text, len) : 0;
    int code = *used == 1   ? p[0]
               : *used == 2 ? (p[0] & 0x1f) << 6 | (p[1] & 0x3f)
                            : -1;
    if (code >= 0 && code < 256)
        return byte_stays(code) ? code : -1;
    for (int b = 0, next = 256; b < 256 && code >= 256; b++)
        if (!byte_stays(b) && next++ == code)
            return b;
    return -1;
}
