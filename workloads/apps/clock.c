/* The date of a recorded program, moved ahead by the pauses that were cut out of its recording.
 *
 * Preloaded into programs. The file named by WORKLOAD_CLOCK holds one int64: by how many
 * microseconds the calendar is ahead. It may change at any time. Monotonic clocks, timers and the
 * times of files stay real.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_us;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("WORKLOAD_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *shared = mmap(NULL, sizeof *ahead_us, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (shared != MAP_FAILED)
        ahead_us = shared;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    /* Other libraries may ask before this one is attached. */
    int failed = real_clock_gettime ? real_clock_gettime(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && ahead_us && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanoseconds = now->tv_nsec + *ahead_us % 1000000 * 1000;
        now->tv_sec += *ahead_us / 1000000 + nanoseconds / 1000000000;
        now->tv_nsec = nanoseconds % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *copy)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (copy)
        *copy = at.tv_sec;
    return at.tv_sec;
}
