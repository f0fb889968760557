/* Does what a recorder should see, and says on standard output, line by line, what it did.
 *
 * usage: accesses DIRECTORY
 *
 * Every access is to a file below DIRECTORY. `map` lines are first accesses to a page through a mapping.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x) ({ __typeof__(x) r_ = (x); if (r_ < 0) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } r_; })

static char bytes[1 << 20] __attribute__((aligned(4096)));

static int make(const char *name) {
    int fd = MUST(open(name, O_RDWR | O_CREAT | O_EXCL, 0644));
    printf("created %s\n", name);
    return fd;
}

static void fill(int fd, const char *name, size_t len) {
    MUST(write(fd, bytes, len));
    printf("write %s 0 %zu\n", name, len);
}

static void plain(void) {
    int fd = make("plain");
    fill(fd, "plain", 10000);
    MUST(pwrite(fd, bytes, 300, 20000)); puts("write plain 20000 300");
    struct iovec parts[3] = {{bytes, 10}, {bytes, 5000}, {bytes, 7}};
    MUST(pwritev(fd, parts, 3, 4090)); puts("write plain 4090 5017");
    MUST(lseek(fd, 100, SEEK_SET));
    MUST(read(fd, bytes, 50)); puts("read plain 100 50");
    MUST(read(fd, bytes, 50)); puts("read plain 150 50");
    MUST(readv(fd, parts, 3)); puts("read plain 200 5017");
    int same = MUST(dup(fd));
    MUST(read(same, bytes, 3)); puts("read plain 5217 3");
    MUST(read(fd, bytes, 4)); puts("read plain 5220 4");
    MUST(pread(fd, bytes, 100, 20250)); puts("read plain 20250 50");
    MUST(pread(fd, bytes, 100, 30000)); /* behind the end: nothing */
    MUST(preadv2(fd, parts, 1, 8191, 0)); puts("read plain 8191 10");
    MUST(pread(fd, bytes, 1 << 20, 0)); puts("read plain 0 20300");
    MUST(fsync(fd)); puts("sync plain");
    MUST(fdatasync(same)); puts("sync plain");
    MUST(close(same));
    MUST(close(fd));
    fd = MUST(open("plain", O_WRONLY | O_APPEND));
    MUST(write(fd, bytes, 11)); puts("write plain 20300 11");
    MUST(close(fd));
    fd = MUST(open("plain", O_WRONLY | O_SYNC));
    MUST(pwrite(fd, bytes, 12, 5)); puts("write plain 5 12 sync");
    MUST(close(fd));
    pid_t child = MUST(fork());
    if (!child) {
        int own = MUST(open("plain", O_RDONLY));
        MUST(read(own, bytes, 9));
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0)); puts("read plain 0 9");
}

static void sizes(void) {
    int fd = make("sizes");
    fill(fd, "sizes", 200000);
    MUST(ftruncate(fd, 50000)); puts("truncate sizes 50000");
    MUST(pread(fd, bytes, 4096, 49152)); puts("read sizes 49152 848");
    MUST(fallocate(fd, 0, 0, 400000)); puts("truncate sizes 400000");
    MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 16384)); puts("punch sizes 8192 16384");
    MUST(fallocate(fd, FALLOC_FL_KEEP_SIZE, 400000, 100000));
    MUST(pread(fd, bytes, 16384, 393216)); puts("read sizes 393216 6784");
    MUST(close(fd));
    MUST(close(MUST(open("sizes", O_WRONLY | O_TRUNC)))); puts("truncate sizes 0");
    fd = make("grown"); /* and never cut again, so that its size can still be asked for */
    MUST(ftruncate(fd, 300000)); puts("grown grown 300000");
    MUST(pread(fd, bytes, 65536, 262144)); puts("read grown 262144 37856");
    MUST(close(fd));
    fd = make("sparse");
    MUST(pwrite(fd, bytes, 1, 100 << 20)); puts("write sparse 104857600 1");
    MUST(pread(fd, bytes, 8192, 50 << 20)); puts("read sparse 52428800 8192");
    MUST(close(fd));
}

static void copies(void) {
    int from = make("from"), to = make("to");
    fill(from, "from", 40000);
    MUST(lseek(from, 1000, SEEK_SET));
    MUST(sendfile(to, from, NULL, 9000)); puts("read from 1000 9000"); puts("write to 0 9000");
    MUST(lseek(from, 20000, SEEK_SET)); MUST(lseek(to, 12288, SEEK_SET));
    MUST(copy_file_range(from, NULL, to, NULL, 5000, 0)); puts("read from 20000 5000"); puts("write to 12288 5000");
    MUST(close(from)); MUST(close(to));
}

