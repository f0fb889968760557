//! Modelled devices, from the command line to the figures.

use super::{cells, flashsift, number, repository, run, shared};
use flashsift_testbed::ended;
use serde_json::Value;
use std::fs;
use tempfile::tempdir;

const NAMES: [&str; 9] = [
    "microsd-2012",
    "emmc1-2012",
    "emmc2-2012",
    "emmc-5.1",
    "ufs-2.1",
    "ufs-3.1",
    "ufs-4.0",
    "hdd-2012",
    "latency-100-800",
];

fn float(cell: &Value, field: &str) -> f64 {
    cell[field].as_f64().unwrap_or_else(|| panic!("no {field} in {cell}"))
}

fn text(args: &[&str]) -> String {
    String::from_utf8(run(args).stdout).unwrap()
}

/// Every column of every device is filled, counts equal those without devices, and the device of
/// constant times agrees with the cost model.
fn every_column(trace: &str, args: &[&str]) {
    let args = [&["compare", trace, "--drain"], args].concat();
    let plain = cells(&args);
    let on = cells(&[&args[..], &["--device", "all"]].concat());
    assert_eq!(on.len(), plain.len() * NAMES.len());
    for (cell, on) in plain.iter().zip(on.chunks(NAMES.len())) {
        for (name, on) in NAMES.iter().zip(on) {
            assert_eq!(on["device"].as_str(), Some(*name));
            for field in [
                "policy",
                "frames",
                "hits",
                "device_reads",
                "device_writes",
                "nonsequential_writes",
            ] {
                assert_eq!(on[field], cell[field], "{name}");
            }
            assert!(float(on, "elapsed_s") > 0.0 && float(on, "stall_s") > 0.0, "{on}");
            // A short run does not show the write amplification of each device.
            let shown = match on["write_amplification"].as_f64() {
                Some(amplification) => amplification >= 1.0,
                None => on["write_amplification_reason"].is_string(),
            };
            assert!(shown, "{on}");
            let is_flash = !["hdd-2012", "latency-100-800"].contains(name);
            let flash = is_flash && on["write_amplification"].is_f64();
            assert_eq!(on.get("lifetime_gain").is_some(), flash, "{on}");
            assert!(float(on, "gb_per_day") > 0.0, "{on}");
            // There are years, or the value that they lack.
            let reason = on["lifetime_reason"].as_str();
            assert_eq!(on.get("lifetime").is_some(), reason.is_none(), "{on}");
            if !is_flash || *name == "microsd-2012" {
                assert!(reason.unwrap().starts_with("no endurance figure"), "{on}");
            } else if flash {
                assert_eq!(on["lifetime"]["write_amplification_from"], "run", "{on}");
            }
            if cell["policy"] == "lru" && flash {
                assert_eq!(float(on, "lifetime_gain"), 0.0);
            }
        }
        let constant = &on[NAMES.len() - 1];
        let cost_s = number(cell, "cost_us") as f64 / 1e6;
        assert!(
            (float(constant, "elapsed_s") - cost_s).abs() < 1e-9 * cost_s.max(1.0),
            "{constant}"
        );
    }
}

// Promises: Devices 1.
#[test]
fn every_device_fills_every_column() {
    every_column(
        &repository("testdata/messenger.parquet"),
        &["--policy", "lru,fab,spatialclock", "--memory", "1M,8M"],
    );
}

#[test]
fn the_facebook_trace_fills_every_column() {
    let Some(trace) = shared("facebook.mobigen.xz") else { return };
    every_column(&trace, &["--policy", "lru,clock,fab,mglru", "--memory", "1M,4M"]);
}

