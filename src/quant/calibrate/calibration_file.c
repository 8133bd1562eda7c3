/* What calibration has seen, as a JSON file:
 *
 *     {"sparsebit_calibration": 1,
 *      "points": [{"value": "conv1_out", "observer": "minmax", "bits": 8,
 *                 "channels": 1, "samples": 64, "state": {...}}, ...]}
 *
 * Only activations are in it; weights are observed anew.  States of several
 * files add up, so that processes can share the samples. */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "quant/calibrate/calibrate.h"

#define MAGIC "sparsebit_calibration"

/* No calibration has more, and a hostile file may not ask for all memory. */
enum { CHANNELS_MOST = 1 << 20 };

static bool is_kept(const sb_quant_model *qm, uint32_t point)
{
    const sb_quant_point *s = &qm->place.points[point];

    return qm->state.points[point].observer && s->same_as == point &&
           !s->natural &&
           !sb_quantizer_is_constant(qm, sb_point_quantizer(&qm->place, point));
}

/* ---- writing ------------------------------------------------------------ */

static sb_status add_point(const sb_quant_model *qm, uint32_t point,
                           sb_str *out)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    const sb_point_state *state = &qm->state.points[point];
    const sb_value_id own = qm->place.points[point].unscaled;
    const sb_value_id value = own != SB_NONE ? own : q->value;

    sb_str_add(out, "{\"value\":");
    sb_str_add_json(out, sb_graph_value(qm->graph, value)->name);
    sb_str_add(out, ",\"observer\":");
    sb_str_add_json(out, sb_observer_name(q->spec.observer));
    sb_str_addf(out,
                ",\"bits\":%d,\"channels\":%" PRId64 ",\"samples\":%" PRId64
                ",\"state\":",
                q->spec.bits, state->channels, state->samples);
    SB_TRY(
        sb_observer_save(state->given ? state->given : state->observer, out));
    sb_str_add(out, "}");
    return sb_str_status(out);
}

/* Point after point, so that one of them is in memory as text. */
static sb_status write_points(const sb_quant_model *qm, sb_writer *w)
{
    sb_status status = SB_OK;
    bool any = false;
    sb_str text;

    sb_str_init(&text, qm->ctx);
    sb_str_add(&text, "{\"points\":[");
    for (uint32_t i = 0; i < qm->place.n_points && status == SB_OK; i++) {
        if (!is_kept(qm, i))
            continue;
        sb_str_add(&text, any ? "," : "");
        status = add_point(qm, i, &text);
        sb_writer_put(w, sb_str_text(&text), text.len);
        sb_str_clear(&text);
        any = true;
    }
    sb_str_add(&text, "],\"" MAGIC "\":1}");
    sb_writer_put(w, sb_str_text(&text), text.len);
    if (status == SB_OK)
        status = sb_str_status(&text);
    sb_str_free(&text);
    if (status == SB_OK && !any)
        status = sb_fail(qm->ctx, SB_BAD_ARG,
                         "nothing was observed yet: calibrate before saving");
    return status;
}

/* Files are about the values of the network as it was given. */
static sb_status check_given(const sb_quant_model *qm, const char *path,
                             bool equalized)
{
    return equalized ? sb_fail(qm->ctx, SB_BAD_ARG,
                               "%s: an earlier calibration has equalized "
                               "channels of the model: use a new one",
                               path)
                     : SB_OK;
}

sb_status sb_quant_model_save_calibration(const sb_quant_model *qm,
                                          const char *path)
{
    sb_writer *w = NULL;

    SB_TRY(check_given(qm, path, qm->state.anew));
    SB_TRY(sb_writer_open(qm->ctx, path, &w));
    sb_status status = write_points(qm, w);
    if (status == SB_OK)
        return sb_writer_commit(w);
    sb_writer_abort(w);
    return status;
}

sb_status sb_calibration_save_memory(const sb_quant_model *qm,
                                     const int32_t *group, int32_t which,
                                     sb_str *out)
{
    bool any = false;

    sb_str_add(out, "{\"points\":[");
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        if (!is_kept(qm, i) || (group && group[i] != which))
            continue;
        sb_str_add(out, any ? "," : "");
        SB_TRY(add_point(qm, i, out));
        any = true;
    }
    sb_str_add(out, "],\"" MAGIC "\":1}");
    return sb_str_status(out);
}

/* ---- reading ------------------------------------------------------------ */

typedef struct loader {
    sb_quant_model *qm;
    const sb_json_doc *doc;
    bool *loaded; /* by point */
    bool part;    /* other points may come from elsewhere */
} loader;

