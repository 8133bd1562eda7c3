/* sparsebit info - what is in a model. */
#include <stdlib.h>
#include <string.h>

#include "info_against.h"
#include "json_model.h"

typedef struct {
    const char *model, *against;
    bool modules, quantized, keep_inputs;
    cli_list shapes, values;
} info_args;

#define ARG(field) offsetof(info_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,      ARG(model),   "MODEL", "ONNX file to read", true},
    {CLI_FILE, 0, "against", ARG(against), "ORIGINAL", "compare parameters, MACs, file size and latency, measured now, with this model", false},
    {CLI_FLAG, 0, "quantized", ARG(quantized), NULL, "list every quantized value with its bit width and scales", false},
    {CLI_FLAG, 0, "modules", ARG(modules), NULL, "list every module, not only the top-level ones", false},
    {CLI_LIST, 0, "shape",   ARG(shapes),  "NAME=1x3x224x224", "count multiply-accumulates for this shape of an input; repeatable (default: unknown dimensions are 1)", false},
    {CLI_LIST, 0, "value",   ARG(values),  CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    CLI_KEEP_INPUTS(ARG(keep_inputs)),
    {0},
};

static const cli_example examples[] = {
    {"sparsebit info model.onnx", "Inputs, operators, size, and whether this version can run it"},
    {"sparsebit info model.int8.onnx --quantized", "Bit width, scales and zero points of every weight and activation"},
    {"sparsebit info small.onnx --against model.onnx", "How much smaller and faster a pruned model is"},
    {"sparsebit info model.onnx --json | jq .params", "One number for a script"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_info;

static void print_head(const char *path, const sb_model *model,
                       const sb_model_info *info)
{
    long long subnormals = (long long)sb_model_count_subnormals(model);
    char a[32], b[32];
    cli_table *t = cli_table_new("ll");

    cli_put("%s\n", path);
    if (*info->name)
        cli_table_add(t, "graph"), cli_table_add(t, "%s", info->name);
    if (*info->producer)
        cli_table_add(t, "producer"), cli_table_add(t, "%s", info->producer);
    cli_table_add(t, "opset");
    cli_table_add(t, "%lld (IR version %lld)", (long long)info->opset,
                  (long long)info->ir_version);
    cli_table_add(t, "size");
    cli_table_add(t, "%s, weights %s",
                  cli_bytes((double)info->file_bytes, a, sizeof a),
                  cli_bytes((double)info->weight_bytes, b, sizeof b));
    cli_table_add(t, "nodes");
    cli_table_add(t, "%zu", info->nodes);
    cli_table_add(t, "parameters");
    cli_table_add(t, "%lld (%s)", (long long)info->params,
                  cli_si((double)info->params, a, sizeof a));
    if (subnormals) {
        cli_table_add(t, "subnormal");
        cli_table_add(t,
                      "%lld parameters, which are slow in most runtimes: "
                      "sparsebit simplify makes them zero",
                      subnormals);
    }
    cli_table_add(t, "MACs");
    cli_table_add(
        t, "%.0f (%s)%s", info->macs, cli_si(info->macs, a, sizeof a),
        info->macs_assumed ? ", unknown dimensions taken as 1 (--shape)" : "");
    cli_table_print(t, "  ");
}

static bool is_quantized(const sb_model_info *info)
{
    return info->quantize_nodes + info->dequantize_nodes + info->integer_nodes >
           0;
}

/* "int8", or "int8 (5 bit)" where not all bits are used. */
static const char *type_text(sb_dtype dtype, int bits, char *to, size_t size)
{
    (void)snprintf(to, size, bits < sb_dtype_bits(dtype) ? "%s (%d bit)" : "%s",
                   sb_dtype_name(dtype), bits);
    return to;
}

/* "22 int8, per channel"; biases are the rows of 32 bit. */
static void add_kinds(cli_table *t, const char *what,
                      const sb_quant_count *const *rows, size_t n, bool biases)
{
    for (size_t i = 0; i < n; i++) {
        const char *per = rows[i]->granularity;
        char type[48];

        if ((rows[i]->dtype == SB_DTYPE_I32) != biases)
            continue;
        cli_table_add(t, "%s", what);
        cli_table_add(
            t, "%zu %s%s%s", rows[i]->values,
            type_text(rows[i]->dtype, rows[i]->bits, type, sizeof type),
            *per ? ", " : "", per);
        what = "";
    }
}

static void print_quantization(const sb_model_info *info)
{
    cli_table *t = cli_table_new("ll");

    printf("\nquantization\n");
    if (*info->target)
        cli_table_add(t, "target"), cli_table_add(t, "%s", info->target);
    cli_table_add(t, "nodes");
    cli_table_add(t, "%zu QuantizeLinear, %zu DequantizeLinear",
                  info->quantize_nodes, info->dequantize_nodes);
    if (info->integer_nodes) {
        cli_table_add(t, "%s", "");
        cli_table_add(t, "%zu integer operator%s", info->integer_nodes,
                      info->integer_nodes == 1 ? "" : "s");
    }
    add_kinds(t, "weights", info->quant_weights, info->n_quant_weights, false);
    add_kinds(t, "biases", info->quant_weights, info->n_quant_weights, true);
    add_kinds(t, "activations", info->quant_activations,
              info->n_quant_activations, false);
    cli_table_print(t, "  ");
}

/* "0.5", or "0.25 .. 2 (64)" if there are several. */
static void add_numbers(cli_table *t, float least, float most, size_t n,
                        bool count)
{
    if (n == 0)
        cli_table_add(t, "%s", "");
    else if (n == 1 || (!count && least == most))
        cli_table_add(t, "%.6g", (double)least);
    else if (count)
        cli_table_add(t, "%.6g .. %.6g (%zu)", (double)least, (double)most, n);
    else
        cli_table_add(t, "%.6g .. %.6g", (double)least, (double)most);
}

static void print_quantized(const sb_quant_value *const *v, size_t n)
{
    static const char *const head[] = {"value", "kind",  "bits",      "type",
                                       "per",   "scale", "zero point"};
    cli_table *t = cli_table_new("llrllll");

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < n; i++) {
        const char *per = v[i]->granularity;

        cli_table_add(t, "%s", v[i]->name);
        cli_table_add(t, "%s", v[i]->is_weight ? "weight" : "activation");
        cli_table_add(t, "%d", v[i]->bits);
        cli_table_add(t, "%s", sb_dtype_name(v[i]->dtype));
        cli_table_add(t, "%s", strncmp(per, "per ", 4) == 0 ? per + 4 : per);
        add_numbers(t, v[i]->scale_min, v[i]->scale_max, v[i]->n_scales, true);
        add_numbers(t, v[i]->zero_min, v[i]->zero_max, v[i]->n_scales, false);
    }
    printf("\n");
    cli_table_print(t, "  ");
}

static void print_values(const sb_model *model)
{
    cli_table *t = cli_table_new("ll");

    printf("\ninputs\n");
    for (size_t i = 0; i < sb_model_input_count(model); i++) {
        cli_table_add(t, "%s", sb_model_input(model, i)->name);
        cli_table_add(t, "%s%s", sb_model_input(model, i)->text,
                      sb_model_input(model, i)->is_constant ? ", has a default"
                                                            : "");
    }
    cli_table_print(t, "  ");
    t = cli_table_new("ll");
    printf("\noutputs\n");
    for (size_t i = 0; i < sb_model_output_count(model); i++) {
        cli_table_add(t, "%s", sb_model_output(model, i)->name);
        cli_table_add(t, "%s", sb_model_output(model, i)->text);
    }
    cli_table_print(t, "  ");
}

static void add_header(cli_table *t, const char *what)
{
    cli_table_add(t, "%s", what);
    cli_table_add(t, "nodes");
    cli_table_add(t, "parameters");
    cli_table_add(t, "MACs");
}

static void add_row(cli_table *t, const sb_count *row)
{
    char a[32], b[32];

    cli_table_add(t, "  %s%s%s", row->domain, *row->domain ? "::" : "",
                  row->name);
    cli_table_add(t, "%zu", row->nodes);
    cli_table_add(t, "%s", cli_si((double)row->params, a, sizeof a));
    cli_table_add(t, "%s", cli_si(row->macs, b, sizeof b));
}

/* By the name of the top_level module. */
static int compare_top_level(const sb_count *a, const sb_count *b)
{
    size_t n = strcspn(a->name, "."), m = strcspn(b->name, ".");
    int order = memcmp(a->name, b->name, n < m ? n : m);

    return order ? order : n < m ? -1 : n > m;
}

static int compare_rows(const void *a, const void *b)
{
    const sb_count *x = *(const sb_count *const *)a;
    const sb_count *y = *(const sb_count *const *)b;
    int order = compare_top_level(x, y);

    return order ? order : x < y ? -1 : x > y;
}

typedef struct {
    sb_count sum;
    const sb_count *first;
} top_level;

static int compare_first(const void *a, const void *b)
{
    const top_level *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

enum { MOST_SINGLES = 16 };

/* Rows whose top-level module is the same, added up wherever they stand:
 * exporters put constants of a module far from its nodes.  Modules of one node,
 * which some exporters make of every name, are summed up if there are many. */
static void add_top_level(cli_table *t, const sb_model_info *info)
{
    const sb_count **rows = cli_alloc(info->n_modules, sizeof *rows);
    top_level *sums = cli_alloc(info->n_modules, sizeof *sums);
    size_t n = 0;

    for (size_t i = 0; i < info->n_modules; i++)
        rows[i] = info->modules[i];
    qsort(rows, info->n_modules, sizeof *rows, compare_rows);
    for (size_t i = 0; i < info->n_modules; i++) {
        if (i == 0 || compare_top_level(rows[i - 1], rows[i]) != 0)
            sums[n++] = (top_level){{"", "", 0, 0, 0, 0}, rows[i]};
        sums[n - 1].sum.nodes += rows[i]->nodes;
        sums[n - 1].sum.params += rows[i]->params;
        sums[n - 1].sum.macs += rows[i]->macs;
    }
    qsort(sums, n, sizeof *sums, compare_first);
    sb_count singles = {"", "", 0, 0, 0, 0};
    for (size_t i = 0; i < n; i++)
        singles.nodes += sums[i].sum.nodes == 1;
    bool condense = singles.nodes > MOST_SINGLES;
    for (size_t i = 0; i < n; i++) {
        if (condense && sums[i].sum.nodes == 1) {
            singles.params += sums[i].sum.params;
            singles.macs += sums[i].sum.macs;
            continue;
        }
        const char *name = sums[i].first->name;
        char *text = cli_printf("%.*s", (int)strcspn(name, "."), name);

        sums[i].sum.name = text;
        add_row(t, &sums[i].sum);
        free(text);
    }
    if (condense) {
        singles.name = "others of one node each (--modules)";
        add_row(t, &singles);
    }
    free(sums);
    free(rows);
}

static void add_modules(cli_table *t, const sb_model_info *info, bool all)
{
    if (!all)
        add_top_level(t, info);
    for (size_t i = 0; i < info->n_modules && all; i++)
        add_row(t, info->modules[i]);
}

static void print_counts(const sb_model_info *info, bool all_modules)
{
    cli_table *t = cli_table_new("lrrr");
    size_t missing = 0;

    (void)putchar('\n');
    add_header(t, "operators");
    for (size_t i = 0; i < info->n_ops; i++) {
        add_row(t, info->ops[i]);
        missing += !info->ops[i]->runnable;
    }
    cli_table_print(t, "");
    if (info->n_modules) {
        (void)putchar('\n');
        t = cli_table_new("lrrr");
        add_header(t, "modules");
        add_modules(t, info, all_modules);
        cli_table_print(t, "");
    }
    printf("\n%s\n", missing ? "operators that this version cannot run"
                             : "every operator can be run");
    for (size_t i = 0; i < info->n_ops; i++)
        if (!info->ops[i]->runnable)
            cli_put("  %s%s%s\n", info->ops[i]->domain,
                    *info->ops[i]->domain ? "::" : "", info->ops[i]->name);
}

static void json_values(cli_json *j, const sb_model *model, bool inputs)
{
    size_t n =
        inputs ? sb_model_input_count(model) : sb_model_output_count(model);

    cli_json_open(j, inputs ? "inputs" : "outputs", '[');
    for (size_t i = 0; i < n; i++) {
        const sb_value_info *v =
            inputs ? sb_model_input(model, i) : sb_model_output(model, i);

        cli_json_open(j, NULL, '{');
        cli_json_value(j, v);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

static void json_counts(cli_json *j, const char *key,
                        const sb_count *const *rows, size_t n, bool ops)
{
    cli_json_open(j, key, '[');
    for (size_t i = 0; i < n; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "name", rows[i]->name);
        if (ops)
            cli_json_str(j, "domain", rows[i]->domain);
        cli_json_int(j, "nodes", (long long)rows[i]->nodes);
        cli_json_int(j, "params", rows[i]->params);
        cli_json_num(j, "macs", rows[i]->macs);
        if (ops)
            cli_json_bool(j, "runnable", rows[i]->runnable);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

static void json_kinds(cli_json *j, const char *key,
                       const sb_quant_count *const *rows, size_t n,
                       bool elements)
{
    cli_json_open(j, key, '[');
    for (size_t i = 0; i < n; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "dtype", sb_dtype_name(rows[i]->dtype));
        cli_json_int(j, "bits", rows[i]->bits);
        cli_json_str(j, "granularity", rows[i]->granularity);
        cli_json_int(j, "values", (long long)rows[i]->values);
        if (elements)
            cli_json_int(j, "elements", rows[i]->elements);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

static void json_quantized(cli_json *j, const sb_quant_value *const *v,
                           size_t n)
{
    cli_json_open(j, "values", '[');
    for (size_t i = 0; i < n; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "name", v[i]->name);
        cli_json_str(j, "kind", v[i]->is_weight ? "weight" : "activation");
        cli_json_int(j, "bits", v[i]->bits);
        cli_json_str(j, "dtype", sb_dtype_name(v[i]->dtype));
        cli_json_str(j, "granularity", v[i]->granularity);
        cli_json_int(j, "scales", (long long)v[i]->n_scales);
        if (v[i]->n_scales > 0) {
            cli_json_num(j, "scale_min", (double)v[i]->scale_min);
            cli_json_num(j, "scale_max", (double)v[i]->scale_max);
            cli_json_num(j, "zero_point_min", (double)v[i]->zero_min);
            cli_json_num(j, "zero_point_max", (double)v[i]->zero_max);
        }
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

static void json_quantization(cli_json *j, const sb_model_info *info,
                              const sb_quant_value *const *values, size_t n)
{
    cli_json_open(j, "quantization", '{');
    cli_json_str(j, "target", info->target);
    cli_json_int(j, "quantize_nodes", (long long)info->quantize_nodes);
    cli_json_int(j, "dequantize_nodes", (long long)info->dequantize_nodes);
    cli_json_int(j, "integer_nodes", (long long)info->integer_nodes);
    json_kinds(j, "weights", info->quant_weights, info->n_quant_weights, true);
    json_kinds(j, "activations", info->quant_activations,
               info->n_quant_activations, false);
    if (n > 0)
        json_quantized(j, values, n);
    cli_json_close(j, '}');
}

static int info_compare(cli_env *env, const info_args *args, cli_json *json)
{
    return cli_info_against(env, &cmd_info,
                            &(cli_info_pair){args->model, args->against,
                                             &args->shapes, &args->values},
                            json);
}

static int print_json(cli_env *env, const info_args *args,
                      const sb_model *model, const sb_model_info *info,
                      const sb_quant_value *const *values, size_t n)
{
    cli_json j = {0};

    cli_json_begin(&j, "info");
    cli_json_str(&j, "model", args->model);
    cli_json_str(&j, "name", info->name);
    cli_json_str(&j, "producer", info->producer);
    cli_json_int(&j, "ir_version", info->ir_version);
    cli_json_int(&j, "opset", info->opset);
    cli_json_int(&j, "file_bytes", (long long)info->file_bytes);
    cli_json_int(&j, "weight_bytes", (long long)info->weight_bytes);
    cli_json_int(&j, "nodes", (long long)info->nodes);
    cli_json_int(&j, "params", info->params);
    cli_json_int(&j, "subnormal_params",
                 (long long)sb_model_count_subnormals(model));
    cli_json_num(&j, "macs", info->macs);
    cli_json_bool(&j, "macs_assumed", info->macs_assumed);
    json_values(&j, model, true);
    json_values(&j, model, false);
    json_counts(&j, "operators", info->ops, info->n_ops, true);
    json_counts(&j, "modules", info->modules, info->n_modules, false);
    if (is_quantized(info))
        json_quantization(&j, info, values, n);
    int rc = args->against ? info_compare(env, args, &j) : CLI_OK;
    cli_json_end(&j);
    return rc;
}

static int info_run(cli_env *env, const void *parsed)
{
    const info_args *args = parsed;
    sb_load_options load = SB_LOAD_OPTIONS_INIT;
    sb_model *model = NULL;
    const sb_quant_value *const *values = NULL;
    size_t n = 0;
    const sb_model_info *info = NULL;
    int rc = CLI_OK;

    load.keep_inputs = args->keep_inputs;
    if (sb_model_load_with(env->ctx, args->model, &load, &model) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK)
        rc = cli_model_fix(env, &cmd_info, model, &args->shapes, &args->values);
    if (rc != CLI_OK) {
        sb_model_free(model);
        return rc;
    }
    if (sb_model_info_get(model, &info) != SB_OK ||
        (args->quantized &&
         sb_model_list_quantized(model, &values, &n) != SB_OK)) {
        rc = cli_fail(env, args->model);
    } else if (env->common.json) {
        rc = print_json(env, args, model, info, values, n);
    } else {
        print_head(args->model, model, info);
        if (is_quantized(info))
            print_quantization(info);
        if (n > 0)
            print_quantized(values, n);
        print_values(model);
        print_counts(info, args->modules);
        if (args->against)
            rc = info_compare(env, args, NULL);
    }
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_info = {
    .name = "info",
    .summary = "what is in a model",
    .description =
        "Prints inputs, outputs, operators, modules, parameters, "
        "multiply-accumulates (MACs), sizes and opset of an ONNX model, what "
        "is quantized in it, and which of its operators this version cannot "
        "run.",
    .args_size = sizeof(info_args),
    .opts = opts,
    .examples = examples,
    .run = info_run,
};
