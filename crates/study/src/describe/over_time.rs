//! Accesses to pages over time, and pages that are accessed all the time: Lim & Bahn (IEEE Access
//! 2021), Fig. 2.
//!
//! Time is logical, as in the paper: each page access is one unit. Pages are in the order of their
//! first access. The paper does not say how it numbers blocks, but its figure suggests this order
//! ("low block numbers are accessed from the launch time").
//!
//! `grid` is the paper's figure in bins ([`Bins`]): up to [`SIDE`] bins of accesses by up to
//! [`SIDE`] bins of pages, each of equal width, with the numbers of reads and writes in each; empty
//! bins are left out.
//!
//! The paper concludes that hot blocks are accessed consistently. Here that is counted: the trace
//! is divided into at most [`WINDOWS`] windows of equally many page accesses, and a page is steady
//! if it is accessed in nine of ten of them. A last window that is less than half full does not
//! count. `steady` lists the number of pages by the number of windows in which they are accessed.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Piece, Seen, Table,
    Value, bins::Bins,
};
use flashsift_events::event::{Action, Event};
use prefetch_index::prefetch_index;

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "over_time",
    title: "Pages over time",
    paper: "Lim & Bahn, hybrid flush: Fig. 2",
    paper_saw: "In all eight Android traces a certain number of low block numbers, which are accessed from the launch on, are \
                accessed consistently as time progresses: hot blocks.",
    opens: false,
    needs: &[],
    build: |_| Box::new(OverTime::default()),
};

/// Bins of the grid in either direction.
const SIDE: usize = 80;
/// Largest number of windows; each is one bit.
const WINDOWS: usize = u32::BITS as usize;

struct OverTime {
    /// Page accesses so far.
    clock: u64,
    accesses: Bins,
    pages: Bins,
    /// Reads and writes; `[accesses][pages]`.
    grid: Vec<[u64; 2]>,
    windows: Bins,
    /// The windows in which each page is accessed.
    used_in: Vec<u32>,
}

impl Default for OverTime {
    fn default() -> Self {
        Self {
            clock: 0,
            accesses: Bins::new(SIDE, 1),
            pages: Bins::new(SIDE, 1),
            grid: vec![[0; 2]; SIDE * SIDE],
            windows: Bins::new(WINDOWS, 1),
            used_in: Vec::new(),
        }
    }
}

impl OverTime {
    fn access(&mut self, page: u32, write: bool) {
        let at = loop {
            match self.accesses.get(self.clock) {
                Some(at) => break at,
                None => self.join_accesses(),
            }
        };
        let row = loop {
            match self.pages.get(page.into()) {
                Some(row) => break row,
                None => self.join_pages(),
            }
        };
        self.grid[at * SIDE + row][usize::from(write)] += 1;
        let window = loop {
            match self.windows.get(self.clock) {
                Some(window) => break window,
                None => self.join_windows(),
            }
        };
        if page as usize >= self.used_in.len() {
            self.used_in.resize(page as usize + 1, 0);
        }
        self.used_in[page as usize] |= 1 << window;
        self.clock += 1;
    }

    #[cold]
    fn join_accesses(&mut self) {
        self.accesses.join();
        self.rebuild(|at, row| (at / 2, row));
    }

    #[cold]
    fn join_pages(&mut self) {
        self.pages.join();
        self.rebuild(|at, row| (at, row / 2));
    }

    fn rebuild(&mut self, to: impl Fn(usize, usize) -> (usize, usize)) {
        let old = std::mem::replace(&mut self.grid, vec![[0; 2]; SIDE * SIDE]);
        for (n, [reads, writes]) in old.into_iter().enumerate() {
            let (at, row) = to(n / SIDE, n % SIDE);
            let cell = &mut self.grid[at * SIDE + row];
            *cell = [cell[0] + reads, cell[1] + writes];
        }
    }

    #[cold]
    fn join_windows(&mut self) {
        self.windows.join();
        self.used_in.iter_mut().for_each(|bits| *bits = joined(*bits));
    }

    /// Returns the number of windows that count; the last one counts if it is at least half full.
    fn counted(&self) -> u32 {
        let width = self.windows.width();
        (self.clock / width + u64::from(self.clock % width * 2 >= width)) as u32
    }

