//! Measured quantities, each named once: records for programs, their JSON Schema, the columns of
//! tables and those of Python are made from the same lists.

use serde::{Serialize, Serializer, ser::SerializeMap};
use std::fmt::Write as _;

/// A quantity of a result, or a fact that the result belongs to.
pub struct ResultFigure<R> {
    /// Its key in JSON.
    pub name: &'static str,
    /// Members of its JSON Schema: [`COUNT`] and others.
    pub json: &'static str,
    /// A sentence for people.
    pub what: &'static str,
    /// Where it stands.
    pub place: Place,
    /// Returns the value of a result.
    pub of: fn(&R) -> FigureValue,
    /// The head of its column in tables, if it has one.
    pub heading: Option<Heading>,
}

/// Where a figure stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In every record.
    Always,
    /// In a record where it has a meaning.
    Maybe,
    /// In tables alone.
    Table,
}

/// The head of a column in tables.
#[derive(Clone, Copy)]
pub struct Heading {
    /// Two lines.
    pub title: &'static str,
    /// Which of its values is the best.
    pub best: Extreme,
    /// How its values are printed.
    pub shown: Shown,
}

/// The best of some values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// The largest.
    Most,
    /// The smallest.
    Least,
    /// None is better than the others.
    None,
}

/// How a number is printed in a table.
#[derive(Clone, Copy)]
pub enum Shown {
    /// As a whole number.
    Count,
    /// With this many digits behind the point.
    Fixed(usize),
    /// A share, in percent.
    Percent(usize),
    /// A share, in percent with its sign.
    Gain,
    /// Microseconds, in seconds.
    Seconds,
    /// With the digits that matter.
    Significant,
    /// Seconds, in milliseconds.
    Milliseconds,
    /// Pages, in MiB.
    Mebibytes,
}

/// A value as JSON has it.
#[derive(Clone, Debug)]
pub enum FigureValue {
    /// It has no meaning for the result: the record lacks it.
    Absent,
    /// It has a meaning and is unknown.
    Null,
    /// A truth value.
    Flag(bool),
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<FigureValue>),
    /// Values with names, in their order.
    Object(Vec<(&'static str, FigureValue)>),
}

impl FigureValue {
    /// Returns the number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the name that a variant of an enumeration has in JSON.
    pub fn name(of: impl Serialize) -> Self {
        match serde_json::to_value(of) {
            Ok(serde_json::Value::String(name)) => Self::Text(name),
            _ => Self::Null,
        }
    }
}

macro_rules! from {
    ($($from:ty: $given:ident => $value:expr),*) => {
        $(impl From<$from> for FigureValue {
            fn from($given: $from) -> Self {
                $value
            }
        })*
    };
}

from! {
    bool: flag => Self::Flag(flag),
    u32: count => Self::Count(count.into()),
    u64: count => Self::Count(count),
    usize: count => Self::Count(count as u64),
    f64: number => Self::Number(number),
    String: text => Self::Text(text),
    &str: text => Self::Text(text.to_owned()),
    &[&str]: texts => Self::List(texts.iter().map(|text| (*text).into()).collect()),
    Vec<Self>: list => Self::List(list)
}

impl<T: Into<Self>> From<Option<T>> for FigureValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl Serialize for FigureValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Null => serializer.serialize_unit(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(list) => serializer.collect_seq(list),
            Self::Object(entries) => {
                let mut map = serializer.serialize_map(None)?;
                for (name, value) in entries {
                    if !matches!(value, Self::Absent) {
                        map.serialize_entry(name, value)?;
                    }
                }
                map.end()
            }
        }
    }
}

/// A kind of result, with the list of its figures. [`crate::figures!`] implements it.
pub trait HasFigures: Sized {
    /// The name of the record in the JSON Schema.
    const NAME: &'static str;
    /// The title of the record there.
    const TITLE: &'static str;

    /// Returns the figures, in the order of a record.
    fn figures() -> Vec<ResultFigure<Self>>;
}

/// Returns the figures of a result as an object.
pub fn object<R: HasFigures>(of: &R) -> FigureValue {
    let figures = R::figures().into_iter().filter(|figure| figure.place != Place::Table);
    FigureValue::Object(figures.map(|figure| (figure.name, (figure.of)(of))).collect())
}

/// A result as a record for programs: a field is absent where it has no meaning.
pub struct ResultRecord<R>(pub R);

impl<R: HasFigures> Serialize for ResultRecord<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object(&self.0).serialize(serializer)
    }
}

