/* Reading the equation of Einsum.
 *
 * Letters a-z, A-Z name dimensions; "..." stands for all others of an operand,
 * which are aligned from the right as in broadcasting.  Without "->" the
 * output has the ellipsis and then the letters that appear once, in the order
 * of their codes. */
#include "ops/matmul/einsum.h"

#include <string.h>

/* The label of a letter, in the order of character codes; -1 for others. */
static int letter_label(char c)
{
    if (c >= 'A' && c <= 'Z')
        return SB_MAX_RANK + (c - 'A');
    if (c >= 'a' && c <= 'z')
        return SB_MAX_RANK + 26 + (c - 'a');
    return -1;
}

/* One operand as written. */
typedef struct raw_term {
    uint8_t label[SB_MAX_RANK];
    int n;        /* letters */
    int ellipsis; /* letters before "...", or -1 */
} raw_term;

/* Reads letters and at most one ellipsis up to `,`, `-` or the end. */
static const char *read_term(const char *at, raw_term *term, const char **why)
{
    *term = (raw_term){.ellipsis = -1};
    for (; *at && *at != ',' && *at != '-'; at++) {
        int label = letter_label(*at);

        if (*at == ' ')
            continue;
        if (*at == '.') {
            if (strncmp(at, "...", 3) != 0 || term->ellipsis >= 0) {
                *why = "a misplaced dot";
                return NULL;
            }
            term->ellipsis = term->n;
            at += 2;
            continue;
        }
        if (label < 0) {
            *why = "an unexpected character";
            return NULL;
        }
        if (term->n == SB_MAX_RANK) {
            *why = "too many letters in one operand";
            return NULL;
        }
        term->label[term->n++] = (uint8_t)label;
    }
    return at;
}

/* Puts the ellipsis's `extra` dimensions, the last of which is always label
 * SB_MAX_RANK - 1, between the letters. */
static bool einsum_parse_place(const raw_term *raw, int extra,
                               sb_einsum_term *term)
{
    term->n = 0;
    if (raw->n + extra > SB_MAX_RANK)
        return false;
    for (int i = 0; i <= raw->n; i++) {
        for (int e = 0; i == raw->ellipsis && e < extra; e++)
            term->label[term->n++] = (uint8_t)(SB_MAX_RANK - extra + e);
        if (i < raw->n)
            term->label[term->n++] = raw->label[i];
    }
    return true;
}

/* Merges a dimension into the size of its label: 1 gives way, a number beats
 * a symbol. */
static bool merge_size(sb_einsum_terms *terms, int label, sb_dim dim)
{
    sb_dim *size = &terms->size[label];

    if (*size == 1 || (!sb_dim_known(*size) && sb_dim_known(dim) && dim != 1))
        *size = dim;
    else if (dim != 1 && sb_dim_known(dim) && *size != dim)
        return false;
    terms->used |= UINT64_C(1) << label;
    return true;
}

static const char *read_inputs(const char *at, uint32_t n_in,
                               const sb_shape *shapes, sb_einsum_terms *terms,
                               int *extra_most, const char **why)
{
    for (uint32_t i = 0; i < n_in; i++) {
        raw_term raw;

        if (i > 0 && *at++ != ',') {
            *why = "fewer operands than inputs";
            return NULL;
        }
        at = read_term(at, &raw, why);
        if (!at)
            return NULL;
        int extra = shapes[i].rank - raw.n;
        if (extra < 0 || (extra > 0 && raw.ellipsis < 0) ||
            !einsum_parse_place(&raw, extra, &terms->in[i])) {
            *why = "an operand does not have the rank of its input";
            return NULL;
        }
        if (extra > *extra_most)
            *extra_most = extra;
        for (int d = 0; d < shapes[i].rank; d++)
            if (!merge_size(terms, terms->in[i].label[d], shapes[i].dim[d])) {
                *why = "one letter has two sizes";
                return NULL;
            }
    }
    return at;
}

/* The output if the equation has no arrow. */
static bool implicit_output(sb_einsum_terms *terms, uint32_t n_in, int extra)
{
    int uses[SB_EINSUM_LABELS] = {0};
    raw_term raw = {.ellipsis = 0};

    for (uint32_t i = 0; i < n_in; i++)
        for (int d = 0; d < terms->in[i].n; d++)
            uses[terms->in[i].label[d]]++;
    for (int l = SB_MAX_RANK; l < SB_EINSUM_LABELS; l++) {
        if (uses[l] != 1)
            continue;
        if (raw.n == SB_MAX_RANK)
            return false;
        raw.label[raw.n++] = (uint8_t)l;
    }
    return einsum_parse_place(&raw, extra, &terms->out);
}

bool sb_einsum_parse(const char *equation, uint32_t n_in,
                     const sb_shape *shapes, sb_einsum_terms *terms,
                     const char **why)
{
    int extra = 0;
    raw_term raw;

    memset(terms, 0, sizeof *terms);
    for (int l = 0; l < SB_EINSUM_LABELS; l++)
        terms->size[l] = 1;
    const char *at = read_inputs(equation, n_in, shapes, terms, &extra, why);
    if (!at)
        return false;
    if (*at == '\0') {
        *why = "too many dimensions in the output";
        return implicit_output(terms, n_in, extra);
    }
    if (strncmp(at, "->", 2) != 0) {
        *why = "want '->' after as many operands as there are inputs";
        return false;
    }
    at = read_term(at + 2, &raw, why);
    if (!at)
        return false;
    *why = "the output has a letter that no input has, or one twice";
    if (*at ||
        !einsum_parse_place(&raw, raw.ellipsis < 0 ? 0 : extra, &terms->out))
        return false;
    uint64_t seen = 0;
    for (int d = 0; d < terms->out.n; d++) {
        uint64_t bit = UINT64_C(1) << terms->out.label[d];
        if (seen & bit || !(terms->used & bit))
            return false;
        seen |= bit;
    }
    return true;
}
