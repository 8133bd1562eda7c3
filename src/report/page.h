/* page.h - style and script of reports, from page.css and page.js. */
#ifndef SB_REPORT_PAGE_H
#define SB_REPORT_PAGE_H

extern const char sb_page_css[], sb_page_js[];

#endif
