// Preloaded into a driver, this moves its clocks as suspending the machine or stepping the wall clock would.
//
// SERVERLOCK_CLOCK names a file with two int64: nanoseconds spent in a suspend, which all clocks but the monotonic one
// count, and nanoseconds by which the wall clock was stepped.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("SERVERLOCK_CLOCK");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED) moved = at;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, at);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
    if (failed || !moved || !(is_wall || clock == CLOCK_BOOTTIME)) return failed;
    int64_t now = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + moved[0] + (is_wall ? moved[1] : 0);
    at->tv_sec = now / 1000000000;
    at->tv_nsec = now % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

// Some runtimes read the boot clock from a file.
static int opened(int folder, const char *path, int flags, mode_t mode) {
    if (!moved || strcmp(path, "/proc/uptime")) return (int)syscall(SYS_openat, folder, path, flags, mode);
    struct timespec now;
    char text[64];
    clock_gettime(CLOCK_BOOTTIME, &now);
    int length = snprintf(text, sizeof text, "%lld.%02ld 0.00\n", (long long)now.tv_sec, now.tv_nsec / 10000000);
    int file = memfd_create("uptime", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    if (file >= 0 && (write(file, text, (size_t)length) != length || lseek(file, 0, SEEK_SET) != 0)) {
        close(file);
        return -1;
    }
    return file;
}

#define OPEN(name, before, folder)                                    \
    int name(before const char *path, int flags, ...) {               \
        va_list rest;                                                 \
        va_start(rest, flags);                                        \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                 \
        return opened(folder, path, flags, mode);                     \
    }
#define AT int at_folder,
OPEN(open, , AT_FDCWD)
OPEN(open64, , AT_FDCWD)
OPEN(openat, AT, at_folder)
OPEN(openat64, AT, at_folder)

FILE *fopen(const char *path, const char *mode) {
    static FILE *(*real)(const char *, const char *);
    if (!real) real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    return moved && !strcmp(path, "/proc/uptime") ? fdopen(opened(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), mode)
                                                  : real(path, mode);
}
