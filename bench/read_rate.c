/* read_rate - GB/s at which THREADS threads read memory that no cache holds:
 * the best of eight rounds over 700 MB.
 *
 *     cc -O3 -march=native -pthread bench/read_rate.c -o read_rate
 *     read_rate THREADS */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 8, THREADS_MOST = 64, HUGE_PAGE = 2 << 20 };
static const size_t all = (size_t)700 << 20;

typedef struct part {
    const uint64_t *from;
    size_t n;
    uint64_t sum;
} part;

static void *read_part(void *arg)
{
    part *p = arg;
    uint64_t sum = 0;

    for (size_t i = 0; i < p->n; i++)
        sum += p->from[i];
    p->sum = sum;
    return NULL;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    size_t threads = argc > 1 ? (size_t)atoi(argv[1]) : 1;
    char *memory = aligned_alloc(HUGE_PAGE, all);
    part parts[THREADS_MOST];
    pthread_t ids[THREADS_MOST];
    double best = 1e9;
    uint64_t sum = 0;

    if (!memory || threads < 1 || threads > THREADS_MOST)
        return 1;
    (void)madvise(memory, all, MADV_HUGEPAGE);
    memset(memory, 1, all);
    for (int r = 0; r < ROUNDS; r++) {
        double start = seconds();

        for (size_t i = 0; i < threads; i++) {
            size_t n = all / threads / sizeof(uint64_t);

            parts[i] =
                (part){(const uint64_t *)(const void *)memory + i * n, n, 0};
            if (pthread_create(&ids[i], NULL, read_part, &parts[i]) != 0)
                return 1;
        }
        for (size_t i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
            sum += parts[i].sum;
        }
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    printf("%.1f\n", sum ? (double)all / best / 1e9 : 0.0);
    return 0;
}
