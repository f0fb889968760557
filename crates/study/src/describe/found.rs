//! Results of a characterisation as plain data. Terminal, JSON and page decide how to show them.

use std::borrow::Cow;

/// One value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number of things.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// Microseconds.
    TimeUs(u64),
    /// A share of a whole: from 0 to 1, unless a part can exceed its whole or be negative.
    Share(f64),
    /// A mean or another number that need not be whole.
    Number(f64),
    /// One of a few predefined labels.
    Label {
        /// Name for programs.
        id: &'static str,
        /// Name for people.
        label: &'static str,
    },
    /// Name of a file or program; may be long.
    Name(Box<str>),
    /// No value, because there is nothing to compute it from.
    Absent,
}

impl Value {
    /// Creates a [`Value::Label`].
    pub const fn label(id: &'static str, label: &'static str) -> Self {
        Self::Label { id, label }
    }

    /// Returns the number to draw or to sort by, in its unit.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(n) | Self::Bytes(n) | Self::TimeUs(n) => Some(*n as f64),
            Self::Share(number) | Self::Number(number) => Some(*number),
            Self::Label { .. } | Self::Name(_) | Self::Absent => None,
        }
    }

    /// Returns the share of `part` in `whole`; absent if `whole` is 0.
    pub fn share(part: u64, whole: u64) -> Self {
        if whole == 0 { Self::Absent } else { Self::Share(part as f64 / whole as f64) }
    }

    /// Returns the mean; absent if `count` is 0.
    pub fn mean(sum: u64, count: u64) -> Self {
        if count == 0 { Self::Absent } else { Self::Number(sum as f64 / count as f64) }
    }
}

/// A value with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name for programs. Its suffix is the unit (`_bytes`, `_us`, `_share`); without one, it is a
    /// count.
    pub key: &'static str,
    /// Name for people.
    pub label: &'static str,
    /// The value itself.
    pub value: Value,
    /// Share of a whole, if it is a part; for programs under `key` + `_share`.
    pub share: Option<Value>,
}

impl Figure {
    /// Creates a value on its own.
    pub fn new(key: &'static str, label: &'static str, value: Value) -> Self {
        Self { key, label, value, share: None }
    }

    /// Returns the value as a part of `whole`.
    pub fn share(self, part: u64, whole: u64) -> Self {
        Self { share: Some(Value::share(part, whole)), ..self }
    }
}

/// Names of a column of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name for programs, with a suffix as in [`Figure::key`].
    pub key: &'static str,
    /// Name for people; empty where the column before suffices.
    pub title: &'static str,
}

/// Readers of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All readers.
    All,
    /// People at a terminal: an excerpt of the data for programs.
    People,
    /// Programs and figures: too many rows for a terminal.
    Programs,
}

/// Rows of values with named columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name for programs.
    pub key: &'static str,
    /// Readers of the table.
    pub audience: Audience,
    /// Column of each value in a row.
    pub columns: Vec<Column>,
    /// Rows with one value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// Creates a table for all readers, without rows. `columns`: key and title.
    pub fn new(key: &'static str, columns: &[(&'static str, &'static str)]) -> Self {
        let columns = columns.iter().map(|&(key, title)| Column { key, title }).collect();
        Self { key, audience: Audience::All, columns, rows: Vec::new() }
    }

    /// Returns the table for some readers only.
    pub fn only_for(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Whether there is a column with this key.
    pub fn has(&self, key: &str) -> bool {
        self.columns.iter().any(|column| column.key == key)
    }

    /// Iterates over the values of a column from the top; empty if there is no such column.
    pub fn values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Value> {
        let at = self.columns.iter().position(|column| column.key == key);
        self.rows.iter().filter_map(move |row| row.get(at?))
    }

    /// Appends a row.
    pub fn push(&mut self, row: impl Into<Vec<Value>>) {
        let row = row.into();
        debug_assert_eq!(row.len(), self.columns.len(), "{}: a value a column", self.key);
        self.rows.push(row);
    }
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Single values with their names.
    Figures(Vec<Figure>),
    /// Rows of values with named columns.
    Table(Table),
    /// An explanation of the part before it, for people.
    Note(Cow<'static, str>),
    /// A command that shows more, as typed into a shell; for programs under `command`.
    Command(Box<str>),
}

/// A piece of a [`Sentence`].
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Literal text.
    Words(&'static str),
    /// Text that is put together.
    Text(Box<str>),
    /// A value in the text.
    Value(Value),
}

/// The main result in one sentence, occasionally two.
pub type Sentence = Vec<Piece>;

impl From<&'static str> for Piece {
    fn from(words: &'static str) -> Self {
        Self::Words(words)
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Value> for Piece {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

/// Results of one characterisation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Main result for this trace; `None` if there is nothing to report.
    pub sentence: Option<Sentence>,
    /// All results in order.
    pub parts: Vec<Part>,
}

impl Found {
    /// Returns the table with this key.
    pub fn table_named(&self, key: &str) -> Option<&Table> {
        self.parts.iter().find_map(|part| match part {
            Part::Table(table) if table.key == key => Some(table),
            _ => None,
        })
    }

    /// Returns the figures with these keys that exist, in this order.
    pub fn figures_named(&self, keys: &[&str]) -> Vec<&Figure> {
        let all = self.parts.iter().filter_map(|part| match part {
            Part::Figures(figures) => Some(figures),
            _ => None,
        });
        let all: Vec<&Figure> = all.flatten().collect();
        keys.iter()
            .filter_map(|key| all.iter().find(|figure| figure.key == *key).copied())
            .collect()
    }

    /// Adds figures at the end.
    pub fn figures(mut self, figures: Vec<Figure>) -> Self {
        self.parts.push(Part::Figures(figures));
        self
    }

    /// Adds a table.
    pub fn table(mut self, table: Table) -> Self {
        self.parts.push(Part::Table(table));
        self
    }

    /// Adds an explanation of the part before it.
    pub fn note(mut self, words: impl Into<Cow<'static, str>>) -> Self {
        self.parts.push(Part::Note(words.into()));
        self
    }

    /// Adds a command that shows more.
    pub fn command(mut self, command: &str) -> Self {
        self.parts.push(Part::Command(command.into()));
        self
    }

    /// Sets the main result.
    pub fn sentence(mut self, pieces: impl IntoIterator<Item = Piece>) -> Self {
        self.sentence = Some(pieces.into_iter().collect());
        self
    }
}
