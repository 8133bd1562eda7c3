/* cli.h - what the commands share.
 *
 * The command uses only the public headers: whatever it can do, a user of the
 * library can do.  A command is a descriptor (cli_cmd) with a table of options;
 * the parser, the help texts, the man page and docs/commands.md read that
 * table. */
#ifndef SB_CLI_CLI_H
#define SB_CLI_CLI_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sparsebit/experimental.h>
#include <sparsebit/sparsebit.h>

#define CLI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

/* Exit codes. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* ---- options ------------------------------------------------------------ */

typedef enum cli_kind {
    CLI_END,
    CLI_FLAG,   /* bool */
    CLI_UINT,   /* unsigned */
    CLI_SOME,   /* unsigned, not 0, which says that it was not given */
    CLI_REAL,   /* double, not negative */
    CLI_ABOVE,  /* double, more than 0: there 0 says that it was not given */
    CLI_SHARE,  /* double, more than 0 and less than 1 */
    CLI_SIZE,   /* size_t, bytes: a number, or one with K, M, G or T */
    CLI_STRING, /* const char * */
    CLI_TARGET, /* the same: one of `sparsebit list targets` */
    CLI_FILE,   /* const char *, a path */
    CLI_OUT,    /* the same, to be written: tried before the work */
    CLI_LIST,   /* cli_list: may be given several times */
    CLI_WORDS,  /* const char *: some of the words in `arg`, which is a list
                   with commas; without a value, all of them */
} cli_kind;

typedef struct cli_list {
    const char **v;
    size_t n;
} cli_list;

/* One option, or a positional argument if `name` is NULL. */
typedef struct cli_opt {
    cli_kind kind;
    char letter; /* 0: no short form */
    const char *name;
    size_t offset;   /* of the field in the command's struct */
    const char *arg; /* what follows it, as help shows it; NULL for flags */
    const char *help;
    bool required;
} cli_opt;

/* Options that every command takes. */
typedef struct cli_common {
    bool help, json, quiet, verbose;
    unsigned threads, seed;
    size_t max_memory; /* bytes; 0: what the machine has */
} cli_common;

extern const cli_opt cli_common_opts[];

typedef struct cli_progress cli_progress;

typedef struct cli_env {
    sb_ctx *ctx;
    cli_common common;
    cli_progress *progress; /* being shown, or NULL */
    sb_comm comm;           /* other processes that take part in the work */
    const char *assumed;    /* the data that was last said to have no file */
    char warned[256]; /* the last warning: quantizing anew says it again */
} cli_env;

typedef struct cli_example {
    const char *line;
    const char *what;
} cli_example;

typedef struct cli_cmd {
    const char *name;
    const char *summary;     /* one line, lower case, no full stop */
    const char *description; /* sentences */
    size_t args_size;
    const cli_opt *opts;         /* ends with CLI_END; positionals in order */
    const cli_example *examples; /* ends with {0} */
    int (*run)(cli_env *env, const void *args);
    /* (optional) Is the output with these options a folder?  Then it may be
     * there, if it is empty. */
    bool (*writes_folder)(const void *args);
    bool ranks; /* several processes can share its work */
} cli_cmd;

/* Reads the words after the command's name into `args` and `common`. */
int cli_parse(const cli_cmd *cmd, int argc, char **argv, void *args,
              cli_common *common);
void cli_parse_free(const cli_cmd *cmd, void *args);

/* The i-th command, NULL past the end. */
const cli_cmd *cli_command(size_t i);
const cli_cmd *cli_command_find(const char *name);

/* ---- messages ----------------------------------------------------------- */

/* Prints `sparsebit: SUBJECT: what the context says` (without the subject if
 * the message names it already) and returns CLI_FAILED. */
int cli_fail(const cli_env *env, const char *subject);
/* The same of what ran samples through a model: about the data, which are read
 * again, if it is a sample that an input of the model does not take. */
int cli_blame(const cli_env *env, const sb_model *model, const char *model_path,
              sb_data *data, const char *data_path);
