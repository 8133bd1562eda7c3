/* Telling language models apart, and loading them. */
#define _POSIX_C_SOURCE 200809L
#include "llm/llm_load.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "learn/pipe_stages.h"
#include "llm/arch.h"
#include "llm/llama2c.h"
#include "ops/op_registry.h"

enum { HEAD = 32 };

typedef enum llm_kind {
    KIND_NONE,
    KIND_FOLDER,
    KIND_GGUF,
    KIND_LLAMA2C
} llm_kind;

static bool has_config(const char *folder)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/config.json", folder);

    return n > 0 && (size_t)n < sizeof path && sb_path_exists(path);
}

static llm_kind kind_of(const char *path)
{
    unsigned char head[HEAD] = {0};
    struct stat st;

    if (stat(path, &st) != 0)
        return KIND_NONE;
    if (S_ISDIR(st.st_mode))
        return has_config(path) ? KIND_FOLDER : KIND_NONE;
    if (sb_text_ends_with(path, ".safetensors"))
        return KIND_FOLDER;
    if (!S_ISREG(st.st_mode))
        return KIND_NONE;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return KIND_NONE;
    ssize_t n = read(fd, head, sizeof head);
    (void)close(fd);
    if (n < 0)
        return KIND_NONE;
    if (sb_gguf_is(head, (size_t)n))
        return KIND_GGUF;
    return sb_llama2c_is(head, (size_t)n) ? KIND_LLAMA2C : KIND_NONE;
}

bool sb_llm_is(const char *path)
{
    return kind_of(path) != KIND_NONE;
}

/* quantize_config.json beside a config.json that does not say it. */
static sb_status read_packing(sb_ctx *ctx, const char *config_path,
                              sb_llm_config *config)
{
    char *path = sb_path_beside(ctx, config_path, "quantize_config.json");
    sb_mapping map = {0};
    sb_json_doc *doc = NULL;
    sb_status status = path ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && sb_path_exists(path)) {
        status = sb_file_map(ctx, path, &map);
        if (status == SB_OK)
            status = sb_json_read(ctx, path, map.data, map.size, &doc);
        if (status == SB_OK)
            status = sb_llm_config_read_packing(config, doc, doc->root);
        sb_json_free(doc);
        sb_file_unmap(&map);
    }
    sb_free(ctx, path);
    return status;
}

/* The classes of transformers rotate all elements of a head, whatever the file
 * says; only we write that a part is, of a network that was a GGUF file. */
static sb_status check_rotated(sb_ctx *ctx, const char *path,
                               const sb_llm_config *c)
{
    if (c->rope_size == c->head_size ||
        (c->arch->flags & SB_LLM_LEARNED_POSITIONS))
        return SB_OK;
    return sb_fail(ctx, SB_UNSUPPORTED,
                   "%s: partial_rotary_factor for %lld of the %lld elements of "
                   "a head, want 1: %s of transformers rotates all",
                   path, (long long)c->rope_size, (long long)c->head_size,
                   c->arch->hf_class);
}

static sb_status read_config(sb_checkpoint *c, const char *path,
                             sb_llm_config *config)
{
    sb_mapping map = {0};
    sb_json_doc *doc = NULL;

    SB_TRY(sb_file_map(c->ctx, path, &map));
    sb_status status = sb_json_read(c->ctx, path, map.data, map.size, &doc);
    if (status == SB_OK)
        status = sb_llm_config_read_hf(config, doc);
    if (status == SB_OK)
        status = check_rotated(c->ctx, path, config);
    if (status == SB_OK && !sb_json_get(doc->root, "quantization_config"))
        status = read_packing(c->ctx, path, config);
    config->text =
        status == SB_OK ? sb_arena_strn(&c->arena, map.data, map.size) : NULL;
    if (status == SB_OK && !config->text)
        status = SB_NO_MEMORY;
    sb_json_free(doc);
    sb_file_unmap(&map);
    return status;
}

