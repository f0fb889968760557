//! Names that would drive a terminal: of files, of programs, and of traces.

use super::{assert_inert, cells, flashsift, run};
use std::fs;
use tempfile::tempdir;

/// Sets the title, clears the screen, turns the order around, and goes on in another line.
const FILE: &str = "/data/cache/a\u{1b}]0;T\u{7}\u{1b}[2J\u{202e}\u{9b}31m\u{7f}b";
const PROGRAM: &str = "p\u{1b}[31m\u{200b}";
const COLUMNS: &str = "time=1,file=2,op=3,offset=4,len=5,pid=6,process=7,unit=ms";

/// `explain` and others printed the names of a trace as they are, so the name of a file could drive
/// the terminal of the person, often root, who looks at a trace. No command does so; JSON and
/// CSV keep the exact names.
// Promises: Command line 10.
#[test]
fn no_name_drives_a_terminal() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let csv = path("trace\u{1b}[2J\u{202e}.csv");
    let mut lines = String::new();
    for n in 0..400 {
        let (file, program) = (format!("{FILE}{}", n % 20), format!("{PROGRAM}{}", n % 3));
        if n < 20 {
            lines += &format!("{n},{file},create,0,0,100,{program}\n");
        }
        lines += &format!("{n},{file},w,{},65536,{},{program}\n", n % 7 * 65536, 100 + n % 3);
        lines += &format!("{n},{file},r,{},9000,{},{program}\n", n % 5 * 65536, 100 + n % 3);
        if n % 50 == 49 {
            lines += &format!("{n},{file},unlink,0,0,100,{program}\n");
        }
    }
    lines += &format!("x\u{1b}[2J,{FILE},r,0,1,1,{PROGRAM}\n");
    fs::write(&csv, lines).unwrap();
    let stored = path("stored\u{1b}[2J\u{202e}.parquet");
    let page = path("page.html");
    let before = path("before\u{1b}[2J.json");
    let one = ["--policy", "lru", "--memory", "1MiB"];
    let compare = [&["compare", &stored], &one[..]].concat();
    let absent = path("absent\u{1b}[2J\u{202e}");
    let with = |words: &[&'static str]| words.to_vec();
    let imports = ["import", &csv, "--columns", COLUMNS, "-o", &stored];
    run(&imports);
    let saved = run(&[&compare[..], &["--json"]].concat()).stdout;
    fs::write(&before, saved).unwrap();
    fs::remove_file(&stored).unwrap();
    let sift = ["--sift", "drop-all,keep", "--droppable", "*/cache/*", "--memory", "2MiB"];
    let commands: Vec<(Vec<&str>, bool)> = vec![
        (imports.to_vec(), false),
        (vec!["describe", &stored, "--report", &page], true),
        (vec!["describe", &stored, "--readahead", "linux"], true),
        ([&["describe", &stored][..], &sift].concat(), true),
        ([&["compare", &stored][..], &sift, &["--explain", "*"]].concat(), true),
        (compare.clone(), false),
        ([&compare[..], &["--writeback", "linux", "--device", "ufs-3.1"]].concat(), false),
        (vec!["recommend", &stored, "--memory", "1MiB"], false),
        (vec!["tune", "readahead", &stored, "--memory", "1MiB"], true),
        (vec!["diff", &before, &before], false),
        (vec!["describe", &absent], false),
        (vec!["describe", &csv], false),
        ([&["describe"][..], &[&absent, &absent]].concat(), false),
        ([&with(&["compare", "--policy"])[..], &[&absent, &stored]].concat(), false),
    ];
    for (words, shows) in commands {
        let output = flashsift().env("COLUMNS", "400").args(&words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_inert(&format!("{words:?}"), &output.stdout);
        assert_inert(&format!("{words:?} (messages)"), &output.stderr);
        if shows {
            let says = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{words:?}: {says}");
            // Names are longer than some columns, which cut them in the middle.
            assert!(text.contains("\\x7Fb") || text.contains("Fb1"), "{words:?}: {text}");
        } else {
            assert!(!(text.is_empty() && output.stderr.is_empty()), "{words:?} prints nothing");
        }
    }
    assert_inert("the page", &fs::read(&page).unwrap());
    let described = &cells(&["describe", &stored])[0];
    let names = described["top_files"]["written"].as_array().unwrap();
    assert!(names.iter().all(|row| row["name"].as_str().unwrap().starts_with(FILE)), "{names:?}");
    let exact = path("exact.csv");
    run(&["import", &stored, "-o", &exact]);
    let exact = fs::read_to_string(exact).unwrap();
    assert!(exact.contains(FILE) && exact.contains(PROGRAM));
    // The same names in a page of a comparison.
    run(&[&compare[..], &["--report", &page]].concat());
    assert_inert("the page of compare", &fs::read(&page).unwrap());
}
