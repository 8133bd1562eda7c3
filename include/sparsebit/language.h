/* language.h - tokens and text of language models.  Part of sparsebit.h, whose
 * rules hold.
 *
 * Language models are models like others: sb_model_load() reads Hugging Face
 * folders, GGUF files and llama2.c checkpoints, and what it returns can be run,
 * evaluated, quantized and saved.  Here is what text needs beyond that. */
#ifndef SPARSEBIT_LANGUAGE_H
#define SPARSEBIT_LANGUAGE_H

#include <sparsebit/model.h>
#include <sparsebit/quantize.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_tokenizer sb_tokenizer; /* text to token IDs and back */
typedef struct sb_generator sb_generator; /* a model that writes text */

/* ---- tokenizers --------------------------------------------------------- */

/** Reads a tokenizer: a Hugging Face folder, tokenizer.json, SentencePiece's
 *  tokenizer.model, a GGUF file, or the tokenizer.bin of llama2.c.  For an
 *  .onnx or .safetensors file: what lies beside it. */
SB_API SB_MUST_USE sb_status sb_tokenizer_open(sb_ctx *ctx, const char *path,
                                               sb_tokenizer **out);
/** Frees a tokenizer; NULL is allowed. */
SB_API void sb_tokenizer_free(sb_tokenizer *tokenizer);
/** How many tokens there are. */
SB_API size_t sb_tokenizer_size(const sb_tokenizer *tokenizer);
/** The tokens of a text, which must be UTF-8.
 *  @param len     bytes of the text
 *  @param special not 0: with the tokens that the file puts around every text
 *  @param ids     receives them; free with sb_memory_free() */
SB_API SB_MUST_USE sb_status sb_tokenizer_encode(const sb_tokenizer *tokenizer,
                                                 const char *text, size_t len,
                                                 int special, int64_t **ids,
                                                 size_t *n);
/** The text of tokens; free with sb_memory_free().  Control tokens have none.
 */
SB_API SB_MUST_USE sb_status sb_tokenizer_decode(const sb_tokenizer *tokenizer,
                                                 const int64_t *ids, size_t n,
                                                 char **text);

/* ---- generating text ---------------------------------------------------- */

/** Receives text as it is made, whole characters at a time; anything but 0 ends
 *  it. */
typedef int (*sb_text_fn)(void *user, const char *text, size_t len);

/** How to write. */
typedef struct sb_generate_options {
    size_t struct_size; /**< set by the INIT macro */
    size_t max_tokens;  /**< at most so many new ones */
    double temperature; /**< 0: always the most likely token */
    size_t top_k;       /**< choose among so many tokens; 0: all */
    double top_p;       /**< choose among those that make up this share */
    uint64_t seed;      /**< of the choice */
    /** Texts at which to end; they are not part of the result. */
    const char *const *stop;
    size_t n_stop;
    int ignore_end;  /**< go on after tokens that end a text */
    sb_text_fn text; /**< NULL: only the result */
    void *text_user;
} sb_generate_options;

#define SB_GENERATE_OPTIONS_INIT                                            \
    {                                                                       \
        sizeof(sb_generate_options), 128, 0.0, 0, 1.0, 0, NULL, 0, 0, NULL, \
            NULL                                                            \
    }

/** What was written. */
typedef struct sb_generation {
    const char *text;
    size_t len;
    size_t prompt_tokens, tokens;
    double prompt_seconds, seconds; /**< for the prompt; for the new tokens */
    const char *end; /**< why: "end of text", "stop", "tokens", "context" or
                          "caller" */
} sb_generation;

/** A model that writes text.  Both are borrowed for as long as it lives.
 *  @param context tokens that prompt and result may have together; 0: as many
 *                 as the model was made for, at most 4096 */
SB_API SB_MUST_USE sb_status sb_generator_create(const sb_model *model,
                                                 const sb_tokenizer *tokenizer,
                                                 size_t context,
                                                 sb_generator **out);
/** Frees a generator; NULL is allowed. */
SB_API void sb_generator_free(sb_generator *generator);
/** Writes what follows after a prompt; what the last call wrote is forgotten.
 *  @param out receives the result, borrowed until the next call */
SB_API SB_MUST_USE sb_status
sb_generator_run(sb_generator *generator, const char *prompt,
                 const sb_generate_options *options, const sb_generation **out);

/** Tokens of the longest text that a language model was made for; 0: unknown.
 */
SB_API size_t sb_model_positions(const sb_model *model);
/** Texts as the model itself would write them: each token by its probability,
 *  from the beginning of a text, and where one ends the next begins.  For
 *  calibration where there is no text.
 *  @param ids receives n rows of `window` tokens, the same for any number of
 *             threads */