static void mapped(void) {
    int fd = make("mapped");
    fill(fd, "mapped", 200 * 4096);
    MUST(fsync(fd)); puts("sync mapped");
    volatile char *map = mmap(NULL, 200 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) exit(1);
    char sum = map[33 * 4096]; puts("map read mapped 33");
    map[100 * 4096] = 1; puts("map write mapped 100");
    map[33 * 4096] = 2; puts("map write mapped 33"); /* mapped already, to be read */
    MUST(msync((void *)map, 200 * 4096, MS_SYNC)); puts("sync mapped");
    map[100 * 4096] = 3; puts("map write mapped 100"); /* clean again since */
    munmap((void *)map, 200 * 4096);
    map = mmap(NULL, 100 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 64 * 4096);
    if (map == MAP_FAILED) exit(1);
    map[70 * 4096] = 1; puts("map read mapped 134"); /* copied: a read */
    sum += map[5 * 4096]; puts("map read mapped 69");
    munmap((void *)map, 100 * 4096);
    close(fd);
    if (sum == 77) exit(2);
}

static void direct(void) {
    int fd = MUST(open("direct", O_RDWR | O_CREAT | O_EXCL | O_DIRECT, 0644));
    puts("created direct");
    MUST(pwrite(fd, bytes, 65536, 0)); puts("direct write direct 0 65536");
    MUST(pwrite(fd, bytes, 4096, 8192)); puts("direct write direct 8192 4096");
    MUST(pread(fd, bytes, 16384, 4096)); puts("direct read direct 4096 16384");
    MUST(close(fd));
}

static void names(void) {
    int fd = make("first");
    fill(fd, "first", 100);
    MUST(rename("first", "second")); puts("rename first second");
    MUST(link("second", "third")); puts("link second third");
    MUST(unlink("second")); puts("unlink second");
    MUST(pwrite(fd, bytes, 200, 0)); puts("write third 0 200");
    MUST(unlink("third")); puts("unlink third");
    MUST(pwrite(fd, bytes, 300, 0)); puts("write third 0 300"); /* its last name */
    MUST(close(fd)); puts("gone third");
    fd = make("old"); fill(fd, "old", 10); MUST(close(fd));
    fd = make("new"); fill(fd, "new", 20); MUST(fsync(fd)); puts("sync new"); MUST(close(fd));
    MUST(rename("new", "old")); puts("replaced old"); puts("gone old"); puts("rename new old");
    for (int n = 0; n < 5; n++) { /* ext4 gives the number to the next at once */
        char name[20];
        snprintf(name, sizeof name, "again%d", n);
        fd = make(name); fill(fd, name, 1000 + n); MUST(close(fd));
        MUST(unlink(name)); printf("unlink %s\ngone %s\n", name, name);
    }
    MUST(mkdir("folder", 0755));
    fd = make("folder/in"); fill(fd, "folder/in", 30); MUST(close(fd));
    MUST(rename("folder", "place")); puts("rename folder/in place/in");
    MUST(unlink("place/in")); puts("unlink place/in"); puts("gone place/in");
    MUST(rmdir("place"));
}

static int shared;
static void *half(void *from) {
    MUST(pread(shared, bytes, 6000, (off_t)(size_t)from));
    return NULL;
}

static void threads(void) {
    shared = make("shared");
    fill(shared, "shared", 40000);
    pthread_t a, b;
    pthread_create(&a, NULL, half, (void *)0);
    pthread_join(a, NULL); puts("read shared 0 6000");
    pthread_create(&b, NULL, half, (void *)20000);
    pthread_join(b, NULL); puts("read shared 20000 6000");
    MUST(close(shared));
}

static void ring(void) {
    struct io_uring_params p = {0};
    int ring = syscall(SYS_io_uring_setup, 4, &p);
    if (ring < 0) { fprintf(stderr, "io_uring: %s\n", strerror(errno)); return; }
    char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    int fd = make("ring");
    fill(fd, "ring", 65536);
    struct { int op; unsigned len; unsigned long at; } todo[2] = {{IORING_OP_READ, 8192, 16384}, {IORING_OP_WRITE, 100, 5000}};
    for (int n = 0; n < 2; n++) {
        memset(&sqes[0], 0, sizeof sqes[0]);
        sqes[0].opcode = todo[n].op; sqes[0].fd = fd; sqes[0].addr = (unsigned long)bytes;
        sqes[0].len = todo[n].len; sqes[0].off = todo[n].at;
        unsigned *tail = (unsigned *)(sq + p.sq_off.tail), mask = *(unsigned *)(sq + p.sq_off.ring_mask);
        ((unsigned *)(sq + p.sq_off.array))[*tail & mask] = 0;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        /* Completions are left where they are, so that this waits for one more each time. */
        MUST(syscall(SYS_io_uring_enter, ring, 1, n + 1, IORING_ENTER_GETEVENTS, NULL, 0));
    }
    puts("read ring 16384 8192"); puts("write ring 5000 100");
    MUST(close(fd)); MUST(close(ring));
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1])) { fprintf(stderr, "usage: accesses DIRECTORY\n"); return 2; }
    memset(bytes, 'x', sizeof bytes);
    plain(); sizes(); copies(); mapped(); direct(); names(); threads(); ring();
    return 0;
}
