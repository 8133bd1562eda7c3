/* sparsebit - the command.  Finds the command's row, reads its options, runs
 * it, and makes sure that what was printed really got out. */
#define _XOPEN_SOURCE 700 /* SIGXFSZ */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

#define CLI_CMD(id) extern const cli_cmd cmd_##id;
#include "cmds.def"
#undef CLI_CMD

static const cli_cmd *const commands[] = {
#define CLI_CMD(id) &cmd_##id,
#include "cmds.def"
#undef CLI_CMD
};

/* Ctrl-C, kill, and a terminal that closes, unless nohup says otherwise. */
static void watched(sigset_t *set)
{
    struct sigaction hang_up;

    (void)sigemptyset(set);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
        (void)sigaddset(set, SIGHUP);
}

/* Waits for Ctrl-C in a thread of its own: the first one asks the work to
 * stop, the second one ends the program.  A handler would run on the stack of
 * a computing thread, and oneDNN's kernels use the stack pointer for other
 * things: the signal frame would be written into the middle of the heap. */
static void *watch_signals(void *arg)
{
    sigset_t set;
    int number;

    watched(&set);
    if (sigwait(&set, &number) == 0)
        sb_ctx_interrupt(arg);
    /* Some senders signal the process and its group: two at once are one. */
    (void)nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0)
        continue;
    if (sigwait(&set, &number) == 0)
        _exit(CLI_FAILED);
    return NULL;
}

/* Called before there are other threads: they inherit what is blocked. */
static void catch_signals(sb_ctx *ctx)
{
    pthread_t thread;
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write */
    (void)signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow */
    watched(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, watch_signals, ctx) == 0)
        (void)pthread_detach(thread);
    else
        (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

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

static void on_log(void *user, const char *line)
{
    const cli_env *env = user;

    cli_progress_clear(env->progress);
    if (!env->common.quiet)
        (void)cli_error("%s", line);
}

static int run_command(const cli_cmd *cmd, cli_env *env, const void *args)
{
    if (sb_ctx_create(NULL, &env->ctx) != SB_OK)
        return cli_error("out of memory");
    catch_signals(env->ctx);
    sb_ctx_set_log(env->ctx, on_log, env);
    sb_ctx_set_threads(env->ctx, env->common.threads < INT_MAX
                                     ? (int)env->common.threads
                                     : INT_MAX);
    /* The context stays: a late Ctrl-C may still be told to it. */
    return cmd->run(env, args);
}

static int dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    cli_env env = {0};

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

/* `| head`, or the end of `| less`: nobody misses the rest. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    return poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
}

int main(int argc, char **argv)
{
    int rc = dispatch(argc, argv);

    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == CLI_OK) {
        int number = errno;

        if (reader_left())
            return CLI_FAILED;
        errno = number;
        rc = cli_error("cannot write to standard output: %s",
                       errno ? strerror(errno) : "write failed");
    }
    return rc;
}
