/* Gives a server the same random seed at every start: preloaded, it reads zeros where it would read random bytes. Which
   names share a place in the server's tables depends on that seed, and with it a percent of a command's instructions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef FILE *open_file(const char *, const char *);

static FILE *open_as(const char *name, const char *path, const char *mode) {
    open_file *real = (open_file *)dlsym(RTLD_NEXT, name);
    return real(strcmp(path, "/dev/urandom") ? path : "/dev/zero", mode);
}

FILE *fopen(const char *path, const char *mode) { return open_as("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return open_as("fopen64", path, mode); }
