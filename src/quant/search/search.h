/* search.h - what is behind the public sb_search. */
#ifndef SB_QUANT_SEARCH_SEARCH_H
#define SB_QUANT_SEARCH_SEARCH_H

#include <sparsebit/search.h>

#include "quant/search/measure.h"

enum { SB_SEARCH_WIDTHS_MOST = 8 };

struct sb_search {
    sb_ctx *ctx;
    const sb_model *model;
    sb_search_options opt; /* texts are those below, or the caller's */
    sb_arena arena;        /* texts, results */
    const char *file;      /* of the configuration, for messages */
    const char *text;      /* the configuration */
    int widths[SB_SEARCH_WIDTHS_MOST]; /* descending */
    size_t n_widths;
    sb_quant_model *models[SB_SEARCH_WIDTHS_MOST];
    sb_measure m;
    double floor;           /* error with the largest widths */
    double *errors, *sizes; /* [layers, widths] */
    /* For a budget of bytes: what the smallest widths make of the weights, and
     * of the file; how many bytes of a file one of weights stands for, zero
     * points included; by how much a file was larger than that said. */
    double least_weights, least_bytes, per_byte, excess;
    uint32_t *choices; /* [layers] that were found */
    uint32_t *trial;   /* [layers] */
    double error;      /* of `choices`, measured */
    sb_search_result result;
};

/* search_choose.c: refuses, before anything is measured, a budget that the
 * smallest widths exceed. */
SB_MUST_USE sb_status sb_search_check(const sb_search *s);
/* Sets `choices` to the smallest widths; returns what they take of the
 * budget. */
double sb_search_least(const sb_search *s, uint32_t *choices);
/* Sets `trial` to the best mixture within the budget by what is known of
 * layers. */
SB_MUST_USE sb_status sb_search_choose(sb_search *s);
/* Measures what each width of each layer costs. */
SB_MUST_USE sb_status sb_search_measure(sb_search *s);
/* Sets `choices` to the best mixture, measuring again around it. */
SB_MUST_USE sb_status sb_search_refine(sb_search *s);

/* search_result.c: the best mixtures for all sizes, by what is known of
 * layers. */
SB_MUST_USE sb_status sb_search_curve(sb_search *s);
/* Fills `result`, whose own error and file are known. */
SB_MUST_USE sb_status sb_search_report(sb_search *s, double error,
                                       double file_bytes);

#endif
