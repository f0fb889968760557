use super::*;
use std::{collections::BTreeSet, fs, path::Path};

const GOOD: &str = r#"
name = "app"
title = "An application"
directories = ["*/.cache/app"]
drop = ["pages/*"]
pin = ["pages/first"]
checked = "With app 1.0: `check.sh`."
may = ["/h/.cache/app/pages/a"]
may_not = ["/h/.cache/app/pages/first", "/h/.cache/app/settings"]
"#;

/// Parsing compares each profile with its examples.
#[test]
fn every_shipped_profile_drops_its_examples_and_no_others() {
    let names: BTreeSet<_> = shipped().into_iter().map(|profile| profile.name).collect();
    assert_eq!(names.len(), ALL.len(), "names are unique");
    assert!(!checked().is_empty() && checked().len() < ALL.len());
    assert!(checked().iter().all(|profile| profile.name != "android"));
    let all = Droppable::by_profiles(&shipped(), &[], &[]);
    for profile in shipped() {
        for path in &profile.may {
            assert!(all.has(path), "{path}");
        }
        for path in &profile.may_not {
            assert!(!all.has(path), "{path} is dropped by another profile than {}", profile.name);
        }
    }
}

#[test]
fn every_file_in_the_folder_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sift/profile");
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.insert(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    let names: BTreeSet<_> = shipped().into_iter().map(|profile| profile.name).collect();
    assert_eq!(files, names);
}

/// Home directories, documents and the systems of other programs.
#[test]
fn shipped_profiles_drop_no_file_of_other_programs() {
    let all = Droppable::by_profiles(&shipped(), &[], &[]);
    for path in [
        "/h/.cache/other/a",
        "/h/.bashrc",
        "/h/Documents/cache/a.png",
        "/h/.config/chromium/Default/Cookies",
        "/h/.config/chromium/Default/History",
        "/h/.config/chromium/Default/Local Storage/leveldb/000003.log",
        "/h/.mozilla/firefox/p/places.sqlite",
        "/h/.mozilla/firefox/p/sessionstore.jsonlz4",
        "/h/.npm/_logs/a.log",
        "/h/.npmrc",
        "/h/.cargo/credentials.toml",
        "/h/.cargo/bin/cargo",
        "/var/cache/apt/archives/lock",
        "/var/lib/dpkg/status",
        "/var/cache/debconf/config.dat",
    ] {
        assert!(!all.has(path), "{path}");
    }
}

#[test]
fn errors_name_the_key() {
    let good = CacheProfile::parse(GOOD).unwrap();
    assert!(good.is_checked());
    for (from, to, key) in [
        ("title", "tittle", "tittle"),
        ("title = \"An application\"\n", "", "title"),
        ("pin = [", "pins = [", "pins"),
        ("name = \"app\"", "name = \"An app\"", "name"),
        ("name = \"app\"", "name = 3", "name"),
        ("[\"*/.cache/app\"]", "[]", "directories"),
        ("[\"*/.cache/app\"]", "[\"*\"]", "directories"),
        ("[\"*/.cache/app\"]", "[\".cache/app\"]", "directories"),
        ("[\"pages/*\"]", "[]", "drop"),
        ("[\"pages/*\"]", "[\"/pages/*\"]", "drop"),
        ("[\"pages/*\"]", "[\"images/*\"]", "may"),
        ("\"pages/first\"]", "\"\"]", "pin"),
        ("[\"pages/first\"]", "[]", "may_not"),
        ("[\"/h/.cache/app/pages/a\"]", "[]", "may"),
        ("checked = \"With", "checked = \"\" #", "checked"),
        ("checked = \"With", "unchecked = \"Not here\"\nchecked = \"With", "checked"),
        ("checked = \"With", "# ", "checked"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = CacheProfile::parse(&text).unwrap_err().to_string();
        let names = [format!("`{key}`"), format!("{key} = ")];
        assert!(names.iter().any(|name| error.contains(name)), "{to}: {error}");
    }
}

#[test]
fn profiles_are_selected_by_name() {
    let found = named(&["android", "npm"]).unwrap();
    assert_eq!(
        found.iter().map(|profile| &profile.name[..]).collect::<Vec<_>>(),
        ["android", "npm"]
    );
    let error = named(&["npn"]).unwrap_err().to_string();
    assert!(error.contains("npn") && error.contains("chromium"), "{error}");
}

#[test]
fn profiles_survive_writing_and_reading() {
    for profile in shipped() {
        let text = toml::to_string(&profile).unwrap();
        assert_eq!(CacheProfile::parse(&text).unwrap(), profile);
    }
}

#[test]
fn the_documentation_is_up_to_date() {
    assert!(
        include_str!("../../../../../docs/profiles.md") == markdown(),
        "docs/profiles.md is stale; renew it: cargo run -p flashsift --example \
         cache-profiles > docs/profiles.md"
    );
}

/// The versions that profiles name are those of the records, and no trial did harm.
#[test]
fn every_checked_profile_has_its_measurement() {
    let parse = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let browsers =
        parse(include_str!("../../../../../experiments/cachesifter/harmless/machine.json"));
    let programs =
        parse(include_str!("../../../../../experiments/cachesifter/harmless/programs.json"));
    let versions = |profile: &CacheProfile| -> Vec<String> {
        if let Some(version) = browsers[&profile.name].as_str() {
            return vec![version.split(' ').find(|word| word.contains('.')).unwrap().to_owned()];
        }
        let records = programs.as_array().unwrap().iter();
        let mine = records.filter(|record| record["profile"] == profile.name[..]);
        mine.map(|record| {
            assert!(record["droppable"].as_u64().unwrap() > 0, "{}", profile.name);
            for trial in record["trials"].as_array().unwrap() {
                let stays = trial["amount"].as_str().unwrap().starts_with("pinned");
                assert!(stays || trial["verdict"] == "harmless", "{}: {trial}", profile.name);
            }
            let version = record["version"].as_str().unwrap();
            let number = version.split([' ', '-']).find(|word| word.contains('.')).unwrap();
            number.to_owned()
        })
        .collect()
    };
    for profile in checked() {
        let found = versions(&profile);
        assert!(!found.is_empty(), "{} has no record", profile.name);
        for version in found {
            let how = profile.checked.as_deref().unwrap();
            assert!(how.contains(&version), "{}: {version} not in {how:?}", profile.name);
        }
    }
}
