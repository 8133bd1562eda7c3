/* Packed weights times rounded activations: rounding, plain loops, threads. */
#include "ops/int8/nbits_int8.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "tensor/tensor.h"

enum { CHUNK = 32 };
/* Rows of activations for which rows of weights are worth a panel. */
enum { MANY = 4 };

/* ---- sizes -------------------------------------------------------------- */

sb_nbits_shape sb_nbits_shape_of(int64_t bits, int64_t block, int64_t k)
{
    int64_t n_block = (k + block - 1) / block;
    sb_nbits_shape s = {.chunk = block % CHUNK ? CHUNK / 2 : CHUNK,
                        .planes = bits == 2   ? 4
                                  : bits <= 4 ? 2
                                              : 1};

    s.per_block = block / s.chunk;
    s.chunks = n_block * s.per_block;
    s.group = s.planes * SB_NBITS_PLANE / s.chunk;
    s.groups = (s.chunks + s.group - 1) / s.group;
    s.stride = s.groups | 1;
    s.spans = (s.chunks + SB_NBITS_SPAN - 1) / SB_NBITS_SPAN;
    s.bytes = s.planes * SB_NBITS_PLANE * bits / 8;
    s.row = n_block * block * bits / 8;
    return s;
}

static size_t codes_bytes(const sb_nbits_shape *s, int64_t rows)
{
    return (size_t)(rows * s->stride * s->planes * SB_NBITS_PLANE);
}

static int64_t lanes_count(const sb_nbits_shape *s, int64_t rows)
{
    return rows * s->stride * SB_NBITS_LANES;
}

static size_t acts_bytes(const sb_nbits_shape *s, int64_t rows)
{
    return codes_bytes(s, rows) +
           (size_t)lanes_count(s, rows) * (2 * sizeof(float) + sizeof(int32_t));
}

size_t sb_nbits_panel_bytes(const sb_nbits_shape *s)
{
    int64_t chunk = s->chunk + 2 * (int64_t)sizeof(float); /* and two floats */

    return (size_t)(s->spans * SB_NBITS_SPAN * SB_NBITS_COLS * chunk);
}

/* Has this processor a kernel that takes panels? */
static bool takes_panels(void)
{
    const sb_nbits_kernel *kernel = NULL;
    bool takes = false;

    for (size_t i = 0; !takes && (kernel = sb_nbits_kernel_at(i)); i++)
        takes = kernel->many && kernel->suits();
    return takes;
}

size_t sb_nbits_room(const sb_nbits_shape *s, int64_t m, size_t lanes)
{
    bool panels = m >= MANY && takes_panels();

    return acts_bytes(s, m) + (panels ? lanes * sb_nbits_panel_bytes(s) : 0);
}

/* ---- activations -------------------------------------------------------- */

SB_HOT static float largest_of(const float *x, int64_t n)
{
    float most = 0;
    int odd = 0;

    for (int64_t i = 0; i < n; i++) {
        float v = fabsf(x[i]);
        most = v > most ? v : most;
        odd |= !(v <= FLT_MAX);
    }
    return odd ? NAN : most;
}

/* Codes of a whole chunk; adding and taking away 1.5 * 2^23 rounds as rintf
 * does. */
SB_HOT static int32_t round_codes(const float *x, float by, int64_t n,
                                  int8_t *out)
{
    const float magic = 12582912.0f;
    int32_t sum = 0;

    for (int64_t i = 0; i < n; i++) {
        int32_t q = (int32_t)((x[i] * by + magic) - magic);

        out[i] = (int8_t)q;
        sum += q;
    }
    return sum;
}