/// Returns the definition of a record in a JSON Schema, one line for each field.
pub fn definition<R: HasFigures>() -> String {
    let figures = R::figures().into_iter().filter(|figure| figure.place != Place::Table);
    let (mut required, mut properties) = (Vec::new(), String::new());
    for ResultFigure { name, json, what, place, .. } in figures {
        required.extend((place == Place::Always).then_some(name));
        let what = match what {
            "" => String::new(),
            what => format!(", \"description\": {}", serde_json::Value::from(what)),
        };
        let comma = if properties.is_empty() { "" } else { "," };
        write!(properties, "{comma}\n    \"{name}\": {{{json}{what}}}")
            .expect("writing to a string does not fail");
    }
    format!(
        "\"{}\": {{\n   \"title\": {},\n   \"type\": \"object\",\n   \"additionalProperties\": \
         false,\n   \"required\": {},\n   \"properties\": {{{properties}\n   }}\n  }}",
        R::NAME,
        serde_json::Value::from(R::TITLE),
        serde_json::Value::from(required),
    )
}

/// The version of the record.
pub const VERSION: &str = r#""const": 1"#;
/// A text.
pub const TEXT: &str = r#""type": "string""#;
/// A truth value.
pub const FLAG: &str = r#""type": "boolean""#;
/// A whole number.
pub const COUNT: &str = r#""type": "integer", "minimum": 0"#;
/// A whole number that is not 0.
pub const POSITIVE: &str = r#""type": "integer", "minimum": 1"#;
/// A number.
pub const NUMBER: &str = r#""type": "number""#;
/// A number that is not negative.
pub const NON_NEGATIVE: &str = r#""type": "number", "minimum": 0"#;
/// A number from 0 to 1.
pub const SHARE: &str = r#""type": "number", "minimum": 0, "maximum": 1"#;
/// Texts.
pub const TEXTS: &str = r#""type": "array", "items": {"type": "string"}"#;

/// The JSON Schema of another record, of a list of them, or of an object of them by any name.
#[macro_export]
macro_rules! schema_of {
    ($name:literal) => {
        concat!("\"$ref\": \"#/$defs/", $name, "\"")
    };
    ([$name:literal]) => {
        concat!("\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/", $name, "\"}")
    };
    ({$name:literal}) => {
        concat!(
            "\"type\": \"object\", \"additionalProperties\": {\"$ref\": \"#/$defs/",
            $name,
            "\"}"
        )
    };
}

/// Lists the figures of a kind of result: where it stands, its name, its JSON Schema, a sentence,
/// its value, and in tables the title of its column, its best value and how it is printed.
#[macro_export]
macro_rules! figures {
    (@place always) => { $crate::figures::Place::Always };
    (@place maybe) => { $crate::figures::Place::Maybe };
    (@place table) => { $crate::figures::Place::Table };
    (@heading) => { None };
    (@heading $title:literal, $best:ident, $shown:expr) => {
        Some($crate::figures::Heading {
            title: $title,
            best: $crate::figures::Extreme::$best,
            shown: $shown,
        })
    };
    (@list $($place:ident $name:ident: $json:expr, $what:expr, |$of:pat_param| $value:expr
        $(, [$($heading:tt)*])?;)*) => {
        vec![$($crate::figures::ResultFigure::<Self> {
            name: stringify!($name),
            json: $json,
            what: $what,
            place: $crate::figures!(@place $place),
            of: |$of| $crate::figures::FigureValue::from($value),
            heading: $crate::figures!(@heading $($($heading)*)?),
        }),*]
    };
    ($def:literal, $title:literal: $row:ty { $($figures:tt)* }) => {
        impl $crate::figures::HasFigures for $row {
            const NAME: &'static str = $def;
            const TITLE: &'static str = $title;

            fn figures() -> Vec<$crate::figures::ResultFigure<Self>> {
                $crate::figures!(@list $($figures)*)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run(u64, Option<f64>);

    figures! { "run", "A run": Run {
        always schema: VERSION, "Version of the record.", |_| 1_u32;
        always hits: COUNT, "Accesses that \"hit\".", |run| run.0;
        maybe stall_s: NUMBER, "Time.", |run| run.1, ["\nstall s", Least, Shown::Fixed(3)];
        maybe reason: r#""type": ["number", "null"]"#, "",
            |run| run.1.map_or(FigureValue::Null, FigureValue::from);
        table hits_twice: COUNT, "", |run| 2 * run.0;
    } }

    #[test]
    fn a_figure_of_a_list_is_in_the_record_and_in_its_schema() {
        let json = |run| serde_json::to_string(&ResultRecord(run)).unwrap();
        assert_eq!(json(Run(3, None)), r#"{"schema":1,"hits":3,"reason":null}"#);
        assert_eq!(json(Run(0, Some(0.5))), r#"{"schema":1,"hits":0,"stall_s":0.5,"reason":0.5}"#);
        let schema = format!("{{{}}}", definition::<Run>());
        let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
        assert_eq!(schema["run"]["required"], serde_json::json!(["schema", "hits"]));
        let hits = serde_json::json!({
            "type": "integer", "minimum": 0, "description": "Accesses that \"hit\"."
        });
        assert_eq!(schema["run"]["properties"]["hits"], hits);
        assert!(schema["run"]["properties"].get("hits_twice").is_none());
    }
}
