/* sparsebit - the command.  Finds the command's descriptor, reads its options,
 * runs it, and makes sure that what was printed really got out. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "cli.h"

#define CLI_CMD(id) extern const cli_cmd cmd_##id;
#include "cmds.def"
#undef CLI_CMD

static const cli_cmd *const commands[] = {
#define CLI_CMD(id) &cmd_##id,
#include "cmds.def"
#undef CLI_CMD
};

const cli_cmd *cli_command(size_t i)
{
    return i < CLI_COUNT(commands) ? commands[i] : NULL;
}

const cli_cmd *cli_command_find(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *word)
{
    const char *names[CLI_COUNT(commands) + 3] = {0};

    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        names[i] = commands[i]->name;
    names[CLI_COUNT(commands)] = "--help";
    names[CLI_COUNT(commands) + 1] = "--version";
    const char *near = cli_nearest(word, names);
    if (near)
        return cli_usage(NULL, "unknown command '%s', did you mean '%s'?", word,
                         near);
    return cli_usage(NULL, "unknown command '%s'", word);
}

static void on_log(void *user, sb_log_level level, const char *line)
{
    cli_env *env = user;

    if (level == SB_LOG_LEVEL_WARNING) {
        if (strncmp(env->warned, line, sizeof env->warned - 1) == 0)
            return;
        (void)snprintf(env->warned, sizeof env->warned, "%s", line);
    }
    cli_progress_clear(env->progress);
    (void)fflush(stdout);
    if (env->comm.rank == 0 &&
        (level == SB_LOG_LEVEL_INFO || !env->common.quiet))
        (void)fprintf(stderr, "sparsebit: %s\n", line);
}

/* Long calls that the user waits for; the others are short beside them. */
static bool takes_long(const char *stage)
{
    return strcmp(stage, "calibrate") == 0 || strcmp(stage, "scales") == 0 ||
           strcmp(stage, "export") == 0;
}

static int on_progress(void *user, const char *stage, size_t done, size_t total)
{
    const cli_env *env = user;

    if (env->progress && takes_long(stage)) {
        env->progress->total = total;
        cli_progress_step(env->progress, done);
    }
    return 0;
}

/* Are the letters of a word in the name, in this order?  `ort`, `trt`, `ov`. */
static bool name_abbreviates(const char *word, const char *name)
{
    for (; *name && *word; name++)
        word += *name == *word;
    return !*word;
}

static int check_target(const cli_cmd *cmd, const cli_env *env,
                        const char *name)
{
    enum { MOST = 32 };
    const char *names[MOST + 1] = {0}, *near = NULL;
    const sb_listing *row;

    for (size_t i = 0; i < MOST && (row = sb_list_get(env->ctx, "targets", i));
         i++) {
        names[i] = row->name;
        if (strcmp(row->name, name) == 0)
            return CLI_OK;
        if (!near && *name && name_abbreviates(name, row->name))
            near = row->name;
    }
    if (!near)
        near = cli_nearest(name, names);
    if (near)
        return cli_usage(cmd, "there is no target '%s', did you mean '%s'?",
                         name, near);
    return cli_usage(
        cmd, "there is no target '%s': `sparsebit list targets` shows them",
        name);
}

static const char *text_of(const cli_opt *o, const void *args)
{
    const char *value = NULL;

    memcpy(&value, (const char *)args + o->offset, sizeof value);
    return value;
}

static bool is_forced(const cli_cmd *cmd, const void *args, bool *can)
{
    bool on = false;

    *can = false;
    for (const cli_opt *o = cmd->opts; o->kind != CLI_END; o++)
        if (o->kind == CLI_FLAG && strcmp(o->name, "force") == 0) {
            memcpy(&on, (const char *)args + o->offset, sizeof on);
            *can = true;
        }
    return on;
}

/* Two results in one file: the second would replace the first. */
static int check_twice(const cli_cmd *cmd, const void *args,
                       const cli_opt *written)
{
    const char *path = text_of(written, args);

    for (const cli_opt *o = cmd->opts; o != written; o++)
        if (o->kind == CLI_OUT && cli_same_output(path, text_of(o, args)))
            return cli_usage(cmd, "--%s: '%s' is the file of --%s, too",
                             written->name, path, o->name);
    return CLI_OK;
}

/* Written onto what is read: a slip that destroys the only copy. */
static int check_overwrite(const cli_cmd *cmd, const void *args,
                           const cli_opt *written)
{
    const char *path = text_of(written, args);
    bool can = false, forced = is_forced(cmd, args, &can);

    can = can && (!written->name || strcmp(written->name, "output") == 0);
    for (const cli_opt *o = cmd->opts; o->kind != CLI_END; o++) {
        if (o->kind != CLI_FILE || !cli_same_file(path, text_of(o, args)) ||
            (!o->name && can && forced))
            continue;
        if (o->name)
            return cli_usage(cmd, "refusing to overwrite the input file '%s'",
                             path);
        return cli_usage(cmd, "'%s' is the model that is read: %s", path,
                         can ? "give --force to write over it"
                             : "write another file");
    }
    return CLI_OK;
}

