/* reader FILE MARKER DEVICE: does the operations on standard input, one a line, on FILE.
 *
 *   open FD | close FD | read FD AT BYTES | advise FD ADVICE AT BYTES
 *   map MAP FD PAGE PAGES | private … | exec … | madvise MAP ADVICE | fault MAP PAGE | store MAP PAGE
 *
 * A map begins at PAGE of the file; 0 PAGES go to its end. It is shared and read-only, private and
 * writable, or private and executable. The page of a fault is that of the file. ADVICE is the kernel's number. Before operation N, the line `step N` is written to MARKER, a
 * tracefs trace_marker, so that the kernel's events can be attributed to the operation. After it,
 * one line on standard output: N, the result, the minor and the major page faults.
 *
 * Each operation begins when the device has done all reads of the one before: fault-around maps
 * only pages whose reads have ended, so page faults would otherwise depend on the device's speed.
 * DEVICE is the folder of the device in /sys/block; all its reads have to be this program's.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 4, PAGE = 4096, LONGEST_READ = 4 << 20, STEPS = 100000, WAIT_S = 30 };
/* Fault-around maps the 64 KiB around a page that are aligned in the address space: the first page
 * of the file lies at a multiple of this, so these are aligned in the file too. */
static const size_t MAP_ALIGNMENT = 2 << 20;

static char text[4096], *buffer;
static int io, stat_file, inflight;

/* The content of a file of /proc or /sys. */
static const char *content(int file)
{
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    if (length <= 0)
        err(1, "a file of /proc or /sys cannot be read");
    text[length] = 0;
    return text;
}

/* Bytes of the reads that this process has sent to block devices. */
static uint64_t sent_bytes(void)
{
    const char *at = strstr(content(io), "\nread_bytes: ");
    if (!at)
        errx(1, "/proc/self/io does not count read_bytes");
    return strtoull(at + strlen("\nread_bytes: "), NULL, 10);
}

/* Bytes of the reads that the device has done. */
static uint64_t done_bytes(void)
{
    uint64_t sectors;
    if (sscanf(content(stat_file), "%*u %*u %" SCNu64, &sectors) != 1)
        errx(1, "the device's stat cannot be understood");
    return sectors * 512;
}

static unsigned reads_in_flight(void)
{
    unsigned reads;
    if (sscanf(content(inflight), "%u", &reads) != 1)
        errx(1, "the device's inflight cannot be understood");
    return reads;
}

static int open_in(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        err(1, "%s", path);
    return file;
}

/* Waits until the device has done the reads that were sent since `sent` and `done` were counted.
 * The sectors of a read are counted before its pages become up to date; it stays in flight until
 * they are. */
static void wait_for_device(uint64_t sent, uint64_t done)
{
    time_t until = time(NULL) + WAIT_S;
    uint64_t bytes = sent_bytes() - sent;
    while (done_bytes() - done < bytes || reads_in_flight()) {
        if (time(NULL) > until)
            errx(1, "the device has not done its reads for %d s", WAIT_S);
        sched_yield();
    }
}

