/* What calibration has seen, as a JSON file:
 *
 *     {"sparsebit_calibration": 1,
 *      "sites": [{"value": "conv1_out", "observer": "minmax", "bits": 8,
 *                 "channels": 1, "samples": 64, "state": {...}}, ...]}
 *
 * Only activations are in it; weights are observed anew.  States of several
 * files add up, so that processes can share the samples. */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "quant/quant_model.h"

#define MAGIC "sparsebit_calibration"

/* Nobody has more, and a hostile file may not ask for all memory. */
enum { CHANNELS_MOST = 1 << 20 };

static bool is_kept(const sb_quant_model *qm, size_t site)
{
    const sb_quant_site *s = &qm->sites[site];

    return s->observer && s->same_as == site && !s->natural &&
           !sb_quantizer_is_constant(qm, &qm->quantizers[s->first]);
}

/* ---- writing ------------------------------------------------------------ */

static sb_status add_site(const sb_quant_model *qm, const sb_quant_site *site,
                          sb_str *out)
{
    const sb_quantizer *q = &qm->quantizers[site->first];

    sb_str_add(out, "{\"value\":");
    sb_str_add_json(out, sb_graph_value(qm->graph, q->value)->name);
    sb_str_add(out, ",\"observer\":");
    sb_str_add_json(out, q->spec.observer);
    sb_str_addf(out,
                ",\"bits\":%d,\"channels\":%" PRId64 ",\"samples\":%" PRId64
                ",\"state\":",
                q->spec.bits, site->channels, site->samples);
    SB_TRY(sb_observer_save(site->observer, out));
    sb_str_add(out, "}");
    return sb_str_status(out);
}

