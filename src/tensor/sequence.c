/* Sequences of tensors: packing, checking, reading. */
#include "tensor/sequence.h"

#include <string.h>

#include "base/alloc.h"

typedef struct seq_head {
    int64_t dtype, n;
} seq_head;

typedef struct seq_record {
    int64_t at, rank, dims[SB_MAX_RANK]; /* `at` in bytes from the head */
} seq_record;

static seq_record record_of(const sb_sequence *s, int64_t i)
{
    seq_record r;

    memcpy(&r, s->data + sizeof(seq_head) + (size_t)i * sizeof r, sizeof r);
    return r;
}

static sb_tensor item_of(const sb_sequence *s, const seq_record *r)
{
    sb_tensor t = sb_tensor_make(s->dtype, (int)r->rank, r->dims);

    t.data = s->data + r->at;
    return t;
}

/* The bytes may come from anywhere. */
static bool record_sound(const sb_sequence *s, const seq_record *r)
{
    if (r->rank < 0 || r->rank > SB_MAX_RANK || r->at < 0 ||
        (uint64_t)r->at > s->size || r->at % SB_ALIGN != 0)
        return false;
    sb_tensor t = item_of(s, r);
    return sb_tensor_size_ok(&t) &&
           sb_tensor_bytes(&t) <= s->size - (size_t)r->at;
}

static bool type_allowed(sb_dtype dtype)
{
    return sb_dtype_valid((int)dtype) && dtype != SB_DTYPE_STRING;
}

bool sb_sequence_open(const sb_tensor *t, sb_sequence *out)
{
    seq_head head;

    if (t->dtype != SB_DTYPE_SEQUENCE || !t->data)
        return false;
    *out = (sb_sequence){.data = t->data, .size = sb_tensor_bytes(t)};
    if (out->size < sizeof head)
        return false;
    memcpy(&head, out->data, sizeof head);
    if (head.dtype < 0 || head.dtype >= SB_DTYPE_COUNT ||
        !type_allowed((sb_dtype)head.dtype) || head.n < 0 ||
        (uint64_t)head.n > (out->size - sizeof head) / sizeof(seq_record))
        return false;
    out->dtype = (sb_dtype)head.dtype;
    out->n = head.n;
    for (int64_t i = 0; i < out->n; i++) {
        seq_record r = record_of(out, i);
        if (!record_sound(out, &r))
            return false;
    }
    return true;
}

sb_tensor sb_sequence_get(const sb_sequence *s, int64_t i)
{
    seq_record r = record_of(s, i);

    return item_of(s, &r);
}

/* The next multiple of SB_ALIGN; false on overflow. */
static bool round_up(size_t *n)
{
    if (*n > SIZE_MAX - SB_ALIGN)
        return false;
    *n = (*n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    return true;
}

bool sb_sequence_size(sb_dtype dtype, const sb_tensor *items, size_t n,
                      size_t *out)
{
    size_t all = 0;

    if (!type_allowed(dtype) || !sb_mul_size(n, sizeof(seq_record), &all) ||
        all > SIZE_MAX - sizeof(seq_head))
        return false;
    all += sizeof(seq_head);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = sb_tensor_bytes(&items[i]);
        if (!round_up(&all) || bytes > SIZE_MAX - all)
            return false;
        all += bytes;
    }
    *out = all;
    return all <= INT64_MAX;
}

void sb_sequence_fill(sb_dtype dtype, const sb_tensor *items, size_t n,
                      void *out)
{
    char *bytes = out;
    const seq_head head = {(int64_t)dtype, (int64_t)n};
    size_t at = sizeof head + n * sizeof(seq_record);

    memcpy(bytes, &head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        const sb_tensor *t = &items[i];
        size_t size = sb_tensor_bytes(t), old = at;
        (void)round_up(&at);
        memset(bytes + old, 0, at - old);
        seq_record r = {.at = (int64_t)at, .rank = t->rank};
        memcpy(r.dims, t->dims, (size_t)t->rank * sizeof r.dims[0]);
        memcpy(bytes + sizeof head + i * sizeof r, &r, sizeof r);
        if (size && t->data)
            memcpy(bytes + at, t->data, size);
        at += size;
    }
}
