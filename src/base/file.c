/* Files: mmap in, write-fsync-rename out. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700 /* realpath */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITER_BUFFER = 1 << 16, PIPE_FIRST = 1 << 20, PIPE_MOST = 1 << 30 };

struct sb_writer {
    sb_ctx *ctx;
    char *path;
    char *tmp;
    int fd; /* -1 once finished */
    int error;
    uint64_t written;
    size_t used;
    unsigned char buffer[WRITER_BUFFER];
};

static sb_status grow_memory(sb_ctx *ctx, const char *path, char **data,
                             size_t *cap)
{
    size_t more = *cap ? 2 * *cap : PIPE_FIRST;
    void *p = more > PIPE_MOST ? MAP_FAILED
                               : mmap(NULL, more, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return sb_fail(ctx, SB_IO, "%s: more bytes than a pipe may have", path);
    if (*cap) {
        memcpy(p, *data, *cap);
        (void)munmap(*data, *cap);
    }
    *data = p;
    *cap = more;
    return SB_OK;
}

/* A pipe cannot be mapped: what comes out of it is kept in memory of the same
 * kind, which doubles when it is full. */
static sb_status read_pipe(sb_ctx *ctx, const char *path, int fd,
                           sb_mapping *out)
{
    size_t cap = 0, size = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    sb_status status = SB_OK;
    char *data = NULL;
    ssize_t n = 1;

    while (n != 0 && status == SB_OK) {
        status = sb_ctx_poll(ctx);
        if (status == SB_OK && size == cap)
            status = grow_memory(ctx, path, &data, &cap);
        if (status != SB_OK)
            break;
        n = read(fd, data + size, cap - size);
        if (n < 0 && errno != EINTR)
            status = sb_fail(ctx, SB_IO, "%s: cannot read: %s", path,
                             strerror(errno));
        size += n > 0 ? (size_t)n : 0;
    }
    size_t keep = status == SB_OK ? (size + page - 1) / page * page : 0;
    if (cap > keep)
        (void)munmap(data + keep, cap - keep);
    if (keep)
        *out = (sb_mapping){data, size, false};
    return status;
}

sb_status sb_file_map(sb_ctx *ctx, const char *path, sb_mapping *out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return sb_fail(
            ctx, SB_IO, "%s: cannot open: %s%s", path, strerror(errno),
            strcmp(path, "-") == 0 ? " (standard input is /dev/stdin)" : "");
    sb_status status = SB_OK;
    *out = (sb_mapping){0};
    if (fstat(fd, &st) != 0) {
        status = sb_fail(ctx, SB_IO, "%s: %s", path, strerror(errno));
    } else if (S_ISFIFO(st.st_mode)) {
        status = read_pipe(ctx, path, fd, out);
    } else if (!S_ISREG(st.st_mode)) {
        status = sb_fail(ctx, SB_IO, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_NORESERVE, fd, 0);
        if (p == MAP_FAILED)
            status = sb_fail(ctx, SB_IO, "%s: cannot map %lld bytes: %s", path,
                             (long long)st.st_size, strerror(errno));
        else
            *out = (sb_mapping){p, (size_t)st.st_size, true};
    }
    (void)close(fd);
    return status;
}

void sb_file_unmap(sb_mapping *map)
{
    if (map->data)
        (void)munmap(map->data, map->size);
    *map = (sb_mapping){0};
}

static char *join(sb_ctx *ctx, const char *a, size_t a_len, const char *b)
{
    size_t b_len = strlen(b);
    char *p = sb_alloc(ctx, a_len + b_len + 1, 1);

    if (p) {
        memcpy(p, a, a_len);
        memcpy(p + a_len, b, b_len);
    }
    return p;
}

char *sb_path_beside(sb_ctx *ctx, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return join(ctx, path, slash ? (size_t)(slash - path) + 1 : 0, name);
}

/* O_EXCL with a few tries: two runs writing the same path do not collide.  Of a
 * long name only the start is taken, as names may have 255 bytes. */
static int open_temporary(sb_writer *w)
{
    enum { NAME_KEPT = 200 };
    const char *slash = strrchr(w->path, '/');
    size_t folder = slash ? (size_t)(slash - w->path) + 1 : 0;
    size_t name = strlen(w->path + folder);
    size_t kept = folder + (name < NAME_KEPT ? name : NAME_KEPT);
    char suffix[64];

    for (unsigned n = 0; n < 100; n++) {
        (void)snprintf(suffix, sizeof suffix, ".tmp-%ld-%u", (long)getpid(), n);
        sb_free(w->ctx, w->tmp);
        w->tmp = join(w->ctx, w->path, kept, suffix);
        if (!w->tmp)
            return -1;
        int fd = open(w->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* The file that is to be replaced.  Renaming over a link would replace the
 * link: so what it leads to is meant, and never what the system calls
 * /dev/stdout, which leads to an open file. */
static sb_status find_target(sb_ctx *ctx, const char *path, char *out)
{
    struct stat st;
    ssize_t n = readlink(path, out, PATH_MAX - 1);
    bool open_file = n > 5 && strncmp(out, "/proc/", 6) == 0;

    if (strcmp(path, "-") == 0 || open_file)
        return sb_fail(ctx, SB_IO,
                       "%s: results do not go to standard output, want a file",
                       path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return sb_fail(ctx, SB_IO, "%s: exists and is not a regular file",
                       path);
    if (n < 0 || !realpath(path, out))
        (void)snprintf(out, PATH_MAX, "%s", path);
    return SB_OK;
}

sb_status sb_writer_open(sb_ctx *ctx, const char *path, sb_writer **out)
{
    char target[PATH_MAX];

    if (strlen(path) >= sizeof target)
        return sb_fail(ctx, SB_IO, "%s: cannot write: %s", path,
                       strerror(ENAMETOOLONG));
    SB_TRY(find_target(ctx, path, target));
    sb_writer *w = sb_alloc(ctx, 1, sizeof *w);
    if (!w)
        return SB_NO_MEMORY;
    w->ctx = ctx;
    w->fd = -1;
    w->path = join(ctx, target, strlen(target), "");
    if (w->path) {
        errno = 0;
        w->fd = open_temporary(w);
    }
    if (w->fd < 0) {
        sb_status status = SB_NO_MEMORY;
        if (w->path && w->tmp)
            status = sb_fail(ctx, SB_IO, "%s: cannot write: %s", path,
                             strerror(errno));
        sb_free(ctx, w->tmp);
        w->tmp = NULL;
        sb_writer_abort(w);
        return status;
    }
    *out = w;
    return SB_OK;
}

static void write_all(sb_writer *w, const unsigned char *data, size_t len)
{
    while (len > 0 && !w->error) {
        ssize_t n = write(w->fd, data, len < (1u << 30) ? len : (1u << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            w->error = n < 0 ? errno : EIO;
            return;
        }
        data += n;
        len -= (size_t)n;
    }
}

static void flush(sb_writer *w)
{
    write_all(w, w->buffer, w->used);
    w->used = 0;
}

void sb_writer_put(sb_writer *w, const void *data, size_t len)
{
    w->written += len;
    if (len >= sizeof w->buffer) {
        flush(w);
        write_all(w, data, len);
        return;
    }
    if (len > sizeof w->buffer - w->used)
        flush(w);
    if (len)
        memcpy(w->buffer + w->used, data, len);
    w->used += len;
}

uint64_t sb_writer_size(const sb_writer *w)
{
    return w->written;
}

sb_status sb_writer_finish(sb_writer *w)
{
    if (w->fd < 0)
        return w->error ? SB_IO : SB_OK;
    flush(w);
    if (!w->error && fsync(w->fd) != 0)
        w->error = errno;
    if (close(w->fd) != 0 && !w->error)
        w->error = errno;
    w->fd = -1;
    if (w->error)
        return sb_fail(w->ctx, SB_IO, "%s: cannot write: %s", w->path,
                       strerror(w->error));
    return SB_OK;
}

/* Makes the rename itself durable; a file system may refuse, which is fine. */
static void sync_folder(sb_writer *w)
{
    char *folder = sb_path_beside(w->ctx, w->path, ".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    sb_free(w->ctx, folder);
}

sb_status sb_writer_commit(sb_writer *w)
{
    sb_status status = sb_writer_finish(w);

    if (status == SB_OK && rename(w->tmp, w->path) != 0)
        status = sb_fail(w->ctx, SB_IO, "%s: cannot rename into place: %s",
                         w->path, strerror(errno));
    if (status == SB_OK) {
        sync_folder(w);
        sb_free(w->ctx, w->tmp);
        w->tmp = NULL;
    }
    sb_writer_abort(w);
    return status;
}

void sb_writer_abort(sb_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        (void)close(w->fd);
    if (w->tmp)
        (void)unlink(w->tmp);
    sb_free(w->ctx, w->tmp);
    sb_free(w->ctx, w->path);
    sb_free(w->ctx, w);
}