/// A run that writes too little for garbage collection has no write amplification and says why; its
/// years are those of random writes. Every device states its content before the run.
// Promises: Devices 5, Devices 7.
#[test]
fn a_short_run_shows_no_write_amplification() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("trace");
    fs::write(&trace, (0..100).map(|n| format!("w {}\n", n * 8)).collect::<String>()).unwrap();
    let args = ["compare", trace.to_str().unwrap(), "--policy", "lru", "--frames", "1", "--rate"];
    let args =
        [&args[..], &["10", "--device", "ufs-3.1,emmc-5.1:fill=empty,microsd-2012"]].concat();
    let on = cells(&args);
    for (cell, fill) in on.iter().zip(["random", "empty", "in-order"]) {
        assert_eq!(cell["fill"], fill, "{cell}");
    }
    for cell in &on[..2] {
        assert!(cell["write_amplification"].is_null(), "{cell}");
        assert_eq!(cell["lifetime"]["write_amplification_from"], "random-writes", "{cell}");
        let reason = cell["write_amplification_reason"].as_str().unwrap();
        assert!(reason.contains("freed 0 of at least 10 blocks"), "{reason}");
    }
    assert!(float(&on[2], "write_amplification") >= 1.0);
    assert!(on[2].get("write_amplification_reason").is_none());
    let shown = text(&args);
    assert!(shown.contains('–') && shown.contains("fewer than 10 blocks"), "{shown}");
    assert!(shown.contains("aged"), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("it is that of random writes everywhere"), "{shown}");
    assert!(words.contains("No years for microsd-2012: no endurance figure."), "{shown}");
    assert!(words.contains("Less than an hour was scaled to a day: it is a guess."), "{shown}");
}

/// Lifetime is equation 3 applied to the neighbouring values.
// Promises: Devices 7.
#[test]
fn a_lifetime_stands_beside_its_assumptions() {
    let trace = repository("testdata/messenger.parquet");
    for cell in cells(&[
        "compare",
        &trace,
        "--policy",
        "lru",
        "--memory",
        "1M",
        "--device",
        "emmc1-2012,emmc-5.1",
    ]) {
        let life = &cell["lifetime"];
        let years = float(life, "cycles") * (1.0 + float(life, "over_provisioning"))
            / (365.0
                * float(life, "drive_writes_per_day")
                * float(life, "write_amplification")
                * float(life, "compression"));
        assert!((years / float(life, "years") - 1.0).abs() < 1e-9, "{life}");
        if life["write_amplification_from"] == "run" {
            assert_eq!(life["write_amplification"], cell["write_amplification"]);
        }
        let day = float(life, "gb_per_day") * 1e9;
        let pages = number(&cell, "device_writes") + number(&cell, "dirty_left");
        let observed = (pages * 4096) as f64 / float(life, "observed_s") * 86_400.0;
        assert!((day / observed - 1.0).abs() < 1e-9, "{life}");
        let drive_writes = day / float(life, "capacity_bytes");
        assert!((drive_writes / float(life, "drive_writes_per_day") - 1.0).abs() < 1e-9, "{life}");
        assert_eq!(cell["gb_per_day"], life["gb_per_day"]);
        assert_eq!(life["guess"], float(life, "observed_s") < 3600.0);
    }
}

/// The page opens with the years of each device that has them, and with the bytes a day.
// Promises: Devices 7.
#[test]
fn the_page_names_the_years() {
    let dir = tempdir().unwrap();
    let page = dir.path().join("page.html");
    let trace = repository("testdata/messenger.parquet");
    let args = ["compare", &*trace, "--policy", "lru,fifo", "--memory", "1M", "--report"];
    let on = [page.to_str().unwrap(), "--device", "microsd-2012,emmc-5.1"];
    run(&[&args[..], &on].concat());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("emmc-5.1 would last "), "the page has no years");
    assert!(page.contains("it is a guess.") && !page.contains("microsd-2012 would last"));
    assert!(page.contains("No years for microsd-2012: no endurance figure."));
}

