//! Files by bytes written and read, under their last name.
//!
//! A file that is deleted and created again, or replaced by a rename, is one line, as it is one
//! file to applications.

use super::{Characterisation, CharacterisationSpec, Found, Ledger, Need, Table, Value, ranking};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "top_files",
    title: "Files",
    paper: "",
    paper_saw: "",
    opens: false,
    needs: &[Need::Files],
    build: |_| Box::new(TopFiles),
};

struct TopFiles;

impl Characterisation for TopFiles {
    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str> {
        let files =
            ranking::files(ledger, |_, file| [file.state.writes.bytes, file.state.reads.bytes]);
        let mut found = Found::default();
        for (by, key, title, columns) in [
            (
                0,
                "written",
                "most written",
                [("written_bytes", "written"), ("written_bytes_share", "")],
            ),
            (1, "read", "most read", [("read_bytes", "read"), ("read_bytes_share", "")]),
        ] {
            let all = files.all(by);
            let top_files = files.top(by, top, ranking::file_name(ledger));
            if let (Some(first), None) = (top_files.first(), &found.sentence) {
                found = found.sentence([
                    first.name.clone().into(),
                    if by == 0 { "is written most:" } else { "is read most:" }.into(),
                    Value::Bytes(first.sums[by]).into(),
                    "are".into(),
                    Value::share(first.sums[by], all).into(),
                    "of all.".into(),
                ]);
            }
            let mut table =
                Table::new(key, &[("name", title), ("files", "files"), columns[0], columns[1]]);
            for file in top_files {
                let bytes = file.sums[by];
                table.push([
                    file.name,
                    Value::Count(file.count),
                    Value::Bytes(bytes),
                    Value::share(bytes, all),
                ]);
            }
            if !table.rows.is_empty() {
                found = found.table(table);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    // Promises: Describe 17.
    #[test]
    fn renames_are_followed_and_names_joined() {
        let events = [
            at(0, bind(1, "/a")),
            at(0, write(1, 0, 10)),
            at(0, bind(2, "/a.tmp")),
            at(0, write(2, 0, 20)),
            at(0, rename(2, "/a.tmp", "/a")),
            at(0, write(3, 0, 25)),
            at(0, bind(4, "/b")),
            at(0, write(4, 0, 25)),
            at(0, read(4, 0, 5)),
        ];
        let found = describe("top_files", &events);
        assert_eq!(
            column(&found, "written", "name"),
            [name("/a"), name("(no name, file 3)"), name("/b")]
        );
        assert_eq!(column(&found, "written", "files"), counts([2, 1, 1]));
        assert_eq!(column(&found, "written", "written_bytes"), [30, 25, 25].map(bytes));
        assert_eq!(column(&found, "read", "name"), [name("/b")]);
    }
}
