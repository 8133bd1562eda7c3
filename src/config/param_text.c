/* Parameter tables: words about rows, for messages, explanations and samples.
 */
#include "config/param.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- suggestions -------------------------------------------------------- */

enum { WORD_MOST = 64 };

static int param_text_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* Edits (insert, drop, replace) that make `a` of `b`; WORD_MOST if too long. */
static size_t param_text_distance(const char *a, const char *b)
{
    size_t row[WORD_MOST + 1];
    size_t n = strlen(b);

    if (n > WORD_MOST || strlen(a) > WORD_MOST)
        return WORD_MOST;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = corner + (param_text_lower(a[i - 1]) !=
                                    param_text_lower(b[j - 1]));

            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

const char *sb_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    size_t len = strlen(word);
    size_t least = (len + 4) / 3; /* this far is no likeness */

    for (; *names; names++) {
        size_t d = param_text_distance(word, *names);

        if (d < least && d < strlen(*names)) {
            least = d;
            best = *names;
        }
    }
    return best;
}

/* ---- what is allowed ---------------------------------------------------- */

static void add_range(const sb_param_def *def, sb_str *out)
{
    if (def->min == 0 && def->max == 0)
        return;
    if (isinf(def->max))
        sb_str_addf(out, " of at least %.10g", def->min);
    else if (isinf(def->min))
        sb_str_addf(out, " of at most %.10g", def->max);
    else
        sb_str_addf(out, " %.10g..%.10g", def->min, def->max);
}

static void add_count(const sb_param_def *def, sb_str *out)
{
    if (!def->n_max)
        sb_str_add(out, "a list of");
    else if (def->n_min == def->n_max)
        sb_str_addf(out, "a list of %zu", def->n_max);
    else
        sb_str_addf(out, "a list of %zu to %zu", def->n_min, def->n_max);
}

/* Whether a name is one of those that the row allows. */
static bool is_listed(const sb_param_def *def, size_t i)
{
    return !def->meanings || def->meanings[i];
}

static void add_names(const sb_param_def *def, sb_str *out)
{
    size_t n = 0, done = 0;

    for (size_t i = 0; def->names[i]; i++)
        n += is_listed(def, i);
    for (size_t i = 0; def->names[i]; i++) {
        if (!is_listed(def, i))
            continue;
        done++;
        sb_str_add(out, done == 1 ? "" : done < n ? ", " : " or ");
        sb_str_add(out, def->names[i]);
    }
}

void sb_param_allowed(const sb_param_def *def, sb_str *out)
{
    if (def->values) {
        sb_str_add(out, def->values);
        return;
    }
    switch (def->type) {
    case SB_PARAM_BOOL:
        sb_str_add(out, "true or false");
        break;
    case SB_PARAM_INT:
        sb_str_add(out, "a whole number");
        add_range(def, out);
        break;
    case SB_PARAM_FLOAT:
        sb_str_add(out, "a number");
        add_range(def, out);
        break;
    case SB_PARAM_ENUM:
        add_names(def, out);
        break;
    case SB_PARAM_INTS:
        add_count(def, out);
        sb_str_add(out, " whole numbers");
        add_range(def, out);
        break;
    case SB_PARAM_FLOATS:
        add_count(def, out);
        sb_str_add(out, " numbers");
        add_range(def, out);
        break;
    case SB_PARAM_STRINGS:
        add_count(def, out);
        sb_str_add(out, " strings");
        break;
    case SB_PARAM_MAP:
        assert(def->fields);
        sb_str_add(out, "a map of ");
        sb_params_names(def->fields, out);
        break;
    default:
        sb_str_add(out, "a text");
    }
}

void sb_param_more(const sb_param_def *def, sb_str *out)
{
    size_t width = 0;

    if (!def->meanings) {
        sb_str_add(out, def->more ? def->more : "");
        return;
    }
    for (size_t i = 0; def->names[i]; i++)
        if (is_listed(def, i) && strlen(def->names[i]) > width)
            width = strlen(def->names[i]);
    for (size_t i = 0, done = 0; def->names[i]; i++)
        if (is_listed(def, i))
            sb_str_addf(out, "%s%-*s  %s", done++ ? "\n" : "", (int)width,
                        def->names[i], def->meanings[i]);
}

void sb_params_names(const sb_param_def *defs, sb_str *out)
{
    for (size_t i = 0; defs[i].name; i++) {
        sb_str_add(out, i ? ", " : "");
        sb_str_add(out, defs[i].name);
    }
}

/* ---- sample files ------------------------------------------------------- */

/* Lines of a section in comments begin with `# `, then its own indent. */
static void sample_rows(const sb_param_def *defs, int indent, bool comment,
                        sb_str *out)
{
    for (; defs->name; defs++) {
        bool is_map = defs->fields;
        bool hidden = comment || (defs->sample && *defs->sample == '#');
        const char *value = defs->sample ? defs->sample : defs->preset;

        hidden = hidden || (!is_map && !value);
        const char *mark = hidden ? "# " : "";
        if (indent == 0)
            sb_str_add(out, "\n");
        sb_str_addf(out, "%s%*s# %s\n", mark, indent, "", defs->help);
        if (!is_map && defs->type != SB_PARAM_BOOL) {
            sb_str_addf(out, "%s%*s# allowed: ", mark, indent, "");
            sb_param_allowed(defs, out);
            sb_str_add(out, "\n");
        }
        sb_str_addf(out, "%s%*s%s:", mark, indent, "", defs->name);
        if (!is_map && value)
            sb_str_addf(out, " %s", value);
        sb_str_add(out, "\n");
        if (is_map)
            sample_rows(defs->fields, indent + 2, hidden, out);
    }
}

void sb_params_sample(const sb_param_def *defs, sb_str *out)
{
    sample_rows(defs, 0, false, out);
}
