/* What llama.cpp puts into files of one name: most matrices have the format
 * that the name says, those that errors hurt most a larger one.  Which these
 * are goes by their role and by how deep in the network they lie; names of
 * modules are those that Hugging Face and GPT-2 give them. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "llm/blocks/blocks.h"

typedef enum mix_role {
    ROLE_NONE, /* ends the rules */
    ROLE_VALUE,
    ROLE_JOINED, /* queries, keys and values in one */
    ROLE_RESULT, /* of attention */
    ROLE_DOWN,
    ROLE_OUTPUT,
} mix_role;

static const struct {
    const char *end;
    mix_role role;
} modules[] = {
    {".self_attn.v_proj", ROLE_VALUE}, {".self_attn.qkv_proj", ROLE_JOINED},
    {".attn.c_attn", ROLE_JOINED},     {".self_attn.o_proj", ROLE_RESULT},
    {".attn.c_proj", ROLE_RESULT},     {".mlp.down_proj", ROLE_DOWN},
    {".mlp.c_proj", ROLE_DOWN},        {"lm_head", ROLE_OUTPUT},
};

typedef enum mix_where {
    EVERYWHERE,
    FIRST_TWO,
    FIRST_FOUR,
    FIRST_EIGHTH,
    FIRST_SIXTEENTH,
    ENDS_AND_THIRDS, /* the first and last eighth, every third between */
    SHARED_HEADS,    /* four heads or more have the same values */
} mix_where;

enum { RULES_MOST = 6 };

/* The first rule that fits decides. */
struct sb_block_mix {
    const char *name, *most;
    bool mixed;
    struct {
        mix_role role;
        mix_where where;
        const char *format;
    } rules[RULES_MOST];
};

#define ALONE(name)                \
    {                              \
        name, name, false,         \
        {                          \
            {                      \
                ROLE_NONE, 0, NULL \
            }                      \
        }                          \
    }
#define OUTPUT_Q6                       \
    {                                   \
        ROLE_OUTPUT, EVERYWHERE, "Q6_K" \
    }

/* clang-format off */
static const sb_block_mix mixes[] = {
    ALONE("Q4_0"), ALONE("Q4_1"), ALONE("Q5_0"), ALONE("Q5_1"), ALONE("Q8_0"),
    ALONE("Q3_K"), ALONE("Q4_K"), ALONE("Q5_K"), ALONE("Q6_K"),
    {"Q2_K_PURE", "Q2_K", false, {{ROLE_NONE, 0, NULL}}},
    {"Q2_K", "Q2_K", true, {
        {ROLE_VALUE, SHARED_HEADS, "Q4_K"}, {ROLE_VALUE, EVERYWHERE, "Q3_K"},
        {ROLE_DOWN, EVERYWHERE, "Q3_K"}, {ROLE_RESULT, EVERYWHERE, "Q3_K"},
        OUTPUT_Q6}},
    {"Q3_K_S", "Q3_K", true, {OUTPUT_Q6}},
    {"Q3_K_M", "Q3_K", true, {
        {ROLE_VALUE, FIRST_TWO, "Q5_K"}, {ROLE_DOWN, FIRST_SIXTEENTH, "Q5_K"},
        {ROLE_VALUE, EVERYWHERE, "Q4_K"}, {ROLE_DOWN, EVERYWHERE, "Q4_K"},
        {ROLE_RESULT, EVERYWHERE, "Q4_K"}, OUTPUT_Q6}},
    {"Q3_K_L", "Q3_K", true, {
        {ROLE_VALUE, EVERYWHERE, "Q5_K"}, {ROLE_DOWN, EVERYWHERE, "Q5_K"},
        {ROLE_RESULT, EVERYWHERE, "Q5_K"}, {ROLE_JOINED, EVERYWHERE, "Q4_K"},
        OUTPUT_Q6}},
    {"Q4_K_S", "Q4_K", true, {
        {ROLE_VALUE, FIRST_FOUR, "Q5_K"}, {ROLE_DOWN, FIRST_EIGHTH, "Q5_K"},
        OUTPUT_Q6}},
    {"Q4_K_M", "Q4_K", true, {
        {ROLE_VALUE, ENDS_AND_THIRDS, "Q6_K"}, {ROLE_DOWN, ENDS_AND_THIRDS, "Q6_K"},
        {ROLE_JOINED, EVERYWHERE, "Q5_K"}, OUTPUT_Q6}},
    {"Q5_K_S", "Q5_K", true, {OUTPUT_Q6}},
    {"Q5_K_M", "Q5_K", true, {
        {ROLE_VALUE, ENDS_AND_THIRDS, "Q6_K"}, {ROLE_DOWN, ENDS_AND_THIRDS, "Q6_K"},
        {ROLE_JOINED, EVERYWHERE, "Q6_K"}, OUTPUT_Q6}},
};
/* clang-format on */

const sb_block_mix *sb_block_mix_find(const char *name)
{
    for (size_t i = 0; i < SB_COUNT(mixes); i++)
        if (strcasecmp(mixes[i].name, name) == 0)
            return &mixes[i];
    return NULL;
}

const char *sb_block_mix_names(void)
{
    return "q4_0, q4_1, q5_0, q5_1, q8_0, q3_k, q4_k, q5_k, q6_k, q2_k_pure; "
           "as llama.cpp mixes them: q2_k, q3_k_s, q3_k_m, q3_k_l, "
           "q4_k_s, q4_k_m, q5_k_s, q5_k_m";
}

bool sb_block_mix_is_mixed(const sb_block_mix *mix)
{
    return mix->mixed;
}

const sb_weight_format *sb_block_mix_most(const sb_block_mix *mix)
{
    return sb_weight_format_find(mix->most);
}

int64_t sb_block_mix_layer(const char *module)
{
    for (const char *p = module; (p = strpbrk(p, "0123456789")); p++) {
        size_t digits = strspn(p, "0123456789");

        if (p > module && p[-1] == '.' && p[digits] == '.' && digits < 9)
            return strtol(p, NULL, 10);
        p += digits - 1;
    }
    return -1;
}

static mix_role role_of(const char *module)
{
    size_t len = strlen(module);

    for (size_t i = 0; i < SB_COUNT(modules); i++) {
        size_t n = strlen(modules[i].end);

        if (len >= n && strcmp(module + len - n, modules[i].end) == 0)
            return modules[i].role;
    }
    return ROLE_NONE;
}

static bool lies_there(mix_where where, int64_t i, const sb_block_place *at)
{
    int64_t n = at->layers;

    switch (where) {
    case EVERYWHERE:
        return true;
    case SHARED_HEADS:
        return at->sharing >= 4;
    case FIRST_TWO:
        return i < 2;
    case FIRST_FOUR:
        return i < 4;
    case FIRST_EIGHTH:
        return i < n / 8;
    case FIRST_SIXTEENTH:
        return i < n / 16;
    case ENDS_AND_THIRDS:
        return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    }
    return false;
}

const sb_weight_format *sb_block_mix_for(const sb_block_mix *mix,
                                         const char *module,
                                         const sb_block_place *at)
{
    mix_role role = module ? role_of(module) : ROLE_NONE;
    int64_t layer = module ? sb_block_mix_layer(module) : -1;
    const char *name = mix->most;

    for (int i = 0; role && i < RULES_MOST && mix->rules[i].role; i++)
        if (mix->rules[i].role == role &&
            lies_there(mix->rules[i].where, layer, at)) {
            name = mix->rules[i].format;
            break;
        }
    return sb_weight_format_find(name);
}
