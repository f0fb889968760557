//! What a recording of hours has to keep to: nothing grows with what is gone, nothing waits for what may never come.

use super::{
    super::{Dev, Handle, Inode, Name, NameKind, Point, What},
    Machine, NoHost,
};
use flashsift_core::event::{Action, Event};

const DIR: u64 = 2;

fn inode(ino: u64) -> Inode {
    Inode { dev: Dev::new(8, 1), ino }
}

fn name(at_ns: u64, ino: u64, generation: u32, path: &str, kind: NameKind) -> Name {
    let handle = Handle { inode: inode(ino), generation };
    Name { at_ns, tid: 7, handle, dir: DIR, path: path.into(), directory: false, kind }
}

fn tell(machine: &mut Machine, at_ns: u64, what: What) {
    machine.point(&Point { at_ns, tid: 7, what }, &mut NoHost);
}

/// A millisecond of a file: made, written, and gone, with a name or without one.
fn life(machine: &mut Machine, n: u64, named: bool) {
    let (ino, start_ns) = (100 + n % 10, n * 1_000_000);
    let (path, generation) = (format!("/tmp/{n}"), n as u32);
    tell(machine, start_ns, What::Allocated { inode: inode(ino), dir: Some(DIR), mode: Some(0o100_644) });
    if named {
        machine.name(name(start_ns + 1000, ino, generation, &path, NameKind::Created));
    }
    tell(machine, start_ns + 2000, What::WriteBegin { inode: inode(ino), offset: 0, len: 10 });
    tell(machine, start_ns + 3000, What::WriteEnd { inode: inode(ino), offset: 0, copied: 10 });
    if named {
        machine.name(name(start_ns + 4000, ino, generation, &path, NameKind::Deleted));
        tell(machine, start_ns + 5000, What::Unlink { inode: inode(ino), dir: Some(DIR) });
    }
    tell(machine, start_ns + 6000, What::Evicted { inode: inode(ino), links: 0 });
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    for named in [true, false] {
        let mut machine = Machine::new(false);
        // All of the state, as it prints itself.
        let state = |machine: &Machine| format!("{machine:?}").len();
        let mut after = |lives: std::ops::Range<u64>| {
            for n in lives {
                life(&mut machine, n, named);
                assert!(machine.drain().any(|event| matches!(event.action, Action::Gone { .. })), "life {n}");
            }
            state(&machine)
        };
        // What is gone stays known for two seconds, 2000 lives, and a few thousand points.
        let once = after(0..65_536);
        let twice = after(65_536..131_072);
        assert!(twice < once * 5 / 4, "{once} and then {twice}, named: {named}");
    }
}

#[test]
fn a_name_moves_though_nothing_else_happens() {
    let mut machine = Machine::new(false);
    machine.name(name(0, 100, 1, "/tmp/0", NameKind::Found { size: 10 }));
    tell(&mut machine, 10, What::Pages { inode: inode(100), first: 0, last: 0 });
    machine.drain();
    for n in 1..=1000 {
        let from = format!("/tmp/{}", n - 1).into();
        machine.name(name(n * 100, 100, 1, &format!("/tmp/{n}"), NameKind::Moved { from_dir: DIR, from }));
    }
    machine.passed(50_000);
    let moves = |machine: &mut Machine| -> Vec<String> {
        let to = |event: Event| match event.action {
            Action::Rename { names, .. } => names.to.to_string(),
            other => panic!("{other:?}"),
        };
        machine.drain().map(to).collect()
    };
    let expected =
        |range: std::ops::RangeInclusive<u32>| -> Vec<_> { range.map(|n| format!("/tmp/{n}")).collect() };
    assert_eq!(moves(&mut machine), expected(1..=500));
    machine.finish();
    assert_eq!(moves(&mut machine), expected(501..=1000));
}

/// Chromium and others start their own program again by this name.
#[test]
fn a_program_that_runs_itself_keeps_its_name() {
    let mut machine = Machine::new(false);
    machine.found_task(7, 7, "browser");
    tell(&mut machine, 1, What::NewTask { tid: 8, flags: 0, name: "browser".into() });
    machine.point(
        &Point { at_ns: 2, tid: 8, what: What::Exec { program: "/proc/self/exe".into(), old_tid: 8 } },
        &mut NoHost,
    );
    machine.point(
        &Point { at_ns: 3, tid: 8, what: What::Pages { inode: inode(100), first: 0, last: 0 } },
        &mut NoHost,
    );
    let names = machine.drain().filter_map(|event| match event.action {
        Action::Process { name } => Some((event.pid, name)),
        _ => None,
    });
    assert_eq!(names.collect::<Vec<_>>(), [(8, "browser".into())]);
}
