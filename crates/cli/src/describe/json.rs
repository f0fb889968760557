//! `describe --json`: one object for each trace, with an object for each characterisation. Results
//! that the trace cannot give are absent, and `missing` names them with the reason.

use flashsift_events::event::{Side, Space};
use flashsift_study::describe::{Audience, Description, Found, Part, Section, Table, Value};
use flashsift_traces::annotations::Annotations;
use serde::{Serialize, Serializer, ser::SerializeMap};

/// The line of one trace.
pub(super) struct DescriptionRecord<'a> {
    trace: &'a str,
    format: &'a str,
    annotations: &'a Annotations,
    description: &'a Description,
}

impl<'a> DescriptionRecord<'a> {
    pub(super) fn new(
        trace: &'a str,
        format: &'a str,
        annotations: &'a Annotations,
        description: &'a Description,
    ) -> Self {
        Self { trace, format, annotations, description }
    }
}

impl Serialize for DescriptionRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let about = self.description.about;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &1)?;
        map.serialize_entry("trace", self.trace)?;
        map.serialize_entry("format", self.format)?;
        let side = match about.side {
            Side::Before => "before",
            Side::After => "after",
        };
        map.serialize_entry("side", side)?;
        let space = match about.space {
            Space::Files => "files",
            Space::Blocks => "blocks",
            Space::Objects => "objects",
        };
        map.serialize_entry("space", space)?;
        if about.knows.times {
            map.serialize_entry("duration_us", &self.description.duration_us)?;
        }
        map.serialize_entry("requests", &self.description.requests)?;
        let Annotations { split, restored, served } = self.annotations;
        if let Some(split) = split {
            map.serialize_entry("split", split)?;
        }
        if let Some(restored) = restored {
            map.serialize_entry("restored", restored)?;
        }
        if let Some(served) = served {
            map.serialize_entry("served", served)?;
        }
        sections(&mut map, self.description)?;
        map.end()
    }
}

/// The sections alone, for the records of other commands.
pub(crate) struct Sections<'a>(pub(crate) &'a Description);

impl Serialize for Sections<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        sections(&mut map, self.0)?;
        map.end()
    }
}

fn sections<M: SerializeMap>(map: &mut M, description: &Description) -> Result<(), M::Error> {
    for Section { spec, found } in &description.sections {
        if let Ok(found) = found {
            map.serialize_entry(spec.name, &Object(found))?;
        }
    }
    map.serialize_entry("missing", &Missing(&description.sections))
}

struct Missing<'a>(&'a [Section]);

impl Serialize for Missing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let missing = self
            .0
            .iter()
            .filter_map(|section| Some((section.spec.name, section.found.as_ref().err()?)));
        serializer.collect_map(missing)
    }
}

struct Object<'a>(&'a Found);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for part in &self.0.parts {
            match part {
                Part::Figures(figures) => {
                    for figure in figures {
                        if figure.value != Value::Absent {
                            map.serialize_entry(figure.key, &Plain(&figure.value))?;
                        }
                        if let Some(share) =
                            figure.share.as_ref().filter(|share| **share != Value::Absent)
                        {
                            map.serialize_entry(&format!("{}_share", figure.key), &Plain(share))?;
                        }
                    }
                }
                Part::Table(table) if table.audience != Audience::People => {
                    map.serialize_entry(table.key, &Rows(table))?;
                }
                Part::Command(command) => map.serialize_entry("command", command)?,
                Part::Table(_) | Part::Note(_) => {}
            }
        }
        map.end()
    }
}

struct Rows<'a>(&'a Table);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let keys = || self.0.columns.iter().map(|column| column.key);
        serializer.collect_seq(self.0.rows.iter().map(|row| Row(keys().zip(row).collect())))
    }
}

struct Row<'a>(Vec<(&'static str, &'a Value)>);

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let present = self.0.iter().filter(|(_, value)| **value != Value::Absent);
        serializer.collect_map(present.map(|(key, value)| (key, Plain(value))))
    }
}

struct Plain<'a>(&'a Value);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rounded = |number: f64, to: f64| (number * to).round() / to;
        match self.0 {
            Value::Count(n) | Value::Bytes(n) | Value::TimeUs(n) => serializer.serialize_u64(*n),
            Value::Share(share) => serializer.serialize_f64(rounded(*share, 1e6)),
            Value::Number(number) => serializer.serialize_f64(rounded(*number, 1e3)),
            Value::Label { id, .. } => serializer.serialize_str(id),
            Value::Name(name) => serializer.serialize_str(name),
            Value::Absent => serializer.serialize_none(),
        }
    }
}
