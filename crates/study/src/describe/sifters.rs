//! Sifters on one trace: where droppable files are, the savings and costs of each sifter, and the
//! one to use.
//!
//! It is not in [`ALL`](super::ALL), because it needs the whole trace for each sifter.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Section, Sentence,
    Table, Value,
};
use flashsift_events::show;
use flashsift_files::{
    sift_advice::{HalvedShare, JudgedSifter, SiftAdvice},
    sift_directories::{SiftDirectories, SiftDirectory},
};

static SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "sift",
    title: "Sifters",
    paper: "",
    paper_saw: "",
    opens: true,
    needs: &[],
    build: |_| Box::new(NotStreamed),
};

struct NotStreamed;

impl Characterisation for NotStreamed {
    fn finish(&mut self, _: &Ledger, _: usize) -> Result<Found, &'static str> {
        Err("no simulated sifter")
    }
}

/// A trace under sifters.
#[derive(Clone, Copy)]
pub struct SiftedTrace<'a> {
    /// Its directories.
    pub directories: &'a SiftDirectories,
    /// Its sifters.
    pub advice: &'a SiftAdvice,
    /// Memory of the page cache and the sifter, bytes.
    pub memory_bytes: u64,
    /// The sifter's part of it, bytes.
    pub sifter_bytes: u64,
    /// The command that shows the recommended sifter, or all if none is recommended.
    pub command: &'a str,
}

/// Returns the section about the sifters of a trace. `top`: directories to list.
pub fn sift_section(sifted: SiftedTrace<'_>, top: usize) -> Section {
    let SiftedTrace { directories, advice, .. } = sifted;
    let stock = &advice.stock;
    let files = directories.droppable.iter().map(|directory| directory.files).sum();
    let slices = &advice.slices;
    let kind = match slices.are_sessions {
        true => Value::label("sessions", "sessions"),
        false => Value::label("equal_time", "parts of equal time"),
    };
    let count = |n: usize| Value::Count(n as u64);
    let chosen = advice.recommended().map(|one| Value::Name((&*one.name).into()));
    let chosen = chosen.map(|name| Figure::new("recommended", "sifter to use", name));
    let figures = vec![
        Figure::new("droppable_files", "droppable files created", Value::Count(files)),
        Figure::new("stock_bytes", "their data at flash", Value::Bytes(stock.droppable.all))
            .share(stock.droppable.all, stock.droppable.all + stock.others.all),
        Figure::new("memory_bytes", "memory", Value::Bytes(sifted.memory_bytes)),
        Figure::new("sifter_bytes", "of it the sifter's", Value::Bytes(sifted.sifter_bytes)),
        Figure::new("slices", "slices of the trace", count(slices.count())),
        Figure::new("slices_are", "slices are", kind),
        Figure::new("slice_mean_us", "mean length", Value::TimeUs(slices.mean_us())),
        Figure::new("slices_with_work", "with work", count(advice.slices_with_work())),
        Figure::new(
            "fetched_again_max_share",
            "may be fetched again",
            Value::Share(advice.fetched_again_max),
        ),
    ];
    let lists = [
        ("droppable", "droppable_shown", "droppable files in", &directories.droppable),
        ("candidates", "candidates_shown", "not droppable, in", &directories.candidates),
    ];
    let paths = lists.iter().flat_map(|(.., all)| all.iter().take(top)).map(|one| &*one.path);
    let ancestor = common_ancestor(paths);
    let mut found = Found::default()
        .sentence(sentence(sifted))
        .figures(chosen.into_iter().chain(figures).collect());
    for (key, short_key, title, directories) in lists {
        found = found.table(shown(short_key, title, directories, ancestor, top)).table(listed(
            key,
            title,
            directories,
            top,
        ));
    }
    if !ancestor.is_empty() {
        // The page has whole names.
        let mut table = Table::new("ancestor", &[("name", "… stands for")]);
        table.push([Value::Name(ancestor.into())]);
        found = found.table(table.only_for(Audience::People));
    }
    if !directories.candidates.is_empty() {
        found = found.note(
            "If applications can fetch the files of such a directory again, --droppable \
             'DIRECTORY/*' lets sifters drop them. Patterns replace the default, which is files in \
             directories whose name contains cache.",
        );
    }
    found = found.table(sifters_shown(&advice.judged)).table(sifters(&advice.judged)).note(
        "saved: data of droppable files that does not reach flash. again: bytes of dropped files \
         that applications fetch again. Both are shares of the data of droppable files that \
         reaches flash without a sifter: in all, in the first half of the slices, and in the \
         second. At the end all files in RAM are written.",
    );
    if slices.are_short() {
        found = found.note(
            "The trace is short: slices of less than a minute depend on their neighbours, so the \
             halves confirm less than they seem to.",
        );
    }
    Section { spec: &SPEC, found: Ok(found.command(sifted.command)) }
}

