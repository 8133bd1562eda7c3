/* Types, elements and attributes of the text form. */
#include <string.h>

#include "graph/text_lex.h"

/* Text is for small things; a slip of a digit must not fill the memory. */
enum { BYTES_MOST = 1 << 30 };

/* ---- types -------------------------------------------------------------- */

static sb_status read_dim(sb_lex *lex, sb_graph *g, sb_dim *out)
{
    char c = sb_lex_peek(lex);
    bool quoted = c == '`';

    if (sb_lex_accept(lex, "?")) {
        *out = SB_DIM_UNKNOWN;
        return SB_OK;
    }
    SB_TRY(sb_lex_name(lex));
    const char *word = sb_str_text(&lex->word);
    if (quoted || word[strspn(word, "0123456789")] != '\0')
        return sb_graph_symbol(g, word, out);
    int64_t d = 0;
    for (const char *p = word; *p; p++)
        if (!sb_mul_i64(d, 10, &d) || !sb_add_i64(d, *p - '0', &d))
            return sb_lex_fail(lex, "the dimension %s is too large", word);
    *out = d;
    return SB_OK;
}

sb_status sb_text_type(sb_lex *lex, sb_graph *g, sb_type *out)
{
    SB_TRY(sb_lex_name(lex));
    const char *word = sb_str_text(&lex->word);
    out->dtype = sb_dtype_find(word);
    out->shape.rank = 0;
    if (out->dtype == SB_DTYPE_NONE && strcmp(word, "none") != 0)
        return sb_lex_fail(lex, "found '%s', want an element type", word);
    if (!sb_lex_accept(lex, "[") || sb_lex_accept(lex, "]"))
        return SB_OK;
    if (sb_lex_accept(lex, "*")) {
        out->shape.rank = -1;
        return sb_lex_expect(lex, "]");
    }
    do {
        if (out->shape.rank == SB_MAX_RANK)
            return sb_lex_fail(lex, "more than %d dimensions", SB_MAX_RANK);
        SB_TRY(read_dim(lex, g, &out->shape.dim[out->shape.rank]));
        out->shape.rank++;
    } while (sb_lex_accept(lex, ","));
    return sb_lex_expect(lex, "]");
}

/* ---- elements ----------------------------------------------------------- */

/* Element `i` of `t` from a number as it was written. */
static sb_status store_number(sb_lex *lex, const sb_lex_number *x, sb_tensor *t,
                              int64_t i, unsigned char *whole)
{
    bool is_float = sb_dtype_is_float(t->dtype);
    int64_t back = 0;

    if (is_float) {
        sb_convert(SB_DTYPE_F64, &x->f, t->dtype, whole, 1);
    } else if (x->is_float || !sb_dtype_is_integral(t->dtype)) {
        return sb_lex_fail(lex,
                           "found a number that is not an integer, want "
                           "elements of %s",
                           sb_dtype_name(t->dtype));
    } else {
        sb_convert(SB_DTYPE_I64, &x->i, t->dtype, whole, 1);
        sb_convert(t->dtype, whole, SB_DTYPE_I64, &back, 1);
        if (back != x->i ||
            (!x->is_negative && x->i < 0 && t->dtype != SB_DTYPE_U64))
            return sb_lex_fail(lex, "%lld does not fit %s", (long long)x->i,
                               sb_dtype_name(t->dtype));
    }
    unsigned bits = sb_dtype_get(t->dtype)->bits;
    if (bits >= 8) {
        memcpy((unsigned char *)t->data + (size_t)i * (bits / 8), whole,
               bits / 8);
    } else {
        size_t bit = (size_t)i * bits;
        unsigned char *byte = (unsigned char *)t->data + bit / 8;
        unsigned mask = (1u << bits) - 1;
        *byte = (unsigned char)(*byte | (whole[0] & mask) << (bit % 8));
    }
    return SB_OK;
}

static sb_status read_number_into(sb_lex *lex, sb_tensor *t, int64_t i)
{
    _Alignas(8) unsigned char whole[16] = {0};
    sb_lex_number x = {0};

    SB_TRY(sb_lex_number_read(lex, &x));
    return store_number(lex, &x, t, i, whole);
}

