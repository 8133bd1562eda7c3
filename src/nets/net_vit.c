/* vit-tiny (arXiv 2010.11929, sizes of 2012.12877): a transformer over patches
 * of the image, 12 layers of width 192 with 3 heads.
 *
 * The mean over the patches is classified, not a token of its own: it learns
 * better from little data (arXiv 2205.01580).  Patches are 16x16; 4x4 in images
 * of up to 64x64. */
#include "nets/net.h"

#include "base/ctx.h"

enum { WIDTH = 192, HEADS = 3, DEPTH = 12, SMALL = 64 };

static sb_value_id vit_norm(sb_net *n, sb_value_id x, const char *path)
{
    sb_value_id scale =
        sb_net_fill(n, sb_net_path(n, path, "weight"), WIDTH, 1);
    sb_value_id bias = sb_net_fill(n, sb_net_path(n, path, "bias"), WIDTH, 0);

    return sb_net_op3(n, "LayerNormalization", path, x, scale, bias,
                      "axis=-1, epsilon=1e-6");
}

/* [N, L, in] to [N, L, out] */
static sb_value_id vit_linear(sb_net *n, sb_value_id x, const char *path,
                              int64_t in, int64_t out)
{
    const int64_t dims[] = {in, out};
    sb_value_id w =
        sb_net_normal(n, sb_net_path(n, path, "weight"), 2, dims, 0.02);
    sb_value_id b = sb_net_fill(n, sb_net_path(n, path, "bias"), out, 0);

    x = sb_net_op2(n, "MatMul", path, x, w, NULL);
    return sb_net_op2(n, "Add", path, x, b, NULL);
}

/* [N, L, 192] to [N, 3, L, 64], or [N, 3, 64, L] for keys. */
static sb_value_id vit_heads(sb_net *n, sb_value_id x, const char *path,
                             sb_value_id split, const char *perm)
{
    x = sb_net_op2(n, "Reshape", path, x, split, NULL);
    return sb_net_op1(n, "Transpose", path, x, perm);
}

static sb_value_id vit_attention(sb_net *n, sb_value_id x, const char *path,
                                 sb_value_id split, sb_value_id join)
{
    static const char *const names[] = {"query", "key", "value"};
    sb_value_id in[3];

    for (int i = 0; i < 3; i++) {
        in[i] = vit_linear(n, x, sb_net_path(n, path, names[i]), WIDTH, WIDTH);
        in[i] = vit_heads(n, in[i], path, split,
                          i == 1 ? "perm=[0,2,3,1]" : "perm=[0,2,1,3]");
    }
    sb_value_id scale = sb_net_scalar(n, sb_net_path(n, path, "scale"), 0.125f);
    x = sb_net_op2(n, "MatMul", path, in[0], in[1], NULL);
    x = sb_net_op2(n, "Mul", path, x, scale, NULL);
    x = sb_net_op1(n, "Softmax", path, x, "axis=-1");
    x = sb_net_op2(n, "MatMul", path, x, in[2], NULL);
    x = sb_net_op1(n, "Transpose", path, x, "perm=[0,2,1,3]");
    x = sb_net_op2(n, "Reshape", path, x, join, NULL);
    return vit_linear(n, x, sb_net_path(n, path, "proj"), WIDTH, WIDTH);
}

static sb_value_id vit_block(sb_net *n, sb_value_id x, const char *path,
                             sb_value_id split, sb_value_id join)
{
    sb_value_id y = vit_norm(n, x, sb_net_path(n, path, "norm1"));

    y = vit_attention(n, y, sb_net_path(n, path, "attn"), split, join);
    x = sb_net_op2(n, "Add", path, x, y, NULL);
    y = vit_norm(n, x, sb_net_path(n, path, "norm2"));
    y = vit_linear(n, y, sb_net_path(n, path, "mlp.fc1"), WIDTH, 4 * WIDTH);
    y = sb_net_op1(n, "Gelu", sb_net_path(n, path, "mlp.act"), y, NULL);
    y = vit_linear(n, y, sb_net_path(n, path, "mlp.fc2"), 4 * WIDTH, WIDTH);
    return sb_net_op2(n, "Add", path, x, y, NULL);
}

/* Patches as a sequence with learned positions: [N, L, 192]. */
static sb_value_id vit_embed(sb_net *n, sb_value_id x)
{
    int side = n->size.height > SMALL || n->size.width > SMALL ? 16 : 4;
    int64_t patches = n->size.height / side * (n->size.width / side);
    const int64_t w[] = {WIDTH, n->size.channels, side, side};
    const int64_t all[] = {1, patches, WIDTH};
    sb_value_id weight =
        sb_net_normal(n, "patch_embed.proj.weight", 4, w, 0.02);
    sb_value_id bias = sb_net_fill(n, "patch_embed.proj.bias", WIDTH, 0);
    sb_value_id shape =
        sb_net_ints(n, "patch_embed.shape", (const int64_t[]){0, WIDTH, -1}, 3);

    x = sb_net_op3(n, "Conv", "patch_embed.proj", x, weight, bias,
                   sb_net_pathf(n, "strides=[%d,%d]", side, side));
    x = sb_net_op2(n, "Reshape", "patch_embed", x, shape, NULL);
    x = sb_net_op1(n, "Transpose", "patch_embed", x, "perm=[0,2,1]");
    return sb_net_op2(n, "Add", "pos", x,
                      sb_net_normal(n, "pos_embed", 3, all, 0.02), NULL);
}

static sb_value_id vit_build(sb_net *n, sb_value_id x)
{
    sb_value_id split = sb_net_ints(
        n, "heads.split", (const int64_t[]){0, -1, HEADS, WIDTH / HEADS}, 4);
    sb_value_id join =
        sb_net_ints(n, "heads.join", (const int64_t[]){0, -1, WIDTH}, 3);
    sb_value_id axis = sb_net_ints(n, "pool.axis", (const int64_t[]){1}, 1);

    x = vit_embed(n, x);
    for (int i = 0; i < DEPTH; i++)
        x = vit_block(n, x, sb_net_pathf(n, "blocks.%d", i), split, join);
    x = vit_norm(n, x, "norm");
    x = sb_net_op2(n, "ReduceMean", "pool", x, axis, "keepdims=0");
    return sb_net_linear(n, x, "head", WIDTH, n->size.classes);
}

const sb_net_def sb_net_vit_tiny = {
    .name = "vit-tiny",
    .summary = "vision transformer of 12 layers and 192 channels",
    .size = {3, 224, 224, 1000},
    .multiple = 16,
    .build = vit_build,
};