    fn grid_table(&self, knows_writes: bool) -> Table {
        let mut columns = vec![("first_access", ""), ("first_page", ""), ("reads", "")];
        columns.extend(knows_writes.then_some(("writes", "")));
        let mut table = Table::new("grid", &columns).only_for(Audience::Programs);
        for (n, [reads, writes]) in
            self.grid.iter().enumerate().filter(|(_, cell)| **cell != [0, 0])
        {
            let at = (n / SIDE) as u64 * self.accesses.width();
            let page = (n % SIDE) as u64 * self.pages.width();
            let mut row = [at, page, *reads].map(Value::Count).to_vec();
            row.extend(knows_writes.then_some(Value::Count(*writes)));
            table.push(row);
        }
        table
    }
}

/// Joins bits 2n and 2n + 1 into bit n.
fn joined(bits: u32) -> u32 {
    (0..WINDOWS / 2).filter(|n| bits >> (2 * n) & 0b11 != 0).map(|n| 1 << n).sum()
}

impl Characterisation for OverTime {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        let write = matches!(event.action, Action::Write { .. });
        seen.pages.iter().for_each(|page| self.access(*page, write));
    }

    fn prefetch(&self, pages: &[u32]) {
        pages.iter().for_each(|page| prefetch_index(&self.used_in, *page as usize));
    }

    fn held_bytes(&self) -> usize {
        self.used_in.len() * size_of::<u32>() + self.grid.len() * size_of::<[u64; 2]>()
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        if self.clock == 0 {
            return Err("no requests");
        }
        let windows = self.counted();
        // Pages by number of windows in which they are accessed, and all accesses to them.
        let mut by_windows = vec![(0, 0); windows as usize + 1];
        for (bits, page) in self.used_in.iter().zip(ledger.pages.all()) {
            let in_windows = (u64::from(*bits) & ((1 << windows) - 1)).count_ones();
            let (pages, accesses) = &mut by_windows[in_windows as usize];
            *pages += 1;
            *accesses += page.accesses();
        }
        let columns = [("windows", ""), ("pages", ""), ("page_accesses", "")];
        let mut table = Table::new("steady", &columns).only_for(Audience::Programs);
        let (mut steady, mut accesses) = (0, 0);
        for (in_windows, (pages, accesses_here)) in
            (0..).zip(by_windows).filter(|(_, (pages, _))| *pages > 0)
        {
            table.push([in_windows, pages, accesses_here].map(Value::Count));
            if in_windows * 10 >= u64::from(windows) * 9 {
                steady += pages;
                accesses += accesses_here;
            }
        }
        let all_pages = ledger.pages.all().len() as u64;
        let figures = vec![
            Figure::new(
                "windows",
                "windows of equally many page accesses",
                Value::Count(windows.into()),
            ),
            Figure::new("steady_pages", "pages accessed in 90 % of them", Value::Count(steady))
                .share(steady, all_pages),
            Figure::new("steady_page_accesses", "accesses to these", Value::Count(accesses))
                .share(accesses, self.clock),
        ];
        let mut bins = Table::new("bins", &[("page_accesses", ""), ("pages", "")])
            .only_for(Audience::Programs);
        bins.push([&self.accesses, &self.pages].map(|bins| Value::Count(bins.width())));
        let windows = Value::Count(windows.into());
        let sentence: Vec<Piece> = match steady {
            0 => vec![
                "No page is accessed in nine of ten of".into(),
                windows.into(),
                "equal parts of the trace.".into(),
            ],
            _ => vec![
                Value::share(steady, all_pages).into(),
                "of the pages are accessed in nine of ten of".into(),
                windows.into(),
                "equal parts of the trace, and take".into(),
                Value::share(accesses, self.clock).into(),
                "of the page accesses.".into(),
            ],
        };
        let grid = self.grid_table(ledger.about.knows.writes);
        Ok(Found::default()
            .sentence(sentence)
            .figures(figures)
            .table(table)
            .table(bins)
            .table(grid))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use proptest::prelude::*;

    /// 64 accesses are 32 windows of two: page 0 is in each, page 1 in 28 of 32 (less than nine of
    /// ten), the others in one each.
    // Promises: Describe 9.
    #[test]
    fn steady_pages_by_hand() {
        let mut others = 2..;
        let events: Vec<_> = (0..32)
            .flat_map(|window| {
                let other = if window < 28 { 1 } else { others.next().unwrap() };
                [at(0, read(1, 0, 1)), at(0, write(1, other * 4096, 1))]
            })
            .collect();
        let found = describe("over_time", &events);
        assert_eq!(figure(&found, "windows"), Value::Count(32));
        assert_eq!(figure(&found, "steady_pages"), Value::Count(1));
        assert_eq!(figure(&found, "steady_page_accesses"), Value::Count(32));
        assert_eq!(column(&found, "steady", "windows"), counts([1, 28, 32]));
        assert_eq!(column(&found, "steady", "pages"), counts([4, 1, 1]));
        assert_eq!(column(&found, "steady", "page_accesses"), counts([4, 28, 32]));
        // One more access joins the windows. With it, the last of four is less than half full and
        // does not count; with two more, it counts.
        let found = describe("over_time", &[&events[..], &events[..1]].concat());
        assert_eq!(figure(&found, "windows"), Value::Count(16));
        let found = describe("over_time", &[&events[..], &events[..2]].concat());
        assert_eq!(figure(&found, "windows"), Value::Count(17));
    }

    fn numbers(found: &Found, table: &str, of: &str) -> Vec<u64> {
        let number = |value| if let Value::Count(n) = value { n } else { panic!("{value:?}") };
        column(found, table, of).into_iter().map(number).collect()
    }

    proptest! {
        /// Compares with counts over a list of all accesses.
        // Promises: Describe 9.
        #[test]
        fn agrees_with_a_list(
            requests in prop::collection::vec((0..400u64, 1..30u64, any::<bool>()), 1..200), writes: bool
        ) {
            let mut about = about();
            about.knows.writes = writes;
            let (mut events, mut list, mut numbered) = (Vec::new(), Vec::new(), Vec::new());
            for (first, pages, write_it) in requests {
                let is_write = write_it && writes;
                let action = if is_write { write } else { read };
                events.push(at(0, action(1, first * 4096, pages * 4096)));
                for page in first..first + pages {
                    let number = numbered.iter().position(|known| *known == page).unwrap_or_else(|| {
                        numbered.push(page);
                        numbered.len() - 1
                    });
                    list.push((number as u64, is_write));
                }
            }
            let found = describe_as(about, "over_time", &events).unwrap();
            let width = |of| numbers(&found, "bins", of)[0];
            let (across, up) = (width("page_accesses"), width("pages"));
            // As wide as needed and no wider.
            for (width, count) in [(across, list.len()), (up, numbered.len())] {
                let most = SIDE as u64 * width;
                prop_assert!(most >= count as u64 && (width == 1 || most / 2 < count as u64));
            }
            let mut cells = std::collections::BTreeMap::<_, [u64; 2]>::new();
            for (time, (page, is_write)) in (0..).zip(&list) {
                cells.entry((time / across * across, page / up * up)).or_default()[usize::from(*is_write)] += 1;
            }
            let keys: Vec<_> =
                numbers(&found, "grid", "first_access").into_iter().zip(numbers(&found, "grid", "first_page")).collect();
            prop_assert_eq!(keys, cells.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(numbers(&found, "grid", "reads"), cells.values().map(|cell| cell[0]).collect::<Vec<_>>());
            if writes {
                prop_assert_eq!(numbers(&found, "grid", "writes"), cells.values().map(|cell| cell[1]).collect::<Vec<_>>());
            }

            let windows = numbers_of(&found, "windows");
            let a_window = (1..).map(|n| 1 << n >> 1).find(|width| list.len() as u64 <= 32 * width).unwrap();
            let mut model = std::collections::BTreeMap::<u64, (u64, u64)>::new();
            for page in 0..numbered.len() as u64 {
                let times: Vec<u64> = (0..).zip(&list).filter(|(_, (other, _))| *other == page).map(|(time, _)| time).collect();
                let mut used: Vec<u64> = times.iter().map(|time| time / a_window).filter(|window| *window < windows).collect();
                used.dedup();
                let (pages, accesses) = model.entry(used.len() as u64).or_default();
                *pages += 1;
                *accesses += times.len() as u64;
            }
            prop_assert_eq!(numbers(&found, "steady", "windows"), model.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(numbers(&found, "steady", "pages"), model.values().map(|(pages, _)| *pages).collect::<Vec<_>>());
            let accesses = model.values().map(|(_, accesses)| *accesses).collect::<Vec<_>>();
            prop_assert_eq!(numbers(&found, "steady", "page_accesses"), accesses);
            let least = (windows * 9).div_ceil(10);
            let steady = model.range(least..).map(|(_, (pages, _))| pages).sum::<u64>();
            prop_assert_eq!(numbers_of(&found, "steady_pages"), steady);
        }
    }

    fn numbers_of(found: &Found, key: &str) -> u64 {
        let Value::Count(n) = figure(found, key) else { panic!() };
        n
    }
}
