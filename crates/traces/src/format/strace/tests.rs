use super::{
    super::testing,
    line::{Descriptor, Lead, descriptor, string},
    *,
};
use flashsift_events::event::{Action, Event, FileId, OpenId};
use proptest::prelude::*;
use std::num::NonZeroU32;

fn read_text(text: &str) -> (Vec<Event<'static>>, String) {
    let (events, summary) = testing::read(&SPEC, text.as_bytes()).expect("no error but of I/O");
    (events, testing::skipped(&summary))
}

/// Reads and writes, as `(write, file, offset, length)`.
fn accesses(text: &str) -> Vec<(bool, u64, u64, u64)> {
    let access = |event: Event| match event.action {
        Action::Read { file, offset, len, .. } => Some((false, file.0, offset, len)),
        Action::Write { file, offset, len, .. } => Some((true, file.0, offset, len)),
        _ => None,
    };
    read_text(text).0.into_iter().filter_map(access).collect()
}

#[test]
fn every_form_of_a_line_head_is_parsed() {
    let seconds = |us| Some(Time::Seconds { us });
    let cases: [(&str, Option<u32>, Option<Time>); 13] = [
        ("42 1795170624.658591 (+     0.000200) read(3", Some(42), seconds(1_795_170_624_658_591)),
        ("10:30:27.5 (+     0.000000) read(3", None, Some(Time::OfDay { us: 37_827_500_000 })),
        ("read(3", None, None),
        ("42 read(3", Some(42), None),
        ("[pid 42] read(3", Some(42), None),
        ("[pid    42] 10:30:27 read(3", Some(42), Some(Time::OfDay { us: 37_827_000_000 })),
        ("[pid 42<app name>] read(3", Some(42), None),
        ("42<app> 1795170624.658591 read(3", Some(42), seconds(1_795_170_624_658_591)),
        ("     0.000193 read(3", None, seconds(193)),
        ("42    0.000193 read(3", Some(42), seconds(193)),
        ("1795170624.658591999 read(3", None, seconds(1_795_170_624_658_591)),
        ("10:30:27.5 [00007f1a2b3c4d5e] read(3", None, Some(Time::OfDay { us: 37_827_500_000 })),
        ("42 [   0] read(3", Some(42), None),
    ];
    for (line, tid, time) in cases {
        let found = head(line.as_bytes());
        assert_eq!((found.tid, found.time, found.body), (tid, time, &b"read(3"[..]), "{line}");
    }
}

