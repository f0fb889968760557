//! A frame of `flashsift top`: lines of text from the state, for a terminal and for a file.

use super::state::{Row, State};
use crate::{mount::status::came_back, size};
use flashsift_events::{names::escape, show};
use flashsift_files::sift::live::{LiveMode, SiftedBy};
use flashsift_mount::{SiftStatus, Status};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::{Frame, layout::Rect};
use std::path::Path;

/// Columns of a name at least; below, columns of figures are left out.
const NAME_COLUMNS: usize = 12;
const KEYS: &str = "q quit   ↑↓ choose   s sort";

/// Whether colours are wanted: <https://no-color.org>.
pub(super) fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A column of figures.
struct Column {
    title: &'static str,
    columns: usize,
    /// Columns with the least are left out last.
    rank: u8,
    value: fn(&Row) -> Option<u64>,
}

const COLUMNS: [Column; 8] = [
    Column { title: "WRITTEN", columns: 8, rank: 1, value: |row| row.totals.written },
    Column { title: "/s", columns: 6, rank: 2, value: |row| row.rates.written },
    Column { title: "HELD", columns: 6, rank: 1, value: |row| row.totals.held },
    Column { title: "DROPPED", columns: 9, rank: 0, value: |row| row.totals.dropped },
    Column { title: "/s", columns: 6, rank: 2, value: |row| row.rates.dropped },
    Column { title: "AGAIN", columns: 7, rank: 1, value: |row| row.totals.again },
    Column { title: "FLASH", columns: 7, rank: 0, value: |row| row.totals.flash },
    Column { title: "/s", columns: 6, rank: 2, value: |row| row.rates.flash },
];

/// Draws a frame for a terminal of any size.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let Rect { width, height, .. } = frame.area();
    frame.render_widget(screen(state, width, height), frame.area());
}

/// Returns the lines of a screen: rows around the chosen one, its details, and the keys below.
fn screen(state: &State, width: u16, height: u16) -> Text<'static> {
    let (width, height) = (usize::from(width), usize::from(height));
    let mut lines = head(state, width);
    let keys = usize::from(height > lines.len() + 1);
    let left = height.saturating_sub(lines.len() + keys);
    let chosen = state.chosen();
    let details = chosen.map_or_else(Vec::new, |at| details(&state.rows[at], state.has_colour));
    // The rows get half of the space, and more where the details need less.
    let shown = state.rows.len().min((left - left / 2).max(left.saturating_sub(details.len() + 1)));
    let first = chosen.unwrap_or(0).saturating_sub(shown.saturating_sub(1));
    if shown < state.rows.len() {
        let rows = format!("; {} to {} are shown", first + 1, first + shown);
        lines[0].push_span(rows);
    }
    for (at, row) in state.rows.iter().enumerate().skip(first).take(shown) {
        let line = of_row(row, width, state.has_colour);
        lines.push(match Some(at) == chosen {
            true => line.patch_style(Modifier::REVERSED),
            false => line,
        });
    }
    if !details.is_empty() {
        lines.push(Line::default());
        lines.extend(details);
    }
    lines.resize(height.saturating_sub(keys), Line::default());
    if keys > 0 {
        lines.push(Line::styled(KEYS, Modifier::DIM));
    }
    Text::from(lines)
}

/// Returns the lines of a page: every row, and the details of every mount.
pub(super) fn page(state: &State, width: u16) -> Text<'static> {
    let width = usize::from(width);
    let mut lines = head(state, width);
    lines.extend(state.rows.iter().map(|row| of_row(row, width, state.has_colour)));
    for row in &state.rows {
        lines.push(Line::default());
        lines.extend(details(row, state.has_colour));
    }
    Text::from(lines)
}

/// Returns the text of a drawn frame, without blanks at the ends of lines.
pub(super) fn lines(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", text.trim_end())
    };
    buffer.content.chunks(width).map(line).collect()
}

fn head(state: &State, width: usize) -> Vec<Line<'static>> {
    let count = u64::try_from(state.rows.len()).unwrap_or(u64::MAX);
    let title = match count {
        0 => "flashsift top: nothing is mounted by flashsift".to_owned(),
        _ => format!("flashsift top: {}, by {}", size::counted(count, "mount"), state.sort.name()),
    };
    let mut lines = vec![Line::styled(title, Modifier::BOLD)];
    if count > 0 {
        let titles: String = shown_columns(width)
            .map(|Column { title, columns, .. }| format!("{title:>columns$}"))
            .collect();
        let name = name_columns(width);
        lines.push(Line::styled(format!("{:<name$}{titles}", "MOUNT"), Modifier::BOLD));
    }
    lines
}

/// The highest rank whose columns leave enough for the name.
fn rank(width: usize) -> Option<u8> {
    (0..=2).rev().find(|rank| taken(*rank) + NAME_COLUMNS <= width)
}

fn taken(rank: u8) -> usize {
    COLUMNS.iter().filter(|column| column.rank <= rank).map(|column| column.columns).sum()
}

fn shown_columns(width: usize) -> impl Iterator<Item = &'static Column> {
    let rank = rank(width);
    COLUMNS.iter().filter(move |column| rank.is_some_and(|rank| column.rank <= rank))
}

fn name_columns(width: usize) -> usize {
    width - rank(width).map_or(0, taken)
}

