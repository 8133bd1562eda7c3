/* Tensors set aside (spill.h).
 *
 * The file is a heap of extents: what is dropped goes to a sorted list of
 * holes, neighbors are joined, and the first hole that is large enough serves
 * the next request.  Batches mostly have the same size, so holes fit. */
#define _DEFAULT_SOURCE
#include "tensor/spill.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/threads.h"

static const size_t SPILL_LIMIT = (size_t)512 << 20;

typedef struct extent {
    uint64_t offset, size;
} extent;

struct sb_spill {
    sb_ctx *ctx;
    size_t limit;
    size_t own, *used; /* own, or of several piles together */
    int fd;            /* -1: no file yet */
    const char *folder;
    uint64_t end; /* of the file */
    extent *holes;
    size_t n_holes, cap_holes;
    sb_tensor *spare; /* what was dropped, the oldest first */
    size_t n_spare, cap_spare, spare_bytes;
    size_t most; /* bytes in memory at once, when new memory was taken */
};

sb_status sb_spill_create(sb_ctx *ctx, size_t limit, sb_spill **out)
{
    sb_spill *s = sb_alloc(ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    s->ctx = ctx;
    s->limit = limit ? limit : sb_memory_share(ctx, 16, SPILL_LIMIT);
    s->used = &s->own;
    s->fd = -1;
    *out = s;
    return SB_OK;
}

void sb_spill_share(sb_spill *s, size_t *used)
{
    s->used = used;
}

void sb_spill_free(sb_spill *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        (void)close(s->fd);
    while (s->n_spare > 0)
        sb_tensor_drop(&s->spare[--s->n_spare]);
    sb_free(s->ctx, s->spare);
    sb_free(s->ctx, s->holes);
    sb_free(s->ctx, s);
}

/* ---- the file ----------------------------------------------------------- */

static sb_status io_error(const sb_spill *s, const char *verb, int error)
{
    return sb_temp_fail(s->ctx, s->folder, verb, error);
}

static void remove_hole(sb_spill *s, size_t i)
{
    s->n_holes--;
    memmove(&s->holes[i], &s->holes[i + 1],
            (s->n_holes - i) * sizeof *s->holes);
}

static uint64_t take_extent(sb_spill *s, uint64_t size)
{
    for (size_t i = 0; i < s->n_holes; i++) {
        extent *h = &s->holes[i];
        uint64_t offset = h->offset;

        if (h->size < size)
            continue;
        h->offset += size;
        h->size -= size;
        if (h->size == 0)
            remove_hole(s, i);
        return offset;
    }
    s->end += size;
    return s->end - size;
}

/* Without memory for the list the place is lost, which does no harm. */
static void give_extent(sb_spill *s, uint64_t offset, uint64_t size)
{
    size_t i = 0;

    while (i < s->n_holes && s->holes[i].offset < offset)
        i++;
    if (i > 0 && s->holes[i - 1].offset + s->holes[i - 1].size == offset) {
        s->holes[--i].size += size;
    } else {
        if (sb_grow(s->ctx, &s->holes, &s->cap_holes, s->n_holes + 1,
                    sizeof *s->holes) != SB_OK)
            return;
        memmove(&s->holes[i + 1], &s->holes[i],
                (s->n_holes - i) * sizeof *s->holes);
        s->n_holes++;
        s->holes[i] = (extent){offset, size};
    }
    if (i + 1 < s->n_holes &&
        s->holes[i].offset + s->holes[i].size == s->holes[i + 1].offset) {
        s->holes[i].size += s->holes[i + 1].size;
        remove_hole(s, i + 1);
    }
}

static sb_status write_at(const sb_spill *s, uint64_t at, const char *data,
                          size_t size)
{
    while (size > 0) {
        ssize_t n = pwrite(s->fd, data, size, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return io_error(s, "write to", n < 0 ? errno : ENOSPC);
        data += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return SB_OK;
}

static sb_status read_at(const sb_spill *s, uint64_t at, char *data,
                         size_t size)
{
    while (size > 0) {
        ssize_t n = pread(s->fd, data, size, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return io_error(s, "read from", n < 0 ? errno : EIO);
        data += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return SB_OK;
}

/* ---- memory ------------------------------------------------------------- */

/* Dropped tensors are kept for the next ones that need no less than half of
 * their memory, because new pages cost as much as what is copied there; as long
 * as all together are no more than what was needed at once.  What is still
 * shared waits. */
static void remove_spare(sb_spill *s, size_t i)
{
    s->n_spare--;
    memmove(&s->spare[i], &s->spare[i + 1],
            (s->n_spare - i) * sizeof *s->spare);
}

/* Until `size` bytes more are no more than the most. */
static void free_spares(sb_spill *s, size_t size)
{
    size_t used = *s->used + size;

    s->most = s->most > used ? s->most : used;
    for (size_t i = 0; i < s->n_spare && used + s->spare_bytes > s->most;) {
        if (sb_buf_is_shared(s->spare[i].buf)) {
            i++;
            continue;
        }
        s->spare_bytes -= sb_buf_size(s->spare[i].buf);
        sb_tensor_drop(&s->spare[i]);
        remove_spare(s, i);
    }
}

static sb_status take_memory(sb_spill *s, sb_tensor *t)
{
    size_t size = sb_tensor_bytes(t), best = s->n_spare, least = 2 * size + 1;

    for (size_t i = 0; i < s->n_spare; i++) {
        size_t has = sb_buf_size(s->spare[i].buf);

        if (has >= size && has < least && !sb_buf_is_shared(s->spare[i].buf)) {
            best = i;
            least = has;
        }
    }
    if (best == s->n_spare) {
        free_spares(s, size);
        return sb_tensor_alloc_raw(s->ctx, t);
    }
    t->buf = s->spare[best].buf;
    t->data = s->spare[best].data;
    s->spare_bytes -= least;
    remove_spare(s, best);
    return SB_OK;
}

/* Takes the tensor.  Of piles that share a limit, none holds what another may
 * need. */
static void give_memory(sb_spill *s, sb_tensor *t)
{
    if (s->used == &s->own &&
        sb_grow(s->ctx, &s->spare, &s->cap_spare, s->n_spare + 1,
                sizeof *s->spare) == SB_OK) {
        s->spare_bytes += sb_buf_size(t->buf);
        s->spare[s->n_spare++] = *t;
    } else {
        sb_tensor_drop(t);
    }
}

/* ---- tensors ------------------------------------------------------------ */

static sb_status put_in_file(sb_spill *s, const sb_tensor *t,
                             sb_spilled_tensor *out)
{
    size_t size = sb_tensor_bytes(t);

    if (s->fd < 0)
        SB_TRY(sb_temp_open(s->ctx, &s->fd, &s->folder));
    uint64_t offset = take_extent(s, size);
    sb_status status = write_at(s, offset, t->data, size);
    if (status != SB_OK) {
        give_extent(s, offset, size);
        return status;
    }
    out->offset = offset;
    out->in_file = out->there = true;
    return SB_OK;
}

sb_status sb_spill_put(sb_spill *s, const sb_tensor *t, sb_spilled_tensor *out)
{
    size_t size = sb_tensor_bytes(t);
    sb_spilled_tensor kept = {.t = sb_tensor_make(t->dtype, t->rank, t->dims)};

    kept.t.layout = t->layout;
    if (t->dtype == SB_DTYPE_STRING)
        return sb_fail(s->ctx, SB_UNSUPPORTED,
                       "a tensor of texts cannot be kept between blocks");
    if (size > s->limit || *s->used > s->limit - size) {
        SB_TRY(put_in_file(s, t, &kept));
    } else {
        SB_TRY(take_memory(s, &kept.t));
        sb_parallel_copy(s->ctx, kept.t.data, t->data, size);
        sb_status status = sb_ctx_poll(s->ctx);
        if (status != SB_OK) { /* it may not be complete */
            sb_tensor_drop(&kept.t);
            return status;
        }
        *s->used += sb_buf_size(kept.t.buf);
        kept.there = true;
    }
    *out = kept;
    return SB_OK;
}

sb_status sb_spill_lend(sb_spill *s, const sb_tensor *t, sb_spilled_tensor *out)
{
    if (!t->buf || !sb_buf_is_shared(t->buf)) /* as read from a file */
        return sb_spill_put(s, t, out);
    *out = (sb_spilled_tensor){
        .t = sb_tensor_share(t), .there = true, .lent = true};
    return SB_OK;
}

sb_status sb_spill_get(sb_spill *s, const sb_spilled_tensor *kept,
                       sb_tensor *out)
{
    sb_tensor t = kept->t;

    if (!kept->in_file) {
        *out = sb_tensor_share(&kept->t);
        return SB_OK;
    }
    SB_TRY(sb_tensor_alloc_raw(s->ctx, &t));
    sb_status status = read_at(s, kept->offset, t.data, sb_tensor_bytes(&t));
    if (status == SB_OK)
        *out = t;
    else
        sb_tensor_drop(&t);
    return status;
}

void sb_spill_drop(sb_spill *s, sb_spilled_tensor *kept)
{
    if (!kept->there)
        return;
    size_t size = sb_tensor_bytes(&kept->t);
    if (kept->in_file) {
        give_extent(s, kept->offset, size);
    } else if (kept->lent) {
        sb_tensor_drop(&kept->t);
    } else {
        *s->used -= sb_buf_size(kept->t.buf);
        give_memory(s, &kept->t);
    }
    *kept = (sb_spilled_tensor){0};
}