/* Every `step`-th code; loops of known length are vectors. */
SB_HOT static void take_plane(const int8_t *codes, int64_t step, int64_t n,
                              int8_t *out)
{
    if (step == 2 && n == CHUNK / 2)
        for (int64_t i = 0; i < CHUNK / 2; i++)
            out[i] = codes[2 * i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = codes[i * step];
}

typedef struct round_job {
    const sb_nbits_weights *w;
    const sb_nbits_acts *a;
    const float *x;
    bool by_span;
} round_job;

/* What belongs to a group. */
static sb_nbits_acts acts_group(const sb_nbits_acts *a, int64_t m, int64_t g)
{
    const sb_nbits_shape *s = &a->shape;
    int64_t at = m * s->stride + g;

    return (sb_nbits_acts){.codes = a->codes + at * s->planes * SB_NBITS_PLANE,
                           .scales = a->scales + at * SB_NBITS_LANES,
                           .sums = a->sums + at * SB_NBITS_LANES,
                           .starts = a->starts + at * SB_NBITS_LANES};
}

/* Chunk `c` of row m, `n` elements: its codes in all planes, and its lanes. */
static void round_chunk(const round_job *job, int64_t m, int64_t c,
                        const float *x, int64_t n)
{
    const sb_nbits_acts *a = job->a;
    const sb_nbits_shape *s = &a->shape;
    float most = largest_of(x, n), by = most > 0 ? 127 / most : 0;
    int64_t each = s->chunk / s->planes, in_span = c % SB_NBITS_SPAN;
    int64_t lanes = job->by_span ? 1 : SB_NBITS_LANES / s->group;
    int64_t at = job->by_span ? m * s->spans * SB_NBITS_SPAN + c - in_span +
                                    sb_nbits_place(s->group, in_span)
                              : (m * s->stride * s->group + c) * lanes;
    int8_t codes[CHUNK] = {0};

    if (!isfinite(by))
        by = 0;
    /* What is not finite stays so in the result. */
    float scale = isfinite(most) ? most / 127 : most;
    int32_t sum = by > 0 ? round_codes(x, by, n, codes) : 0;
    for (int64_t i = 0; i < lanes; i++) {
        a->scales[at + i] = scale;
        a->sums[at + i] = i ? 0 : scale * (float)sum;
        a->starts[at + i] = i ? 0 : -sum * (1 << (job->w->bits - 1));
    }
    if (c >= s->groups * s->group) /* of the last span, and of no group */
        return;
    sb_nbits_acts group = acts_group(a, m, c / s->group);
    for (int64_t p = 0; p < s->planes; p++)
        take_plane(codes + p, s->planes, each,
                   group.codes + p * SB_NBITS_PLANE + c % s->group * each);
}

static void round_rows(void *arg, size_t begin, size_t end)
{
    const round_job *job = arg;
    const sb_nbits_shape *s = &job->a->shape;
    int64_t k = job->w->k;
    int64_t chunks =
        job->by_span ? s->spans * SB_NBITS_SPAN : s->groups * s->group;

    for (size_t m = begin; m < end; m++) {
        const float *x = job->x + (int64_t)m * k;

        for (int64_t c = 0; c < chunks; c++) {
            int64_t at = c * s->chunk;
            int64_t n = at >= k ? 0 : k - at < s->chunk ? k - at : s->chunk;

            round_chunk(job, (int64_t)m, c, n ? x + at : x, n);
        }
    }
}

/* ---- scales of weights -------------------------------------------------- */

static sb_nbits_blocks blocks_of(const sb_nbits_shape *s)
{
    sb_nbits_blocks b = {0};

    if (SB_NBITS_SPAN % s->per_block == 0)
        b.count = SB_NBITS_SPAN / s->per_block;
    else if (s->per_block % SB_NBITS_SPAN == 0)
        b.count = 1;
    for (int64_t i = 0; i < SB_NBITS_SPAN; i++) {
        int64_t place = sb_nbits_place(s->group, i);

        b.index[place] = (uint32_t)(b.count > 1 ? i / s->per_block : 0);
        b.chunk[place] = i;
    }
    return b;
}

void sb_nbits_lanes(const sb_nbits_weights *w, const sb_nbits_shape *s,
                    int64_t n, int64_t g, float *scales, float *zeros)
{
    for (int64_t i = 0; i < SB_NBITS_LANES; i++) {
        int64_t c = g * s->group + i * s->group / SB_NBITS_LANES;
        bool in = c < s->chunks;

        scales[i] = in ? w->scales[n * w->n_block + c / s->per_block] : 0;
        zeros[i] = in ? sb_nbits_zero(w, n, c / s->per_block) : 0;
    }
}

/* ---- plain loops -------------------------------------------------------- */

static void dot_plain(const sb_nbits_weights *w, int64_t n,
                      const sb_nbits_acts *a, int64_t m, float *out)
{
    const sb_nbits_shape *s = &a->shape;
    int64_t each = s->chunk / s->planes, lanes = SB_NBITS_LANES / s->group;
    const uint8_t *row = w->codes + n * s->row;
    float sum = 0;

    for (int64_t c = 0; c < s->chunks; c++) {
        sb_nbits_acts x = acts_group(a, m, c / s->group);
        int64_t at = c % s->group, block = c / s->per_block;
        int32_t dot = 0;

        for (int64_t i = 0; i < s->chunk; i++)
            dot += (int)sb_nbits_code(row, c * s->chunk + i, w->bits) *
                   x.codes[i % s->planes * SB_NBITS_PLANE + at * each +
                           i / s->planes];
        sum += w->scales[n * w->n_block + block] *
               (x.scales[at * lanes] * (float)dot -
                sb_nbits_zero(w, n, block) * x.sums[at * lanes]);
    }
    *out = sum;
}

static void plain_run(const sb_nbits_weights *w, int64_t n, int64_t cols,
                      const sb_nbits_acts *a, int64_t m, int64_t rows,
                      float *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dot_plain(w, n + c, a, m + r, out + r * SB_NBITS_COLS + c);
}

/* ---- all of it ---------------------------------------------------------- */

typedef struct nbits_job {
    const sb_nbits_product *p;
    const sb_nbits_kernel *kernel;
    sb_nbits_acts acts;
    char *panels;        /* of the lanes; NULL: rows are few */
    size_t tiles, parts; /* of rows of weights */
} nbits_job;

/* Rows [n, n + cols) of weights, which stay in the cache, and all rows of
 * activations. */
static void nbits_few(const nbits_job *job, int64_t n, int64_t cols)
{
    const sb_nbits_product *p = job->p;

    for (int64_t m = 0; m < p->m; m += SB_NBITS_ROWS) {
        int64_t rows = p->m - m < SB_NBITS_ROWS ? p->m - m : SB_NBITS_ROWS;
        float out[SB_NBITS_ROWS * SB_NBITS_COLS];

        job->kernel->fn(p->w, n, cols, &job->acts, m, rows, out);
        for (int64_t r = 0; r < rows; r++)
            memcpy(p->y + (m + r) * p->w->n + n, out + r * SB_NBITS_COLS,
                   (size_t)cols * sizeof *out);
    }
}

static void nbits_part(void *arg, size_t lane, size_t part)
{
    const nbits_job *job = arg;
    const sb_nbits_product *p = job->p;
    size_t end = job->tiles * (part + 1) / job->parts;

    for (size_t i = job->tiles * part / job->parts; i < end; i++) {
        int64_t n = (int64_t)i * SB_NBITS_COLS, left = p->w->n - n;
        int64_t cols = left < SB_NBITS_COLS ? left : SB_NBITS_COLS;

        if (job->panels)
            job->kernel->many(p->w, n, cols, &job->acts, p->m,
                              job->panels +
                                  lane * sb_nbits_panel_bytes(&job->acts.shape),
                              p->y + n);
        else
            nbits_few(job, n, cols);
        for (int64_t r = 0; p->bias && r < p->m; r++)
            for (int64_t c = n; c < n + cols; c++)
                p->y[r * p->w->n + c] += p->bias[c];
    }
}

/* In more parts than usual: where memory is what all wait for, threads do not
 * end together, and the last one holds up the next layer.  A small product
 * stays on its thread: to call another one and to move between their caches
 * what it reads and writes takes some microseconds, as such a product does
 * alone. */
static void share_tiles(sb_ctx *ctx, nbits_job *job)
{
    enum { PARTS = 16, ALONE = 1 << 17 }; /* of a thread; multiplications */
    const sb_nbits_product *p = job->p;
    bool alone = p->w->n * p->w->k * p->m < ALONE;
    size_t least = (size_t)(32768 / (SB_NBITS_COLS * p->w->k * p->m + 1) + 1);

    job->tiles = (size_t)((p->w->n + SB_NBITS_COLS - 1) / SB_NBITS_COLS);
    job->parts = job->tiles / least;
    job->parts = job->parts < PARTS * p->lanes ? job->parts : PARTS * p->lanes;
    job->parts = job->parts > 1 && !alone ? job->parts : 1;
    sb_parallel_lanes(ctx, job->parts, p->lanes, nbits_part, job);
}

static bool suits_all(void)
{
    return true;
}

static const sb_nbits_kernel *plain_kernel(void)
{
    static const sb_nbits_kernel plain = {
        .name = "plain", .suits = suits_all, .fn = plain_run};

    return &plain;
}

const sb_nbits_kernel *sb_nbits_kernel_at(size_t i)
{
    static const sb_nbits_kernel *(*const all[])(void) = {
        sb_nbits_vnni, sb_nbits_avx2, sb_nbits_dotprod, sb_nbits_neon,
        plain_kernel};

    for (size_t j = 0; j < SB_COUNT(all); j++) {
        const sb_nbits_kernel *kernel = all[j]();

        if (kernel && i-- == 0)
            return kernel;
    }
    return NULL;
}

void sb_nbits_int8_run_with(sb_ctx *ctx, const sb_nbits_kernel *kernel,
                            const sb_nbits_product *p)
{
    const sb_nbits_weights *w = p->w;
    nbits_job job = {.p = p, .kernel = kernel};
    sb_nbits_acts *acts = &job.acts;
    round_job rounding = {w, acts, p->a, kernel->by_span};

    acts->shape = sb_nbits_shape_of(w->bits, w->block, w->k);
    acts->blocks = blocks_of(&acts->shape);
    int64_t lanes = lanes_count(&acts->shape, p->m);
    acts->codes = p->room;
    acts->scales =
        (float *)(void *)(acts->codes + codes_bytes(&acts->shape, p->m));
    acts->sums = acts->scales + lanes;
    acts->starts = (int32_t *)(void *)(acts->sums + lanes);
    if (kernel->many && p->m >= MANY)
        job.panels = (char *)p->room + acts_bytes(&acts->shape, p->m);
    sb_parallel_for(ctx, (size_t)p->m, (size_t)(4096 / (w->k + 1) + 1),
                    round_rows, &rounding);
    share_tiles(ctx, &job);
}

void sb_nbits_int8_run(sb_ctx *ctx, const sb_nbits_product *p)
{
    size_t i = 0;

    while (!sb_nbits_kernel_at(i)->suits())
        i++;
    sb_nbits_int8_run_with(ctx, sb_nbits_kernel_at(i), p);
}