/// The output never states the remaining life of a memory card, neither of a modelled one nor of
/// this machine's.
// Promises: Devices 8.
#[test]
fn an_sd_card_has_no_lifetime() {
    let trace = repository("testdata/messenger.parquet");
    let card = cells(&[
        "compare",
        &trace,
        "--policy",
        "lru,fab",
        "--memory",
        "1M",
        "--device",
        "microsd-2012",
    ]);
    assert!(
        card.iter()
            .all(|cell| cell.get("lifetime").is_none() && cell.get("lifetime_gain").is_some())
    );
    let args = ["--policy", "lru", "--memory", "1M", "--device", "microsd-2012"];
    let shown = text(&[&["compare", &trace], &args[..]].concat());
    let header: Vec<&str> = shown.lines().filter(|line| line.contains("elapsed s")).collect();
    assert!(header.len() == 1 && !header[0].contains("years"), "{shown}");
    assert!(shown.contains("No years for microsd-2012: no endurance figure."), "{shown}");
    let described = text(&["describe", &trace, "--device", "microsd-2012"]);
    assert!(described.contains("no endurance figure"), "{described}");
    let sys = tempdir().unwrap();
    let device = sys.path().join("bus/mmc/devices/mmc1:aaaa");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("type"), "SD\n").unwrap();
    fs::write(device.join("life_time"), "0x01 0x01\n").unwrap();
    let sys = sys.path().to_str().unwrap();
    let says = text(&["list", "devices", "--sys", sys]);
    assert!(
        says.contains("mmc1:aaaa SD card: no wear register") && !says.contains("life used"),
        "{says}"
    );
    fs::write(device.join("type"), "MMC\n").unwrap();
    fs::write(device.join("pre_eol_info"), "0x01\n").unwrap();
    assert!(text(&["list", "devices", "--sys", sys]).contains("life used: 0 to 10 % (A)"));
}

/// Stalls need times; objects have no place on a device.
// Promises: Devices 4.
#[test]
fn figures_that_a_trace_does_not_support_are_absent() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("trace");
    fs::write(&trace, "r 8\nw 16\n".repeat(10)).unwrap();
    let args = [
        "compare",
        trace.to_str().unwrap(),
        "--policy",
        "lru",
        "--frames",
        "1",
        "--device",
        "emmc-5.1",
    ];
    let cell = &cells(&args)[0];
    assert!(
        cell.get("stall_s").is_none()
            && cell.get("lifetime").is_none()
            && cell.get("elapsed_s").is_some()
    );
    assert!(text(&args).contains("--rate"));
    let timed = &cells(&[&args[..], &["--rate", "10"]].concat())[0];
    assert!(float(timed, "stall_s") > 0.0);
    ended(flashsift().args(args).arg("--object-cache"), 2);
}

/// A profile that is written out and read back is unchanged, and a changed file changes the
/// profile.
#[test]
fn profiles_are_read_from_toml_files() {
    let dir = tempdir().unwrap();
    let trace = repository("testdata/messenger.parquet");
    let mine = dir.path().join("mine.toml");
    let path = mine.to_str().unwrap();
    let elapsed = |device: &str| {
        let cell =
            cells(&["compare", &trace, "--policy", "lru", "--memory", "1M", "--device", device])
                .remove(0);
        (
            cell["device"].as_str().unwrap().to_owned(),
            float(&cell, "elapsed_s"),
            float(&cell, "write_amplification"),
        )
    };
    for name in NAMES {
        fs::write(&mine, text(&["list", "devices", name, "--toml"])).unwrap();
        let (label, seconds, amplification) = elapsed(path);
        assert_eq!(label, "mine");
        let listed = elapsed(name);
        assert_eq!((seconds, amplification), (listed.1, listed.2), "{name}");
    }
    let card = text(&["list", "devices", "microsd-2012", "--toml"]);
    fs::write(&mine, card.replace("open_units = 4", "open_units = 64")).unwrap();
    assert!(elapsed(path).2 < elapsed("microsd-2012").2, "more open units copy less");
    for (bad, says) in [
        (card.replace("open_units = 4", "open_units = 0"), "open_units"),
        (card.replace("open_units", "closed_units"), "closed_units"),
        (card.replace("unit_bytes", "#"), "unit_bytes"),
        ("what = ".to_owned(), "mine.toml"),
    ] {
        fs::write(&mine, bad).unwrap();
        let (_, error) = ended(flashsift().args(["compare", &trace, "--device", path]), 1);
        assert!(error.contains("mine.toml") && error.contains(says), "{error}");
    }
    let (_, says) = ended(flashsift().args(["compare", &trace, "--device", "floppy"]), 2);
    assert!(says.contains("ufs-4.0"));
}

