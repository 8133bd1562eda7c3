/* Linear layers whose weights GPTQ or AWQ packed into words of 32 bits.
 *
 *     qweight  GPTQ: [in * bits / 32, out], codes along `in`, low bits first
 *              AWQ:  [in, out / 8], eight columns a word, even ones first
 *     qzeros   [groups, out * bits / 32], along `out`, as the codes of AWQ
 *     scales   [groups, out]
 *     g_idx    GPTQ: [in], the group of each input; not in order if columns
 *              were
 *
 * They become the constants of MatMulNBits, [out, groups, ...].  Bits and
 * groups are seen in the shapes.  Zero points of GPTQ's first version are
 * stored less one, by subtraction from whole words: so one is added to whole
 * words. */
#include <string.h>

#include "base/threads.h"
#include "llm/arch.h"

typedef struct packed {
    const sb_weight *codes, *zeros, *scales, *groups_of;
    int64_t in, out, groups, group;
    int64_t block, blocks; /* of MatMulNBits: a power of 2 in a group */
    int bits;
    bool awq;
    bool add_one;
    int64_t *order; /* input of column i; NULL: in order */
} packed;

static const int awq_lane[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t word_at(const sb_weight *w, int64_t i)
{
    uint32_t u;

    memcpy(&u, (const char *)sb_weight_data(w) + 4 * i, sizeof u);
    return u;
}

/* What GPTQModel subtracts from word `i` of the zero points: a one in each
 * code.  Of three bits, some of which lie in two words, it is what its files
 * were made with, whether or not these are ones. */
static uint32_t ones_of(int bits, int64_t i)
{
    static const uint32_t of_three[] = {0x24924924, 0x92492492, 0x49249249};

    return bits == 2   ? 0x55555555
           : bits == 3 ? of_three[i % 3]
           : bits == 4 ? 0x11111111
                       : 0x01010101;
}

/* Code `i` of words that are `stride` apart. */
static uint32_t code_of(const sb_weight *w, int64_t first, int64_t stride,
                        int bits, int64_t i, bool add_one)
{
    int64_t at = i * bits, k = at / 32;
    uint32_t low = word_at(w, first + k * stride), mask = (1u << bits) - 1;

    if (add_one)
        low += ones_of(bits, k);
    uint32_t code = low >> (at % 32);
    if (at % 32 + bits > 32) {
        uint32_t high = word_at(w, first + (k + 1) * stride);

        high += add_one ? ones_of(bits, k + 1) : 0;
        code |= high << (32 - at % 32);
    }
    return code & mask;
}

static uint32_t weight_code(const packed *p, int64_t in, int64_t out)
{
    if (p->awq)
        return word_at(p->codes, in * (p->out / 8) + out / 8) >>
                   (4 * awq_lane[out % 8]) &
               15;
    return code_of(p->codes, out, p->out, p->bits, in, false);
}

static uint32_t zero_code(const packed *p, int64_t group, int64_t out)
{
    int64_t words = p->out * p->bits / 32;

    if (p->awq)
        return word_at(p->zeros, group * words + out / 8) >>
                   (4 * awq_lane[out % 8]) &
               15;
    return code_of(p->zeros, group * words, 1, p->bits, out, p->add_one);
}

/* ---- checks ------------------------------------------------------------- */

static bool is_matrix(const sb_weight *w, sb_dtype dtype, int64_t rows,
                      int64_t cols)
{
    bool type = dtype == SB_DTYPE_I32
                    ? w && w->format->dtype == SB_DTYPE_I32
                    : w && sb_dtype_is_float(w->format->dtype);

    return type && w->rank == 2 && w->dims[0] == rows && w->dims[1] == cols;
}

static bool packed_bits(packed *p)
{
    const sb_weight *w = p->codes;

    if (w->rank != 2 || w->format->dtype != SB_DTYPE_I32)
        return false;
    p->bits = p->awq ? 4 : (int)(w->dims[0] * 32 / (p->in ? p->in : 1) % 64);
    bool known = p->bits == 2 || p->bits == 3 || p->bits == 4 || p->bits == 8;
    return known && p->in % 32 == 0 && p->out % 32 == 0 &&
           (p->awq ? is_matrix(w, SB_DTYPE_I32, p->in, p->out / 8)
                   : is_matrix(w, SB_DTYPE_I32, p->in * p->bits / 32, p->out));
}

static bool packed_fits(packed *p)
{
    if (!packed_bits(p) || !p->scales || p->scales->rank != 2 ||
        p->scales->dims[0] < 1 || p->in % p->scales->dims[0])
        return false;
    p->groups = p->scales->dims[0];
    p->group = p->in / p->groups;
    p->block = p->group & -p->group; /* the largest power of 2 in it */
    p->block = p->block < 256 ? p->block : 256;
    p->blocks = p->in / p->block;
    return p->block >= 16 &&
           is_matrix(p->scales, SB_DTYPE_F32, p->groups, p->out) &&
           is_matrix(p->zeros, SB_DTYPE_I32, p->groups,
                     p->out * p->bits / 32) &&
           (!p->groups_of || (p->groups_of->rank == 1 &&
                              p->groups_of->format->dtype == SB_DTYPE_I32 &&
                              p->groups_of->dims[0] == p->in));
}

/* Symmetric weights have the middle as zero point: who stored just that has not
 * subtracted one, whatever the file says. */
static bool stored_whole(const packed *p)
{
    packed as_is = *p;

    as_is.add_one = false;
    for (int64_t g = 0; g < p->groups; g++)
        for (int64_t out = 0; out < p->out; out++)
            if (zero_code(&as_is, g, out) != 1u << (p->bits - 1))
                return false;
    return true;
}

/* Columns of the same group side by side, in the order of the file. */
static sb_status packed_order(sb_arch *a, packed *p, const char *name)
{
    bool sorted = true;
    int64_t *next;

    for (int64_t i = 0; p->groups_of && i < p->in; i++) {
        uint32_t g = word_at(p->groups_of, i);

        if (g >= (uint64_t)p->groups)
            return sb_fail(a->ctx, SB_BAD_DATA,
                           "%s: '%s.g_idx' has group %u of %lld",
                           a->weights->path, name, g, (long long)p->groups);
        sorted = sorted && (int64_t)g == i / p->group;
    }
    if (sorted)
        return SB_OK;
    p->order = sb_alloc(a->ctx, (size_t)p->in, sizeof *p->order);
    next = sb_alloc(a->ctx, (size_t)p->groups, sizeof *next);
    sb_status status = p->order && next ? SB_OK : SB_NO_MEMORY;
    for (int64_t i = 0; status == SB_OK && i < p->in; i++) {
        uint32_t g = word_at(p->groups_of, i);

        if (next[g] == p->group)
            status = sb_fail(a->ctx, SB_UNSUPPORTED,
                             "%s: '%s.g_idx': group %u has more than %lld "
                             "inputs",
                             a->weights->path, name, g, (long long)p->group);
        else
            p->order[g * p->group + next[g]++] = i;
    }
    sb_free(a->ctx, next);
    return status;
}

/* ---- repacking ---------------------------------------------------------- */

typedef struct repack_job {
    const packed *p;
    uint8_t *codes, *zeros;
    float *scales;
} repack_job;

static void put_code(uint8_t *row, int64_t i, int bits, uint32_t code)
{
    int64_t at = i * bits;

    row[at / 8] |= (uint8_t)(code << (at % 8));
    if (at % 8 + bits > 8)
        row[at / 8 + 1] |= (uint8_t)(code >> (8 - at % 8));
}

static void repack_rows(void *arg, size_t begin, size_t end)
{
    const repack_job *job = arg;
    const packed *p = job->p;
    int64_t bytes = p->in * p->bits / 8;
    int64_t zero_bytes = (p->blocks * p->bits + 7) / 8;
    size_t size = p->scales->format->bytes;

    for (int64_t out = (int64_t)begin; out < (int64_t)end; out++) {
        for (int64_t i = 0; i < p->in; i++)
            put_code(job->codes + out * bytes, i, p->bits,
                     weight_code(p, p->order ? p->order[i] : i, out));
        for (int64_t b = 0; b < p->blocks; b++) {
            int64_t g = b * p->block / p->group;

            put_code(job->zeros + out * zero_bytes, b, p->bits,
                     zero_code(p, g, out));
            sb_convert(p->scales->format->dtype,
                       (const char *)sb_weight_data(p->scales) +
                           (size_t)(g * p->out + out) * size,
                       SB_DTYPE_F32, job->scales + out * p->blocks + b, 1);
        }
    }
}

/* The three constants; those of an older module of this name are taken. */
static sb_status packed_constants(sb_arch *a, const packed *p, const char *name,
                                  sb_value_id out[3])
{
    sb_tensor t[3] = {
        sb_tensor_make(SB_DTYPE_U8, 3,
                       (int64_t[]){p->out, p->blocks, p->block * p->bits / 8}),
        sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){p->out, p->blocks}),
        sb_tensor_make(SB_DTYPE_U8, 2,
                       (int64_t[]){p->out, (p->blocks * p->bits + 7) / 8})};
    static const char *const endings[3] = {"weight", "weight.scales",
                                           "weight.zeros"};
    sb_status status = SB_OK;
    bool wanted = sb_arch_wants(a, sb_arch_name(a, "%s.%s", name, endings[0]));

    for (int i = 0; i < 3 && status == SB_OK; i++)
        status =
            wanted ? sb_tensor_alloc(a->ctx, &t[i]) : sb_arch_hollow(a, &t[i]);
    if (status == SB_OK && wanted) {
        repack_job job = {p, t[0].data, t[2].data, t[1].data};

        sb_parallel_for(a->ctx, (size_t)p->out, 16, repack_rows, &job);
    }
    for (int i = 0; i < 3; i++) {
        if (status == SB_OK)
            out[i] = sb_arch_constant(
                a, sb_arch_name(a, "%s.%s", name, endings[i]), &t[i]);
        sb_tensor_drop(&t[i]);
    }
    return status;
}

