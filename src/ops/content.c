/* Symbolic elements of small integer tensors. */
#include "ops/content.h"

bool sb_content_has(const sb_infer *in, uint32_t i)
{
    const sb_fact *f = sb_infer_in(in, i);

    return f && f->content.rank >= 0 && f->type.shape.rank >= 0 &&
           f->type.shape.rank <= 1 && sb_dtype_is_integral(f->type.dtype);
}

sb_dim sb_content_at(const sb_infer *in, uint32_t i, int j)
{
    const sb_shape *c = &in->in[i]->content;

    return c->dim[c->rank == 1 ? 0 : j];
}

int sb_content_count(const sb_infer *in, uint32_t first, uint32_t last)
{
    int count = 1;

    for (uint32_t i = first; i <= last; i++) {
        if (!sb_content_has(in, i))
            return -1;
        int n = in->in[i]->content.rank;
        if (n != 1 && count != 1 && n != count)
            return -1;
        count = n != 1 ? n : count;
    }
    return count;
}

void sb_content_binary(sb_infer *in, sb_dim (*fn)(sb_dim a, sb_dim b))
{
    sb_shape *out = &in->out[0].content;
    int count = sb_content_count(in, 0, 1);

    if (count < 0)
        return;
    out->rank = count;
    for (int j = 0; j < count; j++)
        out->dim[j] = fn(sb_content_at(in, 0, j), sb_content_at(in, 1, j));
}
