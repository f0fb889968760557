//! The documentation of the policies and the sifters.

use super::{cells, flashsift, repository, run};
use flashsift_caches::policy;
use flashsift_events::{duration::Exact, params};
use flashsift_files::sift;
use flashsift_testbed::ended;
use serde_json::Value;

fn says(args: &[&str]) -> String {
    String::from_utf8(run(&[&["list", "policies"], args].concat()).stdout).unwrap()
}

/// The documentation page equals the output of the current list.
#[test]
fn the_documentation_is_up_to_date() {
    let page = std::fs::read_to_string(repository("docs/policies.md")).unwrap();
    assert!(
        page == says(&["--markdown"]),
        "docs/policies.md is stale; renew it: cargo run -p flashsift -- policies --markdown > \
         docs/policies.md"
    );
}

/// So does the JSON Schema of `compare --json`, which Python's columns are made from.
#[test]
fn the_schema_is_up_to_date() {
    let schema = std::fs::read_to_string(repository("docs/compare.schema.json")).unwrap();
    assert!(
        schema == String::from_utf8(run(&["list", "fields"]).stdout).unwrap(),
        "docs/compare.schema.json is stale; renew it: cargo run -p flashsift -- list fields > \
         docs/compare.schema.json"
    );
}

/// Every policy and parameter is present, in all forms.
#[test]
fn every_output_of_policies_lists_all_policies() {
    let (text, page, json) = (says(&[]), says(&["--markdown"]), cells(&["list", "policies"]));
    assert_eq!(json.len(), policy::ALL.len());
    for (spec, record) in policy::ALL.iter().zip(json) {
        assert_eq!(
            (record["schema"].as_u64(), record["policy"].as_str()),
            (Some(1), Some(spec.name))
        );
        // The lines are wrapped; the test joins them again.
        let block = says(&[spec.name]).split_whitespace().collect::<Vec<_>>().join(" ");
        for printed in [spec.what, spec.goal, spec.time, spec.memory, spec.when, spec.paper] {
            assert!(block.contains(printed), "{}: {printed:?} not in {block:?}", spec.name);
            assert!(page.contains(printed), "{}: {printed:?} not in the page", spec.name);
        }
        assert!(text.contains(&says(&[spec.name])), "{}", spec.name);
        assert_eq!(record["parameters"].as_array().unwrap().len(), spec.params.len());
        for (param, value) in spec.params.iter().zip(record["parameters"].as_array().unwrap()) {
            assert!(block.contains(&format!("parameter {param}")), "{block}");
            let default = match param.kind {
                params::ParamKind::Number { default, .. } => Value::from(default),
                params::ParamKind::Word(words) => Value::from(words[0]),
                params::ParamKind::Duration { default_us, .. } => {
                    Value::from(Exact(default_us).to_string())
                }
                params::ParamKind::Text => Value::from(""),
                params::ParamKind::Expression { default, .. } => Value::from(default),
            };
            assert_eq!((&value["name"], &value["default"]), (&param.name.into(), &default));
        }
    }
}

/// The help of `--sift` once referred to a list that had policies alone.
#[test]
fn sifters_are_listed_with_their_parameters() {
    let says = |args: &[&str]| {
        String::from_utf8(run(&[&["list", "sifters"], args].concat()).stdout).unwrap()
    };
    let (text, json) = (says(&[]), cells(&["list", "sifters"]));
    assert_eq!(json.len(), sift::ALL.len());
    for (spec, record) in sift::ALL.iter().zip(json) {
        assert_eq!(record["sifter"].as_str(), Some(spec.name));
        assert_eq!(record["parameters"].as_array().unwrap().len(), spec.params.len());
        let block = says(&[spec.name]);
        assert!(text.contains(&block), "{}", spec.name);
        let words = block.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(spec.what), "{words}");
        for param in spec.params {
            assert!(words.contains(&format!("parameter {param}")), "{words}");
        }
    }
    // The spellings of version 0.1.
    for old in [&["policies", "--sifters", "controller"][..], &["policies", "controller"]] {
        assert_eq!(says(&["controller"]), String::from_utf8(run(old).stdout).unwrap(), "{old:?}");
    }
}

/// Formats, systems and others were named only in the middle of the help of `compare`.
#[test]
fn each_list_has_its_names_in_text_and_json() {
    for (list, noun, known) in [
        ("formats", "format", "strace"),
        ("systems", "system", "fslru"),
        ("memories", "memory", "optane"),
        ("readaheads", "readahead", "linux"),
        ("writebacks", "writeback", "sync-all"),
        ("layouts", "layout", "f2fs"),
        ("metadata", "metadata", "ext4"),
        ("profiles", "profile", "chromium"),
    ] {
        let text = String::from_utf8(run(&["list", list]).stdout).unwrap();
        let records = cells(&["list", list]);
        for record in &records {
            let name = record[noun].as_str().unwrap();
            let is_line = |line: &str| line.starts_with(&format!("{name}: "));
            assert!(text.lines().any(is_line), "{list} lacks {name}: {text}");
            assert!(!record["what"].as_str().unwrap().is_empty(), "{list} {name}");
        }
        assert!(records.iter().any(|record| record[noun] == known), "{list} lacks {known}");
        let (_, says) = ended(flashsift().args(["list", list, "nosuch"]), 2);
        assert!(says.contains("`nosuch`") && says.contains(known), "{says}");
    }
}

#[test]
fn an_unknown_policy_is_an_error_that_names_the_known() {
    let (out, says) = ended(flashsift().args(["list", "policies", "lru", "mru"]), 2);
    assert!(says.contains("mru") && says.contains("spatialclock"), "{says}");
    assert_eq!(out, "");
}
