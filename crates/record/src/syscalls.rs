//! The system calls that `--exact` records, and the meaning of their arguments.

use flashsift_traces::tracepoint::{Call, Pointer};

/// One system call: its name in tracefs and the function that reads its arguments.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) read: fn(&[u64; 6]) -> Call,
}

/// All recorded system calls.
pub(crate) const ALL: &[Spec] = &[
    call("read", |a| Call::Read { fd: fd(a[0]), at: Pointer::Here }),
    call("readv", |a| Call::Read { fd: fd(a[0]), at: Pointer::Here }),
    call("pread64", |a| Call::Read { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("preadv", |a| Call::Read { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("preadv2", |a| Call::Read { fd: fd(a[0]), at: here_or(a[3]) }),
    call("write", |a| Call::Write { fd: fd(a[0]), at: Pointer::Here }),
    call("writev", |a| Call::Write { fd: fd(a[0]), at: Pointer::Here }),
    call("pwrite64", |a| Call::Write { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("pwritev", |a| Call::Write { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("pwritev2", |a| Call::Write { fd: fd(a[0]), at: here_or(a[3]) }),
    call("sendfile64", |a| Call::Copy {
        from: fd(a[1]),
        from_at: in_memory(a[2]),
        to: fd(a[0]),
        to_at: Pointer::Here,
    }),
    call("splice", copy),
    call("copy_file_range", copy),
    call("open", |_| Call::Open),
    call("openat", |_| Call::Open),
    call("openat2", |_| Call::Open),
    call("creat", |_| Call::Open),
    call("open_by_handle_at", |_| Call::Open),
    call("dup", |a| Call::Dup { fd: fd(a[0]) }),
    call("dup2", |a| Call::Dup { fd: fd(a[0]) }),
    call("dup3", |a| Call::Dup { fd: fd(a[0]) }),
    call("fcntl", |a| match a[1] as i32 {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => Call::Dup { fd: fd(a[0]) },
        _ => Call::Other,
    }),
    call("lseek", |a| Call::Seek { fd: fd(a[0]) }),
    call("close", |a| Call::Close { fd: fd(a[0]) }),
    call("truncate", |a| Call::Truncate { size: a[1] }),
    call("ftruncate", |a| Call::Truncate { size: a[1] }),
];

const fn call(name: &'static str, read: fn(&[u64; 6]) -> Call) -> Spec {
    Spec { name, read }
}

fn fd(argument: u64) -> i32 {
    argument as i32
}

/// `preadv2` with the offset -1 is `readv`.
fn here_or(at: u64) -> Pointer {
    if at == u64::MAX { Pointer::Here } else { Pointer::There(at) }
}

/// A pointer to an offset, or none.
fn in_memory(pointer: u64) -> Pointer {
    if pointer == 0 { Pointer::Here } else { Pointer::InMemory }
}

fn copy(a: &[u64; 6]) -> Call {
    Call::Copy { from: fd(a[0]), from_at: in_memory(a[1]), to: fd(a[2]), to_at: in_memory(a[3]) }
}
