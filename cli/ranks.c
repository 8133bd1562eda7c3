/* Several processes as one: mpirun starts the command many times, and each
 * takes its part of the work.
 *
 * How they talk to each other is in a module that is loaded only then: that of
 * MPI, or the one that SPARSEBIT_COMM names.  The first rank speaks for all of
 * them; the others print nothing, unless they cannot tell it. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "cli.h"

#ifndef CLI_MODULES
#define CLI_MODULES "../lib/sparsebit" /* from the folder of the command */
#endif

static const char module_name[] = "sparsebit_mpi.so";

/* The module beside the command, or where it is installed; NULL: there is
 * none. */
static char *find_module(void)
{
    const char *folders[] = {".", CLI_MODULES};
    char own[4096];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);

    if (n <= 0)
        return NULL;
    own[n] = '\0';
    char *slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < CLI_COUNT(folders); i++) {
        char *path = cli_printf("%s/%s/%s", own, folders[i], module_name);

        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

static int load_module(const char *path, sb_comm *comm)
{
    char error[512] = "";
    sb_comm_open_fn open_comm = NULL;
    /* MPI loads modules of its own, which look for its functions. */
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void *found = module ? dlsym(module, "sparsebit_comm_open") : NULL;

    if (!found)
        return cli_error("%s", dlerror());
    memcpy(&open_comm, &found, sizeof found);
    if (open_comm(comm, error, sizeof error) != 0)
        return cli_error("%s", error);
    return CLI_OK;
}

/* What the others print is what the first one prints. */
static void be_quiet(cli_env *env)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)fflush(stdout);
    if (nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0)
        (void)close(nowhere);
    env->common.quiet = true;
    cli_silence(true);
}

/* Threads of all ranks on this machine are as many as it has cores. */
static void share_cores(cli_env *env, const char *beside)
{
    int ranks = beside ? atoi(beside) : 1, cores = sb_ctx_threads(env->ctx);

    if (env->common.threads == 0 && ranks > 1)
        sb_ctx_set_threads(env->ctx, cores > ranks ? cores / ranks : 1);
}

void cli_ranks_hush(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    bool others = rank && atoi(rank) > 0;

    cli_silence(others);
    if (others) /* mpirun ends ranks that are left by a signal: no word of it */
        (void)cli_signals_told();
}

int cli_ranks_open(const cli_cmd *cmd, cli_env *env)
{
    const char *named = getenv("SPARSEBIT_COMM");
    const char *count = getenv("OMPI_COMM_WORLD_SIZE");
    int ranks = count ? atoi(count) : 1;

    if (!named && ranks <= 1)
        return CLI_OK;
    if (getauxval(AT_SECURE)) /* setuid: its caller must not name code to run */
        return CLI_OK;
    if (!cmd->ranks)
        return cli_error("%s does not share its work: start it without mpirun",
                         cmd->name);
    char *path = named ? cli_printf("%s", named) : find_module();
    cli_silence(false); /* from here on they may differ */
    if (!path)
        return cli_error("started by mpirun, but there is no %s: sparsebit was "
                         "built without MPI (libopenmpi-dev)",
                         module_name);
    int rc = load_module(path, &env->comm);
    free(path);
    if (rc != CLI_OK)
        return rc;
    if (sb_ctx_set_comm(env->ctx, &env->comm) != SB_OK) {
        env->comm.close = NULL; /* so that mpirun ends the others */
        return cli_fail(env, NULL);
    }
    share_cores(env, getenv("OMPI_COMM_WORLD_LOCAL_SIZE"));
    if (env->comm.rank > 0)
        be_quiet(env);
    return CLI_OK;
}

int cli_ranks_close(cli_env *env, int rc)
{
    if (!env->comm.close)
        return rc;
    if (rc != CLI_OK)
        sb_comm_give_up(env->ctx);
    else if (sb_comm_barrier(env->ctx) != SB_OK)
        rc = cli_fail(env, NULL);
    env->comm.close(env->comm.user);
    return rc;
}
