//! What a characterisation found: plain data. How a terminal, a program or a page shows it is for these to say.

/// One value, with its unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// How many.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// Microseconds.
    TimeUs(u64),
    /// A part of a whole, 0 to 1.
    Share(f64),
    /// A mean or another number that need not be whole.
    Number(f64),
    /// One of a few that are known beforehand.
    Label {
        /// For programs.
        id: &'static str,
        /// For people.
        says: &'static str,
    },
    /// What a file or a program is called; may be long.
    Name(Box<str>),
    /// Nothing can be said, because there was nothing to say it of.
    Absent,
}

impl Value {
    /// A [`Value::Label`].
    pub const fn label(id: &'static str, says: &'static str) -> Self {
        Self::Label { id, says }
    }

    /// A number to draw or to sort by, in the unit that it has.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(n) | Self::Bytes(n) | Self::TimeUs(n) => Some(*n as f64),
            Self::Share(number) | Self::Number(number) => Some(*number),
            Self::Label { .. } | Self::Name(_) | Self::Absent => None,
        }
    }

    /// `part` of `whole`; nothing where there is no whole.
    pub fn share(part: u64, whole: u64) -> Self {
        if whole == 0 { Self::Absent } else { Self::Share(part as f64 / whole as f64) }
    }

    /// `sum` over `count`; nothing where there is nothing to take the mean of.
    pub fn mean(sum: u64, count: u64) -> Self {
        if count == 0 { Self::Absent } else { Self::Number(sum as f64 / count as f64) }
    }
}

/// A value with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// For programs; its end is the unit (`_bytes`, `_us`, `_share`), none is a count.
    pub key: &'static str,
    /// For people.
    pub label: &'static str,
    /// What it is.
    pub value: Value,
    /// What part of a whole it is, if it is a part; for programs under `key` + `_share`.
    pub share: Option<Value>,
}

impl Figure {
    /// A value that stands alone.
    pub fn new(key: &'static str, label: &'static str, value: Value) -> Self {
        Self { key, label, value, share: None }
    }

    /// It is a part of `whole`.
    pub fn of(self, part: u64, whole: u64) -> Self {
        Self { share: Some(Value::share(part, whole)), ..self }
    }
}

/// What a column of a [`Table`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// For programs; ends as a [`Figure::key`] does.
    pub key: &'static str,
    /// For people; empty where the column before says enough.
    pub title: &'static str,
}

/// Whom something is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whoever asks.
    All,
    /// A person at a terminal: an excerpt of what programs get.
    People,
    /// Too much for a terminal: what a diagram is drawn from.
    Programs,
}

/// Rows of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// For programs.
    pub key: &'static str,
    /// Whom it is for.
    pub audience: Audience,
    /// What each value of a row is.
    pub columns: Vec<Column>,
    /// As many values each as there are columns.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// A table for all, without rows yet. `columns`: key and title.
    pub fn new(key: &'static str, columns: &[(&'static str, &'static str)]) -> Self {
        let columns = columns.iter().map(|&(key, title)| Column { key, title }).collect();
        Self { key, audience: Audience::All, columns, rows: Vec::new() }
    }

    /// The same for somebody.
    pub fn only_for(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// There is a column of that key.
    pub fn has(&self, key: &str) -> bool {
        self.columns.iter().any(|column| column.key == key)
    }

    /// The values of a column, from above; none if there is no such column.
    pub fn values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Value> {
        let at = self.columns.iter().position(|column| column.key == key);
        self.rows.iter().filter_map(move |row| row.get(at?))
    }

    /// One row more.
    pub fn push(&mut self, row: impl Into<Vec<Value>>) {
        let row = row.into();
        debug_assert_eq!(row.len(), self.columns.len(), "{}: a value a column", self.key);
        self.rows.push(row);
    }
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Values, each with its name.
    Figures(Vec<Figure>),
    /// Rows of values.
    Table(Table),
    /// How to read what stands before it, for people.
    Note(&'static str),
}

/// A piece of a [`Sentence`].
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Words.
    Words(&'static str),
    /// A value among them.
    Value(Value),
}

/// What a person should know first, in one sentence (now and then two).
pub type Sentence = Vec<Piece>;

impl From<&'static str> for Piece {
    fn from(words: &'static str) -> Self {
        Self::Words(words)
    }
}

impl From<Value> for Piece {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

/// What one characterisation found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// What it comes to, for this trace; none where there is nothing to say.
    pub sentence: Option<Sentence>,
    /// All of it.
    pub parts: Vec<Part>,
}

impl Found {
    /// The table of that key.
    pub fn table_named(&self, key: &str) -> Option<&Table> {
        self.parts.iter().find_map(|part| match part {
            Part::Table(table) if table.key == key => Some(table),
            _ => None,
        })
    }

    /// The figures of these keys that there are, in this order.
    pub fn figures_named(&self, keys: &[&str]) -> Vec<&Figure> {
        let all = self.parts.iter().filter_map(|part| match part {
            Part::Figures(figures) => Some(figures),
            _ => None,
        });
        let all: Vec<&Figure> = all.flatten().collect();
        keys.iter().filter_map(|key| all.iter().find(|figure| figure.key == *key).copied()).collect()
    }

    /// The figures, then what else is added.
    pub fn figures(mut self, figures: Vec<Figure>) -> Self {
        self.parts.push(Part::Figures(figures));
        self
    }

    /// A table more.
    pub fn table(mut self, table: Table) -> Self {
        self.parts.push(Part::Table(table));
        self
    }

    /// A word to people on what stands before.
    pub fn note(mut self, words: &'static str) -> Self {
        self.parts.push(Part::Note(words));
        self
    }

    /// What it comes to.
    pub fn sentence(mut self, pieces: impl IntoIterator<Item = Piece>) -> Self {
        self.sentence = Some(pieces.into_iter().collect());
        self
    }
}
