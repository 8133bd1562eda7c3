/* base/: strings, maps, arenas, sizes, messages, files that appear whole. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include "base/threads.h"

static void test_strings_grow(void **state)
{
    (void)state;
    sb_str s;

    sb_str_init(&s, test_ctx());
    assert_string_equal(sb_str_text(&s), "");
    for (int i = 0; i < 1000; i++)
        sb_str_addf(&s, "%d,", i);
    assert_ok(sb_str_status(&s));
    assert_int_equal(s.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_memory_equal(sb_str_text(&s), "0,1,2,", 6);
    sb_str_clear(&s);
    sb_str_add_json(&s, "a\"b\\c\x01");
    assert_string_equal(sb_str_text(&s), "\"a\\\"b\\\\c\\u0001\"");
    sb_str_free(&s);
}

static void test_maps_find_two_thousand_keys(void **state)
{
    (void)state;
    static char keys[2000][8];
    sb_map map;

    sb_map_init(&map, test_ctx());
    assert_int_equal(sb_map_get(&map, "nothing"), SB_MAP_NONE);
    for (uint32_t i = 0; i < 2000; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "k%u", i);
        assert_ok(sb_map_put(&map, keys[i], i));
    }
    assert_ok(sb_map_put(&map, keys[7], 70));
    for (uint32_t i = 0; i < 2000; i++)
        assert_int_equal(sb_map_get(&map, keys[i]), i == 7 ? 70 : i);
    assert_int_equal(sb_map_get(&map, "k2000"), SB_MAP_NONE);
    sb_map_free(&map);
}

static void test_arenas_align_what_they_give(void **state)
{
    (void)state;
    sb_arena arena;
    char *p[300];

    sb_arena_init(&arena, test_ctx());
    for (size_t i = 0; i < 300; i++) {
        p[i] = sb_arena_alloc(&arena, i + 1, i % 7 + 1);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % _Alignof(max_align_t), 0);
        for (size_t b = 0; b < (i + 1) * (i % 7 + 1); b++)
            assert_int_equal(p[i][b], 0);
        memset(p[i], (int)i, (i + 1) * (i % 7 + 1));
    }
    for (size_t i = 0; i < 300; i++)
        assert_int_equal((unsigned char)p[i][i], i % 256);
    assert_null(sb_arena_alloc(&arena, SIZE_MAX / 2, 3));
    assert_string_equal(sb_arena_printf(&arena, "%s-%d", "x", 5), "x-5");
    sb_arena_free(&arena);
}

static void test_overflowing_sizes_are_told(void **state)
{
    (void)state;
    size_t z = 0;
    int64_t i = 0;

    assert_true(sb_mul_size(3, 5, &z) && z == 15);
    assert_false(sb_mul_size(SIZE_MAX, 2, &z));
    assert_false(sb_add_size(SIZE_MAX, 1, &z));
    assert_true(sb_mul_i64(INT64_MIN, 1, &i) && i == INT64_MIN);
    assert_false(sb_mul_i64(INT64_MIN, -1, &i));
    assert_false(sb_mul_i64((int64_t)1 << 32, (int64_t)1 << 31, &i));
    assert_false(sb_add_i64(INT64_MAX, 1, &i));
    assert_int_equal(i, INT64_MIN);
}

/* Names from files may hold anything; a message stays one printable line. */
static void test_pages_are_zero(void **state)
{
    enum { N = 100000 };
    char *x = sb_alloc_pages(test_ctx(), N);

    (void)state;
    assert_non_null(x);
    x[N / 2] = 1;
    for (int i = 0; i < N; i++)
        assert_int_equal(x[i], i == N / 2);
    sb_free_pages(test_ctx(), x, N);
    sb_free_pages(test_ctx(), NULL, N);
    assert_null(sb_alloc_pages(test_ctx(), SIZE_MAX / 2));
    assert_error_has("out of memory");
}

static void test_message_is_one_line(void **state)
{
    (void)state;
    sb_status s = sb_fail(test_ctx(), SB_BAD_MODEL, "node '%s'", "a\nb\x1b[2J");

    assert_int_equal(s, SB_BAD_MODEL);
    assert_string_equal(sb_ctx_error(test_ctx()), "node 'a?b?[2J'");
    /* U+009B is ESC [ in one character, U+202E turns text round; others stay.
     */
    (void)sb_fail(test_ctx(), s, "%s",
                  "\xc2\x9b"
                  "2J \xe2\x80\xae \xff \xc3\xa9 \xe6\xbc\xa2");
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "??2J ??? ? \xc3\xa9 \xe6\xbc\xa2");
    (void)sb_fail(test_ctx(), s, "node '%s'", "a\nb\x1b[2J");
    s = sb_note(test_ctx(), s, "while testing %d", 7);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "node 'a?b?[2J' (while testing 7)");
}

