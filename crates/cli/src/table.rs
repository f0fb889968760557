//! Tables of plain rows.

use comfy_table::{CellAlignment, Table, presets};

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

#[cfg(test)]
mod tests {
    use super::plain;

    /// Tables of `recommend`, `tune`, `diff`, sifters and samples began one column before those of
    /// `compare` and `describe`.
    #[test]
    fn a_table_begins_two_columns_in() {
        let rows = [["policy", "hits"], ["lru", "1"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(plain(&rows, &[0]), "  policy  hits\n  lru        1\n");
    }
}
