/* Makes a server's disk fail. When preloaded, it makes calls on files whose path contains DISK_SHIM_PART fail, as the
   file DISK_SHIM_FILE says, which a test may change at any time. A child of the server shares both. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The order is that of `Fault` in disk.rs. */
enum { NONE, FULL, FULL_HALFWAY, TORN, SYNC };

/* The order is that of disk.rs. Each number has eight bytes. */
static struct {
    uint64_t fault;  /* what fails */
    uint64_t after;  /* how many such calls still succeed */
    uint64_t failed; /* how many have failed */
    uint64_t is_torn; /* whether half of a write has been written, so that the next one fails */
} *page;
static char part[64];

__attribute__((constructor)) static void map_page(void) {
    const char *path = getenv("DISK_SHIM_FILE");
    /* A copy: the server overwrites its environment with its title. */
    const char *given = getenv("DISK_SHIM_PART");
    if (given) snprintf(part, sizeof part, "%s", given);
    int fd = path && part[0] ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (mapped != MAP_FAILED) page = mapped;
}

static uint64_t fault(void) {
    return page ? __atomic_load_n(&page->fault, __ATOMIC_ACQUIRE) : NONE;
}

static int is_meant(int fd) {
    char link[32], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, part) != NULL;
}

/* Whether this call fails now: the calls before it have been let through. */
static int is_due(void) {
    uint64_t after = __atomic_load_n(&page->after, __ATOMIC_ACQUIRE);
    while (after > 0)
        if (__atomic_compare_exchange_n(&page->after, &after, after - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 0;
    return 1;
}

static int failed(int error) {
    __atomic_add_fetch(&page->failed, 1, __ATOMIC_ACQ_REL);
    errno = error;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    uint64_t what = fault();
    if (what >= FULL && what <= TORN && is_meant(fd) && is_due()) {
        int is_next = __atomic_exchange_n(&page->is_torn, 0, __ATOMIC_ACQ_REL) != 0;
        if (what == FULL || is_next || length < 2) return failed(ENOSPC);
        __atomic_store_n(&page->is_torn, 1, __ATOMIC_RELEASE);
        length /= 2;
    }
    return syscall(SYS_write, fd, bytes, length);
}

static int sync_with(long call, int fd) {
    if (fault() == SYNC && is_meant(fd) && is_due()) return failed(EIO);
    return (int)syscall(call, fd);
}

int fsync(int fd) {
    return sync_with(SYS_fsync, fd);
}

int fdatasync(int fd) {
    return sync_with(SYS_fdatasync, fd);
}

/* With TORN, half a record stays in the file. */
int ftruncate64(int fd, int64_t length) {
    if (fault() == TORN && is_meant(fd)) return failed(EIO);
    return (int)syscall(SYS_ftruncate, fd, length);
}

int ftruncate(int fd, off_t length) {
    return ftruncate64(fd, length);
}