/* The same with a message of our own. */
int cli_error(const char *fmt, ...) CLI_PRINTF(1, 2);
/* Wrong usage: one line with a hint where to look; returns CLI_USAGE. */
int cli_usage(const cli_cmd *cmd, const char *fmt, ...) CLI_PRINTF(2, 3);
/* Wrong usage unless `name` is NULL or a preset. */
int cli_check_preset(const cli_env *env, const cli_cmd *cmd, const char *name);

/* From now on they print nothing, as another process does it. */
void cli_silence(bool on);
/* What the last of them said, without the program's name; "" if nothing. */
const char *cli_last_error(void);

/* Help of one command, and of all. */
void cli_help(const cli_cmd *cmd);
void cli_help_all(void);
/* The same as JSON; NULL: of all commands. */
void cli_help_json(const cli_cmd *cmd);
/* The whole manual, from the tables. */
void cli_manual_roff(void);
void cli_manual_markdown(void);

/* The name closest to `word` among `names` (NULL-terminated), or NULL if none
 * is close. */
const char *cli_nearest(const char *word, const char *const *names);

/* ---- several processes (ranks.c) ---------------------------------------- */

/* Wrong usage is told by the first one. */
void cli_ranks_hush(void);
/* If mpirun started the command: makes the context one of several ranks. */
int cli_ranks_open(const cli_cmd *cmd, cli_env *env);
/* Tells the others how it ended here; the exit code, which is no success if one
 * of them has failed. */
int cli_ranks_close(cli_env *env, int rc);

/* ---- signals ------------------------------------------------------------ */

/* Signals that end a program interrupt the context, and end the program by the
 * signal if that does not help within a second.  Called before there are other
 * threads: they inherit what is blocked. */
void cli_signals_catch(sb_ctx *ctx);
/* Was "interrupted" printed already?  From now on it was. */
bool cli_signals_told(void);
/* Ends the program by the signal that was caught, if there was one. */
void cli_signals_end(void);

/* ---- memory: the command ends when there is none ------------------------ */

void *cli_alloc(size_t count, size_t size);
char *cli_printf(const char *fmt, ...) CLI_PRINTF(1, 2); /* free() it */
char *cli_vprintf(const char *fmt, va_list args);

/* ---- output ------------------------------------------------------------- */

/* Prints a line, or a piece of one if the format does not end with a newline.
 * Every name and path goes through here, through tables, JSON or the messages
 * above: what would move the cursor or break the line becomes '?'. */
void cli_put(const char *fmt, ...) CLI_PRINTF(1, 2);

/* Rows of text in aligned columns.  `align` has one letter per column: l or r.
 */
typedef struct cli_table cli_table;
cli_table *cli_table_new(const char *align);
/* Adds a cell; a row is full when it has as many cells as `align`. */
void cli_table_add(cli_table *t, const char *fmt, ...) CLI_PRINTF(2, 3);
void cli_table_print(cli_table *t, const char *indent); /* and frees it */
void cli_table_free(cli_table *t);

/* JSON on standard output: one object, which begins with the version of its
 * layout and the name of the command.  Keys may be added; CLI_JSON_SCHEMA grows
 * when one is removed or changes its meaning.  Keys are NULL inside arrays. */
enum { CLI_JSON_SCHEMA = 1 };
typedef struct cli_json {
    int depth;
    bool comma;
} cli_json;
void cli_json_begin(cli_json *j, const char *command);
void cli_json_end(cli_json *j);
void cli_json_open(cli_json *j, const char *key, char bracket);
void cli_json_close(cli_json *j, char bracket);
void cli_json_str(cli_json *j, const char *key, const char *text);
/* The same of a text that may have zeros in it. */
void cli_json_bytes(cli_json *j, const char *key, const char *text, size_t len);
void cli_json_num(cli_json *j, const char *key, double value);
void cli_json_int(cli_json *j, const char *key, long long value);
void cli_json_bool(cli_json *j, const char *key, bool value);
/* Arrays on one line. */
void cli_json_ints(cli_json *j, const char *key, const int64_t *v, size_t n);
void cli_json_floats(cli_json *j, const char *key, const float *v, size_t n);
/* The key "error": what cli_error() or cli_usage() said last. */
void cli_json_error(cli_json *j, int exit_code);
/* A document with that key alone, unless one was begun already: with --json,
 * standard output holds an object also on failure. */