/* The inputs in the order of the columns. */
static sb_value_id packed_input(sb_arch *a, const packed *p, const char *name,
                                sb_value_id x)
{
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 1};

    if (!p->order)
        return x;
    return sb_arch_node(a, name, "Gather",
                        SB_ARCH_IN(x, sb_arch_ints(a, p->order, (size_t)p->in)),
                        &axis, 1);
}

static sb_value_id packed_node(sb_arch *a, const packed *p, const char *name,
                               sb_value_id x, sb_value_id bias)
{
    const sb_attr attrs[] = {
        {.name = "K", .type = SB_ATTR_INT, .i = p->in},
        {.name = "N", .type = SB_ATTR_INT, .i = p->out},
        {.name = "bits", .type = SB_ATTR_INT, .i = p->bits},
        {.name = "block_size", .type = SB_ATTR_INT, .i = p->block}};
    sb_value_id constants[3] = {SB_NONE, SB_NONE, SB_NONE};
    sb_status status = packed_constants(a, p, name, constants);

    if (status != SB_OK)
        return sb_arch_fail(a, status);
    const sb_value_id in[] = {packed_input(a, p, name, x),
                              constants[0],
                              constants[1],
                              constants[2],
                              SB_NONE,
                              bias};
    return sb_arch_node(a, name, "com.microsoft::MatMulNBits", in,
                        bias != SB_NONE ? 6 : 4, attrs, SB_COUNT(attrs));
}