static size_t files_in(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static void test_writer_is_all_or_nothing(void **state)
{
    (void)state;
    char dir[] = "/tmp/sbtest-XXXXXX", path[64];
    sb_writer *w = NULL;
    sb_mapping map;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/file", dir);
    assert_ok(sb_writer_open(test_ctx(), path, &w));
    sb_writer_put(w, "half", 4);
    sb_writer_abort(w);
    assert_int_equal(files_in(dir), 0);

    assert_ok(sb_writer_open(test_ctx(), path, &w));
    sb_writer_put(w, "whole", 5);
    assert_int_equal(access(path, F_OK), -1);
    assert_ok(sb_writer_commit(w));
    assert_int_equal(files_in(dir), 1);
    assert_ok(sb_file_map(test_ctx(), path, &map));
    assert_int_equal(map.size, 5);
    assert_memory_equal(map.data, "whole", 5);
    sb_file_unmap(&map);

    assert_int_equal(sb_file_map(test_ctx(), dir, &map), SB_IO);
    assert_error_has(dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(sb_file_map(test_ctx(), path, &map), SB_IO);
    assert_int_equal(sb_writer_open(test_ctx(), path, &w), SB_IO);
}

/* A small file is complete before anybody asks. */
static void test_large_files_can_be_interrupted(void **state)
{
    (void)state;
    char dir[] = "/tmp/sbtest-XXXXXX", path[64];
    size_t size = 17 << 20;
    char *data = calloc(1, size);
    sb_writer *w = NULL;

    assert_non_null(data);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/file", dir);
    sb_ctx_interrupt(test_ctx());
    assert_ok(sb_writer_open(test_ctx(), path, &w));
    sb_writer_put(w, data, size);
    assert_int_equal(sb_writer_finish(w), SB_INTERRUPTED);
    assert_int_equal(sb_writer_commit(w), SB_INTERRUPTED);
    assert_int_equal(files_in(dir), 0);
    assert_ok(sb_writer_open(test_ctx(), path, &w));
    sb_writer_put(w, data, 5);
    assert_ok(sb_writer_commit(w));
    sb_ctx_clear_interrupt(test_ctx());
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    free(data);
}

static void put_file(const char *path, const char *text)
{
    sb_writer *w = NULL;

    assert_ok(sb_writer_open(test_ctx(), path, &w));
    sb_writer_put(w, text, strlen(text));
    assert_ok(sb_writer_commit(w));
}

/* What is replaced keeps its rights; a link is followed, also one that leads to
 * nothing yet; a link to an open file is no place for a result. */
static void test_writer_replaces(void **state)
{
    (void)state;
    char dir[] = "/tmp/sbtest-XXXXXX", path[64], link[64], stdout_link[64];
    sb_writer *w = NULL;
    struct stat st;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/file", dir);
    (void)snprintf(link, sizeof link, "%s/link", dir);
    (void)snprintf(stdout_link, sizeof stdout_link, "%s/out", dir);
    assert_int_equal(symlink("file", link), 0);
    put_file(link, "first");
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(chmod(path, 0640), 0);
    put_file(link, "second");
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_size, 6);
    assert_int_equal(symlink("/dev/stdout", stdout_link), 0);
    assert_int_equal(sb_writer_open(test_ctx(), stdout_link, &w), SB_IO);
    assert_int_equal(unlink(stdout_link), 0);
    assert_int_equal(symlink("out", stdout_link), 0);
    assert_int_equal(sb_writer_open(test_ctx(), stdout_link, &w), SB_IO);
    assert_int_equal(unlink(stdout_link), 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* A name in a file that leads to a pipe is refused; a pipe that the user named
 * and nobody writes to can be interrupted. */
static void test_pipes_are_read_and_can_be_interrupted(void **state)
{
    (void)state;
    char dir[] = "/tmp/sbtest-XXXXXX", path[64];
    sb_ctx *ctx = NULL;
    sb_mapping map;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sb_file_map(test_ctx(), path, &map), SB_IO);
    assert_error_has("not a regular file");
    assert_ok(sb_ctx_create(NULL, &ctx));
    sb_ctx_interrupt(ctx);
    assert_int_equal(sb_file_map_input(ctx, path, &map), SB_INTERRUPTED);
    sb_ctx_free(ctx);
    int both = open(path, O_RDWR | O_NONBLOCK);
    assert_true(both >= 0);
    assert_int_equal(write(both, "text", 4), 4);
    pid_t child = fork();
    if (child == 0)
        _exit(usleep(100000)); /* holds the pipe open for a while */
    (void)close(both);
    assert_ok(sb_file_map_input(test_ctx(), path, &map));
    assert_int_equal(map.size, 4);
    assert_memory_equal(map.data, "text", 4);
    sb_file_unmap(&map);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Large files are mapped, unless the program wants copies. */
static void test_files_are_copied_on_demand(void **state)
{
    (void)state;
    char path[] = "/tmp/sbtest-XXXXXX";
    int fd = mkstemp(path);
    sb_ctx *ctx = NULL;
    sb_mapping map;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 3 << 20), 0);
    assert_ok(sb_ctx_create(NULL, &ctx));
    assert_ok(sb_file_map(ctx, path, &map));
    assert_true(map.is_file);
    sb_file_unmap(&map);
    sb_ctx_set_copy_files(ctx, 1);
    assert_ok(sb_file_map(ctx, path, &map));
    assert_false(map.is_file);
    assert_int_equal(map.size, 3 << 20);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(((char *)map.data)[(3 << 20) - 1], 0);
    assert_true(sb_ctx_memory(ctx) >= 3 << 20);
    sb_file_unmap(&map);
    assert_int_equal(ftruncate(fd, 3 << 20), 0);
    sb_ctx_set_max_memory(ctx, 1 << 20);
    assert_int_equal(sb_file_map(ctx, path, &map), SB_NO_MEMORY);
    assert_non_null(strstr(sb_ctx_error(ctx), path));
    assert_int_equal(sb_ctx_memory(ctx), 0);
    sb_ctx_free(ctx);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
}

/* What is freed can be had again; what grows counts once. */
static void test_memory_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;
    char *array = NULL;
    size_t cap = 0;

    assert_ok(sb_ctx_create(NULL, &ctx));
    sb_ctx_set_max_memory(ctx, 10000);
    for (int i = 0; i < 3; i++) {
        void *p = sb_alloc(ctx, 6000, 1);
        assert_non_null(p);
        assert_null(sb_alloc(ctx, 6000, 1));
        assert_int_equal(sb_ctx_status(ctx), SB_NO_MEMORY);
        assert_null(sb_alloc_pages(ctx, 6000));
        assert_int_equal(sb_expect_memory(ctx, 6000), SB_NO_MEMORY);
        sb_free(ctx, p);
    }
    assert_ok(sb_grow(ctx, &array, &cap, 4096, 1));
    assert_ok(sb_grow(ctx, &array, &cap, 8192, 1));
    assert_int_equal(sb_ctx_memory(ctx), 8192);
    assert_int_equal(sb_grow(ctx, &array, &cap, 16384, 1), SB_NO_MEMORY);
    assert_int_equal(cap, 8192);
    sb_free(ctx, array);
    void *pages = sb_alloc_pages(ctx, 8192);
    assert_non_null(pages);
    assert_int_equal(sb_ctx_memory(ctx), 8192);
    sb_free_pages(ctx, pages, 8192);
    assert_int_equal(sb_ctx_memory(ctx), 0);
    sb_ctx_set_max_memory(ctx, 0); /* no machine has this */
    assert_null(sb_alloc_raw(ctx, SIZE_MAX / 4, 1));
    assert_non_null(strstr(sb_ctx_error(ctx), "this machine has"));
    sb_ctx_free(ctx);
}

