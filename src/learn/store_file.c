/* The store as a file: a .npz archive that NumPy reads as well.
 *
 *     counters  steps, updates, gradients in the mean
 *     names     of the trained parameters, each ended by a zero byte
 *     note      a text of the caller's
 *     value.0, momentum.0, square.0, average.0, mean.0, mask.0, value.1, ...
 *
 * Arrays go by number, since names of members are restricted and those of
 * parameters are not.  Loading checks everything before it changes anything. */
#include <string.h>

#include "learn/store.h"
#include "tensor/npy.h"

static const struct {
    sb_store_kind kind;
    const char *part;
} file_parts[] = {
    {SB_STORE_VALUE, "value"},       {SB_STORE_MEAN, "mean"},
    {SB_STORE_MOMENTUM, "momentum"}, {SB_STORE_SQUARE, "square"},
    {SB_STORE_AVERAGE, "average"},   {SB_STORE_MASK, "mask"},
};

/* The items before those of parameters. */
enum { FILE_HEAD, FILE_NAMES, FILE_NOTE, FILE_PARAMETERS };
enum { FILE_RUNS, FILE_UPDATES, FILE_WAITING, FILE_COUNTERS };

/* What the file of a store consists of, in order. */
typedef struct file_list {
    sb_arena arena; /* of names and small arrays */
    sb_npz_item *items;
    sb_parameter **parameter; /* of each item; NULL: of none */
    sb_store_kind *kind;
    size_t n;
} file_list;

static sb_status file_add(file_list *f, char *name, const sb_tensor *t)
{
    f->items[f->n].name = name;
    f->items[f->n].tensor = *t;
    f->n++;
    return name ? SB_OK : SB_NO_MEMORY;
}

static sb_status file_add_names(file_list *f, const sb_store *store)
{
    int64_t size = 0;

    for (size_t i = 0; i < store->n; i++)
        if (store->all[i].info.trained)
            size += (int64_t)strlen(store->all[i].info.name) + 1;
    sb_tensor t = sb_tensor_make(SB_DTYPE_U8, 1, &size);
    char *to = sb_arena_alloc(&f->arena, (size_t)size + 1, 1);
    if (!to)
        return SB_NO_MEMORY;
    t.data = to;
    for (size_t i = 0; i < store->n; i++) {
        const char *name = store->all[i].info.name;
        if (!store->all[i].info.trained)
            continue;
        memcpy(to, name, strlen(name) + 1);
        to += strlen(name) + 1;
    }
    return file_add(f, sb_arena_str(&f->arena, "names"), &t);
}

static sb_status file_add_note(file_list *f, const sb_store *store)
{
    const char *note = store->note ? store->note : "";
    const int64_t size = (int64_t)strlen(note);
    sb_tensor t = sb_tensor_make(SB_DTYPE_U8, 1, &size);

    t.data = sb_arena_str(&f->arena, note);
    if (!t.data)
        return SB_NO_MEMORY;
    return file_add(f, sb_arena_str(&f->arena, "note"), &t);
}

static sb_status file_add_counters(file_list *f, const sb_store *store)
{
    const int64_t n = FILE_COUNTERS;
    sb_tensor t = sb_tensor_make(SB_DTYPE_I64, 1, &n);
    int64_t *v = sb_arena_alloc(&f->arena, FILE_COUNTERS, sizeof *v);

    if (!v)
        return SB_NO_MEMORY;
    v[FILE_RUNS] = store->runs;
    v[FILE_UPDATES] = store->updates;
    v[FILE_WAITING] = store->waiting;
    t.data = v;
    return file_add(f, sb_arena_str(&f->arena, "counters"), &t);
}

static sb_status file_fill(file_list *f, const sb_store *store)
{
    size_t number = 0;

    SB_TRY(file_add_counters(f, store));
    SB_TRY(file_add_names(f, store));
    SB_TRY(file_add_note(f, store));
    for (size_t i = 0; i < store->n; i++) {
        sb_parameter *p = &store->all[i];
        for (size_t k = 0; p->info.trained && k < SB_COUNT(file_parts); k++) {
            if (!sb_parameter_has(p, file_parts[k].kind))
                continue;
            f->parameter[f->n] = p;
            f->kind[f->n] = file_parts[k].kind;
            SB_TRY(file_add(f,
                            sb_arena_printf(&f->arena, "%s.%zu",
                                            file_parts[k].part, number),
                            &p->kept[file_parts[k].kind].t));
        }
        number += p->info.trained != 0;
    }
    return SB_OK;
}