sb_value_id sb_arch_packed_linear(sb_arch *a, sb_module m, sb_value_id x,
                                  int64_t in, int64_t out, sb_value_id bias)
{
    packed p = {.codes = sb_arch_find(a, m, "qweight"),
                .zeros = sb_arch_find(a, m, "qzeros"),
                .scales = sb_arch_find(a, m, "scales"),
                .groups_of = sb_arch_find(a, m, "g_idx"),
                .in = in,
                .out = out,
                .awq = a->config->awq,
                .add_one = a->config->zeros_less_one};

    if (a->status != SB_OK)
        return SB_NONE;
    if (!packed_fits(&p))
        return sb_arch_fail(
            a,
            sb_fail(a->ctx, SB_BAD_DATA,
                    "%s: '%s': qweight, qzeros and scales do not fit a "
                    "weight of %lld inputs and %lld outputs, in groups "
                    "that 16 divides",
                    a->weights->path, m.name, (long long)in, (long long)out));
    p.add_one = p.add_one && !stored_whole(&p);
    sb_status status = packed_order(a, &p, m.name);
    if (status != SB_OK) {
        sb_free(a->ctx, p.order);
        return sb_arch_fail(a, status);
    }
    sb_value_id y = packed_node(a, &p, m.name, x, bias);
    sb_free(a->ctx, p.order);
    return y;
}