/* The entry's point: same value, same observer and bit width. */
static bool find_point(const loader *l, const sb_json *o, uint32_t *out)
{
    const char *name = sb_json_text(sb_json_get(o, "value"));
    const char *observer = sb_json_text(sb_json_get(o, "observer"));
    const sb_json *bits = sb_json_get(o, "bits");
    const sb_quant_model *qm = l->qm;

    if (!name || !observer || !sb_json_is(bits, SB_JSON_NUMBER))
        return false;
    sb_value_id value = sb_graph_find_value(qm->graph, name);
    uint32_t i = value == SB_NONE ? SB_NONE : qm->place.of_value[value].first;
    for (; i != SB_NONE; i = qm->place.points[i].next) {
        const sb_quantizer *q = sb_point_quantizer(&qm->place, i);
        if (!l->loaded[i] && qm->place.points[i].same_as == i &&
            !sb_quantizer_is_constant(qm, q) &&
            strcmp(sb_observer_name(q->spec.observer), observer) == 0 &&
            q->spec.bits == bits->number) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Channels that the values of a point can have; 0: any number. */
static int64_t channels_of(const sb_quant_model *qm, const sb_quantizer *q)
{
    const sb_shape *shape = &sb_graph_value(qm->graph, q->value)->type.shape;

    if (q->axis < 0)
        return 1;
    return q->axis < shape->rank && sb_dim_known(shape->dim[q->axis])
               ? shape->dim[q->axis]
               : 0;
}

static sb_status load_point(loader *l, const sb_json *o)
{
    const sb_json *channels = sb_json_get(o, "channels");
    const sb_json *samples = sb_json_get(o, "samples");
    const sb_json *seen = sb_json_get(o, "state");
    sb_quant_model *qm = l->qm;
    uint32_t i = 0;

    if (!sb_json_is(channels, SB_JSON_NUMBER) ||
        !sb_json_is(samples, SB_JSON_NUMBER) || !seen || channels->number < 1 ||
        channels->number > CHANNELS_MOST || samples->number < 0 ||
        samples->number > 1e15)
        return sb_json_fail(l->doc, o, "an entry of \"points\" is not whole");
    if (!find_point(l, o, &i))
        return SB_OK; /* of another configuration; what lacks is named later */
    sb_point_state *state = &qm->state.points[i];
    const sb_quantizer *q = sb_point_quantizer(&qm->place, i);
    int64_t n = (int64_t)channels->number;
    int64_t want = channels_of(qm, q);
    if (want != 0 && n != want)
        return sb_json_fail(l->doc, o,
                            "%lld ranges for the quantizer '%s', want %lld",
                            (long long)n, q->name, (long long)want);
    if (!state->observer)
        SB_TRY(sb_calibrate_observer(qm, i, n));
    else if (state->channels != n)
        return sb_json_fail(l->doc, o, "numbers of channels differ");
    state->channels = n;
    SB_TRY(sb_observer_load(state->observer, l->doc, seen));
    if (sb_observer_elements(state->observer) == 0)
        return sb_json_fail(
            l->doc, o, "nothing was observed for the quantizer '%s'", q->name);
    state->samples += (int64_t)samples->number;
    l->loaded[i] = true;
    return SB_OK;
}

static sb_status check_all_there(const loader *l)
{
    const sb_quant_model *qm = l->qm;

    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        const sb_quant_point *s = &qm->place.points[i];
        const sb_quantizer *q = sb_point_quantizer(&qm->place, i);
        if (!qm->state.points[i].observer && s->same_as == i && !s->natural &&
            !sb_quantizer_is_off(qm, q) && !q->spec.dynamic &&
            !sb_quantizer_is_constant(qm, q))
            return sb_json_fail(l->doc, NULL,
                                "has nothing for the quantizer '%s' (%s, %d "
                                "bit); it was made with another model or "
                                "configuration",
                                q->name, sb_observer_name(q->spec.observer),
                                q->spec.bits);
    }
    return SB_OK;
}

static sb_status load_tree(loader *l)
{
    const sb_json *version = sb_json_get(l->doc->root, MAGIC);
    const sb_json *list = sb_json_get(l->doc->root, "points");

    if (!sb_json_is(version, SB_JSON_NUMBER) || !sb_json_is(list, SB_JSON_LIST))
        return sb_json_fail(l->doc, NULL,
                            "not a calibration file of sparsebit");
    if (version->number != 1.0)
        return sb_json_fail(l->doc, version, "written by a newer version");
    for (const sb_json *o = list->child; o; o = o->next)
        SB_TRY(load_point(l, o));
    return l->part ? SB_OK : check_all_there(l);
}

sb_status sb_calibration_load_memory(sb_quant_model *qm, const char *path,
                                     const char *text, size_t size, bool part)
{
    sb_json_doc *doc = NULL;

    SB_TRY(sb_json_read(qm->ctx, path, text, size, &doc));
    loader l = {.qm = qm, .doc = doc, .part = part};
    l.loaded = sb_alloc(qm->ctx, qm->place.n_points + 1, sizeof *l.loaded);
    sb_status status = l.loaded ? load_tree(&l) : SB_NO_MEMORY;
    sb_free(qm->ctx, l.loaded);
    sb_json_free(doc);
    return status;
}

sb_status sb_quant_model_load_calibration(sb_quant_model *qm, const char *path)
{
    sb_mapping map;

    SB_TRY(check_given(qm, path, qm->equalized));
    SB_TRY(sb_file_map_input(qm->ctx, path, &map));
    sb_status status = sb_calibration_load_memory(
        qm, path, map.data ? map.data : "", map.size, false);
    qm->state.loaded = true;
    sb_file_unmap(&map);
    return status;
}