/* A folder, or one safetensors file with config.json beside it. */
static sb_status load_folder(sb_checkpoint *c, const char *path,
                             sb_llm_config *config)
{
    bool folder = sb_is_folder(path);
    char *name = folder ? sb_path_join(c->ctx, path, "config.json")
                        : sb_path_beside(c->ctx, path, "config.json");

    if (!name)
        return SB_NO_MEMORY;
    sb_status status = read_config(c, name, config);
    sb_free(c->ctx, name);
    SB_TRY(status);
    return folder ? sb_safetensors_load_folder(c, path)
                  : sb_safetensors_load(c, path);
}

static sb_status load_gguf(sb_checkpoint *c, const char *path,
                           sb_llm_config *config)
{
    sb_gguf g = {0};
    sb_status status = sb_gguf_open(&g, c->ctx, path);

    if (status == SB_OK)
        status = sb_llm_config_read_gguf(config, &g);
    if (status == SB_OK)
        status = sb_gguf_weights(&g, c);
    if (status == SB_OK && sb_checkpoint_find(c, "rope_freqs.weight"))
        config->rope.scaling = SB_ROPE_TENSOR;
    sb_gguf_free(&g);
    return status;
}

/* Which weights does the stage of `g`, a network without any weights, read? */
static sb_status find_part(const sb_graph *g, size_t part, size_t parts,
                           sb_map *names)
{
    sb_value_id *cut = sb_alloc(g->ctx, parts, sizeof *cut);
    sb_status status = cut ? sb_pipe_stages_find(g, parts, cut) : SB_NO_MEMORY;

    if (status == SB_OK) {
        const sb_pipe_stage stage = sb_pipe_stage_at(g, cut, parts, part);

        status = sb_pipe_stage_constants(g, &stage, names);
    }
    sb_free(g->ctx, cut);
    return status;
}

static sb_status build_part(sb_ctx *ctx, const sb_checkpoint *c,
                            const sb_llm_config *config, size_t part,
                            size_t parts, sb_graph **out)
{
    sb_graph *g = NULL; /* whose names the map refers to */
    sb_map names;

    sb_map_init(&names, ctx);
    sb_status status = sb_arch_build(ctx, c, config, &names, &g);
    if (status == SB_OK)
        status = sb_graph_infer(g);
    if (status == SB_OK)
        status = find_part(g, part, parts, &names);
    if (status == SB_OK)
        status = sb_arch_build(ctx, c, config, &names, out);
    if (status == SB_OK) {
        (*out)->part = part;
        (*out)->parts = parts;
    }
    sb_map_free(&names);
    sb_graph_free(g);
    return status;
}

sb_status sb_llm_load(sb_ctx *ctx, const char *path, size_t part, size_t parts,
                      sb_graph **out, uint64_t *file_bytes)
{
    sb_checkpoint c;
    sb_llm_config config = {0};
    llm_kind kind = kind_of(path);

    sb_checkpoint_init(&c, ctx, path);
    sb_status status = kind == KIND_FOLDER ? load_folder(&c, path, &config)
                       : kind == KIND_GGUF ? load_gguf(&c, path, &config)
                                           : sb_llama2c_load(&c, path, &config);
    if (status == SB_OK)
        status = parts > 1 ? build_part(ctx, &c, &config, part, parts, out)
                           : sb_arch_build(ctx, &c, &config, NULL, out);
    *file_bytes = c.file_bytes;
    sb_checkpoint_free(&c);
    return status;
}

size_t sb_llm_vocabulary(const sb_graph *g)
{
    sb_value_id id = sb_graph_find_value(g, "logits");

    if (id == SB_NONE)
        return 0;
    const sb_shape *s = &sb_graph_value(g, id)->type.shape;
    return s->rank == 3 && sb_dim_known(s->dim[2]) ? (size_t)s->dim[2] : 0;
}
