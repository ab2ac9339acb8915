/* Makes a server do exactly the same at every start: preloaded, it reads zeros instead of random bytes, and its
   wall clock stands still. The seed decides which names share a place in the server's tables, and with that about 1%
   of a command's instructions; anything done once per millisecond would be done with nearly every command in slow motion. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct timespec start;

__attribute__((constructor)) static void read_clock(void) { syscall(SYS_clock_gettime, CLOCK_REALTIME, &start); }

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return (int)syscall(SYS_clock_gettime, clock, at);
    *at = start;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    *at = (struct timeval){.tv_sec = start.tv_sec, .tv_usec = start.tv_nsec / 1000};
    return 0;
}

typedef FILE *open_file(const char *, const char *);

static FILE *open_as(const char *name, const char *path, const char *mode) {
    open_file *real = (open_file *)dlsym(RTLD_NEXT, name);
    return real(strcmp(path, "/dev/urandom") ? path : "/dev/zero", mode);
}

FILE *fopen(const char *path, const char *mode) { return open_as("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return open_as("fopen64", path, mode); }
