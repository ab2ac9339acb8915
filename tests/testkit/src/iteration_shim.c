/* Counts the CPU time of each iteration of a server's event loop. When preloaded, it records how much CPU time the
   main thread uses between the return of one epoll_wait and the next call, in the file ITERATIONS_FILE, which a test
   reads. The test asks for a new count by changing the first number. An iteration that began before that belongs to no
   count. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 24, KERNEL_SIGSET = 8 };

/* The order is that of iterations.rs. Each number has eight bytes. */
static struct {
    uint64_t wanted;           /* the count that the test asks for */
    uint64_t begun, ended;     /* iterations since the server started */
    uint64_t is;               /* the count that the rest belongs to */
    uint64_t iterations, sum_ns;
    uint64_t longest_ns, longest_wall_ns, longest_began_ns; /* the last one on CLOCK_MONOTONIC */
    uint64_t below[BUCKETS];   /* how many took less than 2^n microseconds, and not less than half of that */
} *page;

static long process;
static int is_running;
static uint64_t count, cpu_ns, began_ns;

__attribute__((constructor)) static void map_page(void) {
    const char *path = getenv("ITERATIONS_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (mapped != MAP_FAILED) page = mapped;
    process = syscall(SYS_getpid);
}

/* Not clock_gettime(): another preloaded library may move its clocks. */
static uint64_t now_ns(clockid_t clock) {
    struct timespec at;
    syscall(SYS_clock_gettime, clock, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

/* Other threads have loops of their own; a child has another process id. */
static int is_main(void) {
    return page && syscall(SYS_gettid) == process;
}

static void begin(void) {
    if (!is_main()) return;
    is_running = 1;
    count = __atomic_load_n(&page->wanted, __ATOMIC_ACQUIRE);
    __atomic_store_n(&page->begun, page->begun + 1, __ATOMIC_RELEASE);
    began_ns = now_ns(CLOCK_MONOTONIC);
    cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void note(uint64_t used_ns) {
    if (page->is != count) {
        memset(&page->iterations, 0, sizeof *page - ((char *)&page->iterations - (char *)page));
        page->is = count;
    }
    page->iterations++;
    page->sum_ns += used_ns;
    int bucket = 0;
    while (bucket < BUCKETS - 1 && used_ns >= UINT64_C(1000) << bucket) bucket++;
    page->below[bucket]++;
    if (used_ns <= page->longest_ns) return;
    page->longest_ns = used_ns;
    page->longest_wall_ns = now_ns(CLOCK_MONOTONIC) - began_ns;
    page->longest_began_ns = began_ns;
}

static void end(void) {
    if (!is_running || !is_main()) return;
    uint64_t used_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    is_running = 0;
    if (__atomic_load_n(&page->wanted, __ATOMIC_ACQUIRE) == count) note(used_ns);
    __atomic_store_n(&page->ended, page->ended + 1, __ATOMIC_RELEASE);
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    end();
    int ready = (int)syscall(SYS_epoll_pwait, fd, events, most, timeout, mask, KERNEL_SIGSET);
    begin();
    return ready;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    return epoll_pwait(fd, events, most, timeout, NULL);
}
