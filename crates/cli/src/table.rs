//! Tables of plain rows.

use comfy_table::{CellAlignment, Table, presets};

/// Rows under a header, with a newline at the end. The columns listed in `words` are aligned to the
/// left, the others to the right.
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
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}
