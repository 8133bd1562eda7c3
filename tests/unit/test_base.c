/* base/: strings, maps, arenas, sizes, messages, files that appear whole. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include "base/threads.h"

static void test_str(void **state)
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

static void test_map(void **state)
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

static void test_arena(void **state)
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

static void test_sizes(void **state)
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
static void test_pages(void **state)
{
    enum { N = 100000 };
    char *x = sb_alloc_pages(test_ctx(), N);

    (void)state;
    assert_non_null(x);
    x[N / 2] = 1;
    sb_take_pages(test_ctx(), x + 10, N - 10);
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

static void test_interrupt(void **state)
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
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_message_is_one_line),
        cmocka_unit_test(test_writer_is_all_or_nothing),
        cmocka_unit_test(test_parallel_for_visits_each_once),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
