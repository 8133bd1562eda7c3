/* Packed inputs: when to pack, and where to. */
#include "ops/packed_input.h"

static sb_status packed_input_fill(const sb_kernel *k, const sb_packed_input *p,
                                   void *scratch)
{
    const float *from = k->in[p->input]->data;

    SB_TRY(p->fn(p->object, from + p->at, p->pack->data, scratch));
    if (atomic_load(&k->ctx->cut)) /* half packed: not to be kept */
        return sb_fail(k->ctx, SB_INTERRUPTED, "interrupted");
    p->pack->version = p->pack->current ? *p->pack->current : 0;
    return SB_OK;
}

static bool packed_input_stale(const sb_pack *pack)
{
    return !pack->current || pack->version != *pack->current;
}

sb_status sb_packed_input_prepare(sb_kernel *k, sb_packed_input *p,
                                  const sb_dnn_packing *how)
{
    sb_pack_form form = {.bytes = how->bytes,
                         .at = p->at,
                         .form = how->form,
                         .form_size = how->form_size};

    if (how->bytes == 0)
        return SB_OK;
    SB_TRY(k->host->pack(k, p->input, &form, &p->pack));
    if (!k->in[p->input]->data || !p->pack->current) {
        p->scratch = how->scratch;
        return SB_OK;
    }
    if (p->input < 32)
        k->packed |= 1u << p->input;
    if (!packed_input_stale(p->pack))
        return SB_OK;
    sb_buf *scratch = NULL;
    if (how->scratch)
        SB_TRY(sb_buf_create_raw(k->ctx, how->scratch, &scratch));
    sb_status status =
        packed_input_fill(k, p, scratch ? sb_buf_data(scratch) : NULL);
    sb_buf_unref(scratch);
    return status;
}

sb_status sb_packed_input_get(const sb_kernel *k, const sb_packed_input *p,
                              void *scratch, const float **out)
{
    if (!p->pack) {
        *out = k->in[p->input]->data;
        *out = *out ? *out + p->at : NULL;
        return SB_OK;
    }
    if (packed_input_stale(p->pack))
        SB_TRY(packed_input_fill(k, p, scratch));
    *out = p->pack->data;
    return SB_OK;
}

static sb_status pack_gemm(void *object, const float *weights, void *packed,
                           void *scratch)
{
    return sb_dnn_gemm_pack(object, weights, packed, scratch);
}

sb_status sb_packed_input_gemm(sb_kernel *k, uint32_t input, int64_t at,
                               sb_dnn_gemm *gemm, sb_packed_input *p)
{
    *p = (sb_packed_input){
        .input = input, .at = at, .object = gemm, .fn = pack_gemm};
    return sb_packed_input_prepare(k, p, sb_dnn_gemm_packing(gemm));
}
