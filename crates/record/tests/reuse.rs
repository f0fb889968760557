//! Checks that the n-th creation of an inode number that fanotify reports is the n-th allocation
//! that ext4 reports. All names in a recording rest on this order where inode numbers are reused at
//! once.

use crate::common::{built, mounted, recorded};
use flashsift_events::event::{Action, FileId};
use std::{collections::HashMap, process::Command};

const FILES: u64 = 1500;

// Promises: Record 6.
#[test]
fn names_find_their_files_though_their_numbers_are_used_again() {
    let Some(ext4) = mounted("ext4") else { return };
    let folder = ext4.directory("here");
    let program = built("reuse", &ext4.point());
    let listed = ext4.point().join("files");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$1\" \"$2\" > \"$3\""]).arg(program).arg(&folder);
    command.arg(FILES.to_string()).arg(&listed);
    let (events, result) = recorded(command, &folder, false);
    assert!(result.status.unwrap().success());

    let listed = std::fs::read_to_string(listed).unwrap();
    let (made, numbers) = listed.trim().split_once(' ').unwrap();
    let (made, numbers): (u64, u64) = (made.parse().unwrap(), numbers.parse().unwrap());
    assert!(numbers < made / 2, "{numbers} inode numbers for {made} files: nothing is tested");

    let (mut names, mut written) =
        (HashMap::<FileId, String>::new(), HashMap::<FileId, u64>::new());
    let mut ended = HashMap::<FileId, u64>::new();
    let prefix = format!("{}/", folder.display());
    for event in &events {
        match &event.action {
            Action::Create(create) if create.name.starts_with(&prefix) => {
                let name = create.name.to_string();
                assert_eq!(
                    names.insert(create.file, name),
                    None,
                    "{} is a second name",
                    create.name
                );
            }
            Action::Bind { file, name } if name.starts_with(&prefix) => {
                assert_eq!(names.insert(*file, name.to_string()), None, "{name} is a second name");
            }
            Action::Write { file, len, .. } => *written.entry(*file).or_default() += len,
            Action::Gone { file } => *ended.entry(*file).or_default() += 1,
            _ => {}
        }
    }
    let mut wrong = Vec::new();
    for (file, name) in &names {
        let size: u64 = name.rsplit('_').next().unwrap().parse().unwrap();
        if written.get(file) != Some(&size) {
            wrong.push((name, written.get(file)));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} wrong: {:?}",
        wrong.len(),
        names.len(),
        &wrong[..wrong.len().min(10)]
    );
    assert_eq!(names.len() as u64, made, "every file has its name");
    assert!(ended.values().all(|&times| times == 1), "a file ends once");
    // Files without names have a size that no named file has.
    let nameless =
        written.iter().filter(|(file, len)| !names.contains_key(file) && **len == 20000).count()
            as u64;
    assert_eq!(nameless, made / 5);
}
