/* Files: mapped or read in, written beside and renamed. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WRITER_BUFFER = 1 << 16,
    WRITER_PIECE = 1 << 24, /* bytes between two looks at the interruption */
    COPY_MOST = 1 << 20,    /* files up to this size are read, not mapped */
    READ_MOST = 1 << 26,    /* at once, so that Ctrl-C is seen */
    PIPE_FIRST = 1 << 20,
    PIPE_MOST = 1 << 30,
    POLL_MS = 50,
    LINKS_MOST = 40,
};

struct sb_writer {
    sb_ctx *ctx;
    char *path;
    char *tmp;
    int fd; /* -1 once finished */
    int error;
    uint64_t written;
    size_t unsettled; /* bytes that may not be on the disk */
    size_t used;
    unsigned char buffer[WRITER_BUFFER];
};

/* ---- reading ------------------------------------------------------------ */

static sb_status read_failed(sb_ctx *ctx, const char *path)
{
    return sb_fail(ctx, SB_IO, "%s: cannot read: %s", path, strerror(errno));
}

/* Waits until there is something to read, or no process is left that could
 * write; looks now and then whether the user pressed Ctrl-C. */
static sb_status wait_for_pipe(sb_ctx *ctx, const char *path, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n = 0;

    while (n == 0) {
        SB_TRY(sb_ctx_poll(ctx));
        n = poll(&p, 1, POLL_MS);
        if (n < 0 && errno == EINTR)
            n = 0;
    }
    return n > 0 ? SB_OK : read_failed(ctx, path);
}

/* A pipe cannot be mapped: what comes out of it is kept in memory. */
static sb_status read_pipe(sb_ctx *ctx, const char *path, int fd,
                           sb_mapping *out)
{
    size_t cap = 0;
    ssize_t n = 1;

    while (n != 0) {
        if (out->size == cap && cap >= PIPE_MOST)
            return sb_fail(ctx, SB_IO,
                           "%s: more than the %d MB that a pipe may have", path,
                           PIPE_MOST >> 20);
        if (out->size == cap)
            SB_TRY(
                sb_grow(ctx, &out->data, &cap, cap ? 2 * cap : PIPE_FIRST, 1));
        SB_TRY(wait_for_pipe(ctx, path, fd));
        n = read(fd, (char *)out->data + out->size, cap - out->size);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return read_failed(ctx, path);
        out->size += n > 0 ? (size_t)n : 0;
    }
    return SB_OK;
}

static sb_status read_whole(sb_ctx *ctx, const char *path, int fd, size_t size,
                            sb_mapping *out)
{
    out->data = sb_alloc_raw(ctx, size, 1);
    if (!out->data)
        return sb_note(ctx, SB_NO_MEMORY, "to read %s", path);
    while (out->size < size) {
        size_t want = size - out->size;
        ssize_t n = read(fd, (char *)out->data + out->size,
                         want < READ_MOST ? want : READ_MOST);
        if (n == 0)
            return sb_fail(ctx, SB_IO,
                           "%s: became shorter while it was read: %zu bytes, "
                           "had %zu",
                           path, out->size, size);
        if (n < 0 && errno != EINTR)
            return read_failed(ctx, path);
        out->size += n > 0 ? (size_t)n : 0;
        SB_TRY(sb_ctx_poll(ctx));
    }
    return SB_OK;
}

static sb_status map_whole(sb_ctx *ctx, const char *path, int fd, size_t size,
                           sb_mapping *out)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_NORESERVE, fd, 0);

    if (p == MAP_FAILED)
        return sb_fail(ctx, SB_IO, "%s: cannot map %zu bytes: %s", path, size,
                       strerror(errno));
    *out = (sb_mapping){.ctx = ctx, .data = p, .size = size, .is_file = true};
    return SB_OK;
}

