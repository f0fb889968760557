//! Records a program with known accesses on a real kernel.

use crate::common::{Lives, ToTheEnd, built, lives, mounted, pages, recorded};
use flashsift_record::{Options, Subject, record};
use flashsift_traces::events::Kept;
use std::{collections::BTreeMap, process::Command};

/// The accesses that `accesses` reports for each file, under the file's first name. `exact`
/// includes those that only system calls show.
fn expected(output: &str, exact: bool) -> Lives {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut lives = Lives::new();
    for line in output.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let (name, text) = match words[..] {
            ["created", name] => {
                first.insert(name.to_owned(), name.to_owned());
                lives.insert(name.to_owned(), vec!["created".to_owned()]);
                continue;
            }
            ["map", how, name, page] => {
                (name, format!("{how} {} 4096", page.parse::<u64>().unwrap() * 4096))
            }
            ["direct", how, name, offset, len] => (name, format!("direct {how} {offset} {len}")),
            // Tracepoints do not report that a file grows.
            ["grown", name, size] if exact => (name, format!("truncate {size}")),
            ["grown", ..] => continue,
            // Tracepoints do not distinguish a write with O_SYNC from a write followed by fsync.
            ["write", name, offset, len, "sync"] if !exact => {
                let name = first[name].clone();
                let life = lives.get_mut(&name).unwrap();
                life.extend([format!("write {offset} {len}"), "sync".to_owned()]);
                continue;
            }
            ["rename", from, to] => {
                let name = first.remove(from).unwrap();
                first.insert(to.to_owned(), name);
                (to, line.to_owned())
            }
            ["link", from, to] => {
                first.insert(to.to_owned(), first[from].clone());
                (to, format!("link {to}"))
            }
            ["unlink", name] => (name, format!("unlink {name}")),
            // Another file gets its name.
            ["replaced", name] => (name, format!("unlink {name}")),
            [what, name, ..] => {
                let rest = words[2..].join(" ");
                (name, if rest.is_empty() { what.to_owned() } else { format!("{what} {rest}") })
            }
            _ => panic!("{line}"),
        };
        lives.get_mut(&first[name]).unwrap().push(text);
    }
    lives
}

fn recorded_and_expected(exact: bool) -> Option<(Lives, Lives, String)> {
    let ext4 = mounted("ext4")?;
    let folder = ext4.directory("here");
    let program = built("accesses", &ext4.point());
    let output = ext4.point().join("expected");
    // The shell opens the file for the program's output, so that no pipe must be emptied meanwhile.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$1\" > \"$2\""]).arg(program).arg(&folder).arg(&output);
    let (events, result) = recorded(command, &folder, exact);
    assert!(result.status.unwrap().success());
    let output = std::fs::read_to_string(&output).unwrap();
    Some((lives(&events, &folder), expected(&output, exact), result.summary.skipped.to_string()))
}

// Promises: Record 1, Record 2, Record 3, Record 5.
#[test]
fn with_system_calls_every_access_is_exact_to_the_byte() {
    let Some((got, expected, notes)) = recorded_and_expected(true) else {
        return;
    };
    assert_eq!(got, expected, "{notes}");
}

// Promises: Record 1, Record 2, Record 5.
#[test]
fn without_them_reads_are_exact_to_the_page_and_all_else_to_the_byte() {
    let Some((got, expected, notes)) = recorded_and_expected(false) else {
        return;
    };
    let but_reads = |lives: &Lives| -> Lives {
        let keep = |lines: &Vec<String>| {
            lines.iter().filter(|line| !line.starts_with("read ")).cloned().collect()
        };
        lives.iter().map(|(name, lines)| (name.clone(), keep(lines))).collect()
    };
    assert_eq!(but_reads(&got), but_reads(&expected), "{notes}");
    assert_eq!(pages(&got), pages(&expected), "{notes}");
}

/// With one processor, the recorder recorded its own reads: `--exact` followed the thread that
/// started the program, which was the recorder's, and each read caused the records of the next. The
/// recording never ended, until the memory was full. On two processors it ended, but of `cat` alone
/// 47,648 records were lost.
// Promises: Record 10.
#[test]
fn a_recorder_on_the_programs_processor_does_not_record_itself() {
    let Some(ext4) = mounted("ext4") else { return };
    let folder = ext4.directory("one");
    std::fs::write(folder.join("file"), vec![1; 10_000]).unwrap();
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    let mut kept = Kept::default();
    let mut cat = Command::new("cat");
    cat.arg(folder.join("file")).stdout(std::process::Stdio::null());
    // A buffer of this size holds the accesses of `cat` and nothing else.
    let options = Options { under: Some(folder.clone()), exact: true, buffer_kib: 256 };
    let recorded = record(Subject::Command(cat), &options, &mut kept, &mut ToTheEnd).unwrap();
    assert_eq!((recorded.lost.by_cpu, recorded.lost.faults_by_cpu), (vec![], vec![]));
    assert_eq!(pages(&lives(&kept.events, &folder))["file"], [0, 1, 2]);
}
