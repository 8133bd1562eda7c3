/* Numbers as text.  strtod() and printf() follow the locale that the program
 * has set, which may want a comma; files and messages never do. */
#include "base/number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sb_number_read(const char *text, double *out)
{
    const char *point = localeconv()->decimal_point;
    const char *dot = strchr(text, '.');
    char local[SB_NUMBER_MOST + 16];
    char *end = NULL;

    if (strlen(text) >= SB_NUMBER_MOST || strstr(text, ","))
        return false;
    if (dot)
        (void)snprintf(local, sizeof local, "%.*s%s%s", (int)(dot - text), text,
                       point, dot + 1);
    else
        (void)snprintf(local, sizeof local, "%s", text);
    *out = strtod(local, &end);
    return end != local && *end == '\0';
}

void sb_number_point(char *text)
{
    const char *point = localeconv()->decimal_point;
    char *at = point[0] ? strstr(text, point) : NULL;

    if (!at || strcmp(point, ".") == 0)
        return;
    *at = '.';
    memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
}

void sb_number_write(char out[SB_NUMBER_MOST], double x, int least, int most)
{
    for (int digits = least; digits <= most; digits++) {
        (void)snprintf(out, SB_NUMBER_MOST, "%.*g", digits, x);
        double back = strtod(out, NULL);
        if (most < 10 ? (float)back == (float)x : back == x)
            break;
    }
    sb_number_point(out);
}