void cli_json_failure(const char *command, int exit_code);

/* "12.3 M" and "1.2 MB" into `out`; return it. */
const char *cli_si(double value, char *out, size_t size);
const char *cli_bytes(double bytes, char *out, size_t size);

/* Most memory that this program ever had, in MB; getrusage() would count what
 * the parent had before it started us. */
double cli_peak_rss_mb(void);

/* ---- progress ----------------------------------------------------------- */

/* How far a loop of `total` steps is, on standard error; `what` is a static
 * word.  Nothing with -q, and with --json only on a terminal. */
struct cli_progress {
    cli_env *env;
    const char *what;
    size_t done, total;
    double start, last; /* seconds */
    bool silent, terminal, drawn;
};
void cli_progress_begin(cli_progress *p, cli_env *env, const char *what,
                        size_t total);
void cli_progress_step(cli_progress *p, size_t done);
/* Erases the bar, before something else is printed; NULL is allowed. */
void cli_progress_clear(cli_progress *p);
/* Erases the bar; the seconds since the beginning. */
double cli_progress_end(cli_progress *p);
/* Seconds on a clock that only goes forward. */
double cli_seconds(void);

/* ---- inputs of a model -------------------------------------------------- */

/* The option of commands for which a caller may override initializers. */
#define CLI_KEEP_INPUTS(field)                                                \
    {                                                                         \
        CLI_FLAG, 0, "keep-inputs", field, NULL,                              \
            "inputs that have an initializer stay inputs (default: they are " \
            "constants)",                                                     \
            false                                                             \
    }

/* The option of commands that write a model. */
#define CLI_FORCE(field)                               \
    {                                                  \
        CLI_FLAG, 0, "force", field, NULL,             \
            "write over the model that is read", false \
    }
/* The same of commands that may write folders. */
#define CLI_FORCE_FOLDER(field)                                         \
    {                                                                   \
        CLI_FLAG, 0, "force", field, NULL,                              \
            "write over the model that is read, or into a folder that " \
            "is not empty",                                             \
            false                                                       \
    }
bool cli_ends_with(const char *text, const char *end);
/* Are both there, and one? */
bool cli_same_file(const char *a, const char *b);
/* Would both be one file?  Neither need be there. */
bool cli_same_output(const char *a, const char *b);
/* Of a folder, the files in it; 0 if there is nothing. */
double cli_path_bytes(const char *path);
/* Not there, or without anything in it? */
bool cli_folder_is_empty(const char *path);
/* Reads "1x3x224x224" into `dims`, of SB_RANK_MAX, and returns the rank; -1 if
 * it is not that. */
int cli_parse_shape(const char *text, int64_t *dims);

typedef struct cli_input_spec {
    const cli_list *files;  /* [NAME=]FILE.npy, FILE.npz; or NULL */
    const cli_list *shapes; /* NAME=1x3x224x224; or NULL */
    unsigned batch;         /* for an unknown first dimension; 0 means 1 */
    unsigned seed;
} cli_input_spec;

/* One tensor per model input, read or random; CLI_OK or what to exit with. */
int cli_inputs_make(cli_env *env, const cli_cmd *cmd, const sb_model *model,
                    const cli_input_spec *spec, sb_tensor ***out);
void cli_inputs_free(const sb_model *model, sb_tensor **inputs);
/* cli_fail() after a run on them, with a hint at --shape if sizes that the file
 * leaves open were made up. */
int cli_inputs_fail(const cli_env *env, const char *subject,
                    const sb_model *model, const cli_input_spec *spec,
                    sb_tensor *const *inputs);

/* Fixes inputs of a model for good: `shapes` as above, and `values`:
 * NAME=16000, NAME=1,2,3 or NAME=@FILE.npy.  Either may be NULL. */
int cli_model_fix(cli_env *env, const cli_cmd *cmd, sb_model *model,
                  const cli_list *shapes, const cli_list *values);
/* Reads the file and fixes inputs to `values`. */
int cli_model_open(cli_env *env, const cli_cmd *cmd, const char *path,
                   const cli_list *values, sb_model **out);
