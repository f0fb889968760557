// slow IMAGE POINT REQUEST_US US_PER_MIB: a disk as slow as flash, as one file of a FUSE mount.
//
// POINT/image has the content of IMAGE. Requests are done one after the other; each takes
// REQUEST_US, and US_PER_MIB for its bytes. A loop device over the file is a block device of that
// speed. The mount ends with the program, by SIGTERM or SIGINT.
//
// It speaks the kernel's protocol itself (linux/fuse.h), so it needs no library.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILE_NODE = 2, TRANSFER = 1 << 20 };
static int64_t request_ns, mib_ns, busy_until;
static int image, device;
static const char *point;
static char buffer[TRANSFER + 4096] __attribute__((aligned(4096)));
static char data[TRANSFER] __attribute__((aligned(4096)));

static void die(const char *at) {
  perror(at);
  exit(1);
}

static void end(int number) {
  (void)number;
  umount2(point, MNT_DETACH);
  _exit(0);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void take_time(int64_t from, size_t bytes) {
  int64_t begin = from > busy_until ? from : busy_until;
  busy_until = begin + request_ns + (int64_t)bytes * mib_ns / (1 << 20);
  struct timespec t = {busy_until / 1000000000LL, busy_until % 1000000000LL};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

static void answer(uint64_t id, int error, const void *body, size_t bytes) {
  struct fuse_out_header head = {.len = sizeof head + bytes, .error = -error, .unique = id};
  struct iovec parts[2] = {{&head, sizeof head}, {(void *)body, bytes}};
  // ENOENT: the request was interrupted.
  if (writev(device, parts, bytes ? 2 : 1) < 0 && errno != ENOENT) die("answer");
}

static struct fuse_attr attributes(uint64_t node) {
  struct stat st;
  if (fstat(image, &st)) die("fstat");
  struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = 4096};
  attr.mode = node == FILE_NODE ? S_IFREG | 0600 : S_IFDIR | 0700;
  attr.size = node == FILE_NODE ? st.st_size : 0;
  attr.blocks = attr.size / 512;
  return attr;
}

static void handle(size_t bytes) {
  struct fuse_in_header *in = (void *)buffer;
  void *body = buffer + sizeof *in;
  int64_t from = now_ns();
  (void)bytes;
  switch (in->opcode) {
    case FUSE_INIT: {
      struct fuse_init_in *asked = body;
      struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = asked->max_readahead};
      out.flags = asked->flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES);
      out.max_background = 64, out.congestion_threshold = 48;
      out.max_write = TRANSFER, out.max_pages = TRANSFER / 4096, out.time_gran = 1;
      return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: {
      if (strcmp(body, "image")) return answer(in->unique, ENOENT, NULL, 0);
      struct fuse_entry_out out = {.nodeid = FILE_NODE, .entry_valid = 3600, .attr_valid = 3600};
      out.attr = attributes(FILE_NODE);
      return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
      struct fuse_attr_out out = {.attr_valid = 3600, .attr = attributes(in->nodeid)};
      return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
      struct fuse_open_out out = {.open_flags = in->opcode == FUSE_OPEN ? FOPEN_DIRECT_IO : 0};
      return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
      struct fuse_read_in *read = body;
      if (read->size > sizeof data) return answer(in->unique, EINVAL, NULL, 0);
      ssize_t got = pread(image, data, read->size, read->offset);
      if (got < 0) return answer(in->unique, errno, NULL, 0);
      take_time(from, got);
      return answer(in->unique, 0, data, got);
    }
    case FUSE_WRITE: {
      struct fuse_write_in *write = body;
      ssize_t put = pwrite(image, (char *)body + sizeof *write, write->size, write->offset);
      if (put < 0) return answer(in->unique, errno, NULL, 0);
      take_time(from, put);
      struct fuse_write_out out = {.size = put};
      return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_STATFS: {
      struct fuse_statfs_out out = {.st = {.bsize = 4096, .namelen = 255}};
      return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_FLUSH:
    case FUSE_FSYNC:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
      return answer(in->unique, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;
    case FUSE_DESTROY:
      answer(in->unique, 0, NULL, 0);
      exit(0);
    default:
      return answer(in->unique, ENOSYS, NULL, 0);
  }
}

int main(int count, char **words) {
  if (count != 5) return fprintf(stderr, "usage: slow IMAGE POINT REQUEST_US US_PER_MIB\n"), 2;
  point = words[2], request_ns = atof(words[3]) * 1000, mib_ns = atof(words[4]) * 1000;
  if ((image = open(words[1], O_RDWR | O_CLOEXEC)) < 0) die(words[1]);
  if ((device = open("/dev/fuse", O_RDWR | O_CLOEXEC)) < 0) die("/dev/fuse");
  char options[99];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
  if (mount("slow", point, "fuse", MS_NOSUID | MS_NODEV, options)) die("mount");
  signal(SIGTERM, end), signal(SIGINT, end);
  // Its sleeps end on time, also while other programs run.
  prctl(PR_SET_TIMERSLACK, 1);
  sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 50});
  // The kernel writes dirty pages through this process: it must not wait for memory.
  prctl(PR_SET_IO_FLUSHER, 1);
  mlockall(MCL_CURRENT | MCL_FUTURE);
  for (;;) {
    ssize_t got = read(device, buffer, sizeof buffer);
    if (got >= (ssize_t)sizeof(struct fuse_in_header)) handle(got);
    else if (got < 0 && errno == ENODEV) return 0;
    else if (got < 0 && errno != EINTR && errno != ENOENT && errno != EAGAIN) die("/dev/fuse");
  }
}
