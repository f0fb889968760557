//! Footprint of the trace: pages and files touched, and how many of them are only read, only
//! written, or both.
//!
//! It corresponds to the "memory footprint" of FSLRU (IEEE TCE 2016), Table I. A file counts as
//! soon as a request to it touches a page. A page is an offset in a file: truncated and written
//! again, it is the same page.

use super::{Characterisation, CharacterisationSpec, Found, Ledger, Table, Value};
use flashsift_events::{event::Space, page::PAGE_BYTES};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "footprint",
    title: "Footprint: touched pages and files",
    paper: "Kim et al., FSLRU: Table I (memory footprint)",
    paper_saw: "5.7 MB (a game), 6.3 MB (a social network) and 6.6 MB (a messenger) are touched.",
    opens: false,
    needs: &[],
    build: |_| Box::new(Footprint),
};

struct Footprint;

#[derive(Default)]
struct Count {
    read: u64,
    written: u64,
    both: u64,
}

impl Count {
    fn add(&mut self, is_read: bool, is_written: bool) {
        match (is_read, is_written) {
            (true, true) => self.both += 1,
            (true, false) => self.read += 1,
            (false, true) => self.written += 1,
            (false, false) => {}
        }
    }

    fn row(&self, what: &'static str, unit_bytes: Option<u64>) -> [Value; 6] {
        let all = self.read + self.written + self.both;
        let bytes = unit_bytes.map_or(Value::Absent, |unit| Value::Bytes(all * unit));
        let [all, read, written, both] =
            [all, self.read, self.written, self.both].map(Value::Count);
        [Value::label(what, what), all, bytes, read, written, both]
    }
}

impl Characterisation for Footprint {
    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let (mut pages, mut objects, mut files) =
            (Count::default(), Count::default(), Count::default());
        for page in ledger.pages.all() {
            pages.add(page.reads > 0, page.writes > 0);
            // A request for an object covers all of it, so its first page represents it.
            if page.page == 0 {
                objects.add(page.reads > 0, page.writes > 0);
            }
        }
        for file in ledger.files.all() {
            files.add(file.state.reads.requests > 0, file.state.writes.requests > 0);
        }
        let all_pages = pages.read + pages.written + pages.both;
        let sentence = [
            Value::Bytes(all_pages * PAGE_BYTES).into(),
            "are touched, in pages of 4 KiB;".into(),
            Value::share(pages.written, all_pages).into(),
            "of the pages are written and never read.".into(),
        ];
        let columns = [
            ("what", ""),
            ("touched", "touched"),
            ("touched_bytes", "bytes"),
            ("only_read", "only read"),
            ("only_written", "only written"),
            ("both", "both"),
        ];
        let mut table = Table::new("touched", &columns);
        table.push(pages.row("pages", Some(PAGE_BYTES)));
        match ledger.about.space {
            Space::Files => table.push(files.row("files", None)),
            Space::Blocks => table.push(files.row("devices", None)),
            Space::Objects => table.push(objects.row("objects", None)),
        }
        let found = Found::default().table(table);
        Ok(if ledger.about.knows.writes && all_pages > 0 {
            found.sentence(sentence)
        } else {
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    // Promises: Describe 2, Describe 3.
    #[test]
    fn pages_and_files_are_counted_by_use() {
        let events = [
            at(0, read(1, 0, 8192)),
            at(0, write(1, 4096, 1)),
            at(0, write(2, 0, 1)),
            at(0, truncate(2, 0)),
            at(0, write(2, 0, 1)),
            at(0, read(3, 0, 1)),
            at(0, read(4, 0, 0)), // touches nothing
        ];
        let found = describe("footprint", &events);
        // Pages, files.
        assert_eq!(column(&found, "touched", "touched"), counts([4, 3]));
        assert_eq!(column(&found, "touched", "only_read"), counts([2, 1]));
        assert_eq!(column(&found, "touched", "only_written"), counts([1, 1]));
        assert_eq!(column(&found, "touched", "both"), counts([1, 1]));
    }
}
