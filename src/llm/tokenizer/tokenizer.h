/* tokenizer.h - text to token IDs and back, by what a model's own files say.
 *
 * A text goes through four stages: tokens that are matched literally (special
 * ones) cut it into pieces; normalization rewrites a piece; pre-tokenization
 * cuts it into words; the model (BPE, unigram or WordPiece) cuts a word into
 * tokens.
 * Readers of files fill in the stages; nothing is guessed from a name but what
 * GGUF leaves to be guessed. */
#ifndef SB_LLM_TOKENIZER_TOKENIZER_H
#define SB_LLM_TOKENIZER_TOKENIZER_H

#include <sparsebit/language.h>

#include "base/arena.h"
#include "base/str.h"

#define SB_TOKEN_NONE UINT32_MAX

typedef enum sb_token_kind {
    SB_TOKEN_NORMAL,
    SB_TOKEN_UNKNOWN,
    SB_TOKEN_CONTROL, /* never shown as text */
    SB_TOKEN_USER,    /* matched literally */
    SB_TOKEN_UNUSED,
    SB_TOKEN_BYTE,    /* stands for one byte, SentencePiece's <0xNN> */
    SB_TOKEN_VIRTUAL, /* a character that only longer tokens have */
} sb_token_kind;

typedef struct sb_token {
    const char *text;
    uint32_t len;
    sb_token_kind kind;
    double score;
} sb_token;

/* A token that is looked for in the text before all else. */
typedef struct sb_added_token {
    uint32_t id;
    bool left, right; /* takes the white space at that side */
} sb_added_token;

/* ---- normalization: rewrites of a piece, in order ------------------------ */
typedef enum sb_norm_kind {
    SB_NORM_PREPEND, /* `text` before what is not empty */
    SB_NORM_REPLACE, /* `text` for every `find` */
    SB_NORM_UNICODE, /* NFC, NFD, NFKC, NFKD: `how` for utf8proc */
    SB_NORM_LOWER,
    SB_NORM_STRIP,    /* white space: `how` bit 0 at the left, 1 at the right */
    SB_NORM_SQUEEZE,  /* runs of spaces become one, those at the ends go */
    SB_NORM_CHARSMAP, /* SentencePiece's compiled table */
    SB_NORM_BERT,     /* `how`: sb_bert_norm */
    SB_NORM_UNMARK,   /* marks that take no room go */
} sb_norm_kind;

typedef enum sb_bert_norm {
    SB_BERT_CLEAN = 1, /* any white space is a space, what is unseen goes */
    SB_BERT_IDEOGRAPHS = 2, /* Chinese characters stand apart */
} sb_bert_norm;

typedef struct sb_norm_step {
    sb_norm_kind kind;
    const char *find, *text;
    size_t find_len, text_len;
    int how;
    bool first_only; /* of PREPEND: only at the start of the whole text */
    bool unless_there;
} sb_norm_step;

/* ---- pre-tokenization: cuts, in order ------------------------------------ */
typedef enum sb_cut_keep {
    SB_CUT_ISOLATED, /* matches are words of their own */
    SB_CUT_REMOVED,
    SB_CUT_WITH_PREVIOUS,
    SB_CUT_WITH_NEXT,
} sb_cut_keep;

typedef struct sb_cut_step {
    struct sb_regex *regex;
    const char *pattern; /* it was made from */
    sb_cut_keep keep;
    bool invert; /* what lies between matches counts as match */
} sb_cut_step;

typedef enum sb_word_model {
    SB_WORDS_BPE,
    SB_WORDS_UNIGRAM,
    SB_WORDS_WORDPIECE,
} sb_word_model;

enum { SB_STEPS_MOST = 8, SB_TEMPLATE_MOST = 8 };