/* CLI_OK if it is a language model that sparsebit has read. */
int cli_want_language(const sb_model *model, const char *path);
/* Is `word` NAME=... for an input of the model? */
bool cli_names_input(const sb_model *model, const char *word);
/* What help says about `values`. */
#define CLI_VALUE_ARG "NAME=VALUE"
#define CLI_VALUE_HELP                                                      \
    "fix an input to a number (`sr=16000`), to numbers with commas, or to " \
    "an array (`x=@FILE.npy`): it is a constant then; repeatable"

/* ---- data sets ----------------------------------------------------------- */

typedef struct cli_data_spec {
    const char *path; /* --data: a data file, or what one would name */
    cli_list set;     /* --set KEY=VALUE */
    unsigned samples, skip, batch;
    bool strict;
} cli_data_spec;

/* Words KEY=VALUE of --set as lines "KEY: VALUE" behind those that other
 * options gave; free() them.  CLI_USAGE for another word, or a key that is
 * there. */
int cli_set_lines(const cli_cmd *cmd, const char *first, const cli_list *set,
                  char **out);
/* Opens it for a model; says which data file it assumes where there is none.
 * `fixed` is the only batch size that will do, 0 if any does. */
int cli_data_open(cli_env *env, const cli_cmd *cmd, const sb_model *model,
                  const cli_data_spec *spec, int64_t fixed, sb_data **out);
/* What help says about --data and --set. */
#define CLI_DATA_ARG "DATA"
#define CLI_DATA_HELP                                                         \
    "data file (YAML, see docs/data.md); or a folder of images, an image, a " \
    ".npy or .npz file or a folder of them, with the preprocessing that the " \
    "model's input suggests; or a .txt file, for a language model"
#define CLI_SET_ARG "KEY=VALUE"
#define CLI_SET_HELP                                                         \
    "a key of the data file, instead of what it says: `--set LETTERBOX=640 " \
    "--set SCALE=1`; repeatable"
/* Rows of options for a cli_data_spec that lies at `field` of `type`. */
/* clang-format off */
#define CLI_DATA_OPTS(type, field, needed, samples_help)                                                                \
    {CLI_FILE, 'd', "data",    offsetof(type, field.path),    CLI_DATA_ARG, CLI_DATA_HELP, needed},                     \
    {CLI_LIST, 0,   "set",     offsetof(type, field.set),     CLI_SET_ARG, CLI_SET_HELP, false},                        \
    {CLI_UINT, 'n', "samples", offsetof(type, field.samples), "N", samples_help " (default, and 0: all)", false},       \
    {CLI_UINT, 0,   "skip",    offsetof(type, field.skip),    "N", "skip the first N samples", false},                  \
    {CLI_UINT, 'b', "batch",   offsetof(type, field.batch),   "N", "batch size (default: BATCH of the data file)", false}
/* clang-format on */

/* ---- outputs over a data set -------------------------------------------- */

/* Gathers the outputs of all batches, to be written as an .npz archive. */
typedef struct cli_gather cli_gather;
cli_gather *cli_gather_new(const sb_model *model);
int cli_gather_add(cli_gather *g, const sb_batch *batch,
                   const sb_tensor *const *outputs);
int cli_gather_save(cli_env *env, cli_gather *g, const char *path);
void cli_gather_free(cli_gather *g); /* NULL is allowed */

/* Reads such an archive; *out must be freed also on failure. */
typedef struct cli_saved cli_saved;
int cli_saved_open(cli_env *env, const char *path, const sb_model *model,
                   cli_saved **out);
/* The outputs of the samples of a batch, whose first has number `first`; valid
 * until the next call. */
int cli_saved_rows(cli_saved *s, size_t first, const sb_batch *batch,
                   const sb_tensor **out);
void cli_saved_free(cli_saved *s); /* NULL is allowed */

/* The words of a list joined by spaces; free() it.  NULL if empty. */
char *cli_join(const cli_list *list);

/* judge.c: a line if the file may be slower than the float model. */
void cli_judge_speed(const sb_lint *lint);

#endif