SB_API SB_MUST_USE sb_status
sb_model_sample_tokens(const sb_model *model, const sb_tokenizer *tokenizer,
                       size_t n, size_t window, uint64_t seed, int64_t *ids);

/* ---- files of other programs -------------------------------------------- */

/** What a language model is written as. */
typedef enum sb_language_format {
    SB_LANGUAGE_GGUF,  /**< a GGUF file, for llama.cpp */
    SB_LANGUAGE_FLOAT, /**< a Hugging Face folder; packed weights as floats */
    SB_LANGUAGE_GPTQ,  /**< a Hugging Face folder with weights as GPTQ packs
                            them */
    SB_LANGUAGE_GENAI  /**< a folder with ONNX for onnxruntime-genai */
} sb_language_format;

/** Options of sb_model_save_language().  Start from
 *  SB_LANGUAGE_OPTIONS_INIT. */
typedef struct sb_language_options {
    size_t struct_size; /**< set by the INIT macro */
    sb_language_format format;
    /** Where the tokenizer is, as for sb_tokenizer_open(); NULL: none, which
     *  only folders may have. */
    const char *tokenizer;
    /** What matrices of floats become: "f32", "f16", "bf16", in GGUF files also
     *  blocks such as "q8_0" or "q4_k"; NULL: what they are. */
    const char *float_as;
    /** Not 0: scales and offsets that the format does not hold exactly are
     *  rounded; else such a model is refused. */
    int round;
    uint64_t shard_bytes; /**< of a file of a folder at most; 0: 4 GB */
    /** Of a GPTQ folder: 1 (zero points less one), 2, or 0: the one that most
     *  programs read for these weights. */
    int gptq_version;
} sb_language_options;

#define SB_LANGUAGE_OPTIONS_INIT                                           \
    {                                                                      \
        sizeof(sb_language_options), SB_LANGUAGE_GGUF, NULL, NULL, 0, 0, 0 \
    }

/** Writes a language model that sb_model_load() has read, or that came out of
 *  sb_quant_model_export_model() with SB_EXPORT_FORMAT_MATMULNBITS.  Weights
 *  keep their values: packed ones go into a format that holds the same codes,
 *  and SB_UNSUPPORTED names the weight for which there is none.  Files appear
 *  when all are complete. */
SB_API SB_MUST_USE sb_status
sb_model_save_language(const sb_model *model, const char *path,
                       const sb_language_options *options);

/** Whether sb_model_save_language() would write a model once it is quantized,
 *  for asking before it is calibrated: names of types, the tokenizer, the
 *  architecture, sides and groups of weights.
 *  @param model that `qm` was made from */
SB_API SB_MUST_USE sb_status
sb_quant_model_check_language(const sb_quant_model *qm, const sb_model *model,
                              const sb_language_options *options);

/* ---- adapters ----------------------------------------------------------- */

/** Low-rank adapters beside layers whose weights stay as they are, packed or
 *  not: y = W x + alpha / rank B (A x).  A and B are constants of the model,
 *  named as PEFT names them (base_model.model.LAYER.lora_A.weight), and trained
 *  like others (learn.h, train.h). */
typedef struct sb_lora_options {
    size_t struct_size; /**< set by the INIT macro */
    /** Which layers: the last parts of their names, or whole ones, with `*` and
     *  `?`, and `|` between them. */
    const char *layers;
    size_t rank;
    double alpha;
    uint64_t seed; /**< of A; B is zero at first */
} sb_lora_options;

#define SB_LORA_OPTIONS_INIT                                 \
    {                                                        \
        sizeof(sb_lora_options), "q_proj|v_proj", 8, 16.0, 0 \
    }

/** Adds adapters to a language model.
 *  @param opt NULL for the defaults
 *  @return SB_BAD_ARG if no layer has such a name */
SB_API SB_MUST_USE sb_status sb_model_add_lora(sb_model *model,
                                               const sb_lora_options *opt);
/** Adds the adapters of a folder that PEFT or sb_model_save_lora() wrote. */
SB_API SB_MUST_USE sb_status sb_model_load_lora(sb_model *model,
                                                const char *folder);
/** Writes adapter_model.safetensors and adapter_config.json, for PEFT. */
SB_API SB_MUST_USE sb_status sb_model_save_lora(const sb_model *model,
                                                const char *folder);
/** Puts adapters into the weights of their layers, which become floats. */
SB_API SB_MUST_USE sb_status sb_model_merge_lora(sb_model *model);

#ifdef __cplusplus
}
#endif

#endif /* SPARSEBIT_LANGUAGE_H */