static int check_writable(const cli_cmd *cmd, const cli_env *env,
                          const void *args, const cli_opt *written)
{
    const char *path = text_of(written, args);
    bool folder = cmd->writes_folder && cmd->writes_folder(args) &&
                  (!written->name || strcmp(written->name, "output") == 0);
    bool can = false;
    struct stat st;

    if (!folder || stat(path, &st) != 0)
        return sb_output_check(env->ctx, path) == SB_OK ? CLI_OK
                                                        : cli_fail(env, path);
    if (!S_ISDIR(st.st_mode))
        return cli_error("%s: is a file, want a folder", path);
    if (cli_folder_is_empty(path) || is_forced(cmd, args, &can))
        return CLI_OK;
    return cli_usage(cmd, "'%s' is not empty: give --force to write into it",
                     path);
}

/* What would only be found after the work, or part of it: names of targets,
 * files that cannot be written, and ones that should not. */
static int check_values(const cli_cmd *cmd, const cli_env *env,
                        const void *args)
{
    int rc = CLI_OK;

    for (const cli_opt *o = cmd->opts; o->kind != CLI_END && rc == CLI_OK;
         o++) {
        const char *value = o->kind == CLI_OUT || o->kind == CLI_TARGET
                                ? text_of(o, args)
                                : NULL;

        if (value && o->kind == CLI_TARGET)
            rc = check_target(cmd, env, value);
        else if (value)
            rc = check_overwrite(cmd, args, o);
        if (value && rc == CLI_OK && o->kind == CLI_OUT)
            rc = check_twice(cmd, args, o);
        if (value && rc == CLI_OK && o->kind == CLI_OUT)
            rc = check_writable(cmd, env, args, o);
    }
    return rc;
}

static bool is_memory_chosen(const cli_cmd *cmd, const cli_env *env,
                             const void *args)
{
    size_t bytes = env->common.max_memory;

    for (const cli_opt *o = cmd->opts; o->kind != CLI_END && bytes == 0; o++)
        if (o->kind == CLI_SIZE)
            memcpy(&bytes, (const char *)args + o->offset, sizeof bytes);
    return bytes > 0;
}

/* Weights are copied, packed and freed again and again, and new pages cost up
 * to a quarter of the time: what is freed stays with the process. */
static void keep_pages(void)
{
#ifdef __GLIBC__
    enum { LARGEST = 32 << 20 }; /* that may be told to glibc */

    (void)mallopt(M_MMAP_THRESHOLD, LARGEST);
    (void)mallopt(M_TRIM_THRESHOLD, -1); /* never */
#endif
}

static int run_command(const cli_cmd *cmd, cli_env *env, const void *args)
{
    if (!is_memory_chosen(cmd, env, args))
        keep_pages();
    if (sb_ctx_create(NULL, &env->ctx) != SB_OK)
        return cli_error("out of memory");
    cli_signals_catch(env->ctx);
    sb_ctx_set_log(env->ctx, on_log, env);
    sb_ctx_set_progress(env->ctx, on_progress, env);
    sb_ctx_set_threads(env->ctx, env->common.threads < INT_MAX
                                     ? (int)env->common.threads
                                     : INT_MAX);
    sb_ctx_set_max_memory(env->ctx, env->common.max_memory);
    /* The context stays: a late Ctrl-C may still be told to it. */
    int rc = cli_ranks_open(cmd, env);
    if (rc == CLI_OK)
        rc = check_values(cmd, env, args);
    if (rc == CLI_OK)
        rc = cmd->run(env, args);
    return cli_ranks_close(env, rc);
}

static int main_dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    cli_env env = {.comm = SB_COMM_INIT};

    if (argc < 2) {
        cli_help_all();
        return CLI_USAGE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    else if (strcmp(word, "--version") == 0)
        word = "version";
    const cli_cmd *cmd = cli_command_find(word);
    if (!cmd)
        return unknown_command(word);
    void *args = cli_alloc(1, cmd->args_size);
    int rc = cli_parse(cmd, argc - 2, argv + 2, args, &env.common);
    if (rc == CLI_OK && env.common.help && env.common.json)
        cli_help_json(cmd);
    else if (rc == CLI_OK && env.common.help)
        cli_help(cmd);
    else if (rc == CLI_OK)
        rc = run_command(cmd, &env, args);
    cli_parse_free(cmd, args);
    free(args);
    return rc;
}

/* `| head`, or the end of `| less`: the rest is not wanted. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    return poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
}

/* Also if the parser never got there. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    cli_ranks_hush();
    int rc = main_dispatch(argc, argv);

    if (rc != CLI_OK && wants_json(argc, argv))
        cli_json_failure(argv[1], rc);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == CLI_OK) {
        int number = errno;

        rc = CLI_FAILED;
        if (!reader_left())
            (void)cli_error("cannot write to standard output: %s",
                            number ? strerror(number) : "write failed");
    }
    cli_signals_end();
    return rc;
}
