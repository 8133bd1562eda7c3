/* fixtures - writes the networks that examples in documents speak of, and
 * arrays for them; small, and the same for every run. */
#include <stdio.h>

#include <sparsebit/experimental.h>

static const char images_net[] = /* an image of any size */
    "graph images(images: f32[N,3,H,W]) -> (y) {\n"
    "  w: f32[4,3,3,3] = random(1)\n"
    "  c = Conv(images, w) {pads=[1,1,1,1]}\n"
    "  r = Relu(c)\n"
    "  y = GlobalAveragePool(r)\n"
    "}\n";

static const char bert_net[] = /* token IDs, two kinds of masks */
    "graph bert(input_ids: i64[N,L], attention_mask: i64[N,L], "
    "token_type_ids: i64[N,L]) -> (y) {\n"
    "  table: f32[30,64] = random(1)\n"
    "  kinds: f32[2,64] = random(2)\n"
    "  w: f32[64,64] = random(3)\n"
    "  axis: i64[1] = [2]\n"
    "  e = Gather(table, input_ids)\n"
    "  k = Gather(kinds, token_type_ids)\n"
    "  s = Add(e, k)\n"
    "  m = Cast(attention_mask) {to=1}\n"
    "  u = Unsqueeze(m, axis)\n"
    "  t = Mul(s, u)\n"
    "  y = MatMul(t, w)\n"
    "}\n";

static const char voice_net[] = /* a state, and an If that asks for the rate */
    "graph voice(input: f32[N,576], state: f32[2,N,128], sr: i64[]) -> "
    "(output: f32[N,1], stateN: f32[2,N,128]) {\n"
    "  high: i64[] = [16000]\n"
    "  half: f32[] = [0.5]\n"
    "  w: f32[576,1] = random(1)\n"
    "  same = Equal(sr, high)\n"
    "  y = If(same) {then_branch = graph a() -> (p: f32[N,1]) {\n"
    "    p = MatMul(input, w)\n"
    "  }, else_branch = graph b() -> (q: f32[N,1]) {\n"
    "    t = MatMul(input, w)\n"
    "    q = Neg(t)\n"
    "  }}\n"
    "  output = Sigmoid(y)\n"
    "  stateN = Mul(state, half)\n"
    "}\n";

static sb_status save_net(sb_ctx *ctx, const char *text, const char *name)
{
    sb_model *model = NULL;
    sb_status s = sb_model_parse(ctx, text, &model);

    if (s == SB_OK)
        s = sb_model_save(model, name);
    sb_model_free(model);
    return s;
}

static sb_status save_array(sb_ctx *ctx, const char *name, sb_dtype dtype,
                            int rank, const int64_t *dims)
{
    sb_tensor *t = NULL;
    sb_status s = sb_tensor_create(ctx, dtype, rank, dims, &t);

    if (s == SB_OK) {
        sb_tensor_fill_random(t, 1);
        s = sb_tensor_save(ctx, name, t);
    }
    sb_tensor_free(t);
    return s;
}

/* All inputs of the network of tokens in one archive. */
static sb_status save_tokens(sb_ctx *ctx, const char *name)
{
    static const char *const names[] = {"input_ids", "attention_mask",
                                        "token_type_ids"};
    const int64_t dims[] = {2, 7};
    sb_tensor *t = NULL;
    sb_status s = sb_tensor_create(ctx, SB_DTYPE_I64, 2, dims, &t);

    if (s == SB_OK) {
        const sb_tensor *all[] = {t, t, t};
        sb_tensor_fill_random(t, 1);
        s = sb_tensors_save_npz(ctx, name, names, all, 3);
    }
    sb_tensor_free(t);
    return s;
}

static sb_status save_speech(sb_ctx *ctx, const char *name)
{
    const int64_t dims[] = {24, 576};
    sb_tensor *t = NULL;
    sb_status s = sb_tensor_create(ctx, SB_DTYPE_F32, 2, dims, &t);

    if (s == SB_OK) {
        const sb_tensor *all[] = {t};
        const char *const names[] = {"input"};
        sb_tensor_fill_random(t, 1);
        s = sb_tensors_save_npz(ctx, name, names, all, 1);
    }
    sb_tensor_free(t);
    return s;
}

int main(void)
{
    const int64_t image[] = {1, 1, 28, 28}, images[] = {16, 1, 28, 28};
    sb_ctx *ctx = NULL;
    sb_status s = sb_ctx_create(NULL, &ctx);

    if (s == SB_OK)
        s = save_net(ctx, images_net, "images.onnx");
    if (s == SB_OK)
        s = save_net(ctx, bert_net, "bert.onnx");
    if (s == SB_OK)
        s = save_array(ctx, "x.npy", SB_DTYPE_F32, 4, image);
    if (s == SB_OK)
        s = save_array(ctx, "y.npy", SB_DTYPE_I64, 1, image);
    if (s == SB_OK)
        s = save_array(ctx, "images.npy", SB_DTYPE_F32, 4, images);
    if (s == SB_OK)
        s = save_tokens(ctx, "batch.npz");
    if (s == SB_OK)
        s = save_net(ctx, voice_net, "silero_vad.onnx");
    if (s == SB_OK)
        s = save_speech(ctx, "speech.npz");
    if (s != SB_OK)
        fprintf(stderr, "%s\n", sb_ctx_error(ctx));
    sb_ctx_free(ctx);
    return s != SB_OK;
}
