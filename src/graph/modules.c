/* Module paths from what exporters leave behind; the order of trust is in
 * modules.h. */
#include "graph/modules.h"

#include "base/glob.h"

#include <string.h>

static const char *modules_prop(const sb_node *node, const char *key)
{
    for (size_t i = 0; i < node->extra.n_props; i++)
        if (strcmp(node->extra.props[i].key, key) == 0)
            return node->extra.props[i].value;
    return NULL;
}

/* ---- 1. metadata -------------------------------------------------------- */

/* The last but one string of a Python list such as
 * "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']".  The last is not
 * a module but the operation itself. */
static bool last_but_one(const char *text, const char **out, size_t *len)
{
    const char *item = NULL, *before = NULL;
    size_t item_len = 0, before_len = 0;

    for (const char *p = text; *p;) {
        if (*p != '\'' && *p != '"') {
            p++;
            continue;
        }
        const char *end = strchr(p + 1, *p);
        if (!end)
            break;
        before = item;
        before_len = item_len;
        item = p + 1;
        item_len = (size_t)(end - item);
        p = end + 1;
    }
    *out = before;
    *len = before_len;
    return before != NULL;
}

static bool name_contains(const char *text, size_t len, const char *part)
{
    size_t n = strlen(part);

    for (size_t i = 0; i + n <= len; i++)
        if (memcmp(text + i, part, n) == 0)
            return true;
    return false;
}

/* The exporter folds a batch norm into the convolution before it and leaves
 * the scope of the batch norm, which is no longer there. */
static bool scope_is_folded_norm(const sb_node *node)
{
    const char *classes = modules_prop(node, "pkg.torch.onnx.class_hierarchy");
    const char *name = NULL;
    size_t len = 0;

    return classes && !sb_node_is(node, "BatchNormalization") &&
           last_but_one(classes, &name, &len) &&
           name_contains(name, len, ".batchnorm.");
}

static bool path_from_scopes(const sb_node *node, sb_str *out)
{
    const char *scopes = modules_prop(node, "pkg.torch.onnx.name_scopes");
    const char *path = NULL;
    size_t len = 0;

    if (!scopes || !last_but_one(scopes, &path, &len))
        return false;
    sb_str_addn(out, path, len);
    return true; /* an empty path is the whole network: that is known, too */
}

/* ---- 2. and 4. node names ----------------------------------------------- */

/* The components of `name` but the last, joined by dots.  PyTorch repeats the
 * parent in `layer1/layer1.0`, which then replaces it. */
static void path_from_components(const char *name, sb_str *out)
{
    const char *previous = NULL;
    size_t previous_len = 0;

    for (const char *slash; (slash = strchr(name, '/')) != NULL;
         name = slash + 1) {
        size_t len = (size_t)(slash - name);
        if (len == 0)
            continue;
        if (previous && len > previous_len && name[previous_len] == '.' &&
            memcmp(name, previous, previous_len) == 0) {
            sb_str_addn(out, name + previous_len, len - previous_len);
        } else {
            if (out->len)
                sb_str_add(out, ".");
            sb_str_addn(out, name, len);
        }
        previous = name;
        previous_len = len;
    }
}

static bool path_from_torch_name(const char *name, sb_str *out)
{
    if (name[0] != '/')
        return false;
    path_from_components(name, out);
    return true;
}

static bool path_from_plain_name(const char *name, sb_str *out)
{
    static const char call[] = "StatefulPartitionedCall/";

    if (strncmp(name, call, sizeof call - 1) == 0)
        name += sizeof call - 1;
    path_from_components(name, out);
    return out->len > 0;
}

/* ---- 3. names of weights ------------------------------------------------ */

static bool path_from_weight_name(const char *name, sb_str *out)
{
    static const char *const prefixes[] = {
        /* what ONNX Runtime's optimizer puts before names */
        "ConvBnFusion_W_",
        "ConvBnFusion_BN_B_",
        "ConvMulFusion_W_",
        "ConvAddFusion_B_",
    };
    const char *dot = NULL;

    if (name[0] == '/')
        return path_from_torch_name(name, out) && out->len > 0;
    for (size_t i = 0; i < SB_COUNT(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            name += strlen(prefixes[i]);
    dot = strrchr(name, '.');
    /* `conv1.weight` is a parameter; `input.3`, `onnx::Conv_7` are not. */
    if (!dot || dot == name || strstr(name, "::") || strchr(dot, '/') ||
        (dot[1] >= '0' && dot[1] <= '9') || dot[1] == '\0')
        return false;
    for (const char *p = name; p < dot; p++)
        sb_str_addn(out, *p == '/' ? "." : p, 1);
    return true;
}

/* `parent.x` and `parent.y`, or both at the top. */
static bool same_parent(const char *a, const char *b)
{
    const char *dot_a = strrchr(a, '.'), *dot_b = strrchr(b, '.');
    size_t len_a = dot_a ? (size_t)(dot_a - a) : 0;
    size_t len_b = dot_b ? (size_t)(dot_b - b) : 0;

    return len_a == len_b && memcmp(a, b, len_a) == 0;
}

static bool path_from_weights(const sb_graph *g, const sb_node *node,
                              sb_str *out)
{
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (node->inputs[i] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(g, node->inputs[i]);
        if (v->is_constant && path_from_weight_name(v->name, out))
            return true;
    }
    return false;
}

/* ---- all of them -------------------------------------------------------- */

static sb_status find_path(const sb_graph *g, const sb_node *node, sb_str *out)
{
    sb_str_clear(out);
    if (path_from_scopes(node, out)) {
        sb_str weight;
        if (!scope_is_folded_norm(node))
            return sb_str_status(out);
        sb_str_init(&weight, g->ctx);
        if (path_from_weights(g, node, &weight) &&
            same_parent(sb_str_text(&weight), sb_str_text(out))) {
            sb_str_clear(out);
            sb_str_addn(out, sb_str_text(&weight), weight.len);
        }
        sb_status status = sb_str_status(&weight);
        sb_str_free(&weight);
        SB_TRY(status);
        return sb_str_status(out);
    }
    if (!path_from_torch_name(node->name, out) &&
        !path_from_weights(g, node, out))
        (void)path_from_plain_name(node->name, out);
    return sb_str_status(out);
}

static sb_status modules_assign(sb_graph *g, sb_str *path)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        sb_node *node = &g->nodes[i];
        sb_graph *body = NULL;
        if (node->dead)
            continue;
        if (node->module[0] == '\0') {
            SB_TRY(find_path(g, node, path));
            if (path->len) {
                char *copy = sb_arena_str(g->arena, sb_str_text(path));
                if (!copy)
                    return SB_NO_MEMORY;
                node->module = copy;
            }
        }
        for (size_t k = 0; (body = sb_node_body(node, k)) != NULL; k++)
            SB_TRY(modules_assign(body, path));
    }
    return SB_OK;
}

sb_status sb_graph_assign_modules(sb_graph *g)
{
    sb_str path;

    sb_str_init(&path, g->ctx);
    sb_status status = modules_assign(g, &path);
    sb_str_free(&path);
    return status;
}

bool sb_node_matches(const sb_node *node, const char *pattern)
{
    if (node->name[0] && sb_glob_match_dot(pattern, node->name, '.'))
        return true;
    return node->module[0] && (sb_glob_match_dot(pattern, node->module, '.') ||
                               sb_glob_match_dot(pattern, node->module, '_'));
}
