/* The list of networks, and how one is made. */
#include "nets/net.h"

#include <string.h>

#include "base/str.h"
#include "ops/op_registry.h"

#define SB_NET(id) extern const sb_net_def sb_net_##id;
#include "nets/nets.def"
#undef SB_NET

static const sb_net_def *const rows[] = {
#define SB_NET(id) &sb_net_##id,
#include "nets/nets.def"
#undef SB_NET
};

enum { NET_CHANNELS = 1024, NET_SIDE = 4096, NET_CLASSES = 1000000 };

const sb_net_def *const *sb_net_all(size_t *n)
{
    *n = SB_COUNT(rows);
    return rows;
}

static sb_status net_find(sb_ctx *ctx, const char *name, const sb_net_def **out)
{
    sb_str names;

    for (size_t i = 0; i < SB_COUNT(rows); i++)
        if (strcmp(rows[i]->name, name) == 0) {
            *out = rows[i];
            return SB_OK;
        }
    sb_str_init(&names, ctx);
    for (size_t i = 0; i < SB_COUNT(rows); i++)
        sb_str_addf(&names, "%s%s", i ? ", " : "", rows[i]->name);
    sb_status status = sb_fail(ctx, SB_BAD_ARG, "no network '%s'; there are %s",
                               name, sb_str_text(&names));
    sb_str_free(&names);
    return status;
}

static sb_status net_limit(sb_ctx *ctx, const char *what, int64_t given,
                           int64_t most, int64_t multiple, int64_t *size)
{
    if (given)
        *size = given;
    if (*size < 1 || *size > most)
        return sb_fail(ctx, SB_BAD_ARG, "%s: found %lld, allowed are 1 to %lld",
                       what, (long long)*size, (long long)most);
    if (*size % multiple)
        return sb_fail(ctx, SB_BAD_ARG,
                       "%s: found %lld, allowed are multiples of %lld", what,
                       (long long)*size, (long long)multiple);
    return SB_OK;
}

static sb_status net_settle_size(sb_ctx *ctx, const sb_net_def *def,
                                 const sb_net_size *given, sb_net_size *out)
{
    *out = def->size;
    SB_TRY(net_limit(ctx, "channels", given->channels, NET_CHANNELS, 1,
                     &out->channels));
    SB_TRY(net_limit(ctx, "height", given->height, NET_SIDE, def->multiple,
                     &out->height));
    SB_TRY(net_limit(ctx, "width", given->width, NET_SIDE, def->multiple,
                     &out->width));
    return net_limit(ctx, "classes", given->classes, NET_CLASSES, 1,
                     &out->classes);
}

static sb_status net_build(sb_net *n, const sb_net_def *def)
{
    sb_graph *g = n->graph;
    sb_value_id image, logits;
    sb_dim batch;

    SB_TRY(sb_graph_symbol(g, "N", &batch));
    SB_TRY(sb_graph_add_value(g, "image", &image));
    sb_graph_value(g, image)->type =
        (sb_type){.dtype = SB_DTYPE_F32,
                  .shape = {.rank = 4,
                            .dim = {batch, n->size.channels, n->size.height,
                                    n->size.width}}};
    SB_TRY(sb_graph_add_input(g, image));
    logits = def->build(n, image);
    SB_TRY(n->status);
    SB_TRY(sb_graph_rename_value(g, logits, "logits"));
    SB_TRY(sb_graph_add_output(g, logits));
    SB_TRY(sb_graph_verify(g));
    return sb_graph_infer(g);
}

sb_status sb_net_create(sb_ctx *ctx, const char *name, const sb_net_size *size,
                        uint64_t seed, sb_graph **out)
{
    const sb_net_def *def = NULL;
    sb_net n = {.graph = NULL};

    SB_TRY(net_find(ctx, name, &def));
    SB_TRY(net_settle_size(ctx, def, size, &n.size));
    SB_TRY(sb_graph_create(ctx, name, &n.graph));
    sb_rng_init(&n.rng, seed);
    sb_status status = net_build(&n, def);
    if (status != SB_OK) {
        sb_graph_free(n.graph);
        return status;
    }
    *out = n.graph;
    return SB_OK;
}