struct sb_tokenizer {
    sb_ctx *ctx;
    sb_arena arena;
    sb_token *tokens;
    size_t n, cap;   /* virtual ones included */
    size_t n_real;   /* those that a network knows */
    uint32_t *slots; /* hash table of tokens by text: ID + 1, 0: free */
    size_t n_slots;
    sb_added_token *added;
    size_t n_added, cap_added;
    uint32_t *added_first[256]; /* their numbers by first byte, longest first */
    uint32_t n_added_first[256];
    sb_norm_step norms[SB_STEPS_MOST];
    size_t n_norms;
    sb_cut_step cuts[SB_STEPS_MOST];
    size_t n_cuts;
    const char *word_mark; /* begins each word; NULL: none */
    bool byte_level;       /* texts of tokens are bytes written as characters */
    sb_word_model model;
    bool whole_words;  /* a word that is a token is not cut (ignore_merges) */
    bool fuse_unknown; /* neighbors become one unknown token */
    bool literals_inside; /* literal tokens are looked for after normalization,
                             as SentencePiece does */
    bool strip_decoded;   /* the first space of a decoded text was put there */
    uint32_t unknown;
    uint32_t bytes[256]; /* tokens of single bytes, or SB_TOKEN_NONE */
    struct sb_merges *merges;
    /* Of WordPiece: what tokens at the begin of a word, and those inside, have
     * before them; characters of a word beyond which it is unknown, 0: any. */
    const char *mark_begin, *mark_inside;
    size_t word_most;
    uint32_t before[SB_TEMPLATE_MOST], after[SB_TEMPLATE_MOST];
    size_t n_before, n_after; /* special tokens around a text */
    uint32_t bos;
    uint32_t eos[SB_TEMPLATE_MOST];
    size_t n_eos;
    size_t longest;     /* bytes of a token */
    double least_score; /* of normal tokens */
};

typedef struct sb_ids {
    uint32_t *v;
    size_t n, cap;
} sb_ids;

/* Appends the tokens of a text, which must be UTF-8; with `special` those that
 * the file puts before and behind every text.  sb_free() `out->v`. */
SB_MUST_USE sb_status sb_tokenize(const sb_tokenizer *t, const char *text,
                                  size_t len, bool special, sb_ids *out);
/* Appends the text of one token; `first`: nothing was before it.  Control
 * tokens have none.  Bytes of a character may come one token at a time. */
SB_MUST_USE sb_status sb_detokenize(const sb_tokenizer *t, uint32_t id,
                                    bool first, sb_str *out);
/* For messages. */
const char *sb_word_model_name(sb_word_model model);
bool sb_tokenizer_is_end(const sb_tokenizer *t, uint32_t id);

/* ---- for readers of files ------------------------------------------------ */
SB_MUST_USE sb_status sb_tokenizer_create(sb_ctx *ctx, sb_tokenizer **out);
/* The next token; its text is copied. */
SB_MUST_USE sb_status sb_tokenizer_add(sb_tokenizer *t, const char *text,
                                       size_t len, sb_token_kind kind,
                                       double score);
/* After all tokens: looking up, byte tokens, literal ones. */
SB_MUST_USE sb_status sb_tokenizer_index(sb_tokenizer *t);
/* Makes one more token known; the first of equals stays. */
void sb_tokenizer_index_one(sb_tokenizer *t, uint32_t id);
uint32_t sb_tokenizer_find(const sb_tokenizer *t, const char *text, size_t len);
SB_MUST_USE sb_status sb_tokenizer_add_literal(sb_tokenizer *t,
                                               const sb_added_token *a);
SB_MUST_USE sb_status sb_tokenizer_sort_literals(sb_tokenizer *t);
SB_MUST_USE sb_status sb_tokenizer_add_norm(sb_tokenizer *t,
                                            const sb_norm_step *step);
/* What SentencePiece does to a text: spaces become U+2581, one is put before
 * it, ... */
SB_MUST_USE sb_status sb_tokenizer_metaspace(sb_tokenizer *t, bool prefix,
                                             bool squeeze);
/* A cut at the matches of a pattern; `file` is for messages. */
SB_MUST_USE sb_status sb_tokenizer_add_cut(sb_tokenizer *t, const char *file,
                                           const char *pattern,
                                           sb_cut_keep keep, bool invert);
