/* Makes and deletes files as fast as it can, so that the file system gives the same inode numbers again and again.
 *
 * usage: reuse DIRECTORY FILES
 *
 * Four threads, each in a directory of its own. A file's name says how many bytes are written to it: a recording that ties
 * a name to the wrong file shows. Some files have no name (O_TMPFILE), some are renamed, some replaced, some kept.
 * Says how many files were made with a name, and how many inode numbers they had.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUST(x) do { if ((x) < 0) { perror(#x); exit(1); } } while (0)

static int files;
static char bytes[20000];
static unsigned char seen[1 << 22];
static int numbers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *life(void *number) {
    int t = (int)(long)number, dir;
    char folder[20], name[40], other[40];
    struct stat st;
    snprintf(folder, sizeof folder, "%d", t);
    MUST(mkdir(folder, 0755));
    MUST(dir = open(folder, O_RDONLY | O_DIRECTORY));
    for (int n = 0; n < files; n++) {
        int fd, size = 1 + (n * 7919 + t * 131) % 19999;
        if (n % 5 == 0) { /* without a name; its size would betray it */
            MUST(fd = openat(dir, ".", O_RDWR | O_TMPFILE, 0600));
            MUST(write(fd, bytes, 20000));
            MUST(close(fd));
        }
        snprintf(name, sizeof name, "%d_%d", n, size);
        MUST(fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL, 0600));
        MUST(fstat(fd, &st));
        pthread_mutex_lock(&lock);
        numbers += !seen[st.st_ino]; seen[st.st_ino] = 1;
        pthread_mutex_unlock(&lock);
        if (n % 3 == 0) MUST(unlinkat(dir, name, 0)); /* while it is open */
        MUST(write(fd, bytes, size));
        MUST(close(fd));
        snprintf(other, sizeof other, "kept_%d", n % 50);
        if (n % 3 == 1) MUST(renameat(dir, name, dir, other)); /* over another, mostly */
        if (n % 3 == 2 && n % 7) MUST(unlinkat(dir, name, 0));
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3 || chdir(argv[1])) { fprintf(stderr, "usage: reuse DIRECTORY FILES\n"); return 2; }
    files = atoi(argv[2]);
    pthread_t threads[4];
    for (long t = 0; t < 4; t++) pthread_create(&threads[t], NULL, life, (void *)t);
    for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
    printf("%d %d\n", 4 * files, numbers);
    return 0;
}