/// The configuration to use, or the reason for none.
fn sentence(sifted: SiftedTrace<'_>) -> Sentence {
    let SiftedTrace { advice, memory_bytes, sifter_bytes, .. } = sifted;
    let effects = |one: &JudgedSifter| {
        format!(
            "with {} of RAM out of {} it saves {} of the data of droppable files from flash, and \
             {} of it is fetched again (simulated)",
            unbroken(show::bytes(sifter_bytes)),
            unbroken(show::bytes(memory_bytes)),
            by_halves(one.kept),
            by_halves(one.fetched_again),
        )
    };
    let words = match (advice.recommended(), advice.most_kept()) {
        (Some(one), _) => format!("Use the sifter {}: {}.", one.name, effects(one)),
        (None, None) => "No sifter is judged: all of them know the rest of the trace.".to_owned(),
        (None, Some(_)) if advice.has_too_few_slices() => format!(
            "No sifter is recommended: droppable files are written in {} of {} slices of the \
             trace, which is too few for a judgement.",
            advice.slices_with_work(),
            advice.slices.count(),
        ),
        (None, Some(most)) => {
            let reason = match most.judgement.confirmed() {
                Ok(()) => format!(
                    "The limit is {} fetched again, in each half",
                    unbroken(show::share(advice.fetched_again_max))
                ),
                Err(why) => format!("It is not recommended: {why}"),
            };
            let (name, effects) = (&most.name, effects(most));
            format!("No sifter is worth it here. {name} saves the most: {effects}. {reason}.")
        }
    };
    vec![words.into()]
}

/// A share with those of both halves in parentheses.
fn by_halves(of: HalvedShare) -> String {
    let share = |share: f64| match share.is_finite() {
        true => unbroken(show::share(share)),
        false => "∞".to_owned(),
    };
    let [first, second] = of.halves;
    format!("{} (by halves {} and {})", share(of.whole), share(first), share(second))
}

/// Keeps a number and its unit on one line.
fn unbroken(value: String) -> String {
    value.replace(' ', "\u{a0}")
}

fn finite(share: f64) -> Value {
    if share.is_finite() { Value::Share(share) } else { Value::Absent }
}