static sb_status read_fd(sb_ctx *ctx, const char *path, int fd, bool pipes,
                         sb_mapping *out)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return read_failed(ctx, path);
    if (S_ISFIFO(st.st_mode) && pipes)
        return read_pipe(ctx, path, fd, out);
    if (!S_ISREG(st.st_mode))
        return sb_fail(ctx, SB_IO, "%s: not a regular file", path);
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return sb_fail(ctx, SB_IO, "%s: too large to map", path);
    size_t size = (size_t)st.st_size;
    if (size == 0)
        return SB_OK;
    return size <= COPY_MOST || ctx->copy_files
               ? read_whole(ctx, path, fd, size, out)
               : map_whole(ctx, path, fd, size, out);
}

/* Not blocked by a pipe without a writer, nor by a device. */
static sb_status file_read(sb_ctx *ctx, const char *path, bool pipes,
                           sb_mapping *out)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return sb_fail(
            ctx, SB_IO, "%s: cannot open: %s%s", path, strerror(errno),
            strcmp(path, "-") == 0 ? " (standard input is /dev/stdin)" : "");
    *out = (sb_mapping){.ctx = ctx};
    sb_status status = read_fd(ctx, path, fd, pipes, out);
    (void)close(fd);
    if (status != SB_OK || out->size == 0)
        sb_file_unmap(out);
    return status;
}

sb_status sb_file_map(sb_ctx *ctx, const char *path, sb_mapping *out)
{
    return file_read(ctx, path, false, out);
}

sb_status sb_file_map_input(sb_ctx *ctx, const char *path, sb_mapping *out)
{
    return file_read(ctx, path, true, out);
}

void sb_file_unmap(sb_mapping *map)
{
    if (map->is_file)
        (void)munmap(map->data, map->size);
    else if (map->data)
        sb_free(map->ctx, map->data);
    *map = (sb_mapping){0};
}

/* ---- writing ------------------------------------------------------------ */

static char *file_join(sb_ctx *ctx, const char *a, size_t a_len, const char *b)
{
    size_t b_len = strlen(b);
    char *p = sb_alloc(ctx, a_len + b_len + 1, 1);

    if (p) {
        memcpy(p, a, a_len);
        memcpy(p + a_len, b, b_len);
    }
    return p;
}

char *sb_path_join(sb_ctx *ctx, const char *folder, const char *name)
{
    size_t len = strlen(folder), rest = strlen(name);
    bool slash = len > 0 && folder[len - 1] != '/';
    char *p = sb_alloc(ctx, len + rest + 2, 1);

    if (p) {
        memcpy(p, folder, len);
        if (slash)
            p[len] = '/';
        memcpy(p + len + slash, name, rest);
    }
    return p;
}

bool sb_path_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

bool sb_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *sb_path_beside(sb_ctx *ctx, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return file_join(ctx, path, slash ? (size_t)(slash - path) + 1 : 0, name);
}

/* A name beside the file that no other process has: O_EXCL or link() with a few
 * tries, so that two runs writing the same path do not collide.  Of a long name
 * only the start is taken, as names may have 255 bytes. */
static bool next_name(sb_writer *w, unsigned n)
{
    enum { NAME_KEPT = 200, TRIES = 100 };
    const char *slash = strrchr(w->path, '/');
    size_t folder = slash ? (size_t)(slash - w->path) + 1 : 0;
    size_t name = strlen(w->path + folder);
    size_t kept = folder + (name < NAME_KEPT ? name : NAME_KEPT);
    char suffix[64];

    if (n >= TRIES)
        return false;
    (void)snprintf(suffix, sizeof suffix, ".tmp-%ld-%u", (long)getpid(), n);
    sb_free(w->ctx, w->tmp);
    w->tmp = file_join(w->ctx, w->path, kept, suffix);
    return w->tmp != NULL;
}

/* A file without a name, so that nothing is left of it whatever ends the
 * program; /proc is how it gets one.  -1 where the file system has none. */
