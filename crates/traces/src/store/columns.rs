//! The columns of a row group, by their names, whatever program wrote them.
//!
//! pyarrow, fastparquet, polars and DuckDB write a trace again with other annotations, encodings
//! and compressions, some with every column nullable, and pandas with numbers as floats where one
//! is missing. Each column is taken that has numbers, texts or truth values where ours has them.

use super::{GROUP_ROWS_MAX, Group, KINDS_2, Kind, actions, guarded, malformed};
use crate::Error;
use parquet::{
    basic::{ConvertedType, Encoding, Type},
    column::reader::ColumnReaderImpl,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type},
    file::statistics::Statistics,
    schema::types::{ColumnDescriptor, SchemaDescriptor},
};

/// The places of the store's columns in a file; `None` if a file lacks one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) at_us: usize,
    pub(super) action: usize,
    pub(super) file: usize,
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) pid: Option<usize>,
    pub(super) tid: Option<usize>,
    pub(super) flag: Option<usize>,
    pub(super) name: Option<usize>,
    pub(super) name2: Option<usize>,
    pub(super) open: Option<usize>,
    pub(super) uid: Option<usize>,
    pub(super) gid: Option<usize>,
    pub(super) mode: Option<usize>,
    pub(super) place: Option<usize>,
}

/// The kinds of values that a column may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Numbers,
    Texts,
    Flags,
}

impl Places {
    pub(super) fn new(schema: &SchemaDescriptor) -> Result<Self, Error> {
        let optional = |name: &str, holds: &[Holds]| -> Result<Option<usize>, Error> {
            let is_it = |column: &ColumnDescriptor| column.path().parts() == [name];
            let Some(n) = schema.columns().iter().position(|column| is_it(column)) else {
                return Ok(None);
            };
            let column = schema.column(n);
            let found = match column.physical_type() {
                Type::INT32 | Type::INT64 | Type::DOUBLE => Some(Holds::Numbers),
                Type::BYTE_ARRAY => Some(Holds::Texts),
                Type::BOOLEAN => Some(Holds::Flags),
                _ => None,
            };
            let flat = column.max_rep_level() == 0 && column.max_def_level() <= 1;
            match found.is_some_and(|found| flat && holds.contains(&found)) {
                true => Ok(Some(n)),
                false => Err(malformed(format_args!(
                    "its columns are not ours: `{name}` has values of type {}",
                    column.physical_type()
                ))),
            }
        };
        let required = |name: &str, holds: &[Holds]| {
            let lacks = || malformed(format_args!("its columns are not ours: none is `{name}`"));
            optional(name, holds)?.ok_or_else(lacks)
        };
        let numbers = &[Holds::Numbers];
        Ok(Self {
            at_us: required("at_us", numbers)?,
            action: required("action", &[Holds::Texts, Holds::Numbers])?,
            file: required("file", numbers)?,
            offset: required("offset", numbers)?,
            len: required("len", numbers)?,
            pid: optional("pid", numbers)?,
            tid: optional("tid", numbers)?,
            flag: optional("flag", &[Holds::Flags])?,
            name: optional("name", &[Holds::Texts])?,
            name2: optional("name2", &[Holds::Texts])?,
            open: optional("open", numbers)?,
            uid: optional("uid", numbers)?,
            gid: optional("gid", numbers)?,
            mode: optional("mode", numbers)?,
            place: optional("place", numbers)?,
        })
    }
}

/// Whether a column holds nothing but zeros or nothing but nulls, and need not be read.
fn holds_nothing(group: &Group<'_>, n: usize) -> bool {
    let Some(statistics) = group.about.column(n).statistics() else { return false };
    let nulls = statistics.null_count_opt().and_then(|nulls| i64::try_from(nulls).ok());
    let exact = statistics.min_is_exact() && statistics.max_is_exact();
    let zero = match statistics {
        Statistics::Int32(range) => (range.min_opt(), range.max_opt()) == (Some(&0), Some(&0)),
        Statistics::Int64(range) => (range.min_opt(), range.max_opt()) == (Some(&0), Some(&0)),
        _ => false,
    };
    let column = group.about.column(n).column_descr();
    let is_nullable = column.max_def_level() > 0;
    (is_nullable && nulls == Some(group.about.num_rows())) || (!is_nullable && zero && exact)
}

/// A column of numbers of any type, read some rows at a time.
pub(super) struct Numbers {
    source: Source,
    /// The numbers of these rows; 0 where one is null.
    pub(super) values: Vec<i64>,
    /// For each row whether it has a value; empty if all have one.
    levels: Vec<i16>,
    absent: bool,
}

enum Source {
    Nothing,
    /// Whether they are without a sign.
    Int32(Column<Int32Type>, bool),
    Int64(Column<Int64Type>),
    Double(Column<DoubleType>),
}

