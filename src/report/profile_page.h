/* profile_page.h - where the time of a run goes, as a page. */
#ifndef SB_REPORT_PROFILE_PAGE_H
#define SB_REPORT_PROFILE_PAGE_H

#include <sparsebit/run.h>

#include "report/html.h"

/* Without shares of the peak if `peak_gflops` is 0. */
void sb_report_profile(const sb_profile *p, const char *title,
                       const char *subtitle, double peak_gflops, sb_str *out);

#endif