static sb_status fill_number(sb_lex *lex, sb_tensor *t)
{
    _Alignas(8) unsigned char whole[16] = {0};
    int64_t count = sb_tensor_count(t);
    sb_lex_number x = {0};

    SB_TRY(sb_lex_number_read(lex, &x));
    for (int64_t i = 0; i < count; i++)
        SB_TRY(store_number(lex, &x, t, i, whole));
    return SB_OK;
}

static sb_status read_numbers(sb_lex *lex, sb_tensor *t)
{
    int64_t count = sb_tensor_count(t);

    SB_TRY(sb_lex_expect(lex, "["));
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            SB_TRY(sb_lex_expect(lex, ","));
        SB_TRY(read_number_into(lex, t, i));
    }
    return sb_lex_expect(lex, "]");
}

/* One string for a scalar, a list otherwise. */
static sb_status read_texts(sb_lex *lex, sb_bytes *texts, int64_t count,
                            sb_arena *arena)
{
    bool list = sb_lex_accept(lex, "[");

    if (!list && count != 1)
        return sb_lex_unexpected(lex, "a list of strings");
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            SB_TRY(sb_lex_expect(lex, ","));
        SB_TRY(sb_lex_string(lex));
        texts[i].len = lex->word.len;
        texts[i].data =
            sb_arena_strn(arena, sb_str_text(&lex->word), lex->word.len);
        if (!texts[i].data)
            return SB_NO_MEMORY;
    }
    return list ? sb_lex_expect(lex, "]") : SB_OK;
}

static sb_status read_strings(sb_lex *lex, sb_tensor *t)
{
    int64_t count = sb_tensor_count(t);
    sb_arena arena;
    sb_status status = SB_NO_MEMORY;

    sb_arena_init(&arena, lex->ctx);
    sb_bytes *texts = sb_arena_alloc(&arena, (size_t)count, sizeof *texts);
    if (texts && sb_lex_accept(lex, "{...}"))
        status = sb_tensor_alloc_strings(lex->ctx, t, texts);
    else if (texts) {
        status = read_texts(lex, texts, count, &arena);
        if (status == SB_OK)
            status = sb_tensor_alloc_strings(lex->ctx, t, texts);
    }
    sb_arena_free(&arena);
    return status;
}

static sb_status read_elements(sb_lex *lex, sb_tensor *t)
{
    sb_lex_number seed = {0};

    if (sb_lex_accept(lex, "{...}"))
        return SB_OK;
    if (sb_lex_accept(lex, "zeros("))
        return sb_lex_expect(lex, ")");
    if (sb_lex_accept(lex, "random(")) {
        SB_TRY(sb_lex_number_read(lex, &seed));
        sb_tensor_randomize(t, (uint64_t)seed.i);
        return sb_lex_expect(lex, ")");
    }
    return sb_lex_peek(lex) == '[' ? read_numbers(lex, t) : fill_number(lex, t);
}

sb_status sb_text_elements(sb_lex *lex, const sb_type *type, sb_tensor *out)
{
    sb_status status = SB_OK;

    if (type->dtype == SB_DTYPE_NONE || !sb_shape_known(&type->shape))
        return sb_lex_fail(lex, "a constant needs an element type and a shape "
                                "of numbers");
    sb_tensor t =
        sb_tensor_make(type->dtype, type->shape.rank, type->shape.dim);
    if (!sb_tensor_size_ok(&t) || sb_tensor_bytes(&t) > BYTES_MOST)
        return sb_lex_fail(lex, "a constant of more than %d bytes", BYTES_MOST);
    if (t.dtype == SB_DTYPE_STRING) {
        status = read_strings(lex, &t);
    } else {
        status = sb_tensor_alloc(lex->ctx, &t);
        if (status == SB_OK)
            status = read_elements(lex, &t);
    }
    if (status != SB_OK) {
        sb_tensor_drop(&t);
        return status;
    }
    *out = t;
    return SB_OK;
}