impl Numbers {
    /// A column that need not be there.
    pub(super) fn new(group: &Group<'_>, n: Option<usize>) -> Result<Self, Error> {
        let column =
            |source, absent| Self { source, values: Vec::new(), levels: Vec::new(), absent };
        let Some(n) = n.filter(|n| !holds_nothing(group, *n)) else {
            return Ok(column(Source::Nothing, true));
        };
        let about = group.about.column(n).column_descr();
        let source = match about.physical_type() {
            Type::INT32 => {
                let unsigned = about.converted_type() == ConvertedType::UINT_32;
                Source::Int32(Column::new(group, n)?, unsigned)
            }
            Type::INT64 => Source::Int64(Column::new(group, n)?),
            _ => Source::Double(Column::new(group, n)?),
        };
        Ok(column(source, false))
    }

    pub(super) fn next(&mut self, rows: usize) -> Result<(), Error> {
        let Self { source, values, levels, .. } = self;
        match source {
            Source::Nothing => {
                values.clear();
                values.resize(rows, 0);
            }
            Source::Int32(column, true) => {
                column.next(rows)?;
                column.spread(values, levels, |n| i64::from(n.cast_unsigned()));
            }
            Source::Int32(column, false) => {
                column.next(rows)?;
                column.spread(values, levels, i64::from);
            }
            Source::Int64(column) => {
                column.next(rows)?;
                if column.levels.is_empty() {
                    levels.clear();
                    std::mem::swap(values, &mut column.values);
                } else {
                    column.spread(values, levels, |n| n);
                }
            }
            Source::Double(column) => {
                column.next(rows)?;
                if column.values.iter().any(|n| n.is_finite() && n.fract() != 0.0) {
                    return Err(malformed("a number with a fraction"));
                }
                let mut nan = column.values.iter().map(|n| !n.is_finite());
                let nulls: Vec<i16> = match column.levels.is_empty() {
                    true => nan.map(|nan| i16::from(!nan)).collect(),
                    false => column
                        .levels
                        .iter()
                        .map(|level| i16::from(*level > 0 && nan.next() == Some(false)))
                        .collect(),
                };
                // A float beyond the numbers with a sign is one without.
                let whole = |n: f64| match n < 0.0 {
                    true => n as i64,
                    false => (n as u64).cast_signed(),
                };
                column.spread(values, levels, whole);
                *levels = nulls;
            }
        }
        Ok(())
    }

    /// The same for a column without nulls.
    pub(super) fn next_whole(&mut self, rows: usize) -> Result<(), Error> {
        self.next(rows)?;
        match self.levels.contains(&0) {
            true => Err(malformed("a number is missing")),
            false => Ok(()),
        }
    }

    /// Returns the value of row `n`.
    #[inline(always)]
    pub(super) fn value(&self, n: usize) -> Option<i64> {
        let is_null = self.absent || self.levels.get(n) == Some(&0);
        (!is_null).then(|| self.values[n])
    }
}

/// Returns a number of 32 bits, with or without a sign.
#[inline(always)]
pub(super) fn short(number: i64) -> Result<u32, Error> {
    match i32::try_from(number) {
        Ok(number) => Ok(number.cast_unsigned()),
        Err(_) => u32::try_from(number).map_err(|_| malformed("a number of more than 32 bits")),
    }
}

/// A column of truth values.
pub(super) struct Flags {
    column: Option<Column<BoolType>>,
    pub(super) values: Vec<bool>,
}

impl Flags {
    pub(super) fn new(group: &Group<'_>, n: Option<usize>) -> Result<Self, Error> {
        let column = n.map(|n| Column::new(group, n)).transpose()?;
        Ok(Self { column, values: Vec::new() })
    }

    pub(super) fn next(&mut self, rows: usize) -> Result<(), Error> {
        let Some(column) = &mut self.column else {
            self.values.clear();
            self.values.resize(rows, false);
            return Ok(());
        };
        column.next(rows)?;
        column.spread(&mut self.values, &mut Vec::new(), |flag| flag);
        Ok(())
    }
}

/// A column of texts, read one row after the other.
pub(super) struct Texts {
    /// `None`: the column has only nulls.
    column: Option<Column<ByteArrayType>>,
    /// Number of values taken from the current batch.
    taken: usize,
}

impl Texts {
    pub(super) fn new(group: &Group<'_>, n: Option<usize>) -> Result<Self, Error> {
        // Most columns with nulls hold only nulls and need not be read.
        let n = n.filter(|n| !holds_nothing(group, *n));
        Ok(Self { column: n.map(|n| Column::new(group, n)).transpose()?, taken: 0 })
    }

