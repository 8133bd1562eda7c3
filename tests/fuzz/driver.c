/* Runs a fuzz target over files and folders, as a normal test: what once
 * crashed never does again.  With libFuzzer this file is left out. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data;

    if (!f || fseek(f, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    long size = ftell(f);
    rewind(f);
    data = malloc(size > 0 ? (size_t)size : 1);
    if (!data || size < 0 || fread(data, 1, (size_t)size, f) != (size_t)size) {
        perror(path);
        exit(1);
    }
    (void)fclose(f);
    (void)LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 1;
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static size_t run_path(const char *path)
{
    struct dirent **list = NULL;
    struct stat st;
    size_t n = 0;

    if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
        return run_file(path);
    int count = scandir(path, &list, visible, alphasort);
    for (int i = 0; i < count; i++) {
        char name[4096];

        (void)snprintf(name, sizeof name, "%s/%s", path, list[i]->d_name);
        printf("%s\n", list[i]->d_name);
        (void)fflush(stdout);
        n += run_file(name);
        free(list[i]);
    }
    free(list);
    return n;
}

int main(int argc, char **argv)
{
    size_t n = 0;

    for (int i = 1; i < argc; i++)
        n += run_path(argv[i]);
    printf("%zu passed, 0 failed, 0 skipped\n", n);
    return n == 0;
}
