//! Directories by bytes written. Each file counts for the directory of its last name, not for those
//! above.

use super::{
    Characterisation, CharacterisationSpec, Found, Ledger, Need, Table, Value, ledger::NO_NAMES,
    ranking::Ranking,
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "top_directories",
    title: "Directories",
    paper: "",
    paper_saw: "",
    opens: false,
    needs: &[Need::Files, Need::Writes],
    build: |_| Box::new(TopDirectories),
};

struct TopDirectories;

/// Returns the directory of a file's name.
pub(super) fn directory(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => ".",
    }
}

impl Characterisation for TopDirectories {
    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str> {
        if !ledger.any_named() {
            return Err(NO_NAMES);
        }
        let named = ledger.files.all().iter().filter_map(|file| {
            let name = ledger.files.name(file)?;
            Some((directory(name), [file.state.writes.bytes]))
        });
        let directories = Ranking::new(named);
        let all = ledger
            .files
            .all()
            .iter()
            .fold(0, |all: u64, file| all.saturating_add(file.state.writes.bytes));
        let columns = [
            ("name", "most written"),
            ("files", "files"),
            ("written_bytes", "written"),
            ("written_bytes_share", ""),
        ];
        let mut table = Table::new("written", &columns);
        let directories = directories.top(0, top, Box::from);
        let sentence = directories.first().map(|first| {
            vec![
                "Files in".into(),
                first.name.clone().into(),
                "receive".into(),
                Value::share(first.sums[0], all).into(),
                "of the bytes written, more than those of any other directory.".into(),
            ]
        });
        for directory in directories {
            let [bytes] = directory.sums;
            table.push([
                directory.name,
                Value::Count(directory.count),
                Value::Bytes(bytes),
                Value::share(bytes, all),
            ]);
        }
        Ok(Found { sentence, ..Found::default().table(table) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    // Promises: Traces 23.
    #[test]
    fn files_move_with_their_directory() {
        let events = [
            at(0, create_named(1, "/a/b/x")),
            at(0, write(1, 0, 10)),
            at(0, bind(2, "/a/bc/y")),
            at(0, write(2, 0, 20)),
            at(0, bind(3, "/a/z")),
            at(0, link(3, "/a/b/z")),
            at(0, write(3, 0, 40)),
            at(1, rename_directory("/a/b", "/new")),
            at(1, bind(4, "/a/b/after")),
            at(1, write(4, 0, 80)),
            at(2, rename_directory("/new", "/newer/still")),
        ];
        let found = describe("top_directories", &events);
        assert_eq!(column(&found, "written", "name"), ["/a/b", "/newer/still", "/a/bc"].map(name));
        assert_eq!(column(&found, "written", "files"), counts([1, 2, 1]));
        // The files most written need not be here, as the sentence once said: it is the sum that
        // is largest.
        let sentence = found.sentence.unwrap();
        assert_eq!(
            (&sentence[0], &sentence[2], &sentence[4]),
            (
                &"Files in".into(),
                &"receive".into(),
                &"of the bytes written, more than those of any other directory.".into()
            )
        );
    }

    #[test]
    fn files_count_for_the_directory_they_stand_in() {
        let files =
            [(1, "/a/b/x", 10), (2, "/a/b/y", 20), (3, "/a/z", 40), (4, "/top", 1), (5, "bare", 2)];
        let mut events = vec![at(0, write(6, 0, 27)), at(0, bind(7, "/never/written"))];
        for (file, name, len) in files {
            events.extend([at(0, bind(file, name)), at(0, write(file, 0, len))]);
        }
        let found = describe("top_directories", &events);
        assert_eq!(column(&found, "written", "name"), ["/a", "/a/b", ".", "/"].map(name));
        assert_eq!(column(&found, "written", "files"), counts([1, 2, 1, 1]));
        let share = super::Value::Share;
        assert_eq!(
            column(&found, "written", "written_bytes_share"),
            [share(0.4), share(0.3), share(0.02), share(0.01)]
        );
    }
}
