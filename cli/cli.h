/* cli.h - what the commands share.
 *
 * The command uses only the public header: whatever it can do, a user of the
 * library can do.  A command is a row (cli_cmd) with a table of options; the
 * parser, the help texts, the man page and docs/commands.md read that table. */
#ifndef SB_CLI_CLI_H
#define SB_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

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
    CLI_REAL,   /* double, not negative */
    CLI_STRING, /* const char * */
    CLI_FILE,   /* const char *, a path */
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
} cli_common;

extern const cli_opt cli_common_opts[];

typedef struct cli_progress cli_progress;

typedef struct cli_env {
    sb_ctx *ctx;
    cli_common common;
    cli_progress *progress; /* being shown, or NULL */
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
/* The same with a message of our own. */
int cli_error(const char *fmt, ...) CLI_PRINTF(1, 2);
/* Wrong usage: one line with a hint where to look; returns CLI_USAGE. */
int cli_usage(const cli_cmd *cmd, const char *fmt, ...) CLI_PRINTF(2, 3);

/* Help of one command, and of all. */
void cli_help(const cli_cmd *cmd);
void cli_help_all(void);
/* The same as JSON: one object, or of all (NULL) a list. */
void cli_help_json(const cli_cmd *cmd);
/* The whole manual, from the tables. */
void cli_manual_roff(void);
void cli_manual_markdown(void);

/* The name most like `word` among `names` (NULL-terminated), or NULL if none
 * is close. */
const char *cli_nearest(const char *word, const char *const *names);

/* ---- memory: the command ends when there is none ------------------------ */

void *cli_alloc(size_t count, size_t size);
char *cli_printf(const char *fmt, ...) CLI_PRINTF(1, 2); /* free() it */

/* ---- output ------------------------------------------------------------- */

/* Rows of text in aligned columns.  `align` has a letter a column: l or r. */
typedef struct cli_table cli_table;
cli_table *cli_table_new(const char *align);
/* Adds a cell; a row is full when it has as many cells as `align`. */
void cli_table_add(cli_table *t, const char *fmt, ...) CLI_PRINTF(2, 3);
void cli_table_print(cli_table *t, const char *indent); /* and frees it */
void cli_table_free(cli_table *t);

/* JSON on standard output; keys are NULL inside arrays. */
typedef struct cli_json {
    int depth;
    bool comma;
} cli_json;
void cli_json_open(cli_json *j, const char *key, char bracket);
void cli_json_close(cli_json *j, char bracket);
void cli_json_str(cli_json *j, const char *key, const char *text);
void cli_json_num(cli_json *j, const char *key, double value);
void cli_json_int(cli_json *j, const char *key, long long value);
void cli_json_bool(cli_json *j, const char *key, bool value);

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
/* Wipes the bar, before something else is printed; NULL is allowed. */
void cli_progress_clear(cli_progress *p);
/* Wipes the bar; the seconds since the beginning. */
double cli_progress_end(cli_progress *p);
/* Seconds on a clock that only goes forward. */
double cli_seconds(void);

/* ---- inputs of a model -------------------------------------------------- */

typedef struct cli_input_spec {
    const cli_list *files;  /* [NAME=]FILE.npy, FILE.npz; or NULL */
    const cli_list *shapes; /* NAME=1x3x224x224; or NULL */
    unsigned batch;         /* for an unknown first dimension; 0 means 1 */
    unsigned seed;
} cli_input_spec;

/* One tensor a model input, read or random; CLI_OK or what to exit with. */
int cli_inputs_make(cli_env *env, const cli_cmd *cmd, const sb_model *model,
                    const cli_input_spec *spec, sb_tensor ***out);
void cli_inputs_free(cli_env *env, const sb_model *model, sb_tensor **inputs);

/* ---- outputs over a data set -------------------------------------------- */

/* Gathers the outputs of all batches, to be written as an .npz archive. */
typedef struct cli_gather cli_gather;
cli_gather *cli_gather_new(const sb_model *model);
int cli_gather_add(cli_gather *g, const sb_tensor *const *outputs);
int cli_gather_save(cli_env *env, cli_gather *g, const char *path);
void cli_gather_free(cli_gather *g); /* NULL is allowed */

/* Reads such an archive; *out must be freed also on failure. */
typedef struct cli_saved cli_saved;
int cli_saved_open(cli_env *env, const char *path, const sb_model *model,
                   cli_saved **out);
/* The outputs of samples [first, first + count), valid until the next call. */
int cli_saved_rows(cli_saved *s, size_t first, size_t count,
                   const sb_tensor **out);
void cli_saved_free(cli_saved *s); /* NULL is allowed */

/* The words of a list joined by spaces; free() it.  NULL if empty. */
char *cli_join(const cli_list *list);

#endif
