//! `describe --sift`, and the page of `compare --sift`.

use super::{cells, flashsift, number, repository, run};
use flashsift_testbed::ended;
use serde_json::Value;
use std::{fmt::Write, path::Path};

fn advice(trace: &str, more: &[&str]) -> Value {
    let mut found = cells(&[&["describe", trace], more].concat());
    assert_eq!(found.len(), 1);
    found.remove(0)["sift"].take()
}

fn rows<'a>(advice: &'a Value, table: &str) -> &'a [Value] {
    advice[table].as_array().unwrap_or_else(|| panic!("no {table} in {advice}"))
}

fn row<'a>(advice: &'a Value, table: &str, name: &str) -> &'a Value {
    let mut named = rows(advice, table).iter().filter(|row| row["name"] == name);
    named.next().unwrap_or_else(|| panic!("no {name} in {table}"))
}

fn share(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("no {field} in {row}"))
}

/// A share in the first half of the slices, and in the second.
fn halves(row: &Value, part: &str) -> [f64; 2] {
    ["first", "second"].map(|half| share(row, &format!("{part}_{half}_half_share")))
}

/// Ten hours of an application. Each minute it writes 64 KiB to a file of its cache, which it never
/// reads, and to a file of `images`, which it reads again an hour later.
fn application(directory: &Path) -> String {
    let mut lines = Vec::new();
    let hour = 60;
    for minute in 0..10 * hour {
        let mut say = |at: u64, path: &str, n: u64, open: &str, call: &str| {
            let path = format!("/data/app/{path}/{n}");
            let at = 1_795_169_000 + at;
            let mut line = String::new();
            let _ =
                writeln!(line, "100 {at}.000000 openat(AT_FDCWD, \"{path}\", {open}) = 5<{path}>");
            let _ = writeln!(line, "100 {at}.000001 {call}(5<{path}>, \"\"..., 65536) = 65536");
            let _ = writeln!(line, "100 {at}.000002 close(5<{path}>) = 0");
            lines.push((at, line));
        };
        let new = "O_RDWR|O_CREAT|O_EXCL, 0600";
        say(60 * minute, "cache", minute, new, "write");
        say(60 * minute + 1, "images", minute, new, "write");
        if minute < 9 * hour {
            say(60 * (minute + hour) + 2, "images", minute, "O_RDONLY", "read");
        }
    }
    lines.sort();
    let path = directory.join("app.strace");
    std::fs::write(&path, lines.into_iter().map(|(_, line)| line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns a text without its line breaks, which depend on the words before.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Files that are never read are dropped at no price. The other directory is named, with the
/// pattern that makes its files droppable; dropping these costs more than allowed.
// Promises: Sift 13, Sift 14.
#[test]
fn what_is_planted_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let trace = application(folder.path());
    let memory = ["--memory", "4MiB"];
    let caches = advice(&trace, &[&["--sift"], &memory[..]].concat());
    let cache = row(&caches, "droppable", "/data/app/cache");
    assert_eq!((number(cache, "files"), number(cache, "flash_bytes")), (600, 600 << 16));
    assert_eq!((number(cache, "written_bytes"), number(cache, "read_again_files")), (600 << 16, 0));
    assert_eq!(cache.get("pause_us_median"), None);
    let images = row(&caches, "candidates", "/data/app/images");
    assert_eq!(images["pattern"], "/data/app/images/*");
    assert_eq!((number(images, "files"), number(images, "read_again_files")), (600, 540));
    assert_eq!(number(images, "pause_us_median") / 1_000_000, 3601);
    let best = row(&caches, "sifters", caches["recommended"].as_str().unwrap());
    // RAM holds 2 MiB at the end.
    let kept = 1.0 - 32.0 / 600.0;
    assert!((share(best, "kept_share") - kept).abs() < 0.01, "{best}");
    let [first, second] = halves(best, "kept");
    assert!(first.min(second) > 0.5 && halves(best, "fetched_again") == [0.0, 0.0], "{best}");
    assert_eq!(share(row(&caches, "sifters", "oracle"), "fetched_again_share"), 0.0);
    let text = String::from_utf8(run(&["describe", &trace, "--sift"]).stdout).unwrap();
    assert!(on_one_line(&text).contains("Use the sifter"), "{text}");
    let command = caches["command"].as_str().unwrap();
    assert!(command.starts_with("flashsift compare ") && !command.contains("mount"), "{command}");

    let pattern = images["pattern"].as_str().unwrap();
    let droppable = ["--sift", "drop-all,oracle", "--droppable", pattern];
    let images = advice(&trace, &[&droppable, &memory[..]].concat());
    assert_eq!(row(&images, "droppable", "/data/app/images")["files"], 600);
    assert_eq!(row(&images, "candidates", "/data/app/cache")["pattern"], "/data/app/cache/*");
    let all = row(&images, "sifters", "drop-all");
    assert!((share(all, "fetched_again_share") - 0.9).abs() < 0.01, "{all}");
    assert_eq!(images.get("recommended"), None);
    let text =
        String::from_utf8(run(&[&["describe", &trace][..], &droppable, &memory].concat()).stdout);
    assert!(on_one_line(&text.unwrap()).contains("No sifter is worth it here"));
    // A limit that admits the price recommends it.
    let [first, second] = halves(all, "fetched_again");
    let high = format!("{}%", 100.0 * first.max(second) + 0.001);
    let admitted = [&droppable[..], &memory, &["--fetch-again", &high]].concat();
    let admitted = advice(&trace, &admitted);
    assert_eq!(admitted["recommended"], "drop-all", "{high}");
}

/// The figures are those of `compare --sift`; the directories add up to them; and the sifter to use
/// keeps the most among those that both halves confirm. The command that is named can be run.
// Promises: Sift 12, Sift 14.
#[test]
fn figures_are_those_of_compare() {
    for (trace, more) in [
        ("testdata/browser.parquet", &["--memory", "32MiB"][..]),
        ("testdata/map.parquet", &["--memory", "16MiB", "--droppable", "*/tiles/*"]),
        ("testdata/days/browser-days-1.parquet", &["--memory", "64MiB", "--sift-memory", "25%"]),
    ] {
        let trace = repository(trace);
        let found = advice(&trace, &[&["--sift", "--top", "1000000"], more].concat());
        let names: Vec<&str> =
            rows(&found, "sifters").iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"oracle") && !names.contains(&"none"), "{names:?}");
        let compared = cells(&[&["compare", &trace, "--sift", &names.join(",")], more].concat());
        assert_eq!(compared.len(), names.len() + 1);
        for cell in &compared[1..] {
            let row = row(&found, "sifters", cell["sifter"].as_str().unwrap());
            for field in
                ["flash_bytes", "fetched_again_bytes", "dropped_files", "other_flash_bytes"]
            {
                assert_eq!(row[field], cell[field], "{trace}: {field}");
            }
            for field in ["kept_share", "fetched_again_share"] {
                let (one, other) = (share(row, field), share(cell, field));
                assert!((one - other).abs() < 1e-6, "{trace}: {field}: {one} and {other}");
            }
            for part in ["kept", "fetched_again"] {
                let ([one, other], whole) =
                    (halves(row, part), share(row, &format!("{part}_share")));
                let between = one.min(other) - 1e-6..=one.max(other) + 1e-6;
                assert!(between.contains(&whole), "{trace}: {row}");
            }
        }
        let bytes = |table: &str, field: &str| -> u64 {
            rows(&found, table).iter().map(|row| number(row, field)).sum()
        };
        assert_eq!(
            bytes("droppable", "flash_bytes"),
            number(&compared[0], "stock_bytes"),
            "{trace}"
        );
        assert_eq!(bytes("droppable", "files"), number(&found, "droppable_files"), "{trace}");
        let worth = rows(&found, "sifters").iter().filter(|row| {
            let online = compared
                .iter()
                .any(|cell| cell["sifter"] == row["name"] && cell["offline"] == false);
            online
                && number(row, "slices") >= 10
                && number(row, "slices_changed") >= 10
                && number(row, "slices_won") * 10 >= number(row, "slices_changed") * 9
                && halves(row, "kept").iter().all(|kept| *kept >= 0.01)
                && halves(row, "fetched_again").iter().all(|again| *again <= 0.05)
        });
        let most = worth.map(|row| share(row, "kept_share")).max_by(f64::total_cmp);
        let chosen = found["recommended"].as_str().map(|name| row(&found, "sifters", name));
        assert_eq!(chosen.map(|row| share(row, "kept_share")), most, "{trace}");
        let command = shlex::split(found["command"].as_str().unwrap()).unwrap();
        let words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
        let shown = cells(&words);
        let last = shown.last().unwrap();
        let row = row(&found, "sifters", last["sifter"].as_str().unwrap());
        assert_eq!(row["flash_bytes"], last["flash_bytes"], "{command:?}");
    }
}