static void count_range(void *arg, size_t begin, size_t end)
{
    unsigned char *hits = arg;

    for (size_t i = begin; i < end; i++)
        hits[i]++;
}

static void test_parallel_for_visits_each_once(void **state)
{
    (void)state;
    static unsigned char hits[10007];

    for (int threads = 1; threads <= 5; threads++) {
        sb_ctx_set_threads(test_ctx(), threads);
        memset(hits, 0, sizeof hits);
        sb_parallel_for(test_ctx(), SB_COUNT(hits), 16, count_range, hits);
        for (size_t i = 0; i < SB_COUNT(hits); i++)
            assert_int_equal(hits[i], 1);
    }
    sb_parallel_for(test_ctx(), 0, 1, count_range, NULL);
    sb_ctx_set_threads(test_ctx(), 0);
}

static void test_interrupt_is_seen_by_poll(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;

    assert_ok(sb_ctx_create(NULL, &ctx));
    assert_int_equal(sb_ctx_poll(ctx), SB_OK);
    sb_ctx_interrupt(ctx);
    assert_int_equal(sb_ctx_poll(ctx), SB_INTERRUPTED);
    sb_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings_grow),
        cmocka_unit_test(test_maps_find_two_thousand_keys),
        cmocka_unit_test(test_arenas_align_what_they_give),
        cmocka_unit_test(test_overflowing_sizes_are_told),
        cmocka_unit_test(test_pages_are_zero),
        cmocka_unit_test(test_message_is_one_line),
        cmocka_unit_test(test_writer_is_all_or_nothing),
        cmocka_unit_test(test_large_files_can_be_interrupted),
        cmocka_unit_test(test_writer_replaces),
        cmocka_unit_test(test_pipes_are_read_and_can_be_interrupted),
        cmocka_unit_test(test_files_are_copied_on_demand),
        cmocka_unit_test(test_memory_beyond_the_limit_is_refused),
        cmocka_unit_test(test_parallel_for_visits_each_once),
        cmocka_unit_test(test_interrupt_is_seen_by_poll),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
