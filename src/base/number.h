/* number.h - numbers as text, with a point whatever the program's locale. */
#ifndef SB_BASE_NUMBER_H
#define SB_BASE_NUMBER_H

#include <stdbool.h>

/* Longer texts are no numbers to us. */
enum { SB_NUMBER_MOST = 128 };

/* Reads the whole text as strtod() does in the locale "C". */
bool sb_number_read(const char *text, double *out);

/* What printf() wrote with the locale's point gets a `.` instead. */
void sb_number_point(char *text);

/* The shortest text of `least` to `most` digits that reads back as the same
 * double (with `most` below 10: the same float), which is finite. */
void sb_number_write(char out[SB_NUMBER_MOST], double x, int least, int most);

#endif