/* Close it in any case. */
static sb_status file_open(file_list *f, const sb_store *store)
{
    size_t most = store->n * SB_COUNT(file_parts) + FILE_PARAMETERS;

    *f = (file_list){.n = 0};
    sb_arena_init(&f->arena, store->ctx);
    f->items = sb_arena_alloc(&f->arena, most, sizeof *f->items);
    f->parameter = sb_arena_alloc(&f->arena, most, sizeof(sb_parameter *));
    f->kind = sb_arena_alloc(&f->arena, most, sizeof *f->kind);
    if (!f->items || !f->parameter || !f->kind)
        return SB_NO_MEMORY;
    return file_fill(f, store);
}

sb_status sb_store_save(const sb_store *store, const char *path)
{
    file_list f;
    sb_status status = file_open(&f, store);

    if (status == SB_OK)
        status = sb_npz_save(store->ctx, path, f.items, f.n);
    sb_arena_free(&f.arena);
    return status;
}

/* ---- loading ------------------------------------------------------------ */

static sb_status file_check_names(const sb_store *store, const char *path,
                                  const sb_tensor *found, const sb_tensor *want)
{
    const char *a = found->data, *b = want->data;
    size_t n = sb_tensor_bytes(want), at = 0;

    if (sb_tensor_bytes(found) == n && memcmp(a, b, n) == 0)
        return SB_OK;
    while (at < n && at < sb_tensor_bytes(found) && a[at] == b[at])
        at++;
    while (at > 0 && b[at - 1])
        at--; /* where the name begins that differs */
    return sb_fail(store->ctx, SB_BAD_DATA,
                   "%s: its parameters are not those of this network; the "
                   "first that differs is '%s'",
                   path, at < n ? b + at : "one more");
}

static sb_status file_check_item(const sb_store *store, const char *path,
                                 const sb_npz_item *found,
                                 const sb_npz_item *want)
{
    const sb_tensor *a = &found->tensor, *b = &want->tensor;
    char got[128], wanted[128];

    if (strcmp(found->name, want->name) != 0)
        return sb_fail(store->ctx, SB_BAD_DATA,
                       "%s: found '%s', want '%s': it was written with other "
                       "options",
                       path, found->name, want->name);
    if (strcmp(want->name, "names") == 0 && a->dtype == b->dtype)
        return file_check_names(store, path, a, b);
    if (strcmp(want->name, "note") == 0 && a->dtype == b->dtype && a->rank == 1)
        return SB_OK;
    if (a->dtype == b->dtype && a->rank == b->rank &&
        memcmp(a->dims, b->dims, (size_t)b->rank * sizeof b->dims[0]) == 0)
        return SB_OK;
    return sb_fail(store->ctx, SB_BAD_DATA,
                   "%s: '%s' is %s, want %s: it was written with another "
                   "network, or other options",
                   path, want->name, sb_tensor_describe(a, got, sizeof got),
                   sb_tensor_describe(b, wanted, sizeof wanted));
}

static sb_status file_check(const sb_store *store, const char *path,
                            const file_list *f, const sb_npz_item *items,
                            size_t n)
{
    for (size_t i = 0; i < f->n && i < n; i++)
        SB_TRY(file_check_item(store, path, &items[i], &f->items[i]));
    if (n != f->n)
        return sb_fail(store->ctx, SB_BAD_DATA,
                       "%s: %zu arrays, want %zu: it was written with other "
                       "options",
                       path, n, f->n);
    for (int64_t i = 0; i < FILE_COUNTERS; i++)
        if (sb_tensor_get_i64(&items[FILE_HEAD].tensor, i) < 0)
            return sb_fail(store->ctx, SB_BAD_DATA,
                           "%s: counter %lld is below 0", path, (long long)i);
    return SB_OK;
}

static sb_status file_take(sb_store *store, const file_list *f,
                           const sb_npz_item *items)
{
    const sb_tensor *note = &items[FILE_NOTE].tensor;

    SB_TRY(sb_store_set_note(store, note->data, sb_tensor_bytes(note)));
    store->runs = sb_tensor_get_i64(&items[FILE_HEAD].tensor, FILE_RUNS);
    store->updates = sb_tensor_get_i64(&items[FILE_HEAD].tensor, FILE_UPDATES);
    store->waiting = sb_tensor_get_i64(&items[FILE_HEAD].tensor, FILE_WAITING);
    for (size_t i = 0; i < f->n; i++)
        if (f->parameter[i])
            sb_parameter_set(f->parameter[i], f->kind[i], items[i].tensor.data);
    return SB_OK;
}

sb_status sb_store_load(sb_store *store, const char *path)
{
    sb_npz_item *items = NULL;
    size_t n = 0;
    file_list f;

    SB_TRY(sb_npz_load(store->ctx, path, &items, &n));
    sb_status status = file_open(&f, store);
    if (status == SB_OK)
        status = file_check(store, path, &f, items, n);
    if (status == SB_OK)
        status = file_take(store, &f, items);
    sb_arena_free(&f.arena);
    sb_npz_free(store->ctx, items, n);
    return status;
}
