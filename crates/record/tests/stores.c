// Stores 20 times, 200 kB apart, into a mapped file of 4 MiB, and syncs each store.
//
//   stores FILE BYTES     makes the file by writes of so many bytes before; 0: it is there
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 4 << 20, STORES = 20, APART = 200000 };

static void done(int is_done, const char *what) {
    if (!is_done) {
        perror(what);
        exit(1);
    }
}

int main(int count, char **words) {
    done(count == 3, "arguments");
    long bytes = atol(words[2]);
    int file = open(words[1], O_RDWR | O_CREAT, 0644);
    done(file >= 0, "open");
    if (bytes > 0) {
        char *buffer = malloc(bytes);
        done(buffer != NULL, "malloc");
        memset(buffer, 1, bytes);
        for (long at = 0; at < SIZE; at += bytes)
            done(write(file, buffer, bytes) == bytes, "write");
        done(fsync(file) == 0, "fsync");
    }
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    done(map != MAP_FAILED, "mmap");
    for (int n = 0; n < STORES; n++) {
        ((volatile char *)map)[n * APART] = (char)(n + 2);
        done(fsync(file) == 0, "fsync");
    }
    return 0;
}