#[test]
fn what_cannot_be_sifted_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let few = folder.path().join("few.txt");
    std::fs::write(&few, "r 8\nw 16\nr 8\n".repeat(20)).unwrap();
    let few = few.to_str().unwrap();
    let (feed, browser) =
        (repository("testdata/feed.parquet"), repository("testdata/browser.parquet"));
    for (args, says) in [
        (&[&*feed, "--sift"][..], "creates no file that may be dropped"),
        (&[&*feed, "--sift"], "Most data goes to files of '"),
        (&[few, "--sift"], "this trace is not of files"),
        (&[&*browser, "--sift", "drop"], "no sifter is called `drop`"),
        (&[&*browser, "--sift", "cachesifter:model=/nowhere"], "/nowhere"),
        (&[&*browser, "--sift", "--fetch-again", "5"], "not a share in percent"),
        (&[&*browser, "--sift", "--fetch-again", "x%"], "not a share in percent"),
        (&[&*browser, "--sift", "--sift-memory", "100%"], "less than 100%"),
        (&[&*browser, "--droppable", "*"], "--sift"),
        (&[&*browser, "--fetch-again", "3%"], "--sift"),
    ] {
        let output = flashsift().arg("describe").args(args).output().unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {:?}", output.status);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(says), "{args:?}: {error}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    // The message is that of compare.
    let says = |command: &str, trace: &str, more: &[&str]| {
        let output = flashsift().args([command, trace]).args(more).output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        says.lines().filter(|line| line.starts_with("flashsift: ")).collect::<String>()
    };
    for trace in [few, &feed] {
        let compared = says("compare", trace, &["--sift", "all"]);
        let described = says("describe", trace, &["--sift"]);
        assert!(!compared.is_empty() && described.starts_with(&compared), "{described}");
    }
}

