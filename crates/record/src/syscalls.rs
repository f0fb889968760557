//! The system calls that `--exact` records, and the meaning of their arguments.

use flashsift_traces::tracepoint::{EnteredCall, Pointer};

/// One system call: its name in tracefs and the function that reads its arguments.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) read: fn(&[u64; 6]) -> EnteredCall,
}

/// All recorded system calls.
pub(crate) const ALL: &[Spec] = &[
    call("read", |a| EnteredCall::Read { fd: fd(a[0]), at: Pointer::Here }),
    call("readv", |a| EnteredCall::Read { fd: fd(a[0]), at: Pointer::Here }),
    call("pread64", |a| EnteredCall::Read { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("preadv", |a| EnteredCall::Read { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("preadv2", |a| EnteredCall::Read { fd: fd(a[0]), at: here_or(a[3]) }),
    call("write", |a| EnteredCall::Write { fd: fd(a[0]), at: Pointer::Here }),
    call("writev", |a| EnteredCall::Write { fd: fd(a[0]), at: Pointer::Here }),
    call("pwrite64", |a| EnteredCall::Write { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("pwritev", |a| EnteredCall::Write { fd: fd(a[0]), at: Pointer::There(a[3]) }),
    call("pwritev2", |a| EnteredCall::Write { fd: fd(a[0]), at: here_or(a[3]) }),
    call("sendfile64", |a| EnteredCall::Copy {
        from: fd(a[1]),
        from_at: in_memory(a[2]),
        to: fd(a[0]),
        to_at: Pointer::Here,
    }),
    call("splice", copy),
    call("copy_file_range", copy),
    call("open", |_| EnteredCall::Open),
    call("openat", |_| EnteredCall::Open),
    call("openat2", |_| EnteredCall::Open),
    call("creat", |_| EnteredCall::Open),
    call("open_by_handle_at", |_| EnteredCall::Open),
    call("dup", |a| EnteredCall::Dup { fd: fd(a[0]) }),
    call("dup2", |a| EnteredCall::Dup { fd: fd(a[0]) }),
    call("dup3", |a| EnteredCall::Dup { fd: fd(a[0]) }),
    call("fcntl", |a| match a[1] as i32 {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => EnteredCall::Dup { fd: fd(a[0]) },
        _ => EnteredCall::Other,
    }),
    call("lseek", |a| EnteredCall::Seek { fd: fd(a[0]) }),
    call("close", |a| EnteredCall::Close { fd: fd(a[0]) }),
    call("truncate", |a| EnteredCall::Truncate { size: a[1] }),
    call("ftruncate", |a| EnteredCall::Truncate { size: a[1] }),
];

const fn call(name: &'static str, read: fn(&[u64; 6]) -> EnteredCall) -> Spec {
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

fn copy(a: &[u64; 6]) -> EnteredCall {
    EnteredCall::Copy {
        from: fd(a[0]),
        from_at: in_memory(a[1]),
        to: fd(a[2]),
        to_at: in_memory(a[3]),
    }
}