/// Returns the directory that all of several paths are in; empty if that is the root.
fn common_ancestor<'a>(mut paths: impl Iterator<Item = &'a str>) -> &'a str {
    let Some(mut ancestor) = paths.next() else { return "" };
    let mut several = false;
    for path in paths {
        several = true;
        let is_below = |ancestor: &str| {
            path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        while !ancestor.is_empty() && !is_below(ancestor) {
            ancestor = ancestor.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    if several { ancestor } else { "" }
}

/// The table of directories for people.
fn shown(
    key: &'static str,
    title: &'static str,
    directories: &[SiftDirectory],
    ancestor: &str,
    top: usize,
) -> Table {
    let name = |path: &str| match path.strip_prefix(ancestor) {
        Some(rest) if !ancestor.is_empty() => format!("…{rest}"),
        _ => path.to_owned(),
    };
    let columns = [
        ("name", title),
        ("files", "files"),
        ("written_bytes", "written"),
        ("flash_bytes", "to flash"),
        ("read_again_share", "read again"),
        ("pause_us_median", "after"),
    ];
    let mut table = Table::new(key, &columns).only_for(Audience::People);
    for directory in directories.iter().take(top) {
        table.push([
            Value::Name(name(&directory.path).into()),
            Value::Count(directory.files),
            Value::Bytes(directory.written_bytes),
            Value::Bytes(directory.flash_bytes),
            Value::share(directory.read_again_files, directory.files),
            directory.pause_us_median().map_or(Value::Absent, Value::TimeUs),
        ]);
    }
    if directories.len() > top {
        let others = &directories[top..];
        let sum = |of: fn(&SiftDirectory) -> u64| others.iter().map(of).sum::<u64>();
        table.push([
            Value::Name(format!("({} others)", others.len()).into()),
            Value::Count(sum(|one| one.files)),
            Value::Bytes(sum(|one| one.written_bytes)),
            Value::Bytes(sum(|one| one.flash_bytes)),
            Value::share(sum(|one| one.read_again_files), sum(|one| one.files)),
            Value::Absent,
        ]);
    }
    table
}

/// The table of directories for programs and for the page.
fn listed(
    key: &'static str,
    title: &'static str,
    directories: &[SiftDirectory],
    top: usize,
) -> Table {
    let columns = [
        ("name", title),
        ("pattern", "pattern"),
        ("files", "files"),
        ("written_bytes", "written"),
        ("flash_bytes", "to flash"),
        ("read_again_files", "files read again"),
        ("read_again_share", "read again"),
        ("pause_us_median", "after (median)"),
    ];
    let mut table = Table::new(key, &columns).only_for(Audience::Programs);
    for directory in directories.iter().take(top) {
        table.push([
            Value::Name(directory.path.clone()),
            Value::Name(directory.pattern().into()),
            Value::Count(directory.files),
            Value::Bytes(directory.written_bytes),
            Value::Bytes(directory.flash_bytes),
            Value::Count(directory.read_again_files),
            Value::share(directory.read_again_files, directory.files),
            directory.pause_us_median().map_or(Value::Absent, Value::TimeUs),
        ]);
    }
    table
}

fn name(one: &JudgedSifter) -> Value {
    let offline = if one.is_offline { " (offline)" } else { "" };
    Value::Name(format!("{}{offline}", one.name).into())
}

/// The table of sifters for people.
fn sifters_shown(judged: &[JudgedSifter]) -> Table {
    let columns = [
        ("sifter", "sifter"),
        ("kept_share", "saved"),
        ("kept_first", "1st half"),
        ("kept_second", "2nd half"),
        ("again_share", "again"),
        ("again_first", "1st half"),
        ("again_second", "2nd half"),
        ("flash_bytes", "to flash"),
    ];
    let mut table = Table::new("sifters_shown", &columns).only_for(Audience::People);
    for one in judged {
        let [kept, again] = [one.kept, one.fetched_again];
        table.push([
            name(one),
            finite(kept.whole),
            finite(kept.halves[0]),
            finite(kept.halves[1]),
            finite(again.whole),
            finite(again.halves[0]),
            finite(again.halves[1]),
            Value::Bytes(one.outcome.droppable.all),
        ]);
    }
    table
}

/// The table of sifters for programs and for the page.
fn sifters(judged: &[JudgedSifter]) -> Table {
    let columns = [
        ("name", "sifter"),
        ("kept_share", "saved"),
        ("kept_first_half_share", "saved, 1st half"),
        ("kept_second_half_share", "saved, 2nd half"),
        ("fetched_again_share", "again"),
        ("fetched_again_first_half_share", "again, 1st half"),
        ("fetched_again_second_half_share", "again, 2nd half"),
        ("flash_bytes", "to flash"),
        ("fetched_again_bytes", "fetched again"),
        ("dropped_files", "files dropped"),
        ("other_flash_bytes", "other files to flash"),
        ("slices", "slices"),
        ("slices_changed", "slices changed"),
        ("slices_won", "slices won"),
    ];
    let mut table = Table::new("sifters", &columns).only_for(Audience::Programs);
    for one in judged {
        let [kept, again] = [one.kept, one.fetched_again];
        table.push([
            Value::Name((&*one.name).into()),
            finite(kept.whole),
            finite(kept.halves[0]),
            finite(kept.halves[1]),
            finite(again.whole),
            finite(again.halves[0]),
            finite(again.halves[1]),
            Value::Bytes(one.outcome.droppable.all),
            Value::Bytes(one.outcome.fetched_again.all),
            Value::Count(one.outcome.counters.dropped.files),
            Value::Bytes(one.outcome.others.all),
            Value::Count(one.slices as u64),
            Value::Count(one.judgement.slices as u64),
            Value::Count(one.judgement.wins as u64),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::common_ancestor;

    #[test]
    fn the_ancestor_is_a_whole_directory() {
        let of = |paths: &[&'static str]| common_ancestor(paths.iter().copied());
        assert_eq!(of(&["/a/b/c", "/a/b/d/e"]), "/a/b");
        assert_eq!(of(&["/a/bc", "/a/b"]), "/a");
        assert_eq!(of(&["/a/b", "/a/b/c"]), "/a/b");
        assert_eq!((of(&["/a", "/b"]), of(&["/a", "b"]), of(&["/", "/a"])), ("", "", ""));
        assert_eq!((of(&[]), of(&["/a/b"])), ("", ""));
    }
}