fn of_row(row: &Row, width: usize, has_colour: bool) -> Line<'static> {
    let columns = name_columns(width);
    let name = shortened(&shown(&row.mountpoint), columns.saturating_sub(1));
    let fill = " ".repeat(columns.saturating_sub(Span::raw(&name).width()));
    let mut spans = vec![Span::raw(name), Span::raw(fill)];
    match &row.status {
        Ok(status) => {
            for Column { columns, value, .. } in shown_columns(width) {
                let figure = value(row).map_or_else(|| "-".to_owned(), compact);
                spans.push(Span::raw(format!("{figure:>columns$}")));
            }
            if status.failing_files > 0 {
                spans[0].style = alarm(Color::Red, has_colour);
            }
        }
        Err(why) => spans.push(Span::styled(why.clone(), alarm(Color::Red, has_colour))),
    }
    Line::from(spans)
}

fn alarm(colour: Color, has_colour: bool) -> Style {
    let style = Style::from(Modifier::BOLD);
    if has_colour { style.fg(colour) } else { style }
}

/// A path for a terminal.
fn shown(path: &Path) -> String {
    show::name(&escape(path.as_os_str().as_encoded_bytes())).into_owned()
}

/// Cuts the beginning of a path: its end says more.
fn shortened(text: &str, columns: usize) -> String {
    if Span::raw(text).width() <= columns {
        return text.to_owned();
    }
    let mut rest = text.chars();
    while rest.next().is_some() {
        if Span::raw(rest.as_str()).width() < columns {
            return format!("…{}", rest.as_str());
        }
    }
    String::new()
}

/// Bytes in at most four characters: `999`, `1.2K`, `64M`.
fn compact(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["", "K", "M", "G", "T", "P"] {
        if value < 999.5 {
            return match unit.is_empty() || value >= 9.95 {
                true => format!("{value:.0}{unit}"),
                false => format!("{value:.1}{unit}"),
            };
        }
        value /= 1024.0;
    }
    format!("{value:.0}E")
}

fn details(row: &Row, has_colour: bool) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(shown(&row.mountpoint), Modifier::BOLD)];
    let mut line = |label: &str, value: String, style: Style| {
        let label = Span::raw(format!("  {label:<10}"));
        lines.push(Line::from(vec![label, Span::styled(value, style)]));
    };
    let status = match &row.status {
        Ok(status) => status,
        Err(why) => {
            line("", why.clone(), alarm(Color::Red, has_colour));
            return lines;
        }
    };
    let plain = Style::default();
    let (used, budget) = (size::bytes(status.ram_bytes), size::bytes(status.budget_bytes));
    line("in RAM", format!("{}, {used} of {budget}", status.counted_new()), plain);
    if let Some(saved) = status.writes.as_ref().and_then(|writes| writes.saved_bytes) {
        let sign = if saved < 0 { "−" } else { "" };
        let bytes = size::bytes(saved.unsigned_abs());
        line("saved", format!("{sign}{bytes} beyond plain ext4, by its estimate"), plain);
    }
    match &status.sift {
        Some(sift) => {
            line("sifter", format!("{}, {}", sift.sifter, mode(sift)), plain);
            line("came back", came_back(sift), plain);
        }
        None => line("sifter", "none".to_owned(), plain),
    }
    lines.extend(failures(status, has_colour));
    if let Some(sift) = &status.sift {
        lines.extend(shares("PROGRAM", &sift.programs, "(unknown)"));
        lines.extend(shares("DIRECTORY", &sift.directories, "."));
    }
    lines
}

/// The bytes of the sifter's files by program or directory, under this head.
fn shares<'l>(head: &str, all: &[SiftedBy], unnamed: &str) -> Vec<Line<'l>> {
    if all.is_empty() {
        return Vec::new();
    }
    let columns = ["WRITTEN", "HELD", "DROPPED", "AGAIN", "FLASH"];
    let row = |cells: [String; 5], name: &str| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>9}")).collect();
        format!("{cells}  {name}")
    };
    let first = Line::styled(row(columns.map(str::to_owned), head), Modifier::BOLD);
    let each = all.iter().map(|of| {
        let parts = [of.held, of.dropped, of.created_again, of.written].map(|part| part.bytes);
        let [held, dropped, again, flash] = parts.map(compact);
        let name = show::name(if of.name.is_empty() { unnamed } else { &of.name });
        Line::raw(row([compact(of.requested_bytes), held, dropped, again, flash], &name))
    });
    [first].into_iter().chain(each).collect()
}

fn mode(sift: &SiftStatus) -> &'static str {
    match (sift.mode, &sift.rehearsal) {
        (_, Some(_)) => "dry run: nothing is dropped",
        (LiveMode::Sift, None) => "on",
        (LiveMode::Keep, None) => "off",
        (LiveMode::Plain, None) => "off: new files go to flash at once",
    }
}

fn failures(status: &Status, has_colour: bool) -> Vec<Line<'static>> {
    if status.failing_files == 0 {
        return Vec::new();
    }
    let count = status.counted_failing();
    let head = format!("  {:<10}{count} cannot be written back", "FAILING");
    let first = Line::styled(head, alarm(Color::Red, has_colour));
    let each = status.failures.iter().take(3).map(|failure| {
        let path = show::name(&failure.path);
        Line::raw(format!("    {path}: {}: {}", failure.step, failure.error))
    });
    [first].into_iter().chain(each).collect()
}

#[cfg(test)]
mod tests;
