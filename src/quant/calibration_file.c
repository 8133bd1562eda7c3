/* What calibration has seen, as a JSON file:
 *
 *     {"sparsebit_calibration": 1,
 *      "sites": [{"value": "conv1_out", "observer": "minmax", "bits": 8,
 *                 "channels": 1, "samples": 64, "state": {...}}, ...]}
 *
 * Only activations are in it; weights are observed anew.  States of several
 * files add up, so that processes can share the samples. */
#include <cjson/cJSON.h>
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

static bool add_facts(const sb_quant_model *qm, const sb_quant_site *site,
                      cJSON *o)
{
    const sb_quantizer *q = &qm->quantizers[site->first];
    const char *value = sb_graph_value(qm->graph, q->value)->name;

    return cJSON_AddStringToObject(o, "value", value) &&
           cJSON_AddStringToObject(o, "observer", q->spec.observer) &&
           cJSON_AddNumberToObject(o, "bits", q->spec.bits) &&
           cJSON_AddNumberToObject(o, "channels", (double)site->channels) &&
           cJSON_AddNumberToObject(o, "samples", (double)site->samples);
}

static sb_status add_site(const sb_quant_model *qm, const sb_quant_site *site,
                          cJSON *list)
{
    cJSON *o = cJSON_CreateObject(), *state = NULL;

    if (!o || !cJSON_AddItemToArray(list, o)) {
        cJSON_Delete(o);
        return sb_fail(qm->ctx, SB_NO_MEMORY, "out of memory");
    }
    if (!add_facts(qm, site, o))
        return sb_fail(qm->ctx, SB_NO_MEMORY, "out of memory");
    SB_TRY(sb_observer_save(site->observer, &state));
    if (!cJSON_AddItemToObject(o, "state", state)) {
        cJSON_Delete(state);
        return sb_fail(qm->ctx, SB_NO_MEMORY, "out of memory");
    }
    return SB_OK;
}

static sb_status write_tree(sb_ctx *ctx, const char *path, const cJSON *root)
{
    char *text = cJSON_PrintUnformatted(root);

    if (!text)
        return sb_fail(ctx, SB_NO_MEMORY, "out of memory");
    sb_writer *w = NULL;
    sb_status status = sb_writer_open(ctx, path, &w);
    if (status == SB_OK) {
        sb_writer_put(w, text, strlen(text));
        status = sb_writer_commit(w);
    }
    cJSON_free(text);
    return status;
}

sb_status sb_quant_model_save_calibration(const sb_quant_model *qm,
                                          const char *path)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(root, "sites");
    sb_status status = SB_OK;

    if (!list || !cJSON_AddNumberToObject(root, MAGIC, 1))
        status = sb_fail(qm->ctx, SB_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < qm->n_sites && status == SB_OK; i++)
        if (is_kept(qm, i))
            status = add_site(qm, &qm->sites[i], list);
    if (status == SB_OK && cJSON_GetArraySize(list) == 0)
        status = sb_fail(qm->ctx, SB_BAD_ARG,
                         "nothing was observed yet: calibrate before saving");
    if (status == SB_OK)
        status = write_tree(qm->ctx, path, root);
    cJSON_Delete(root);
    return status;
}

/* ---- reading ------------------------------------------------------------ */

typedef struct loader {
    sb_quant_model *qm;
    const char *path;
    bool *loaded; /* by site */
} loader;

static sb_status bad(const loader *l, const char *what)
{
    return sb_fail(l->qm->ctx, SB_BAD_DATA, "%s: %s", l->path, what);
}

/* The entry's site: same value, same observer and width. */
static bool find_site(const loader *l, const cJSON *o, size_t *out)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(o, "value"));
    const char *observer =
        cJSON_GetStringValue(cJSON_GetObjectItem(o, "observer"));
    const cJSON *bits = cJSON_GetObjectItem(o, "bits");
    const sb_quant_model *qm = l->qm;

    for (size_t i = 0; value && observer && bits && i < qm->n_sites; i++) {
        const sb_quantizer *q = &qm->quantizers[qm->sites[i].first];
        if (!l->loaded[i] && qm->sites[i].same_as == i &&
            !sb_quantizer_is_constant(qm, q) &&
            strcmp(sb_graph_value(qm->graph, q->value)->name, value) == 0 &&
            strcmp(q->spec.observer, observer) == 0 &&
            q->spec.bits == bits->valueint) {
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

static sb_status load_site(loader *l, const cJSON *o)
{
    const cJSON *channels = cJSON_GetObjectItem(o, "channels");
    const cJSON *samples = cJSON_GetObjectItem(o, "samples");
    const cJSON *state = cJSON_GetObjectItem(o, "state");
    sb_quant_model *qm = l->qm;
    size_t i = 0;

    if (!cJSON_IsNumber(channels) || !cJSON_IsNumber(samples) || !state ||
        channels->valuedouble < 1 || channels->valuedouble > CHANNELS_MOST ||
        samples->valuedouble < 0 || samples->valuedouble > 1e15)
        return bad(l, "an entry of \"sites\" is not whole");
    if (!find_site(l, o, &i))
        return SB_OK; /* of another configuration; what lacks is named later */
    sb_quant_site *site = &qm->sites[i];
    const sb_quantizer *q = &qm->quantizers[site->first];
    int64_t n = (int64_t)channels->valuedouble;
    int64_t want = channels_of(qm, q);
    if (want != 0 && n != want)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "%s: has %lld ranges for the quantizer '%s', want %lld",
                       l->path, (long long)n, q->name, (long long)want);
    if (!site->observer)
        SB_TRY(sb_observer_create(qm->ctx, &q->spec, n, &site->observer));
    else if (site->channels != n)
        return bad(l, "numbers of channels differ");
    site->channels = n;
    SB_TRY(sb_observer_load(site->observer, state, l->path));
    if (sb_observer_elements(site->observer) == 0)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "%s: nothing was observed for the quantizer '%s'",
                       l->path, q->name);
    site->samples += (int64_t)samples->valuedouble;
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
            return sb_fail(qm->ctx, SB_BAD_DATA,
                           "%s: has nothing for the quantizer '%s' (%s, %d "
                           "bit); it was made with another model or "
                           "configuration",
                           l->path, q->name, q->spec.observer, q->spec.bits);
    }
    return SB_OK;
}

static sb_status load_tree(loader *l, const cJSON *root)
{
    const cJSON *version = cJSON_GetObjectItem(root, MAGIC);
    const cJSON *list = cJSON_GetObjectItem(root, "sites"), *o = NULL;

    if (!cJSON_IsNumber(version) || !cJSON_IsArray(list))
        return bad(l, "not a calibration file of sparsebit");
    if (version->valueint != 1)
        return bad(l, "written by a newer version");
    cJSON_ArrayForEach(o, list) SB_TRY(load_site(l, o));
    return check_all_there(l);
}

sb_status sb_calibration_load_memory(sb_quant_model *qm, const char *path,
                                     const char *text, size_t size)
{
    loader l = {.qm = qm, .path = path};
    cJSON *root = cJSON_ParseWithLength(text, size);

    l.loaded = sb_alloc(qm->ctx, qm->n_sites + 1, sizeof *l.loaded);
    sb_status status = !l.loaded ? SB_NO_MEMORY
                       : root    ? load_tree(&l, root)
                                 : bad(&l, "not JSON, or cut off");
    cJSON_Delete(root);
    sb_free(qm->ctx, l.loaded);
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
