//! Results for machines: the same records as JSON, one object a line, or as CSV.
//!
//! In CSV a record is a row. The columns are the keys of all records, those of an object within
//! joined by dots; a list is JSON in its cell. A command with one object for everything prints rows
//! of a key and a value instead.

use crate::text;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use std::{
    fmt,
    io::{self, Write},
};

/// A record as it was serialised, its keys in their order.
enum Node {
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}

struct Nodes;

impl<'de> Visitor<'de> for Nodes {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Text(String::new()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Node::Map(map))
    }
}

fn json(node: &Node) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    match node {
        // A number or truth value stands as it is.
        Node::Text(text) if serde_json::from_str::<serde_json::Value>(text).is_ok() => text.clone(),
        Node::Text(text) => quoted(text),
        Node::List(items) => {
            format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(","))
        }
        Node::Map(entries) => {
            let entry = |(key, node): &(String, Node)| format!("{}:{}", quoted(key), json(node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
        }
    }
}

/// Standard output for text or for JSON, or what is printed there is collected as JSON and becomes
/// CSV. In text, no name has an effect on the terminal.
pub(crate) enum Output {
    Text(io::StdoutLock<'static>),
    Exact(io::StdoutLock<'static>),
    Rows(Vec<u8>),
    Keys(Vec<u8>),
}

impl Output {
    /// Text for people.
    pub(crate) fn text() -> Self {
        Self::Text(io::stdout().lock())
    }

    /// Bytes for programs.
    pub(crate) fn exact() -> Self {
        Self::Exact(io::stdout().lock())
    }

    /// Text, JSON, or with `csv` a row for each record.
    pub(crate) fn rows(json: bool, csv: bool) -> Self {
        match (json, csv) {
            (_, true) => Self::Rows(Vec::new()),
            (true, false) => Self::exact(),
            (false, false) => Self::text(),
        }
    }

    /// Text, JSON, or with `csv` a row for each value of the one record.
    pub(crate) fn keys(json: bool, csv: bool) -> Self {
        if csv { Self::Keys(Vec::new()) } else { Self::rows(json, false) }
    }

    /// Prints everything that is still to be printed.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let mut out = Self::exact();
        match self {
            Self::Text(_) | Self::Exact(_) => {}
            Self::Rows(json) => {
                let mut table = Table::default();
                for record in serde_json::Deserializer::from_slice(&json).into_iter() {
                    table.push(&record?);
                }
                table.write(&mut out)?;
            }
            Self::Keys(json) => write_keys(&mut out, serde_json::from_slice(&json)?)?,
        }
        Ok(out.flush()?)
    }
}

/// Adds to an error what was being written. The kind stays: a closed pipe is no failure.
fn of_result(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("writing the result: {error}"))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Text(out) => {
                let text = String::from_utf8_lossy(bytes);
                out.write_all(text::inert(&text).as_bytes()).map_err(of_result)?;
                Ok(bytes.len())
            }
            Self::Exact(out) => out.write(bytes).map_err(of_result),
            Self::Rows(json) | Self::Keys(json) => json.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Text(out) | Self::Exact(out) => out.flush().map_err(of_result),
            Self::Rows(_) | Self::Keys(_) => Ok(()),
        }
    }
}

/// Records that become a table.
#[derive(Default)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
}

impl Table {
    /// Adds a record as a row.
    fn push(&mut self, record: &Node) {
        let mut row = vec![None; self.columns.len()];
        self.cells(String::new(), record, &mut row);
        self.rows.push(row);
    }

    fn cells(&mut self, key: String, node: &Node, row: &mut Vec<Option<String>>) {
        let text = match node {
            Node::Map(entries) => {
                for (name, node) in entries {
                    let dot = if key.is_empty() { "" } else { "." };
                    self.cells(format!("{key}{dot}{name}"), node, row);
                }
                return;
            }
            Node::Text(text) => text.clone(),
            list @ Node::List(_) => json(list),
        };
        let column = self.columns.iter().position(|column| *column == key).unwrap_or_else(|| {
            self.columns.push(key);
            self.columns.len() - 1
        });
        row.resize(self.columns.len().max(row.len()), None);
        row[column] = Some(text);
    }

    /// Writes the header and the rows.
    fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        if !self.columns.is_empty() {
            csv.write_record(&self.columns)?;
        }
        for row in &self.rows {
            let cell = |n| row.get(n).and_then(Option::as_deref).unwrap_or_default();
            csv.write_record((0..self.columns.len()).map(cell))?;
        }
        Ok(csv.flush()?)
    }
}

/// Writes one record as rows of a key and a value: `top_files.0.name`.
fn write_keys(out: &mut impl Write, record: Node) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["key", "value"])?;
    let mut ahead = vec![(String::new(), record)];
    while let Some((key, node)) = ahead.pop() {
        let dot = if key.is_empty() { "" } else { "." };
        let below: Vec<(String, Node)> = match node {
            Node::Text(text) => {
                csv.write_record([key, text])?;
                continue;
            }
            Node::List(items) => items
                .into_iter()
                .enumerate()
                .map(|(n, item)| (format!("{key}{dot}{n}"), item))
                .collect(),
            Node::Map(entries) => entries
                .into_iter()
                .map(|(name, node)| (format!("{key}{dot}{name}"), node))
                .collect(),
        };
        ahead.extend(below.into_iter().rev());
    }
    Ok(csv.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(json: &str) -> Node {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn records_are_rows_with_the_columns_of_all() {
        let mut table = Table::default();
        table.push(&node(
            r#"{"policy":"lru","hits":1,"list":[1,"a"],"z":{"b":true,"a":"x,\"y\""}}"#,
        ));
        table.push(&node(r#"{"policy":"arc","hits":2,"years":2.5,"list":[],"z":{"a":null}}"#));
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "policy,hits,list,z.b,z.a,years\n\
             lru,1,\"[1,\"\"a\"\"]\",true,\"x,\"\"y\"\"\",\n\
             arc,2,[],,,2.5\n"
        );
    }

    #[test]
    fn one_record_is_rows_of_keys() {
        let mut out = Vec::new();
        write_keys(&mut out, node(r#"{"a":{"b":1},"c":[{"d":"x"},{"d":null}],"e":[]}"#)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "key,value\na.b,1\nc.0.d,x\nc.1.d,\n");
    }
}