static int open_nameless(sb_writer *w, mode_t mode)
{
    char *folder = sb_path_beside(w->ctx, w->path, ".");
    int fd = -1;

#ifdef O_TMPFILE
    if (folder && access("/proc/self/fd", X_OK) == 0)
        fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
#endif
    sb_free(w->ctx, folder);
    return fd;
}

static int open_named(sb_writer *w, mode_t mode)
{
    for (unsigned n = 0; next_name(w, n); n++) {
        int fd = open(w->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* The file gets the rights, and if possible the owner, of the one that it
 * replaces. */
static int open_temporary(sb_writer *w)
{
    struct stat old;
    bool replaces = stat(w->path, &old) == 0;
    mode_t mode = replaces ? 0600 : 0666;
    int fd = open_nameless(w, mode);

    if (fd < 0)
        fd = open_named(w, mode);
    if (fd >= 0 && replaces) {
        if (old.st_uid != geteuid() || old.st_gid != getegid())
            (void)!fchown(fd, old.st_uid, old.st_gid);
        (void)fchmod(fd, old.st_mode & 0777);
    }
    return fd;
}

/* Gives a nameless file a name, from which it is then renamed: link() cannot
 * replace a file. */
static sb_status link_nameless(sb_writer *w)
{
    char self[64];

    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    for (unsigned n = 0; next_name(w, n); n++) {
        if (linkat(AT_FDCWD, self, AT_FDCWD, w->tmp, AT_SYMLINK_FOLLOW) == 0) {
            w->error = 0;
            return SB_OK;
        }
        w->error = errno;
        if (w->error != EEXIST)
            break;
    }
    sb_free(w->ctx, w->tmp);
    w->tmp = NULL;
    return w->error ? SB_IO : SB_NO_MEMORY;
}

/* Where the link `out` leads to, into `out`; false if it is none. */
static bool follow_link(char *out)
{
    char to[PATH_MAX], joined[2 * PATH_MAX];
    ssize_t n = readlink(out, to, sizeof to - 1);
    const char *slash = strrchr(out, '/');

    if (n < 0)
        return false;
    to[n] = '\0';
    int folder = slash && to[0] != '/' ? (int)(slash - out) + 1 : 0;
    (void)snprintf(joined, sizeof joined, "%.*s%s", folder, out, to);
    if (strlen(joined) >= PATH_MAX)
        return false;
    (void)snprintf(out, PATH_MAX, "%s", joined);
    return true;
}

/* The file that is to be replaced.  Renaming over a link would replace the
 * link: so what it leads to is meant, whether or not that exists already, and
 * never what the system calls /dev/stdout, which leads to an open file. */
static sb_status find_target(sb_ctx *ctx, const char *path, char *out)
{
    struct stat st;
    bool open_file = strcmp(path, "-") == 0;

    (void)snprintf(out, PATH_MAX, "%s", path);
    for (int i = 0; i < LINKS_MOST && !open_file && follow_link(out); i++)
        open_file = strncmp(out, "/proc/", 6) == 0;
    if (open_file)
        return sb_fail(ctx, SB_IO,
                       "%s: results do not go to standard output, want a file",
                       path);
    if (stat(path, &st) == 0 ? !S_ISREG(st.st_mode) : errno == ELOOP)
        return sb_fail(ctx, SB_IO, "%s: exists and is not a regular file",
                       path);
    return SB_OK;
}

static sb_status write_failed(sb_ctx *ctx, const char *path, int error)
{
    if (error == EINTR)
        return sb_fail(ctx, SB_INTERRUPTED, "interrupted");
    return sb_fail(ctx, SB_IO, "%s: cannot write: %s", path, strerror(error));
}

sb_status sb_writer_open(sb_ctx *ctx, const char *path, sb_writer **out)
{
    char target[PATH_MAX];

    if (strlen(path) >= sizeof target)
        return write_failed(ctx, path, ENAMETOOLONG);
    SB_TRY(find_target(ctx, path, target));
    sb_writer *w = sb_alloc(ctx, 1, sizeof *w);
    if (!w)
        return SB_NO_MEMORY;
    w->ctx = ctx;
    w->fd = -1;
    w->path = file_join(ctx, target, strlen(target), "");
    if (w->path) {
        errno = 0;
        w->fd = open_temporary(w);
    }
    if (w->fd < 0) {
        sb_status status = SB_NO_MEMORY;
        if (w->path && w->tmp)
            status = write_failed(ctx, path, errno);
        sb_free(ctx, w->tmp);
        w->tmp = NULL;
        sb_writer_abort(w);
        return status;
    }
    *out = w;
    return SB_OK;
}

/* What is not on the disk yet must be when the file is complete, which nothing
 * interrupts; so that is never much. */
static void file_settle(sb_writer *w)
{
    if (w->unsettled < WRITER_PIECE || w->error)
        return;
    w->unsettled = 0;
    if (fdatasync(w->fd) != 0 && errno != EINVAL)
        w->error = errno;
    else if (sb_ctx_poll(w->ctx) != SB_OK)
        w->error = EINTR;
}

static void write_all(sb_writer *w, const unsigned char *data, size_t len)
{
    while (len > 0 && !w->error) {
        ssize_t n = write(w->fd, data, len < WRITER_PIECE ? len : WRITER_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            w->error = n < 0 ? errno : EIO;
            return;
        }
        data += n;
        len -= (size_t)n;
        w->unsettled += (size_t)n;
        file_settle(w);
    }
}

static void file_flush(sb_writer *w)
{
    write_all(w, w->buffer, w->used);
    w->used = 0;
}

void sb_writer_put(sb_writer *w, const void *data, size_t len)
{
    w->written += len;
    if (len >= sizeof w->buffer) {
        file_flush(w);
        write_all(w, data, len);
        return;
    }
    if (len > sizeof w->buffer - w->used)
        file_flush(w);
    if (len)
        memcpy(w->buffer + w->used, data, len);
    w->used += len;
}

sb_status sb_writer_set_path(sb_writer *w, const char *path)
{
    char *copy = file_join(w->ctx, path, strlen(path), "");

    if (!copy)
        return SB_NO_MEMORY;
    sb_free(w->ctx, w->path);
    w->path = copy;
    return SB_OK;
}

uint64_t sb_writer_size(const sb_writer *w)
{
    return w->written;
}

sb_status sb_writer_finish(sb_writer *w)
{
    if (w->fd < 0)
        return w->error == EINTR ? SB_INTERRUPTED : w->error ? SB_IO : SB_OK;
    file_flush(w);
    if (!w->error && fsync(w->fd) != 0)
        w->error = errno;
    sb_status status = w->error || w->tmp ? SB_OK : link_nameless(w);
    if (close(w->fd) != 0 && !w->error)
        w->error = errno;
    w->fd = -1;
    return w->error ? write_failed(w->ctx, w->path, w->error) : status;
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

/* ---- without a name ----------------------------------------------------- */

sb_status sb_temp_fail(sb_ctx *ctx, const char *folder, const char *verb,
                       int error)
{
    return sb_fail(ctx, SB_IO,
                   "cannot %s a temporary file in %s: %s (set TMPDIR to "
                   "another folder)",
                   verb, folder, strerror(error));
}

static int temp_open_in(const char *folder)
{
    static const char name[] = "/sparsebit-XXXXXX";
    char path[1024];

    if (strlen(folder) + sizeof name > sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s%s", folder, name);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

sb_status sb_temp_open(sb_ctx *ctx, int *fd, const char **folder)
{
    const char *chosen = getenv("TMPDIR");

    *folder = chosen && *chosen ? chosen : "/var/tmp";
    *fd = temp_open_in(*folder);
    if (*fd < 0 && !(chosen && *chosen)) {
        *folder = "/tmp";
        *fd = temp_open_in(*folder);
    }
    return *fd >= 0 ? SB_OK : sb_temp_fail(ctx, *folder, "create", errno);
}