    pub(super) fn next(&mut self, rows: usize) -> Result<(), Error> {
        self.taken = 0;
        self.column.as_mut().map_or(Ok(()), |column| column.next(rows))
    }

    /// Returns the value of row `n`. Rows are asked for in order.
    #[inline(always)]
    pub(super) fn value(&mut self, n: usize) -> Result<Option<&ByteArray>, Error> {
        let Some(column) = &self.column else { return Ok(None) };
        if column.levels.get(n) == Some(&0) {
            return Ok(None);
        }
        self.taken += 1;
        column.values.get(self.taken - 1).map(Some).ok_or_else(|| malformed("values are missing"))
    }
}

/// The column of actions.
pub(super) enum Kinds {
    /// Decoded to the end of the group.
    Decoded(std::vec::IntoIter<Kind>),
    Names(Texts),
    /// As in schemas 1 and 2.
    Places(Numbers),
}

impl Kinds {
    pub(super) fn new(group: &Group<'_>, n: usize, rows: usize) -> Result<Self, Error> {
        let column = group.about.column(n);
        let about = column.column_descr();
        let is_usual = |encoding: Encoding| match encoding {
            Encoding::PLAIN | Encoding::RLE | Encoding::RLE_DICTIONARY => true,
            #[allow(deprecated, reason = "others may have written it")]
            Encoding::PLAIN_DICTIONARY | Encoding::BIT_PACKED => true,
            _ => false,
        };
        match about.physical_type() {
            Type::BYTE_ARRAY
                if about.max_def_level() == 0
                    && rows <= GROUP_ROWS_MAX
                    && column.encodings().all(is_usual) =>
            {
                Ok(Self::Decoded(actions::kinds(group, n, rows)?.into_iter()))
            }
            Type::BYTE_ARRAY => Ok(Self::Names(Texts::new(group, Some(n))?)),
            _ => Ok(Self::Places(Numbers::new(group, Some(n))?)),
        }
    }

    /// Puts the kinds of the next rows into `kinds`.
    pub(super) fn next(&mut self, rows: usize, kinds: &mut Vec<Kind>) -> Result<(), Error> {
        let unknown = || malformed("there is no such action");
        kinds.clear();
        match self {
            Self::Decoded(all) => kinds.extend(all.take(rows)),
            Self::Names(names) => {
                names.next(rows)?;
                for n in 0..rows {
                    let name = names.value(n)?.ok_or_else(unknown)?;
                    kinds.push(Kind::named(name.data()).ok_or_else(unknown)?);
                }
            }
            Self::Places(numbers) => {
                numbers.next(rows)?;
                for number in &numbers.values {
                    let number = usize::try_from(*number).map_err(|_| unknown())?;
                    kinds.push(*Kind::ALL[..KINDS_2].get(number).ok_or_else(unknown)?);
                }
            }
        }
        Ok(())
    }
}

/// A column of one type.
struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    /// Empty if the column has no nulls.
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
    /// The column has this type: [`Places::new`] has looked.
    fn new(group: &Group<'_>, n: usize) -> Result<Self, Error> {
        let pages = group.pages(n)?;
        let reader = ColumnReaderImpl::new(group.about.column(n).column_descr_ptr(), pages);
        Ok(Self { reader, values: Vec::new(), levels: Vec::new() })
    }

    fn next(&mut self, rows: usize) -> Result<(), Error> {
        self.values.clear();
        self.levels.clear();
        let (mut have, mut values) = (0, 0);
        while have < rows {
            let (records, some, _) = guarded(|| {
                self.reader.read_records(
                    rows - have,
                    Some(&mut self.levels),
                    None,
                    &mut self.values,
                )
            })?;
            if records == 0 {
                return Err(malformed("a column ends early"));
            }
            have += records;
            values += some;
        }
        let whole = if self.levels.is_empty() { values == rows } else { self.levels.len() == rows };
        if whole && values == self.values.len() {
            Ok(())
        } else {
            Err(malformed("columns of unequal length"))
        }
    }

    /// Puts a value for each row into `into`, the default for null, and the levels into `levels`.
    fn spread<V: Clone + Default>(
        &self,
        into: &mut Vec<V>,
        levels: &mut Vec<i16>,
        value: impl Fn(T::T) -> V,
    ) where
        T::T: Copy,
    {
        into.clear();
        levels.clone_from(&self.levels);
        let mut values = self.values.iter().map(|found| value(*found));
        if self.levels.is_empty() {
            into.extend(values);
        } else {
            let or_none = |level: &i16| match level {
                0 => V::default(),
                _ => values.next().unwrap_or_default(),
            };
            into.extend(self.levels.iter().map(or_none));
        }
    }
}
