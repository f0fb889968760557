//! Tables of plain rows.

use crate::{describe::text::shortened, text};
use comfy_table::{CellAlignment, Table, presets};
use flashsift_events::show;
use std::collections::HashSet;

/// Names are not shortened to less than this.
const SHORTEST: usize = 12;

/// Rows under a header, two columns in as all other tables, with a newline at the end. The columns
/// listed in `words` are aligned to the left, the others to the right.
pub(crate) fn plain(rows: &[Vec<String>], words: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    for row in rows {
        table.add_row(row);
    }
    for (n, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if words.contains(&n) {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        });
    }
    table.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}

/// The same in this many columns, if shorter names make that possible: names in the columns listed
/// in `words` are cut in the middle, the widest column first, to [`SHORTEST`] or the title's width
/// at the least. Names of a column that differ still differ then. If that is not enough, and the
/// only names are in the first column, each stands on a line of its own, above its row.
pub(crate) fn fitted(mut rows: Vec<Vec<String>>, words: &[usize], columns: usize) -> String {
    for row in rows.iter_mut().skip(1) {
        words.iter().for_each(|&n| row[n] = show::name(&row[n]).into_owned());
    }
    let count = rows.first().map_or(0, Vec::len);
    let wide = |rows: &[Vec<String>], n: usize| {
        rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(|n| wide(&rows, n)).collect();
    let mut excess = (widths.iter().sum::<usize>() + 2 * count).saturating_sub(columns);
    // The least width of each column of names.
    let title = |n: usize| rows.first().map_or(0, |row| row[n].chars().count());
    let least: Vec<usize> = words.iter().map(|&n| least_width(&rows, n).max(title(n))).collect();
    let mut given: Vec<usize> = words.iter().map(|&n| widths[n]).collect();
    while excess > 0 {
        let open = given.iter_mut().zip(&least).filter(|(given, least)| **given > **least);
        let Some((widest, _)) = open.max_by_key(|(given, _)| **given) else { break };
        *widest -= 1;
        excess -= 1;
    }
    if excess > 0 && words == [0] {
        return stacked(rows, columns.saturating_sub(2).max(least[0]));
    }
    for (n, width) in words.iter().zip(given) {
        for row in &mut rows {
            row[*n] = shortened(&row[*n], width);
        }
    }
    plain(&rows, words)
}

/// The table with each name, of at most this width, on a line above its row.
fn stacked(mut rows: Vec<Vec<String>>, width: usize) -> String {
    let names: Vec<String> = rows.iter_mut().map(|row| row.remove(0)).collect();
    let values = plain(&rows, &[]);
    let row = |(name, values): (&String, &str)| format!("  {}\n{values}\n", shortened(name, width));
    names.iter().zip(values.lines()).map(row).collect()
}

/// [`fitted`] to the terminal on standard output; whole without one.
pub(crate) fn for_terminal(rows: Vec<Vec<String>>, words: &[usize]) -> String {
    fitted(rows, words, text::columns().unwrap_or(usize::MAX))
}

/// The same as [`plain`] with names in the first column, in as many tables below each other as it
/// takes to stay within this many columns. Each repeats the names.
pub(crate) fn in_parts(rows: &[Vec<String>], columns: usize) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |n: usize| {
        let lines = rows.iter().flat_map(|row| row[n].lines());
        lines.map(|line| line.chars().count()).max().unwrap_or(0) + 2
    };
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for n in 1..count {
        match parts.last_mut() {
            Some(part) if width(n) <= room => part.push(n),
            _ => {
                parts.push(vec![n]);
                room = columns.saturating_sub(width(0));
            }
        }
        room = room.saturating_sub(width(n));
    }
    let part = |part: &Vec<usize>| {
        let of =
            |row: &Vec<String>| [&0].into_iter().chain(part).map(|&n| row[n].clone()).collect();
        plain(&rows.iter().map(of).collect::<Vec<_>>(), &[0])
    };
    parts.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// The least width to which this column can be cut without making two different names alike.
fn least_width(rows: &[Vec<String>], n: usize) -> usize {
    let names: HashSet<&str> = rows.iter().map(|row| &*row[n]).collect();
    let differ = |width: &usize| {
        names.iter().map(|name| shortened(name, *width)).collect::<HashSet<_>>().len()
            == names.len()
    };
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    // Wider is not always better: each width above must do as well.
    let first_alike = (SHORTEST..=widest).rev().find(|width| !differ(width));
    first_alike.map_or(SHORTEST.min(widest), |width| (width + 1).min(widest))
}

#[cfg(test)]
mod tests {
    use super::{fitted, in_parts, plain};

    fn rows(texts: &[[&str; 3]]) -> Vec<Vec<String>> {
        texts.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    /// Tables of paths were up to 179 columns wide, which a terminal of 80 wraps in the middle of
    /// numbers.
    #[test]
    fn names_are_cut_until_the_table_fits() {
        let file = "/home/user/.config/browser/Default/Cookies";
        let table = rows(&[["file", "bytes", "program"], [file, "1", "a program of long name"]]);
        let full = fitted(table.clone(), &[0, 2], 100);
        assert!(full.contains(file) && full.contains("a program of long name"), "{full}");
        let cut = fitted(table.clone(), &[0, 2], 50);
        assert!(cut.lines().all(|line| line.chars().count() <= 50), "{cut}");
        assert!(cut.contains("/home") && cut.contains("Cookies") && cut.contains('…'), "{cut}");
        // Nothing is cut to less than a name that one can recognise.
        let least = fitted(table, &[0, 2], 1);
        assert!(least.contains("/ho…/Cookies"), "{least}");
    }

    /// Eight columns of numbers fill 80 columns, and a path comes on top.
    #[test]
    fn names_stand_above_rows_that_fill_the_width() {
        let file = "/home/user/.config/browser/Default/Cookies";
        let table = rows(&[["file", "bytes", "dropped pages"], [file, "1", "2"]]);
        let stacked = "  file\n  bytes  dropped pages\n  /home/use…er/Default/Cookies\n      1              2\n";
        assert_eq!(fitted(table, &[0], 30), stacked);
    }

    /// The table of `doctor` cut names until two rows looked alike.
    #[test]
    fn different_names_stay_different() {
        let [one, two] =
            ["one", "two"].map(|app| format!("/data/app.{app}/files/cache/first/main.db"));
        let table = rows(&[["file", "bytes", "n"], [&one, "1", "1"], [&two, "2", "2"]]);
        // At 12 characters, both are `/da…/main.db`.
        for columns in [1, 20, 26, 42, 46] {
            let cut = fitted(table.clone(), &[0], columns);
            let names: Vec<&str> =
                cut.split_whitespace().filter(|word| word.contains("main.db")).collect();
            assert!(names.len() == 2 && names[0] != names[1], "{cut}");
        }
        assert!(fitted(table, &[0], 46).contains('…'));
    }

    /// `compare --sift` printed 113 columns on a terminal of 80.
    #[test]
    fn a_table_that_is_too_wide_goes_on_below() {
        let rows = rows(&[["", "kept\n%", "to flash"], ["drop-all", "77.6", "15.9 MiB"]]);
        let whole = "            kept  to flash\n               %\n  drop-all  77.6  15.9 MiB\n";
        assert_eq!(in_parts(&rows, 26), whole);
        let parts = "            kept\n               %\n  drop-all  77.6\n\n            to flash\n  \
                     drop-all  15.9 MiB\n";
        assert_eq!(in_parts(&rows, 25), parts);
        // Columns are never split.
        assert_eq!(in_parts(&rows, 5), parts);
    }

    /// Tables of `recommend`, `tune`, `diff`, sifters and samples began one column before those of
    /// `compare` and `describe`.
    #[test]
    fn a_table_begins_two_columns_in() {
        let rows = [["policy", "hits"], ["lru", "1"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(plain(&rows, &[0]), "  policy  hits\n  lru        1\n");
    }
}
