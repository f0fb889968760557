//! Numbers of reads and writes: Lim & Bahn (IEEE Access 2021), Table 1 and Fig. 5.
//!
//! The paper counts block accesses. Here requests, bytes and page accesses are counted, as one
//! request may touch many pages.

use super::{
    Characterisation, CharacterisationSpec, Figure, Found, Ledger, Seen, Table, Value,
    ledger::RequestSums,
};
use flashsift_events::event::{Action, Event};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "mix",
    title: "Reads and writes",
    paper: "Lim & Bahn, hybrid flush: Table 1, Fig. 5",
    paper_saw: "All eight Android traces are write-intensive: from 52.7 % (a mix of applications) \
         to 94.7 % (NaverMap) of the block accesses are writes. Traditional desktop applications \
         mostly read.",
    opens: true,
    needs: &[],
    build: |_| Box::new(Mix::default()),
};

#[derive(Default)]
struct Mix {
    reads: RequestSums,
    writes: RequestSums,
    /// Synchronous writes.
    waiting: RequestSums,
    empty_requests: u64,
    /// Requests with direct I/O.
    direct: RequestSums,
    syncs: u64,
    sync_alls: u64,
}

impl Characterisation for Mix {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        let pages = seen.pages.len() as u64;
        match event.action {
            Action::Read { len: 0, .. } | Action::Write { len: 0, .. } => self.empty_requests += 1,
            Action::Read { len, .. } => self.reads.add(len, pages),
            Action::Write { len, sync, .. } => {
                self.writes.add(len, pages);
                if sync {
                    self.waiting.add(len, pages);
                }
            }
            Action::Direct { len, .. } => self.direct.add(len, 0),
            Action::Sync { .. } => self.syncs += 1,
            Action::SyncAll => self.sync_alls += 1,
            _ => {}
        }
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let mut all = self.reads;
        all.merge(self.writes);
        let mut table = Table::new(
            "operations",
            &[
                ("operation", ""),
                ("requests", "requests"),
                ("requests_share", ""),
                ("moved_bytes", "bytes"),
                ("moved_bytes_share", ""),
                ("page_accesses", "page accesses"),
                ("page_accesses_share", ""),
            ],
        );
        let mut row = |id, traffic: RequestSums| {
            table.push([
                Value::label(id, id),
                Value::Count(traffic.requests),
                Value::share(traffic.requests, all.requests),
                Value::Bytes(traffic.bytes),
                Value::share(traffic.bytes, all.bytes),
                Value::Count(traffic.pages),
                Value::share(traffic.pages, all.pages),
            ]);
        };
        let knows = ledger.about.knows;
        if !knows.writes {
            row("requests", all);
            return Ok(Found::default()
                .sentence([Value::Bytes(all.bytes).into(), "are asked for.".into()])
                .table(table)
                .note("The trace does not distinguish reads from writes: all count as reads."));
        }
        row("reads", self.reads);
        row("writes", self.writes);
        row("all", all);
        let mut figures = Vec::new();
        if knows.syncs || self.waiting.requests > 0 {
            let (waiting, writes) = (self.waiting.requests, self.writes.requests);
            let label = "writes that wait for storage (O_SYNC, O_DSYNC)";
            figures.push(
                Figure::new("sync_writes", label, Value::Count(waiting)).share(waiting, writes),
            );
        }
        if knows.syncs {
            figures.push(Figure::new(
                "syncs",
                "syncs of a file (fsync, fdatasync, …)",
                Value::Count(self.syncs),
            ));
            figures.push(Figure::new(
                "sync_alls",
                "syncs of everything (sync, syncfs)",
                Value::Count(self.sync_alls),
            ));
        }
        if self.direct.requests > 0 {
            let requests = Value::Count(self.direct.requests);
            let label = "requests past the page cache (O_DIRECT; counted here only)";
            figures.push(Figure::new("direct_requests", label, requests));
            figures.push(Figure::new(
                "direct_bytes",
                "bytes of these",
                Value::Bytes(self.direct.bytes),
            ));
        }
        if self.empty_requests > 0 {
            let label = "requests of no bytes (counted here only)";
            figures.push(Figure::new("empty_requests", label, Value::Count(self.empty_requests)));
        }
        let found = Found::default()
            .sentence([
                Value::Bytes(self.reads.bytes).into(),
                "read and".into(),
                Value::Bytes(self.writes.bytes).into(),
                "written:".into(),
                Value::share(self.writes.pages, all.pages).into(),
                "of the page accesses are writes.".into(),
            ])
            .table(table);
        Ok(if figures.is_empty() { found } else { found.figures(figures) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use flashsift_events::event::FileId;

    // Promises: Describe 2.
    #[test]
    fn requests_bytes_and_pages() {
        let events = [
            at(0, read(1, 0, 4097)),
            at(0, write(1, 4000, 200)),
            at(0, write_sync(1, 0, 100)),
            at(0, read(1, 0, 0)),
            at(
                0,
                Action::Direct { open: None, file: FileId(1), offset: 0, len: 8192, write: true },
            ),
            at(0, sync(1)),
            at(0, sync(1)),
            at(0, Action::SyncAll),
        ];
        let found = describe("mix", &events);
        assert_eq!(column(&found, "operations", "requests"), counts([1, 2, 3]));
        assert_eq!(column(&found, "operations", "moved_bytes"), [4097, 300, 4397].map(bytes));
        assert_eq!(column(&found, "operations", "page_accesses"), counts([2, 3, 5]));
        assert_eq!(
            column(&found, "operations", "page_accesses_share"),
            [0.4, 0.6, 1.0].map(Value::Share)
        );
        let figures =
            ["sync_writes", "syncs", "sync_alls", "empty_requests"].map(|key| figure(&found, key));
        assert_eq!(figures.to_vec(), counts([1, 2, 1, 1]));
        assert_eq!(figure(&found, "direct_requests"), Value::Count(1));
        assert_eq!(figure(&found, "direct_bytes"), bytes(8192));
    }

    /// A trace without writes has one row. A trace without syncs has no syncs except for those of
    /// synchronous writes.
    // Promises: Describe 1.
    #[test]
    fn unknown_values_are_left_out() {
        let mut about = about();
        about.knows.syncs = false;
        let found = describe_as(about, "mix", &[at(0, write(1, 0, 1))]).unwrap();
        assert_eq!(found.parts.len(), 1, "{found:?}");
        let found = describe_as(about, "mix", &[at(0, write_sync(1, 0, 1))]).unwrap();
        assert_eq!(figure(&found, "sync_writes"), Value::Count(1));
        about.knows.writes = false;
        let found = describe_as(about, "mix", &[at(0, read(1, 0, 1))]).unwrap();
        assert_eq!(column(&found, "operations", "requests"), counts([1]));
    }
}
