"""Makes every call that the reader of strace's output has to follow, in the directory named by its
first argument, and writes the expected events to the file named by its second argument."""

import ctypes
import fcntl
import mmap
import os
import sys
import threading

directory, report = os.path.realpath(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
expected = []
off_t = ctypes.c_int64
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE = -100, 0x1000, 0x400, 2


def then(*events):
    expected.extend(events)


def check(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "in libc")
    return result


os.chdir(directory)

# Opening, sharing an offset by dup, every way to seek.
a = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
then("create A ? a", "open A created")
os.write(a, b"x" * 10000)
then("write A 0 10000")
b = os.dup(a)
os.lseek(b, 100, os.SEEK_SET)
os.read(a, 50)
then("read A 100 50")
os.lseek(a, 25, os.SEEK_CUR)
os.read(b, 25)
then("read A 175 25")
os.lseek(a, -1000, os.SEEK_END)
os.read(b, 4096)
then("read A 9000 1000")
os.read(b, 4096)
then("read A 10000 0")
c = fcntl.fcntl(a, fcntl.F_DUPFD, 60)
os.dup2(a, 61, inheritable=False)
os.dup2(a, 62)
os.lseek(c, 7, os.SEEK_SET)
os.read(61, 1)
os.read(62, 1)
then("read A 7 1", "read A 8 1")
os.pread(a, 100, 4000)
os.pwrite(b, b"yy", 20000)
os.write(c, b"z")
then("read A 4000 100", "write A 20000 2", "write A 9 1")
os.writev(a, [b'q", "', b"(r)"])
os.lseek(a, 0, os.SEEK_SET)
os.readv(a, [bytearray(3), bytearray(5)])
os.preadv(a, [bytearray(10)], 4096)
os.pwritev(a, [b"1", b"22"], 5000, os.RWF_DSYNC)
then("write A 10 8", "read A 0 8", "read A 4096 10", "writesync A 5000 3")
for fd in (a, b, c):
    os.close(fd)
libc.close_range(61, 62, 0)
then("close A")

# Appending, also by pwrite, also after others wrote.
a = os.open("a", os.O_WRONLY | os.O_APPEND)
os.write(a, b"end")
then("open A", "write A 20002 3")
os.pwrite(a, b"END", 5)
then("write A 20005 3")
fcntl.fcntl(a, fcntl.F_SETFL, 0)
os.write(a, b"now")
then("write A 20005 3")
os.close(a)
then("close A")

# Synchronous writes, syncs, sizes.
s = os.open("sync me, (please)", os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
then("bind B sync me, (please)", "open B")
os.write(s, b"s" * 5000)
then("writesync B 0 5000")
os.fsync(s)
os.fdatasync(s)
check(libc.sync_file_range(s, off_t(4096), off_t(100), 2))
then("sync B 0 max", "sync B 0 max", "sync B 4096 100")
os.ftruncate(s, 100)
os.truncate("sync me, (please)", 50)
then("truncate B 100", "truncate B 50")
os.posix_fallocate(s, 0, 9000)
then("truncate B 9000")
check(libc.fallocate(s, 3, off_t(4096), off_t(4096)))
then("punch B 4096 4096")
memory = mmap.mmap(s, 8192)
memory[0] = 1
memory.flush(4096, 4096)
then("sync B 4096 4096")
os.close(s)
then("close B")
# The mapping outlives its descriptor, and the file its name, until the mapping is gone.
os.unlink("sync me, (please)")
then("unbind B sync me, (please)")
memory.close()
# Python's mapping holds a descriptor of its own, a duplicate.
expected.remove("close B")
then("close B", "gone B")

# Truncation at opening; copies inside the kernel.
a = os.open("a", os.O_RDWR | os.O_TRUNC)
then("open A", "truncate A 0")
os.write(a, b"a" * 9000)
then("write A 0 9000")
# From now on the umask is known, and with it the mode of what is made.
os.umask(0o027)
d = os.open("copy", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
then("create C 640 copy", "open C created")
os.lseek(a, 10, os.SEEK_SET)
os.copy_file_range(a, d, 100)
then("read A 10 100", "write C 0 100")
os.copy_file_range(a, d, 50, 1000, 5000)
then("read A 1000 50", "write C 5000 50")
os.sendfile(d, a, 2000, 60)
then("read A 2000 60", "write C 100 60")
check(libc.sendfile(d, a, None, 5))
then("read A 110 5", "write C 160 5")
r, w = os.pipe()
os.write(w, b"p" * 33)
check(libc.splice(r, None, d, None, 33, 0))
then("write C 165 33")
os.close(r)
os.close(w)

# A child shares the offset, a thread shares the table, exec closes what is marked.
os.lseek(d, 0, os.SEEK_SET)
pid = os.fork()
if pid == 0:
    os.read(d, 10)
    os.close(d)
    os.chdir("/")
    os._exit(0)
os.waitpid(pid, 0)
os.read(d, 10)
then("read C 0 10", "read C 10 10")
made = []
thread = threading.Thread(target=lambda: made.append(os.open("copy", os.O_RDONLY)))
thread.start()
thread.join()
os.read(made[0], 5)
os.close(made[0])
then("open C", "read C 0 5", "close C")
keep = os.open("kept", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DSYNC, 0o600)
then("create D 600 sync kept", "open D created")
os.set_inheritable(keep, True)
pid = os.fork()
if pid == 0:
    # `d` goes at exec, `keep` stays.
    os.execv("/bin/sh", ["sh", "-c", f"printf hello >&{keep}; exec {keep}>&-"])
os.waitpid(pid, 0)
then("writesync D 0 5")
os.write(keep, b" you")
then("writesync D 5 4")
os.close(keep)
os.close(d)
os.close(a)
then("close D", "close C", "close A")

# Names: of files, of directories, exchanged, replaced, linked.
os.mkdir("dir")
os.mkdir("dir/sub")
os.rename("kept", "dir/sub/kept")
then("rename D kept dir/sub/kept")
os.rename("dir", "other")
then("rename directory dir other")
os.chdir("other/sub")
k = os.open("../sub/./kept", os.O_RDONLY)
then("open D")
os.close(k)
then("close D")
os.chdir(directory)
o = os.open("other", os.O_RDONLY | os.O_DIRECTORY)
then("bind E other", "open E")
os.rename("other", "third")
then("rename directory other third")
k = os.open("sub/kept", os.O_RDONLY, dir_fd=o)
then("open D")
os.close(k)
os.close(o)
then("close D", "close E")
os.link("a", "hard link")
then("link A hard link")
os.unlink("a")
then("unbind A a")
a = os.open("hard link", os.O_RDWR)
then("open A")
os.write(a, b"!")
then("write A 0 1")
os.rename("copy", "hard link")
then("unbind A hard link", "rename C copy hard link")
os.write(a, b"!")
then("write A 1 1")
os.close(a)
then("close A", "gone A")
check(libc.renameat2(AT_FDCWD, b"hard link", AT_FDCWD, b"third/sub/kept", RENAME_EXCHANGE))
then("rename C hard link third/sub/kept", "rename D third/sub/kept hard link")
os.symlink("third/sub", "short cut")
k = os.open("short cut/kept", os.O_RDONLY)
then("open C")
os.close(k)
then("close C")
os.unlink("short cut/kept")
then("unbind C third/sub/kept", "gone C")
os.unlink("short cut")
os.rmdir("third/sub")

# A name used again is another file.
e = os.open("hard link", os.O_RDWR)
then("open D")
os.unlink("hard link")
then("unbind D hard link")
f = os.open("hard link", os.O_RDWR | os.O_CREAT, 0o600)
then("create F 600 hard link", "open F created")
os.write(f, b"new")
os.read(e, 3)
then("write F 0 3", "read D 0 3")
os.close(e)
then("close D", "gone D")
os.close(f)
then("close F")

# A file that gets its name last.
t = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
then("create G 600", "open G created")
os.write(t, b"t" * 20)
then("write G 0 20")
check(libc.linkat(AT_FDCWD, f"/proc/self/fd/{t}".encode(), AT_FDCWD, b"named", AT_SYMLINK_FOLLOW))
then("link G named")
os.close(t)
then("close G")
os.sync()
then("syncall")
odd = os.open("odd \"<name>\\ \n\u00e9", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
then("create H 600 odd \"<name>\\ \\n\u00e9", "open H created")
os.write(odd, b"o")
then("write H 0 1")
os.close(odd)
then("close H")

os.mknod("node", 0o100666)
then("create I 640 node")
os.unlink("node")
then("unbind I node", "gone I")

with open(report, "w", encoding="utf-8") as file:
    file.write("\n".join(expected) + "\n")