/* Site after site, so that one of them is in memory as text. */
static sb_status write_sites(const sb_quant_model *qm, sb_writer *w)
{
    sb_status status = SB_OK;
    bool any = false;
    sb_str text;

    sb_str_init(&text, qm->ctx);
    sb_str_add(&text, "{\"sites\":[");
    for (size_t i = 0; i < qm->n_sites && status == SB_OK; i++) {
        if (!is_kept(qm, i))
            continue;
        sb_str_add(&text, any ? "," : "");
        status = add_site(qm, &qm->sites[i], &text);
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

sb_status sb_quant_model_save_calibration(const sb_quant_model *qm,
                                          const char *path)
{
    sb_writer *w = NULL;

    SB_TRY(sb_writer_open(qm->ctx, path, &w));
    sb_status status = write_sites(qm, w);
    if (status == SB_OK)
        return sb_writer_commit(w);
    sb_writer_abort(w);
    return status;
}

/* ---- reading ------------------------------------------------------------ */

typedef struct loader {
    sb_quant_model *qm;
    const sb_json_doc *doc;
    bool *loaded; /* by site */
} loader;

/* The entry's site: same value, same observer and width. */
static bool find_site(const loader *l, const sb_json *o, size_t *out)
{
    const char *value = sb_json_text(sb_json_get(o, "value"));
    const char *observer = sb_json_text(sb_json_get(o, "observer"));
    const sb_json *bits = sb_json_get(o, "bits");
    const sb_quant_model *qm = l->qm;

    if (!value || !observer || !sb_json_is(bits, SB_JSON_NUMBER))
        return false;
    for (size_t i = 0; i < qm->n_sites; i++) {
        const sb_quantizer *q = &qm->quantizers[qm->sites[i].first];
        if (!l->loaded[i] && qm->sites[i].same_as == i &&
            !sb_quantizer_is_constant(qm, q) &&
            strcmp(sb_graph_value(qm->graph, q->value)->name, value) == 0 &&
            strcmp(q->spec.observer, observer) == 0 &&
            q->spec.bits == bits->number) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Channels that the values of a site can have; 0: any number. */
static int64_t channels_of(const sb_quant_model *qm, const sb_quantizer *q)
{
    const sb_shape *shape = &sb_graph_value(qm->graph, q->value)->type.shape;

    if (q->axis < 0)
        return 1;
    return q->axis < shape->rank && sb_dim_known(shape->dim[q->axis])
               ? shape->dim[q->axis]
               : 0;
}

static sb_status load_site(loader *l, const sb_json *o)
{
    const sb_json *channels = sb_json_get(o, "channels");
    const sb_json *samples = sb_json_get(o, "samples");
    const sb_json *state = sb_json_get(o, "state");
    sb_quant_model *qm = l->qm;
    size_t i = 0;

    if (!sb_json_is(channels, SB_JSON_NUMBER) ||
        !sb_json_is(samples, SB_JSON_NUMBER) || !state ||
        channels->number < 1 || channels->number > CHANNELS_MOST ||
        samples->number < 0 || samples->number > 1e15)
        return sb_json_fail(l->doc, o, "an entry of \"sites\" is not whole");
    if (!find_site(l, o, &i))
        return SB_OK; /* of another configuration; what lacks is named later */
    sb_quant_site *site = &qm->sites[i];
    const sb_quantizer *q = &qm->quantizers[site->first];
    int64_t n = (int64_t)channels->number;
    int64_t want = channels_of(qm, q);
    if (want != 0 && n != want)
        return sb_json_fail(l->doc, o,
                            "%lld ranges for the quantizer '%s', want %lld",
                            (long long)n, q->name, (long long)want);
    if (!site->observer)
        SB_TRY(sb_calibrate_observer(qm, site, n));
    else if (site->channels != n)
        return sb_json_fail(l->doc, o, "numbers of channels differ");
    site->channels = n;
    SB_TRY(sb_observer_load(site->observer, l->doc, state));
    if (sb_observer_elements(site->observer) == 0)
        return sb_json_fail(
            l->doc, o, "nothing was observed for the quantizer '%s'", q->name);
    site->samples += (int64_t)samples->number;
    l->loaded[i] = true;
    return SB_OK;
}

static sb_status check_all_there(const loader *l)
{
    const sb_quant_model *qm = l->qm;

    for (size_t i = 0; i < qm->n_sites; i++) {
        const sb_quant_site *s = &qm->sites[i];
        const sb_quantizer *q = &qm->quantizers[s->first];
        if (!s->observer && s->same_as == i && !s->natural && !q->fake_fused &&
            !q->spec.dynamic && !sb_quantizer_is_constant(qm, q))
            return sb_json_fail(l->doc, NULL,
                                "has nothing for the quantizer '%s' (%s, %d "
                                "bit); it was made with another model or "
                                "configuration",
                                q->name, q->spec.observer, q->spec.bits);
    }
    return SB_OK;
}

static sb_status load_tree(loader *l)
{
    const sb_json *version = sb_json_get(l->doc->root, MAGIC);
    const sb_json *list = sb_json_get(l->doc->root, "sites");

    if (!sb_json_is(version, SB_JSON_NUMBER) || !sb_json_is(list, SB_JSON_LIST))
        return sb_json_fail(l->doc, NULL,
                            "not a calibration file of sparsebit");
    if (version->number != 1.0)
        return sb_json_fail(l->doc, version, "written by a newer version");
    for (const sb_json *o = list->child; o; o = o->next)
        SB_TRY(load_site(l, o));
    return check_all_there(l);
}

sb_status sb_calibration_load_memory(sb_quant_model *qm, const char *path,
                                     const char *text, size_t size)
{
    sb_json_doc *doc = NULL;

    SB_TRY(sb_json_read(qm->ctx, path, text, size, &doc));
    loader l = {.qm = qm, .doc = doc};
    l.loaded = sb_alloc(qm->ctx, qm->n_sites + 1, sizeof *l.loaded);
    sb_status status = l.loaded ? load_tree(&l) : SB_NO_MEMORY;
    sb_free(qm->ctx, l.loaded);
    sb_json_free(doc);
    return status;
}

sb_status sb_quant_model_load_calibration(sb_quant_model *qm, const char *path)
{
    sb_mapping map;

    SB_TRY(sb_file_map(qm->ctx, path, &map));
    sb_status status = sb_calibration_load_memory(
        qm, path, map.data ? map.data : "", map.size);
    sb_file_unmap(&map);
    return status;
}
