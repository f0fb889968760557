//! The fields of one hit, independent of the format from which they were decoded.

use super::FIELDS_MAX;
use crate::tracepoint::Values;
use std::borrow::Cow;

/// A field, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum Value<'a> {
    Number(u64),
    Text(&'a [u8]),
}

/// Fields of a tracepoint, in the order of its list.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::format) struct Fields<'a>(pub(in crate::format) [Value<'a>; FIELDS_MAX]);

impl Fields<'_> {
    /// Fields that are all 0.
    pub(in crate::format) const NONE: Self = Self([Value::Number(0); FIELDS_MAX]);
}

impl Values for Fields<'_> {
    fn number(&self, field: usize) -> u64 {
        match self.0[field] {
            Value::Number(number) => number,
            Value::Text(_) => 0,
        }
    }

    fn text(&self, field: usize) -> Cow<'_, str> {
        match self.0[field] {
            Value::Text(text) => String::from_utf8_lossy(text),
            Value::Number(_) => Cow::Borrowed(""),
        }
    }
}