/// Every constant is shown with its source.
// Promises: Devices 17.
#[test]
fn every_constant_has_its_source() {
    for record in cells(&["list", "devices"]).iter().filter(|record| record.get("device").is_some())
    {
        let name = record["device"].as_str().unwrap();
        let (_, constants) = record["model"].as_object().unwrap().iter().next().unwrap();
        let constants = constants.as_object().unwrap();
        let listed = text(&["list", "devices"]);
        let best: Vec<&str> = record["best_case"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(best.is_empty(), !["emmc-5.1", "ufs"].iter().any(|by| name.starts_with(by)));
        assert!(best.iter().all(|constant| constants.contains_key(*constant)), "{name}: {best:?}");
        // Lines are cut to the width of the terminal.
        assert!(best.is_empty() || listed.contains("vendor's best case"));
        let own = record.get("cycles").map(|_| "cycles");
        let mut named: Vec<&str> = constants.keys().map(String::as_str).chain(own).collect();
        named.sort_unstable();
        let sources = record["sources"].as_object().unwrap();
        assert_eq!(named, sources.keys().map(String::as_str).collect::<Vec<_>>(), "{name}");
        let shown = text(&["list", "devices", name]);
        for (constant, source) in sources {
            let source = source.as_str().unwrap();
            let line = shown
                .lines()
                .find(|line| line.trim_start().starts_with(&format!("{constant} ")))
                .unwrap();
            assert!(line.ends_with(source) && !source.is_empty(), "{name}: {line}");
        }
    }
}

/// The table of a device shows the figures of the JSON, and the verdict names the fastest policy.
// Promises: Command line 3.
#[test]
fn the_table_shows_the_figures() {
    let trace = repository("testdata/messenger.parquet");
    let args = [
        "compare",
        &trace,
        "--policy",
        "lru,fab,sieve",
        "--memory",
        "1M",
        "--device",
        "microsd-2012,ufs-3.1",
    ];
    let (shown, json) = (text(&args), cells(&[&args[..], &["--verdict"]].concat()));
    let (cells, verdict) = json.split_at(json.len() - 1);
    for name in ["microsd-2012", "ufs-3.1"] {
        let (_, table) = shown.split_once(&format!("  on {name}\n")).unwrap();
        let table: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
        let on: Vec<&Value> = cells.iter().filter(|cell| cell["device"] == name).collect();
        for cell in &on {
            let policy = cell["policy"].as_str().unwrap();
            let row = table.iter().find(|line| line.trim_start().starts_with(policy)).unwrap();
            for (field, digits) in [("elapsed_s", 3), ("stall_s", 3), ("write_amplification", 2)] {
                assert!(
                    row.contains(&format!("{:.digits$}", float(cell, field))),
                    "{field}: {row}"
                );
            }
        }
        let fastest = on
            .iter()
            .min_by(|a, b| float(a, "elapsed_s").total_cmp(&float(b, "elapsed_s")))
            .unwrap();
        let judged = verdict[0]["verdict"]["sizes"][0]["devices"].as_array().unwrap();
        let judged = judged.iter().find(|one| one["device"] == name).unwrap();
        assert_eq!(judged["least_elapsed_us"]["policies"][0], fastest["policy"]);
        let line = shown.lines().find(|line| line.starts_with(&format!("  on {name} "))).unwrap();
        assert!(
            line.contains(&format!("least time {}", fastest["policy"].as_str().unwrap())),
            "{line}"
        );
    }
}