/// Returns the last time of the figure over time, microseconds.
fn compared_end(page: &str) -> u64 {
    let figure = page.split_once("id=\"sift-over-time\"").unwrap().1;
    let data = figure.split_once("type=\"application/json\">").unwrap().1;
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let times = data["rows"].as_array().unwrap().iter().filter_map(|row| row[3].as_u64());
    times.max().unwrap()
}

/// The page has the section of the description, and `compare --sift` has a page of its own, with
/// the numbers of `--json`.
// Promises: Sift 15.
#[test]
fn sifters_have_pages() {
    let folder = tempfile::tempdir().unwrap();
    let browser = repository("testdata/browser.parquet");
    let page = folder.path().join("page.html");
    let report = ["--report", page.to_str().unwrap()];
    run(&[&["describe", &browser, "--sift"][..], &report].concat());
    let described = std::fs::read_to_string(&page).unwrap();
    for part in ["id=\"sift\"", "id=\"sift-kept\"", "id=\"sift-sifters\"", "flashsift compare"] {
        assert!(described.contains(part), "{part}");
    }
    let sifters = ["compare", &browser, "--sift", "drop-all,touch", "--memory", "16MiB,32MiB"];
    let shown = cells(&[&sifters[..], &report].concat());
    let compared = std::fs::read_to_string(&page).unwrap();
    for part in ["sift-frontier", "sift-flash", "sift-over-time", "table-0", "table-1"] {
        assert!(compared.contains(&format!("id=\"{part}\"")), "{part}");
    }
    for cell in &shown {
        let sifter = cell["sifter"].as_str().unwrap();
        for (part, field) in
            [("droppable files", "flash_bytes"), ("other files", "other_flash_bytes")]
        {
            let bar = format!("\"{part}\",{},\"{sifter}\"]", number(cell, field));
            assert!(compared.contains(&bar), "{bar}");
        }
        // The last point of a line over time.
        let end = format!("\"{sifter}\",{}", compared_end(&compared));
        for field in ["flash_bytes", "fetched_again_bytes"] {
            let point = format!("{end},{}]", number(cell, field));
            assert!(compared.contains(&point), "{point}");
        }
    }
    // The upper bound has a point on the frontier and a row in the table.
    let with_oracle = ["compare", &browser, "--sift", "touch,oracle", "--memory", "16MiB"];
    let shown = cells(&[&with_oracle[..], &report].concat());
    let page = std::fs::read_to_string(&page).unwrap();
    let most = shown.iter().find_map(|cell| cell["kept_share_max"].as_f64()).unwrap();
    let point = format!("\"upper bound\",0,{most}]");
    assert!(page.contains(&point), "{point}");
    assert!(page.contains("<th scope=\"row\">upper bound (offline)<"));
    let nowhere = ["--report", "/nowhere/page.html"];
    let (_, error) = ended(flashsift().args(sifters).args(nowhere), 1);
    assert!(error.contains("cannot write the report"), "{error}");
}