#[test]
fn quotes_brackets_and_comments_in_arguments_are_parsed() {
    let text = br#"3</a, (b)\76>(deleted), "q\"), (", [{iov_base="x)", iov_len=2}, 4<TCP:[1.2.3.4:5->6.7.8.9:10]>], {a={b, c}} => {d}, 0x7f /* 6 " vars */) = 7</x>"#;
    let args = Args::parse(text).expect("well formed");
    assert_eq!(args.get(0), br"3</a, (b)\76>(deleted)");
    assert_eq!(args.get(1), br#""q\"), (""#);
    assert_eq!(args.get(3), b"{a={b, c}} => {d}");
    assert_eq!(args.get(5), b"");
    assert_eq!(outcome(args.result.expect("closed")), Some(Outcome::Done(7, b"7</x>")));
    for broken in [&b"\"abc"[..], b"3</x", b"]", b"\"\\", b"0x7 /* x"] {
        assert!(Args::parse(broken).is_none(), "{}", broken.escape_ascii());
    }
    assert_eq!(outcome(b" = -1 ENOENT (No such file)"), Some(Outcome::Failed));
    assert_eq!(outcome(b"     = ?"), Some(Outcome::Open));
    assert_eq!(
        outcome(b" = 0x7f00 (flags O_RDWR)"),
        Some(Outcome::Done(0x7f00, b"0x7f00 (flags O_RDWR)"))
    );
}

#[test]
fn strings_and_descriptors_are_decoded() {
    assert_eq!(
        string(br#""a\n\303\251\x41\0019\"\\""#).expect("a string"),
        &b"a\n\xc3\xa9A\x019\"\\"[..]
    );
    assert_eq!(string(br#""cut"..."#), None);
    let shown = |text: &'static str| {
        let Descriptor { number, shown } = descriptor(text.as_bytes()).expect("a descriptor");
        let shown = shown.map(|lead| match lead {
            Lead::Path(path, deleted) => (String::from_utf8_lossy(&path).into_owned(), deleted),
            Lead::Other => ("-".to_owned(), false),
        });
        (number, shown)
    };
    let path = |path: &str, deleted| Some((path.to_owned(), deleted));
    assert_eq!(shown("3"), (Some(3), None));
    assert_eq!(shown("3</a b>"), (Some(3), path("/a b", false)));
    assert_eq!(shown("3</a>(deleted)"), (Some(3), path("/a", true)));
    assert_eq!(shown("3</a (deleted)>"), (Some(3), path("/a", true)));
    assert_eq!(shown(r"3<\x2f\x61>"), (Some(3), path("/a", false)));
    assert_eq!(shown("AT_FDCWD</home>"), (None, path("/home", false)));
    for other in
        ["0</dev/null<char 1:3>>", "1<pipe:[7]>", "2<UNIX-STREAM:[1->2]>", "4</memfd:x>(deleted)"]
    {
        assert_eq!(shown(other).1, path("-", false), "{other}");
    }
    assert!(descriptor(b"99999999999").is_none());
}

#[test]
fn an_event_stands_where_its_call_ends() {
    let text = r#"1 100000000.000000 openat(AT_FDCWD, "/f", O_RDWR) = 3
1 100000000.000010 write(3, "a", 5 <unfinished ...>
2 100000000.000020 read(9, "", 1) = 0
1 100000000.000030 <... write resumed>) = 5
1 100000000.000040 read(3,  <unfinished ...>
2 100000000.000050 +++ exited with 0 +++
1 100000000.000060 <... read resumed> "b", 7) = 4
"#;
    let (events, _) = read_text(text);
    let (file, open) = (FileId(0), NonZeroU32::new(1).map(OpenId));
    assert_eq!(events[2].at_us, 30);
    assert_eq!(events[2].action, Action::Write { open, file, offset: 0, len: 5, sync: false });
    assert_eq!(
        (events[3].at_us, &events[3].action),
        (60, &Action::Read { open, file, offset: 5, len: 4 })
    );
}

#[test]
fn a_number_closed_and_used_again_while_calls_are_under_way() {
    let text = r#"1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2
1 openat(AT_FDCWD, "/f", O_RDONLY) = 3
1 read(3,  <unfinished ...>
2 close(3 <unfinished ...>
1 <... read resumed>"", 8) = 8
1 openat(AT_FDCWD, "/g", O_RDONLY) = 3
2 <... close resumed>) = 0
2 read(3, "", 4) = 4
"#;
    assert_eq!(accesses(text), [(false, 0, 0, 8), (false, 1, 0, 4)]);
    assert!(!read_text(text).1.contains("used again"));
}

/// Chromium starts its processes by `/proc/self/exe`. Their writes counted for a program `exe`, and
/// not for Chromium.
#[test]
fn a_program_that_runs_itself_again_keeps_its_name() {
    let text = r#"7 execve("/usr/bin/chromium", ["chromium"], 0x7f /* 1 var */) = 0
7 fork() = 8
8 execve("/proc/self/exe", ["/proc/self/exe", "--type=utility"], 0x7f /* 1 var */) = 0
8 openat(AT_FDCWD, "/f", O_WRONLY|O_CREAT, 0644) = 3
8 write(3, "a", 1) = 1
"#;
    let (events, _) = read_text(text);
    let names: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Process { name } => Some((event.pid, name.to_string())),
            _ => None,
        })
        .collect();
    assert_eq!(names, [(7, "chromium".to_owned()), (8, "chromium".to_owned())]);
}

#[test]
fn a_childs_lines_may_precede_its_parents_result() {
    let text = r#"7 openat(AT_FDCWD, "/f", O_RDONLY) = 3
7 vfork( <unfinished ...>
8 read(3, "", 10) = 10
8 execve("/bin/x", ["x"], 0x7f /* 1 var */) = 0
7 <... vfork resumed>) = 8
7 read(3, "", 10) = 10
"#;
    assert_eq!(accesses(text), [(false, 0, 0, 10), (false, 0, 10, 10)]);
    let (events, skipped) = read_text(text);
    let name = |event: &Event| matches!(&event.action, Action::Process { name } if &**name == "x" && event.pid == 8);
    assert!(events.iter().any(name));
    assert!(!skipped.contains("thread"), "{skipped}");
}

#[test]
fn an_unlink_may_end_after_its_name_was_created_again() {
    let text = r#"1 openat(AT_FDCWD, "/f", O_WRONLY|O_CREAT, 0600) = 3
1 close(3) = 0
1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2
1 unlink("/f" <unfinished ...>
2 openat(AT_FDCWD, "/f", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3
1 <... unlink resumed>) = 0
2 close(3) = 0
2 openat(AT_FDCWD, "/f", O_RDONLY) = 3
2 read(3, "", 4) = 4
"#;
    assert_eq!(accesses(text), [(false, 1, 0, 4)]);
    let (events, _) = read_text(text);
    let gone: Vec<_> =
        events.iter().filter(|event| matches!(event.action, Action::Gone { .. })).collect();
    assert_eq!(gone.len(), 1);
}

#[test]
fn an_exec_in_a_thread_goes_on_under_the_leader() {
    let text = r#"1 openat(AT_FDCWD, "/f", O_RDONLY) = 3
1 openat(AT_FDCWD, "/g", O_RDONLY|O_CLOEXEC) = 4
1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2
2 execve("/bin/x", ["x"], 0x7f <unfinished ...>
1 +++ superseded by execve in pid 2 +++
1 <... execve resumed>) = 0
1 read(3, "", 4) = 4
1 read(4, "", 4) = 4
"#;
    assert_eq!(accesses(text), [(false, 0, 0, 4)]);
    assert!(read_text(text).1.contains("1 × access to a descriptor opened before the trace"));
}

#[test]
fn the_target_shown_beside_a_descriptor_identifies_its_file() {
    let text = r#"1 read(5</d/old>, "", 10) = 10
1 lseek(5</d/old>, 0, SEEK_SET) = 0
1 read(5</d/old>, "", 10) = 10
1 pread64(5</d/other>, "", 10, 50) = 10
1 write(1</dev/pts/0<char 136:0>>, "", 10) = 10
1 recvmsg(6<socket:[1]>, {msg_control=[{cmsg_len=24, cmsg_level=SOL_SOCKET, cmsg_type=SCM_RIGHTS, cmsg_data=[7</d/r>, 8<pipe:[2]>]}]}, 0) = 2
1 pread64(7</d/r>, "", 10, 0) = 10
"#;
    assert_eq!(accesses(text), [(false, 0, 0, 10), (false, 1, 50, 10), (false, 2, 0, 10)]);
    let (_, skipped) = read_text(text);
    for part in [
        "1 × read at an offset from before",
        "1 × descriptor that leads elsewhere",
        "2 × pipe, socket",
    ] {
        assert!(skipped.contains(part), "{part}: {skipped}");
    }
}

/// The line that is named of several calls without an end was once any of them, in the order of a
/// hash map: two readings of one trace differed.
#[test]
fn the_first_call_without_an_end_is_named() {
    let begun = (1..=8).map(|tid| format!("{tid} 1.{tid} read(3</a>,  <unfinished ...>\n"));
    let text: String = begun.collect::<String>() + "9 2.0 read(3</a>, \"x\", 1) = 1\n";
    let skipped = read_text(&text).1;
    let first = "8 × call that the trace does not finish (first at 1); ";
    assert!(skipped.starts_with(first), "{skipped}");
}

/// Requests of libaio were once counted as invisible. The forms are those of strace 5, 4.10,
/// 4.8, and of `-X verbose`.
#[test]
fn requests_of_libaio_are_accesses() {
    let submit = [
        r#"[{aio_data=0, aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=9</d/t>, aio_buf="(].."..., aio_nbytes=16384, aio_offset=32768}, {aio_data=0x7, aio_key=2, aio_rw_flags=RWF_DSYNC, aio_lio_opcode=IOCB_CMD_PWRITEV, aio_reqprio=1, aio_fildes=9</d/t>, aio_buf=[{iov_base="a"..., iov_len=4096}, {iov_base="b", iov_len=512}], aio_offset=0, aio_flags=IOCB_FLAG_RESFD, aio_resfd=4}, {aio_data=0, aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=9</d/t>}, {aio_data=0, aio_lio_opcode=IOCB_CMD_PREAD, aio_fildes=9</d/t>, aio_buf=0x7f, aio_nbytes=512, aio_offset=0}, {aio_data=0, aio_lio_opcode=IOCB_CMD_PREAD, aio_fildes=9</d/t>, aio_buf=0x7f, aio_nbytes=7, aio_offset=0}]"#,
        r#"[{data=0, pwrite, fildes=9, str="a"..., nbytes=16384, offset=32768}, {data=0, pwritev, reqprio=1, fildes=9, iovec=[{"a"..., 4096}, {"b", 512}], offset=0}, {data=0, fdsync, fildes=9}, {data=0, pread, fildes=9, buf=0x7f, nbytes=512, offset=0}]"#,
        r#"{{data:0x1, pwrite, filedes:9, str:"a"..., nbytes:16384, offset:32768}, {key:1, pwritev, filedes:9, 0, [{"a"..., 4096}, {"b", 512}]}, {fdsync, filedes:9}, {pread, filedes:9, buf:0x7f, nbytes:512, offset:0}}"#,
        r#"[{aio_data=0, aio_lio_opcode=1, aio_fildes=9, aio_nbytes=16384, aio_offset=32768}, {aio_data=0, aio_lio_opcode=8 /* IOCB_CMD_PWRITEV */, aio_fildes=9, aio_buf=[{iov_base="a", iov_len=4608}], aio_offset=0}, {aio_data=0, aio_lio_opcode=3, aio_fildes=9}, {aio_data=0, aio_lio_opcode=0, aio_fildes=9, aio_nbytes=512, aio_offset=0}]"#,
    ];
    for requests in submit {
        let text = format!(
            "8 openat(AT_FDCWD, \"/d/t\", O_RDWR|O_DIRECT) = 9\n8 io_submit(0x7f, 5, {requests}) = \
             4\n8 io_getevents(0x7f, 1, 4, [{{data=0, obj=0x1, res=1, res2=0}}], NULL) = 1\n"
        );
        let (events, skipped) = read_text(&text);
        let found: Vec<_> = events
            .iter()
            .filter_map(|event| match event.action {
                Action::Direct { offset, len, write, .. } => Some((write, offset, len)),
                Action::Sync { data_only, .. } => Some((data_only, 0, 0)),
                _ => None,
            })
            .collect();
        let expected = [(true, 32768, 16384), (true, 0, 4608), (true, 0, 0), (false, 0, 512)];
        assert_eq!(found, expected, "{requests}");
        assert_eq!(skipped, "1 × system call that moves no file data (first at 3)", "{requests}");
    }
    let cut = "8 openat(AT_FDCWD, \"/d/t\", O_RDWR) = 9\n8 io_submit(0x7f, 2, [{pread, filedes:9, \
               buf:0x7f, nbytes:512, offset:0}]) = 2\n8 io_submit(0x7f, 1, 0x7ffd) = 1\n";
    assert_eq!(accesses(cut), [(false, 0, 0, 512)]);
    assert!(read_text(cut).1.contains("2 × libaio requests that strace did not print"));
}

/// The remark of strace 4 has no `strace: ` before it, and ends the line of the clone.
#[test]
fn a_remark_may_stand_within_a_clone() {
    for remark in [
        "strace: Process 502 attached\n",
        "Process 502 attached\n",
        "Process 502 attached (waiting for parent)\nProcess 502 resumed (parent 501 ready)\n",
    ] {
        for (rest, later) in [("", ""), (" <unfinished ...>\n", "[pid 501] <... clone resumed> ")] {
            let text = format!(
                "[pid 501] open(\"/f\", O_WRONLY|O_CREAT, 0644) = 3\n[pid 501] clone({remark}{rest}\
                 {later}child_stack=0, flags=CLONE_CHILD_SETTID|SIGCHLD) = 502\n[pid 502] write(3, \
                 \"a\", 10) = 10\n[pid 501] write(3, \"a\", 5) = 5\nProcess 502 detached\n"
            );
            assert_eq!(detect(text.as_bytes()), Confidence::Likely, "{text}");
            assert_eq!(accesses(&text), [(true, 0, 0, 10), (true, 0, 10, 5)], "{text}");
            assert!(!read_text(&text).1.contains("does not print"), "{text}");
        }
    }
}

/// `strace -f -o FILE -p PID` prints no remark of the threads, which share their descriptors.
#[test]
fn accesses_of_attached_threads_are_lost_with_a_hint() {
    let text = r#"1 1700000000.1 openat(AT_FDCWD, "/f", O_RDWR|O_CREAT|O_TRUNC, 0644) = 3
2 1700000000.2 write(3, "x", 10) = 10
2 1700000000.4 fsync(3) = 0
1 1700000000.5 read(3, "x", 40) = 10
"#;
    let (_, skipped) = read_text(text);
    let hint = "2 × access to a descriptor opened before the trace or by another thread: record \
                with strace -y, which names its file (first at 2); 1 × thread whose beginning is \
                not in the trace: taken for a process of own (first at 2)";
    assert_eq!(skipped, hint);
    let shown = text.replace("(3", "(3</f>");
    let found = [(true, 0, 0, 10), (false, 0, 0, 10)];
    assert_eq!(accesses(&shown), found);
}

/// `-e raw` prints every argument as a number, `-X raw` constants, and `-X verbose` both.
#[test]
fn numbers_stand_for_words() {
    let raw = r#"1 openat(0xffffff9c, 0x55d0, 0x442, 0x1a4) = 0x3
1 write(0x3, 0x55d0, 0x64) = 0x64
1 clone(0x1200011, 0, 0, 0x7f, 0) = 0x2
2 write(0x3, 0x55d0, 0x5) = 0x5
1 clone3(0x7ffe, 0x58) = 0x3
3 fcntl(0x3, 0x406, 0x14) = 0x14
1 pread64(0x14, 0x7ffe, 0x4, 0x2) = 0x4
1 pwritev2(0x14, 0x7ffe, 0x2, 0x64, 0, 0x2) = 0x8
1 fcntl(0x14, 0x4, 0) = 0
1 lseek(0x14, 0, 0) = 0
1 write(0x14, 0x55d0, 0x3) = 0x3
1 rename(0x55d0, 0x55d1) = 0
1 execve(0x55d0, 0x7ffe, 0x7ffe) = 0
"#;
    let found = [
        (true, 0, 0, 100),
        (true, 0, 100, 5),
        (false, 0, 2, 4),
        (true, 0, 105, 8),
        (true, 0, 0, 3),
    ];
    assert_eq!(accesses(raw), found);
    let (events, skipped) = read_text(raw);
    assert!(events.iter().any(|event| matches!(event.action, Action::Write { sync: true, .. })));
    assert_eq!(
        skipped,
        "3 × append to a file of unknown size: placed after the farthest byte known (first at 2); \
         1 × call with a path that strace did not print (-e raw) (first at 12); 1 × clone3 whose \
         flags strace did not print (-e raw): taken for a thread (first at 5); 1 × open with a \
         path that strace did not print (-e raw): a file of its own (first at 1)"
    );
    let words = r#"1 openat(-100, "/f", 0x80442 /* O_RDWR|O_CREAT|O_APPEND|O_CLOEXEC */, 0644) = 3
1 write(3, "a", 5) = 5
1 clone(child_stack=NULL, flags=0x1200000 /* CLONE_CHILD_SETTID */|17 /* SIGCHLD */) = 2
2 write(fd=3, buf="a", count=7) = 7
1 execve("/bin/x", ["x"], 0x7f) = 0
1 write(3, "a", 5) = 5
"#;
    assert_eq!(accesses(words), [(true, 0, 0, 5), (true, 0, 5, 7)]);
}

/// With `-ff`, a thread's `execve` begins in its own file and ends in that of the leader.
#[test]
fn an_exec_in_a_thread_goes_on_in_the_leaders_file() {
    let text = r#"1 openat(AT_FDCWD, "/f", O_RDONLY) = 3
1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2
2 execve("/bin/x", ["x"], 0x7f /* 3 vars */ <pid changed to 1 ...>
1 +++ superseded by execve in pid 2 +++
1 <... execve resumed>) = 0
1 read(3, "", 4) = 4
"#;
    assert_eq!(accesses(text), [(false, 0, 0, 4)]);
}

#[test]
fn absurd_numbers_are_damage_and_nothing_more() {
    let text = r#"1 openat(AT_FDCWD, "/f", O_RDWR) = 3
1 read(3, "", 18446744073709551615) = 18446744073709551615
1 pwrite64(3, "", 4096, 18446744073709551610) = 4096
1 pwrite64(3, "", 4096, 9223372036854775807) = 4096
1 pread64(3, "", 4294967296, 0) = 4294967296
1 dup2(3, 2147483647) = 2147483647
1 read(99999999999999999999, "", 1) = 1
99999999999999999999 read(3, "", 1) = 1
1 mmap(NULL, 18446744073709551615, PROT_READ, MAP_SHARED, 3, 0) = 0xffffffffffffffff
1 openat(AT_FDCWD, "cut"..., O_RDWR) = 4
1 read(((((((((((
1 read(3, "half
1 read(3, "", 1) = 1
"#;
    assert_eq!(accesses(text), [(false, 0, 0, 1)]);
}

#[test]
fn odd_beginnings_are_recognised() {
    let beginnings = [
        "execve(\"/bin/true\", [\"true\"], 0x7ffc /* 9 vars */) = 0\n",
        "42 <... read resumed>\"\", 10) = 10\n42 close(3) = 0\n",
        "42 1795169623.673253 --- SIGCHLD {si_signo=SIGCHLD} ---\n\
         42 1795169623.673254 close(3) = 0\n",
        "strace: Process 42 attached\n[pid 42] close(3) = 0\n",
        "strace: Process 42 attached with 3 threads\n[pid 42] restart_syscall(<... resuming \
         interrupted read ...>) = 0\n",
        "[ Process PID=42 runs in 32 bit mode. ]\nbrk(NULL) = 0x5640db1a3000\n",
        "10:30:27 exit_group(0) = ?\n",
        "read(0,  <unfinished ...>\n",
        "Process 42 attached\n[pid 42] 10:30:27.123456 futex(0x55, FUTEX_WAIT) = -1 EAGAIN \
         (Resource)\n",
    ];
    for text in beginnings {
        assert_eq!(detect(text.as_bytes()), Confidence::Likely, "{text}");
    }
    for text in [
        "",
        "main(void) = x\n",
        "1 0 open /data/data O_RDWR 3\n",
        "proces,device,rw_flag\n",
        "r 12\nw 13\n",
    ] {
        assert_eq!(detect(text.as_bytes()), Confidence::No, "{text}");
    }
}

#[test]
fn traces_of_other_kinds_are_left_to_their_readers() {
    for name in [
        "facebook.mobigen.xz",
        "weboffice.sectors.txt.xz",
        "pixel6a_slideshow.csv.gz",
        "cloudphysics.oracleGeneral.bin.zst",
        "readahead-6.18.txt",
        "sql/facebook.statements.sql.xz",
    ] {
        if let Some(text) = testing::shared(name) {
            assert_eq!(
                detect(&text[..text.len().min(super::super::HEAD_BYTES)]),
                Confidence::No,
                "{name}"
            );
        }
    }
}

#[test]
fn times_of_day_go_past_midnight_and_relative_ones_add_up() {
    let at = |text: &str| read_text(text).0.iter().map(|event| event.at_us).collect::<Vec<_>>();
    let day =
        "23:59:59.9 openat(AT_FDCWD, \"/f\", O_RDONLY) = 3\n00:00:00.1 read(3, \"\", 1) = 1\n";
    assert_eq!(at(day), [0, 0, 200_000]);
    let relative = "     0.000000 openat(AT_FDCWD, \"/f\", O_RDONLY) = 3\n     0.000100 sync() = 0\n     0.000100 sync() = 0\n";
    assert_eq!(at(relative), [0, 0, 100, 200]);
}

#[test]
fn a_trace_with_dates_has_an_epoch() {
    let epoch_us = |text: &str| {
        let (_, summary) = testing::read(&SPEC, text.as_bytes()).unwrap();
        summary.about.expect("the trace is described").epoch_us
    };
    assert_eq!(epoch_us(SAMPLE), Some(1_795_169_623_673_253));
    for text in ["10:30:27 sync() = 0\n", "     0.000100 sync() = 0\n", "sync() = 0\n"] {
        assert_eq!(epoch_us(text), None, "{text}");
    }
}

/// The calls of the sample: a file whose mode the umask restricts, a link, and a directory that
/// moves.
#[test]
fn the_sample_has_a_creation_a_link_and_a_directory_that_moves() {
    let lines: Vec<_> = read_text(SAMPLE)
        .0
        .iter()
        .filter_map(|event| match &event.action {
            Action::Create(create) => Some(format!("create {} {:?}", create.name, create.mode)),
            Action::Link { name, .. } => Some(format!("link {name}")),
            Action::RenameDirectory { names } => {
                Some(format!("rename {} {}", names.from, names.to))
            }
            _ => None,
        })
        .collect();
    let mode = Some(0o644u32);
    assert_eq!(
        lines,
        [
            format!("create /home/me/dir/new {mode:?}"),
            "link /home/me/dir/other".to_owned(),
            "rename /home/me/dir /home/me/elsewhere".to_owned(),
        ]
    );
}

proptest! {
    #[test]
    fn any_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        detect(&bytes);
        testing::read(&SPEC, &bytes).expect("damage is no error");
    }

    /// Lines made from pieces of real lines, in any order.
    #[test]
    fn lines_of_any_pieces_do_not_panic(pieces in proptest::collection::vec(0..PIECES.len(), 0..120)) {
        let text: String = pieces.into_iter().map(|n| PIECES[n]).collect();
        detect(text.as_bytes());
        testing::read(&SPEC, text.as_bytes()).expect("damage is no error");
    }

    /// The sample with some bytes changed, lost or duplicated.
    #[test]
    fn a_damaged_sample_does_not_panic(changes in proptest::collection::vec((0..SAMPLE.len(), any::<u8>(), 0..3), 1..20)) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at.min(bytes.len() - 1);
            match how {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => bytes.insert(at, byte),
            }
        }
        detect(&bytes);
        testing::read(&SPEC, &bytes).expect("damage is no error");
    }
}

const PIECES: [&str; 50] = [
    "io_submit(0x7f, 2, [{aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=3, aio_nbytes=9, aio_offset=",
    "0x3",
    "-100",
    "{pread, filedes:3, 0, [{\"\", 3}",
    "}, ",
    "Process 3 attached\n",
    "\n",
    "\n",
    "\n",
    "1 ",
    "2 ",
    "[pid 3] ",
    "99 ",
    "1795169623.673253 ",
    "10:30:27 ",
    "0.5 ",
    "read(",
    "write(",
    "openat(",
    "close(",
    "clone(",
    "vfork(",
    "execve(",
    "rename(",
    "unlink(",
    "mmap(",
    "dup2(",
    "lseek(",
    "sendfile(",
    "3",
    "4</a>",
    "</a>(deleted)",
    "AT_FDCWD</>",
    "\"/a\"",
    "\"b/../c\"",
    ", ",
    ", ",
    ") = 3",
    ") = 4</a>",
    ") = -1 E",
    ") = ?",
    " <unfinished ...>",
    "<... read resumed>",
    "<... close resumed>",
    "+++ exited with 0 +++",
    "+++ superseded by execve in pid 2 +++",
    "strace: Process 3 attached",
    "O_RDWR|O_CREAT|O_APPEND",
    "18446744073709551615",
    "CLONE_FILES|CLONE_VM",
];
