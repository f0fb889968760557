//! Sizes of requests by powers of two: Liang et al. (read-ahead tuning), Fig. 3.
//!
//! A request of 4096 bytes is counted at 4 KiB, one of 4097 at 8 KiB. (The paper measures at the
//! block layer, where most reads of mobile devices are below 64 KiB. A trace of file accesses has
//! the requests of applications.)

use super::{
    Audience, Characterisation, CharacterisationSpec, Found, Ledger, Piece, Seen, Table, Value,
};
use flashsift_events::event::{Action, Event};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "request_sizes",
    title: "Request sizes",
    paper: "Liang et al., read-ahead size tuning: Fig. 3",
    paper_saw: "Most read requests of mobile devices are smaller than 64 KB, almost all smaller than 128 KB; most of \
                Linux servers are of 4 to 64 KB or larger (at the block layer).",
    opens: false,
    needs: &[],
    build: |_| Box::new(RequestSizes { reads: [0; SIZES], writes: [0; SIZES] }),
};

/// Sizes of up to 2⁰, 2¹, … 2⁶³ bytes and more.
const SIZES: usize = 65;
/// On a terminal, requests of up to 512 bytes share a line.
const SMALL: usize = 9;
/// The size in the paper's sentence: 64 KiB.
const COMPARED: usize = 16;

struct RequestSizes {
    reads: [u64; SIZES],
    writes: [u64; SIZES],
}

impl Characterisation for RequestSizes {
    fn event(&mut self, event: &Event, _: &Seen<'_>) {
        let (count, len) = match event.action {
            Action::Read { len, .. } => (&mut self.reads, len),
            Action::Write { len, .. } => (&mut self.writes, len),
            _ => return,
        };
        if len > 0 {
            // ⌈log₂ len⌉
            count[(u64::BITS - (len - 1).leading_zeros()) as usize] += 1;
        }
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let writes_known = ledger.about.knows.writes;
        let mut columns = vec![("most_bytes", "up to"), ("reads", "reads"), ("reads_share", "")];
        if writes_known {
            columns.extend([("writes", "writes"), ("writes_share", "")]);
        } else {
            columns[1] = ("reads", "requests");
        }
        let (all_reads, all_writes) = (self.reads.iter().sum(), self.writes.iter().sum());
        let row = |size: usize, reads: u64, writes: u64| {
            let most = 1u64.checked_shl(size as u32).unwrap_or(u64::MAX);
            let mut row =
                vec![Value::Bytes(most), Value::Count(reads), Value::share(reads, all_reads)];
            if writes_known {
                row.extend([Value::Count(writes), Value::share(writes, all_writes)]);
            }
            row
        };
        let used = |size: &usize| self.reads[*size] + self.writes[*size] > 0;
        let Some(most) = (0..SIZES).rev().find(used) else { return Err("no requests") };
        let least = (0..SIZES).find(used).unwrap_or(most);
        let mut all = Table::new("sizes", &columns).only_for(Audience::Programs);
        let mut shown = Table::new("shown", &columns).only_for(Audience::People);
        for size in least..=most {
            all.push(row(size, self.reads[size], self.writes[size]));
            if size == SMALL.min(most) {
                shown.push(row(
                    size,
                    self.reads[..=size].iter().sum(),
                    self.writes[..=size].iter().sum(),
                ));
            } else if size > SMALL {
                shown.push(row(size, self.reads[size], self.writes[size]));
            }
        }
        let small = |counts: &[u64; SIZES]| counts[..=COMPARED].iter().sum::<u64>();
        let mut sentence: Vec<Piece> = Vec::new();
        for (what, counts, all) in
            [("reads", &self.reads, all_reads), ("writes", &self.writes, all_writes)]
        {
            if all > 0 {
                if !sentence.is_empty() {
                    sentence.push("and".into());
                }
                sentence.extend([Value::share(small(counts), all).into(), "of the".into()]);
                sentence.push(if writes_known { what } else { "requests" }.into());
            }
        }
        sentence.push("are of at most 64 KiB.".into());
        Ok(Found::default().sentence(sentence).table(shown).table(all))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    // Promises: Describe 12.
    #[test]
    fn sizes_go_to_the_power_of_two_above() {
        let sizes = [1, 2, 3, 4, 4096, 4097, 8192];
        let mut events = sizes.map(|len| at(0, read(1, 0, len))).to_vec();
        events.extend([at(0, write(1, 0, 512)), at(0, write(1, 0, 0))]);
        let found = describe("request_sizes", &events);
        let reads = column(&found, "sizes", "reads");
        assert_eq!(column(&found, "sizes", "most_bytes")[0], bytes(1));
        assert_eq!(reads, counts([1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]));
        assert_eq!(column(&found, "sizes", "writes")[9], Value::Count(1));
        // People see 1 to 512 bytes as one row.
        assert_eq!(column(&found, "shown", "most_bytes")[..2], [bytes(512), bytes(1024)]);
        assert_eq!(column(&found, "shown", "reads"), counts([4, 0, 0, 1, 2]));
        assert_eq!(column(&found, "shown", "writes_share")[0], Value::Share(1.0));
    }

    // Promises: Describe 12.
    #[test]
    fn the_largest_request_there_can_be() {
        let mut about = about();
        about.space = flashsift_events::event::Space::Objects;
        about.knows.writes = false;
        let found = describe_as(about, "request_sizes", &[at(0, read(1, 0, u64::MAX))]).unwrap();
        assert_eq!(column(&found, "sizes", "most_bytes"), [bytes(u64::MAX)]);
    }
}