/* The cut of GPT-2; signs of punctuation. */
extern const char sb_gpt2_pattern[], sb_punctuation_pattern[];
/* What BERT does to a text, and how it cuts words. */
SB_MUST_USE sb_status sb_tokenizer_bert_norms(sb_tokenizer *t, int how,
                                              bool lower, bool accents);
SB_MUST_USE sb_status sb_tokenizer_bert_cuts(sb_tokenizer *t, const char *file);

SB_MUST_USE sb_status sb_tokenizer_read_json(sb_tokenizer *t, const char *path);
SB_MUST_USE sb_status sb_tokenizer_read_gguf(sb_tokenizer *t, const char *path);
SB_MUST_USE sb_status sb_tokenizer_read_model(sb_tokenizer *t,
                                              const char *path);
SB_MUST_USE sb_status sb_tokenizer_read_bin(sb_tokenizer *t, const char *path);

/* ---- stages -------------------------------------------------------------- */
/* normalize.c: the piece after all rewrites, in `out`; `spare` is another
 * string to work in.  `at_start`: the whole text begins with this piece. */
SB_MUST_USE sb_status sb_normalize(const sb_tokenizer *t, const char *text,
                                   size_t len, bool at_start, sb_str *out,
                                   sb_str *spare);
/* pretokenize.c: ends of the words of a text, in order. */
typedef struct sb_words {
    size_t *begin, *end;
    size_t n, cap_begin, cap_end;
} sb_words;
SB_MUST_USE sb_status sb_pretokenize(const sb_tokenizer *t, const char *text,
                                     size_t len, sb_words *out);
void sb_words_free(sb_ctx *ctx, sb_words *w);
void sb_regex_free(sb_ctx *ctx, struct sb_regex *regex);
/* normalize.c: the character at byte `at` of a text, and its bytes. */
SB_MUST_USE sb_status sb_next_char(const sb_str *in, size_t at, int32_t *c,
                                   size_t *bytes);
/* wordpiece.c: one rewriting, for normalize.c. */
SB_MUST_USE sb_status sb_norm_bert(int how, const sb_str *in, sb_str *out);
/* bpe.c, unigram.c, wordpiece.c: tokens of one word. */
SB_MUST_USE sb_status sb_bpe_encode(const sb_tokenizer *t, const char *word,
                                    size_t len, sb_ids *out);
SB_MUST_USE sb_status sb_unigram_encode(const sb_tokenizer *t, const char *word,
                                        size_t len, sb_ids *out);
SB_MUST_USE sb_status sb_wordpiece_encode(const sb_tokenizer *t,
                                          const char *word, size_t len,
                                          sb_ids *out);
/* A merge of two tokens; lower `priority` first.  *known: both are tokens, and
 * so is what they make; else it is left out. */
SB_MUST_USE sb_status sb_merges_add(sb_tokenizer *t, uint32_t left,
                                    uint32_t right, double priority,
                                    bool *known);
/* All merges of tokens with scores: those of SentencePiece. */
SB_MUST_USE sb_status sb_merges_from_scores(sb_tokenizer *t);
void sb_merges_free(sb_ctx *ctx, struct sb_merges *m);
/* All merges, lowest priority first; sb_free() the list. */
typedef struct sb_merge {
    uint32_t left, right, into; /* into SB_TOKEN_NONE: a free slot */
    double priority;
} sb_merge;
SB_MUST_USE sb_status sb_merges_list(const sb_tokenizer *t, sb_merge **out,
                                     size_t *n);
/* What GGUF calls the cuts of the tokenizer; NULL if it has no name for them.
 */
const char *sb_gguf_cut_name(const sb_tokenizer *t);
/* A character, or its bytes, that is no token of its own. */
SB_MUST_USE sb_status sb_tokenizer_put_unknown(const sb_tokenizer *t,
                                               const char *text, size_t len,
                                               sb_ids *out);
SB_MUST_USE sb_status sb_ids_add(sb_ctx *ctx, sb_ids *ids, uint32_t id);

/* byte_level.c: a byte as the character that GPT-2 writes for it, and back (-1
 * for other characters). */
size_t sb_byte_to_char(uint8_t byte, char out[4]);
int sb_char_to_byte(const char *text, size_t len, size_t *used);

#endif
