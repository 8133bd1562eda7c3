/* train_fashion_mnist OUT.onnx [EPOCHS] - trains the network of this folder
 * from nothing, in a loop of its own: batches are changed, the learning rate
 * follows a schedule, every epoch is evaluated, the result is saved.  SB_OK is
 * 0, so that `s = s ? s : f()` calls f() unless something has failed. */
#include "fashion_mnist.h" /* untrained network, changed images, schedule */

enum { BATCH = 128 };

static sb_status train_epoch(sb_data *data, sb_learner *l, sb_tensor *x,
                             double epoch, double epochs, double *loss)
{
    double steps = (double)(sb_data_count(data) / BATCH), done = 0, one = 0;
    const sb_tensor *const inputs[] = {x};
    const sb_batch *batch = NULL;
    sb_status s = SB_OK;

    for (*loss = 0; s == SB_OK && done < steps; done++, *loss += one / steps) {
        if ((s = sb_data_next(data, &batch)) != SB_OK)
            break;
        sb_batch changed = *batch;
        changed.inputs = inputs;
        fashion_augment(sb_tensor_data(batch->inputs[0]),
                        sb_tensor_data_mutable(x), batch->count);
        sb_learner_set_learning_rate(
            l, 0.2 * fashion_one_cycle((epoch + done / steps) / epochs));
        s = sb_learner_step_batch(l, &changed, &one);
    }
    return s;
}

static sb_status test_epoch(sb_data *data, sb_learner *l, sb_eval *eval)
{
    const sb_batch *batch = NULL;
    const sb_tensor *logits = NULL;
    sb_status s;

    while ((s = sb_data_next(data, &batch)) == SB_OK && batch->count > 0 &&
           (s = sb_learner_eval_batch(l, SB_LEARN_VALUES_LAST, batch, &logits,
                                      1)) == SB_OK &&
           (s = sb_eval_add(eval, batch, &logits)) == SB_OK)
        ;
    return s;
}

static sb_status run_epoch(sb_ctx *ctx, sb_learner *l, sb_tensor *x, int epoch,
                           int epochs)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_data *train = NULL, *test = NULL;
    sb_eval *eval = NULL;
    double loss = 0;

    opt.batch = BATCH;
    opt.keys = "SHUFFLE: true";
    opt.seed = (uint64_t)epoch;
    sb_status s = sb_data_open(ctx, FASHION_TRAIN, &opt, &train);
    s = s ? s : sb_data_open(ctx, FASHION_TEST, NULL, &test);
    s = s ? s : sb_eval_create(ctx, 1, NULL, &eval);
    s = s ? s : train_epoch(train, l, x, epoch, epochs, &loss);
    if (s == SB_OK && (s = test_epoch(test, l, eval)) == SB_OK)
        printf("epoch %2d  loss %.4f  test %.2f %%\n", epoch + 1, loss,
               sb_eval_get(eval)->top1);
    sb_data_free(train);
    sb_data_free(test);
    sb_eval_free(eval);
    return s;
}

int main(int argc, char **argv)
{
    const int64_t dims[] = {BATCH, 1, SIDE, SIDE};
    int epochs = argc > 2 ? atoi(argv[2]) : 15;
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_model *model = NULL, *trained = NULL;
    sb_learner *l = NULL;
    sb_tensor *x = NULL;
    sb_ctx *ctx = NULL;

    if (argc < 2 || sb_ctx_create(NULL, &ctx) != SB_OK)
        return 2;
    opt.nesterov = 1;
    opt.weight_decay = 5e-4;
    opt.label_smoothing = 0.05;
    sb_status s = fashion_net(ctx, &model);
    s = s ? s : sb_tensor_create(ctx, SB_DTYPE_F32, 4, dims, &x);
    s = s ? s : sb_learner_create(model, &opt, &l);
    for (int e = 0; s == SB_OK && e < epochs; e++)
        s = run_epoch(ctx, l, x, e, epochs);
    s = s ? s : sb_learner_model(l, SB_LEARN_VALUES_LAST, &trained);
    s = s ? s : sb_model_save(trained, argv[1]);
    if (s != SB_OK)
        fprintf(stderr, "train_fashion_mnist: %s\n", sb_ctx_error(ctx));
    sb_learner_free(l);
    sb_tensor_free(x);
    sb_model_free(trained);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return s != SB_OK;
}
