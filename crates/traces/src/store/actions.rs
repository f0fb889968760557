//! The `action` column, decoded to kinds.
//!
//! Names are looked up once in each dictionary, not once in each row. The Parquet crate would first
//! make a string of every row's name, which takes a quarter of the time of reading.

use super::{GROUP_ROWS_MAX, Group, Kind, guarded, malformed};
use crate::Error;
use parquet::{
    basic::Encoding,
    column::page::{Page, PageReader},
};

const CUT: &str = "the actions end early";
const UNKNOWN: &str = "there is no such action";

/// The kinds of all rows of a group, at most [`GROUP_ROWS_MAX`]. The column holds names, without
/// nulls.
pub(super) fn kinds(group: &Group<'_>, n: usize, rows: usize) -> Result<Vec<Kind>, Error> {
    assert!(rows <= GROUP_ROWS_MAX, "checked before");
    named(group.pages(n)?, rows)
}

fn named(mut pages: Box<dyn PageReader>, rows: usize) -> Result<Vec<Kind>, Error> {
    let (mut kinds, mut dictionary) = (Vec::with_capacity(rows), Vec::new());
    while let Some(page) = guarded(|| pages.get_next_page())? {
        let (values, count, encoding) = match &page {
            Page::DictionaryPage { buf, num_values, .. } => {
                dictionary.clear();
                plain(buf, *num_values as usize, &mut dictionary).map_err(malformed)?;
                continue;
            }
            // The column has no nulls, so that nothing stands before its values.
            Page::DataPage { buf, num_values, encoding, .. } => (&buf[..], *num_values, *encoding),
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
                let values = buf.get(levels..).ok_or_else(|| malformed(CUT))?;
                (values, *num_values, *encoding)
            }
        };
        let count = count as usize;
        if count > rows - kinds.len() {
            return Err(malformed("columns of unequal length"));
        }
        match encoding {
            Encoding::PLAIN => plain(values, count, &mut kinds),
            #[allow(deprecated, reason = "others may have written it")]
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                indices(values, count, &dictionary, &mut kinds)
            }
            _ => Err("actions in an encoding of another kind"),
        }
        .map_err(malformed)?;
    }
    if kinds.len() == rows { Ok(kinds) } else { Err(malformed(CUT)) }
}

/// Names, each behind its length.
fn plain(mut bytes: &[u8], count: usize, kinds: &mut Vec<Kind>) -> Result<(), &'static str> {
    for _ in 0..count {
        let (len, rest) = bytes.split_first_chunk().ok_or(CUT)?;
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(CUT)?;
        kinds.push(Kind::named(name).ok_or(UNKNOWN)?);
        bytes = rest;
    }
    Ok(())
}

/// Decodes indices into a dictionary: a byte with their width in bits, then Parquet's hybrid of run
/// lengths and packed bits.
fn indices(
    bytes: &[u8],
    count: usize,
    dictionary: &[Kind],
    kinds: &mut Vec<Kind>,
) -> Result<(), &'static str> {
    let kind = |index: u64| dictionary.get(usize::try_from(index).ok()?).copied();
    let (&width, mut bytes) = bytes.split_first().ok_or(CUT)?;
    if width > 32 {
        return Err("indices of more than 32 bits");
    }
    let mut left = count;
    while left > 0 {
        let mut header = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().filter(|_| shift < 32).ok_or(CUT)?;
            bytes = rest;
            header |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        let packed = header & 1 == 1;
        let length = (header >> 1) as usize;
        if packed {
            let (packed, rest) = bytes.split_at_checked(length * usize::from(width)).ok_or(CUT)?;
            bytes = rest;
            let many = left.min(length * 8);
            let (mut held, mut bits, mut packed) = (0u64, 0, packed.iter());
            for _ in 0..many {
                while bits < width {
                    held |= u64::from(*packed.next().ok_or(CUT)?) << bits;
                    bits += 8;
                }
                kinds.push(kind(held & ((1 << width) - 1)).ok_or(UNKNOWN)?);
                held >>= width;
                bits -= width;
            }
            left -= many;
        } else {
            let (value, rest) =
                bytes.split_at_checked(usize::from(width.div_ceil(8))).ok_or(CUT)?;
            bytes = rest;
            let index = value.iter().rev().fold(0, |index, byte| index << 8 | u64::from(*byte));
            let many = left.min(length);
            kinds.extend(std::iter::repeat_n(kind(index).ok_or(UNKNOWN)?, many));
            left -= many;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DICTIONARY: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Sync, Kind::Open, Kind::Gone];

    fn decoded(bytes: &[u8], count: usize) -> Result<Vec<Kind>, &'static str> {
        let mut kinds = Vec::new();
        indices(bytes, count, &DICTIONARY, &mut kinds).map(|()| kinds)
    }

    /// The example of the format's own page (Encodings.md): 0 to 7 in three bits; here 0 to 4.
    #[test]
    fn runs_and_packed_bits_are_decoded() {
        let [read, write, sync, open, gone] = DICTIONARY;
        // 1, 2, 3, 4, 0, 1, 2, 3 in three bits, low bits first.
        let bits =
            [1u32, 2, 3, 4, 0, 1, 2, 3].iter().rev().fold(0, |bits, index| bits << 3 | index);
        let packed = [&[3, 1 << 1 | 1][..], &bits.to_le_bytes()[..3]].concat();
        assert_eq!(
            decoded(&packed, 8).unwrap(),
            [write, sync, open, gone, read, write, sync, open]
        );
        // The last of a group of eight may be filling.
        assert_eq!(decoded(&packed, 3).unwrap(), [write, sync, open]);
        // 300 times 4, and then the same again.
        let run = [&[3, 0xd8, 0x04, 4][..], &packed[1..]].concat();
        let kinds = decoded(&run, 305).unwrap();
        assert!(kinds[..300].iter().all(|kind| *kind == gone));
        assert_eq!(kinds[300..], [write, sync, open, gone, read]);
        // One name needs no bits.
        assert_eq!(decoded(&[0, 3 << 1], 3).unwrap(), [read; 3]);
    }

    #[test]
    fn truncated_columns_and_bad_indices_are_errors() {
        for bytes in [&[][..], &[3], &[3, 3], &[3, 3, 0, 0], &[3, 4], &[3, 0x80], &[3, 0, 0]] {
            assert_eq!(decoded(bytes, 2), Err(CUT), "{bytes:?}");
        }
        assert_eq!(decoded(&[3, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0], 2), Err(CUT));
        assert_eq!(decoded(&[3, 4, 5], 2), Err(UNKNOWN));
        assert!(decoded(&[33, 4, 5, 0, 0, 0, 0], 2).is_err());
    }
}
