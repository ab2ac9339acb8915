/* Moves a server's clocks. When preloaded, it adds the microseconds in the file CLOCK_SHIM_FILE, which a test may
   change at any time: three numbers of eight bytes, for the wall clock, CLOCK_MONOTONIC and CLOCK_BOOTTIME. A shorter
   file leaves the other clocks alone. If there is a fourth number that is not 0, the three are added to it instead of
   to the machine's clocks: the clocks stand still until it is changed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WALL, MONOTONIC, BOOT, STANDING, NUMBERS };

static volatile int64_t *offset_us;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("CLOCK_SHIM_FILE");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, NUMBERS * sizeof *offset_us, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) offset_us = page;
}

static int64_t now_us(clockid_t clock, int offset) {
    int64_t standing = offset_us ? offset_us[STANDING] : 0;
    if (standing) return standing + offset_us[offset];
    struct timespec at;
    syscall(SYS_clock_gettime, clock, &at);
    return at.tv_sec * INT64_C(1000000) + at.tv_nsec / 1000 + (offset_us ? offset_us[offset] : 0);
}

static int64_t wall_us(void) {
    return now_us(CLOCK_REALTIME, WALL);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int64_t now;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE: now = wall_us(); break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW: now = now_us(clock, MONOTONIC); break;
    case CLOCK_BOOTTIME: now = now_us(clock, BOOT); break;
    default: return (int)syscall(SYS_clock_gettime, clock, at);
    }
    *at = (struct timespec){.tv_sec = now / 1000000, .tv_nsec = now % 1000000 * 1000};
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    int64_t now = wall_us();
    *at = (struct timeval){.tv_sec = now / 1000000, .tv_usec = now % 1000000};
    return 0;
}

time_t time(time_t *at) {
    time_t now = wall_us() / 1000000;
    if (at) *at = now;
    return now;
}
