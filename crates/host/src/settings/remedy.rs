//! Places that remedies of the doctor change: files and lines of programs' configurations, and
//! values that commands set and print.

use super::place::{at, or_empty, replace, sync_folder};
use crate::change::ChangeError;
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
    process::{Command, Stdio},
};

/// Before a line that was replaced, in the line above its replacement.
pub const MARK: &str = "#flashsift ";
/// Stands for the former value in the command that restores it.
pub const OLD: &str = "OLD";
/// The value of a folder that is there.
const THERE: &str = "there";

/// Runs a command of a shell. Returns what it prints, without the last end of line.
///
/// # Errors
///
/// It fails; the sentence has what it says.
pub fn shell(command: &str) -> Result<String, ChangeError> {
    let refused = |why: String| ChangeError::Refused(format!("`{command}` failed: {why}"));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
    let done = shell.output().map_err(|error| refused(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        return Ok(text(&done.stdout));
    }
    let said = [text(&done.stderr), text(&done.stdout)].into_iter().find(|said| !said.is_empty());
    let last = said.as_deref().and_then(|said| said.lines().last()).map(str::to_owned);
    Err(refused(last.unwrap_or_else(|| done.status.to_string())))
}

/// Whether a value stands in a command as it is.
pub fn is_plain(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !value.is_empty() && value.chars().all(plain)
}

pub(super) fn read_text(path: &Path) -> Result<String, ChangeError> {
    or_empty(path).map_err(|error| at(path, error))
}

/// Writes a file, or removes it.
pub(super) fn write_text(path: &Path, value: &str) -> Result<(), ChangeError> {
    let written = match value {
        "" => fs::remove_file(path).and_then(|()| sync_folder(path)),
        text => replace(path, text.as_bytes()),
    };
    written.map_err(|error| at(path, error))
}

/// Fails for a folder that has files of others.
pub(super) fn read_folder(path: &Path) -> Result<String, ChangeError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        other => other.map_err(|error| at(path, error))?,
    };
    let is_ours = |name: &str| name.starts_with("flashsift") || name.ends_with(".flashsift-new");
    let mut names = entries.flatten().map(|entry| entry.file_name());
    match names.all(|name| is_ours(&name.to_string_lossy())) {
        true => Ok(THERE.to_owned()),
        false => Err(ChangeError::Refused(format!("{}: others use it, too", path.display()))),
    }
}

pub(super) fn write_folder(path: &Path, value: &str) -> Result<(), ChangeError> {
    let done = match value {
        THERE => DirBuilder::new().recursive(true).mode(0o755).create(path),
        // Files of ours that another program has changed stay, and the folder with them.
        _ => match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                let why = format!("{} still has files", path.display());
                return Err(ChangeError::Refused(why));
            }
            other => other,
        },
    };
    done.and_then(|()| sync_folder(path)).map_err(|error| at(path, error))
}

/// A line with the mark, and the line after it.
fn pairs(lines: &[&str]) -> Vec<usize> {
    let is_marked = |n: &usize| lines[*n].starts_with(MARK) && *n + 1 < lines.len();
    (0..lines.len()).filter(is_marked).collect()
}

/// Returns the lines with marks and their replacements.
pub(super) fn read_marked(path: &Path) -> Result<String, ChangeError> {
    let text = fs::read(path).map_err(|error| at(path, error))?;
    // The lines that count are those that flashsift wrote.
    Ok(marked(&String::from_utf8_lossy(&text)))
}

/// The lines with marks and their replacements in a text.
pub fn marked(text: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    pairs(&lines).into_iter().flat_map(|n| [lines[n], lines[n + 1]]).collect()
}

/// Restores the lines of all marks, then marks and replaces those of `value`.
pub(super) fn write_marked(path: &Path, value: &str) -> Result<(), ChangeError> {
    let bytes = fs::read(path).map_err(|error| at(path, error))?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut restored: Vec<Vec<u8>> = Vec::new();
    let mut n = 0;
    while let Some(line) = lines.get(n) {
        match line.strip_prefix(MARK.as_bytes()).filter(|_| n + 1 < lines.len()) {
            Some(old) => {
                restored.push(old.to_vec());
                n += 1;
            }
            None => restored.push(line.to_vec()),
        }
        n += 1;
    }
    let wanted: Vec<&str> = value.split_inclusive('\n').collect();
    for pair in wanted.chunks(2) {
        let [marked, new] = pair else { return Err(gone(path, value)) };
        let old = marked.strip_prefix(MARK).unwrap_or(marked).as_bytes();
        let is_it = |line: &Vec<u8>| line.as_slice() == old;
        let found = restored.iter_mut().find(|line| is_it(line)).ok_or_else(|| gone(path, old))?;
        *found = [marked.as_bytes(), new.as_bytes()].concat();
    }
    replace(path, &restored.concat()).map_err(|error| at(path, error))
}

fn gone(path: &Path, line: impl AsRef<[u8]>) -> ChangeError {
    let line = String::from_utf8_lossy(line.as_ref()).trim().to_owned();
    ChangeError::Refused(format!("{}: the line `{line}` is not there any more", path.display()))
}

/// Returns the lines that begin so.
pub(super) fn read_line(path: &Path, begins: &str) -> Result<String, ChangeError> {
    let text = fs::read(path).map_err(|error| at(path, error))?;
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let own = lines.filter(|line| line.starts_with(begins.as_bytes()));
    Ok(String::from_utf8_lossy(&own.collect::<Vec<_>>().concat()).into_owned())
}

pub(super) fn write_line(path: &Path, begins: &str, value: &str) -> Result<(), ChangeError> {
    let text = fs::read(path).map_err(|error| at(path, error))?;
    if !text.is_empty() && !text.ends_with(b"\n") {
        let why = format!("{} does not end with an end of line: add one", path.display());
        return Err(ChangeError::Refused(why));
    }
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let others = lines.filter(|line| !line.starts_with(begins.as_bytes()));
    let new: Vec<&[u8]> = others.chain([value.as_bytes()]).collect();
    replace(path, &new.concat()).map_err(|error| at(path, error))
}

/// Sets a value by the command for the wanted one, or by that which restores another.
pub(super) fn write_command(
    run: &str,
    undo: &str,
    wanted: &str,
    value: &str,
) -> Result<(), ChangeError> {
    match value == wanted {
        true => shell(run),
        false if !undo.contains(OLD) => shell(undo),
        false if is_plain(value) => shell(&undo.replace(OLD, value)),
        false => Err(ChangeError::Refused(format!("`{undo}` cannot restore {value:?}"))),
    }
    .map(drop)
}
