/* How far training moved the weights of each node. */
#include <math.h>
#include <stdlib.h>

#include "report_page.h"

enum { CHUNK = 4096 };

/* Sums of squares of a node's weights. */
typedef struct moved_sums {
    double before, after, moved, elements;
    const sb_tensor *largest;
    bool changed; /* a weight has another shape now, or was not there */
} moved_sums;

static bool same_shape(const sb_tensor *a, const sb_tensor *b)
{
    int rank = sb_tensor_rank(a);

    if (rank != sb_tensor_rank(b))
        return false;
    for (int i = 0; i < rank; i++)
        if (sb_tensor_dims(a)[i] != sb_tensor_dims(b)[i])
            return false;
    return true;
}

static void add_weight(moved_sums *s, const sb_tensor *before,
                       const sb_tensor *after)
{
    int64_t n = sb_tensor_elements(after);
    double a[CHUNK], b[CHUNK];

    s->elements += (double)n;
    if (!s->largest || n > sb_tensor_elements(s->largest))
        s->largest = after;
    if (!cli_is_float(before) || !same_shape(before, after)) {
        s->changed = true;
        return;
    }
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;

        if (!sb_tensor_read_f64(before, at, m, a) ||
            !sb_tensor_read_f64(after, at, m, b))
            return;
        for (int64_t i = 0; i < m; i++) {
            s->before += a[i] * a[i];
            s->after += b[i] * b[i];
            s->moved += (b[i] - a[i]) * (b[i] - a[i]);
        }
    }
}

/* Of the larger norm, so that what began at zero has a share, too. */
static double moved_share(const moved_sums *s)
{
    double most = fmax(s->before, s->after);

    return s->changed ? (double)NAN : most > 0 ? sqrt(s->moved / most) : 0;
}

static void add_row(cli_nodes *t, const sb_node_info *node, const moved_sums *s)
{
    double share = moved_share(s);

    cli_nodes_row(t, node->outputs[0], share);
    cli_nodes_cell(t, "%s", cli_node_label(node));
    cli_nodes_cell(t, "%s", node->op);
    cli_nodes_shape(t, s->largest, NULL);
    cli_nodes_cell(t, "%.0f", s->elements);
    if (isnan(share)) {
        cli_nodes_cell(t, "%s", "");
        cli_nodes_cell(t, "%s", "");
    } else {
        cli_nodes_cell(t, "%.3g", 100 * share);
        cli_nodes_cell(t, "%.4g", sqrt(s->before));
    }
    cli_nodes_cell(t, "%.4g", sqrt(s->after));
}

static void fill_rows(cli_nodes *t, const sb_model *before,
                      const sb_model *after, const sb_node_info *const *nodes,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        moved_sums s = {0};

        for (size_t k = 0; k < nodes[i]->n_inputs; k++) {
            const char *name = nodes[i]->inputs[k];
            const sb_tensor *w = sb_model_weight(after, name);
            /* A single number is a constant more often than a weight. */
            if (cli_is_float(w) && sb_tensor_elements(w) > 1)
                add_weight(&s, sb_model_weight(before, name), w);
        }
        if (s.elements > 0 && nodes[i]->n_outputs > 0)
            add_row(t, nodes[i], &s);
    }
}

sb_status cli_report_moved(sb_report *r, const sb_model *before,
                           sb_model *after)
{
    static const char *const heads[] = {"layer",      "operator", "weight",
                                        "parameters", "moved %",  "norm before",
                                        "norm after"};
    const sb_report_marks none = SB_REPORT_MARKS_INIT;
    const sb_report_marks marks = {.struct_size = none.struct_size,
                                   .limits = {1e-9, 0.01, 0.1, 0.5},
                                   .texts = {"not at all", "less than 1 %",
                                             "1 to 10 %", "10 to 50 %",
                                             "50 % and more"},
                                   .none = "no weights, or of another shape",
                                   .jump = "moved most"};
    const sb_node_info *const *nodes = NULL;
    size_t n = 0;
    sb_status status = sb_model_nodes(after, &nodes, &n);
    cli_nodes *t = cli_nodes_new(n, "lnnrrrr", heads);

    if (status == SB_OK) {
        fill_rows(t, before, after, nodes, n);
        sb_report_section(r, "The network",
                          "Colored by how far training moved the weights of a "
                          "node: the length of the way as a share of theirs. "
                          "Layers that did not move are frozen, or no gradient "
                          "reaches them.");
        status = cli_nodes_graph(t, r, after, marks);
    }
    if (status == SB_OK) {
        sb_report_section(r, "Layers",
                          "Norms, biases and the statistics of norms "
                          "included.");
        cli_nodes_table(t, r, after);
    }
    cli_nodes_free(t);
    return status;
}