int main(int count, char **arguments)
{
    struct { char op[16]; long a, b, c, d; } *steps = calloc(STEPS, sizeof *steps);
    struct { long result, minor, major; } *results = calloc(STEPS, sizeof *results);
    int files[SLOTS];
    struct { volatile char *start; size_t length, first; } maps[SLOTS] = {0};
    struct stat about;
    char line[256];
    size_t number = 0;

    if (count != 4)
        errx(2, "usage: reader FILE MARKER DEVICE < OPERATIONS");
    int marker = open(arguments[2], O_WRONLY | O_CLOEXEC);
    if (marker < 0)
        err(1, "%s", arguments[2]);
    io = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    if (io < 0)
        err(1, "/proc/self/io");
    stat_file = open_in(arguments[3], "stat");
    inflight = open_in(arguments[3], "inflight");
    if (stat(arguments[1], &about))
        err(1, "%s", arguments[1]);
    while (fgets(line, sizeof line, stdin)) {
        if (number == STEPS)
            errx(1, "more than %d operations", STEPS);
        if (sscanf(line, "%15s %ld %ld %ld %ld", steps[number].op, &steps[number].a,
                   &steps[number].b, &steps[number].c, &steps[number].d) < 2)
            errx(1, "not an operation: %s", line);
        if ((unsigned long)steps[number].a >= SLOTS)
            errx(1, "descriptors and maps are 0 to %d: %s", SLOTS - 1, line);
        number++;
    }
    buffer = malloc(LONGEST_READ);
    memset(buffer, 1, LONGEST_READ);
    memset(results, 0, STEPS * sizeof *results);
    /* On one processor, see QUEUE of record.py. */
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    if (sched_setaffinity(0, sizeof first, &first))
        err(1, "sched_setaffinity");
    /* This program's own pages cause neither page faults nor reads from now on. */
    if (mlockall(MCL_CURRENT))
        err(1, "mlockall");
    wait_for_device(sent_bytes(), done_bytes());
    uint64_t sent = sent_bytes(), done = done_bytes();

    for (size_t i = 0; i < number; i++) {
        const char *op = steps[i].op;
        long a = steps[i].a, b = steps[i].b, c = steps[i].c, d = steps[i].d, result = 0;
        struct rusage before, after;
        char *place = NULL;
        /* The address space is taken before the step, since that may fault. */
        int private = !strcmp(op, "private"), exec = !strcmp(op, "exec");
        if (private || exec || !strcmp(op, "map")) {
            size_t whole = (about.st_size + PAGE - 1) / PAGE * PAGE;
            maps[a].first = c * PAGE;
            maps[a].length = d ? (size_t)d * PAGE : whole - maps[a].first;
            char *taken = mmap(NULL, whole + MAP_ALIGNMENT, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (taken == MAP_FAILED)
                err(1, "mmap");
            place = (char *)(((uintptr_t)taken + MAP_ALIGNMENT - 1) & ~(MAP_ALIGNMENT - 1));
            place += maps[a].first;
        }
        dprintf(marker, "step %zu\n", i);
        getrusage(RUSAGE_SELF, &before);
        if (!strcmp(op, "open"))
            result = files[a] = open(arguments[1], O_RDONLY | O_CLOEXEC);
        else if (!strcmp(op, "close"))
            result = close(files[a]);
        else if (!strcmp(op, "read"))
            result = c > LONGEST_READ ? -1 : pread(files[a], buffer, c, b);
        else if (!strcmp(op, "advise"))
            result = (errno = posix_fadvise(files[a], c, d, b)) ? -1 : 0;
        else if (place) {
            maps[a].start = mmap(place, maps[a].length,
                                 PROT_READ | (private ? PROT_WRITE : 0) | (exec ? PROT_EXEC : 0),
                                 MAP_FIXED | (private || exec ? MAP_PRIVATE : MAP_SHARED),
                                 files[b], maps[a].first);
            result = maps[a].start == MAP_FAILED ? -1 : 0;
        } else if (!strcmp(op, "madvise"))
            result = madvise((void *)maps[a].start, maps[a].length, b);
        else if (!strcmp(op, "fault"))
            (void)maps[a].start[b * PAGE - maps[a].first];
        else if (!strcmp(op, "store"))
            maps[a].start[b * PAGE - maps[a].first] = 1;
        else
            errx(1, "unknown operation %s", op);
        getrusage(RUSAGE_SELF, &after);
        if (result < 0)
            err(1, "step %zu, %s", i, op);
        wait_for_device(sent, done);
        results[i].result = result;
        results[i].minor = after.ru_minflt - before.ru_minflt;
        results[i].major = after.ru_majflt - before.ru_majflt;
    }
    dprintf(marker, "step end\n");
    for (size_t i = 0; i < number; i++)
        printf("%zu %ld %ld %ld\n", i, results[i].result, results[i].minor, results[i].major);
    return 0;
}
