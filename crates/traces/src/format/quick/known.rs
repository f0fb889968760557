//! Texts that come again.

use super::{Field, LINE_BYTES, Text, eight, sixteen};
use wide::u8x16;

impl Text<'_> {
    /// Takes a text that is known.
    #[inline(always)]
    pub(in super::super) fn known(&mut self, known: &KnownText) -> Option<()> {
        if !known.is_at(self.line, self.at) {
            return None;
        }
        self.at += known.bytes;
        Some(())
    }
}

impl Field<'_> {
    /// Returns the last eight bytes, or as many as there are behind bytes of 0.
    #[inline(always)]
    fn tail(self) -> Option<u64> {
        let Self { line, begin, end } = self;
        let bytes = (end - begin).min(8);
        if bytes == 0 {
            return None;
        }
        let last = match end.checked_sub(8) {
            Some(at) => eight(line, at)?,
            // It begins within the first eight bytes of the line.
            None => eight(line, 0)? << (64 - 8 * end),
        };
        Some(last & (u64::MAX << (64 - 8 * bytes)))
    }
}

/// A text that may come again.
#[derive(Clone, Debug)]
pub(in super::super) struct KnownText {
    parts: [[u8; 16]; KNOWN_PARTS],
    bytes: usize,
    /// A bit for each byte of the last part that is none of the text.
    behind: u16,
}

const KNOWN_PARTS: usize = 4;

impl KnownText {
    /// `None` if it is empty or too long.
    pub(in super::super) fn new(text: &[u8]) -> Option<Self> {
        let mut parts = [[0; 16]; KNOWN_PARTS];
        parts.as_flattened_mut().get_mut(..text.len())?.copy_from_slice(text);
        let last = (text.len().checked_sub(1)?) % 16;
        Some(Self { parts, bytes: text.len(), behind: !1 << last })
    }

    #[inline(always)]
    fn is_at(&self, line: &[u8; LINE_BYTES], at: usize) -> bool {
        for (n, part) in self.parts.iter().enumerate() {
            let Some(there) = sixteen(line, at + 16 * n) else { return false };
            let same = there.simd_eq(u8x16::new(*part)).to_bitmask() as u16;
            if 16 * n + 16 >= self.bytes {
                return same | self.behind == u16::MAX;
            }
            if same != u16::MAX {
                return false;
            }
        }
        false
    }
}

/// Values of the texts that came last. Most lines of a trace name a few files and processes.
pub(in super::super) struct Memo<V> {
    slots: Box<[Slot<V>; SLOTS]>,
    /// Slots of an earlier generation are empty.
    generation: u64,
}

const SLOTS: usize = 256;

#[derive(Clone)]
struct Slot<V> {
    text: KnownText,
    value: Option<V>,
    generation: u64,
}

impl<V: Copy> Default for Memo<V> {
    fn default() -> Self {
        let text = KnownText { parts: [[0; 16]; KNOWN_PARTS], bytes: 0, behind: 0 };
        let empty = Slot { text, value: None, generation: 0 };
        let Ok(slots) = vec![empty; SLOTS].try_into() else { unreachable!("as many as slots") };
        Self { slots, generation: 0 }
    }
}

impl<V: Copy> Memo<V> {
    /// Returns the value of a text that is remembered.
    #[inline(always)]
    pub(in super::super) fn get(&self, field: Field<'_>) -> Option<V> {
        let Slot { text, value, generation } = &self.slots[slot(field.tail()?)];
        let remembered = *generation == self.generation
            && text.bytes == field.end - field.begin
            && text.is_at(field.line, field.begin);
        (*value).filter(|_| remembered)
    }

    /// Remembers the value of a text, unless that is too long.
    pub(in super::super) fn put(&mut self, text: &[u8], value: V) {
        if let Some(known) = KnownText::new(text) {
            self.slots[slot(tail(text))] =
                Slot { text: known, value: Some(value), generation: self.generation };
        }
    }

    /// Forgets a text.
    pub(in super::super) fn forget(&mut self, text: &[u8]) {
        self.slots[slot(tail(text))].value = None;
    }

    /// Forgets all texts. No slot is touched.
    pub(in super::super) fn clear(&mut self) {
        self.generation += 1;
    }
}

/// Returns the slot of texts with this tail.
#[inline(always)]
fn slot(tail: u64) -> usize {
    // 2^64 divided by the golden ratio.
    (tail.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// Returns the tail of a field of this text.
fn tail(text: &[u8]) -> u64 {
    let mut tail = [0; 8];
    for (to, from) in tail.iter_mut().rev().zip(text.iter().rev()) {
        *to = *from;
    }
    u64::from_le_bytes(tail)
}

/// Whether two short texts are equal, without a call.
#[inline(always)]
pub(in super::super) fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        // Bytes that both chunks hold are compared twice.
        8..=16 => {
            one.first_chunk::<8>() == other.first_chunk()
                && one.last_chunk::<8>() == other.last_chunk()
        }
        4..8 => {
            one.first_chunk::<4>() == other.first_chunk()
                && one.last_chunk::<4>() == other.last_chunk()
        }
        len @ 1..4 => {
            let at = |n: usize| one[n] == other[n];
            at(0) & at(len / 2) & at(len - 1)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::only, Memo, equal};
    use rand::{RngExt as _, SeedableRng};
    use rand_pcg::Pcg64;

    /// A map beside the memo, with texts that share a slot.
    #[test]
    fn a_memo_forgets_and_never_errs() {
        let mut random = Pcg64::seed_from_u64(3);
        let (mut memo, mut all) = (Memo::default(), std::collections::HashMap::new());
        let (mut remembered, mut absent) = (0, 0);
        for n in 0..300_000u32 {
            let name = random.random_range(0..400);
            let text = match name % 3 {
                0 => format!("{name}"),
                1 => format!("/data/{name}/base.db"),
                _ => format!("{}{name}", "x".repeat(name % 80)),
            };
            let found = only(&text, |text| Some(memo.get(text.field(b',')?))).unwrap();
            match found {
                Some(_) => {
                    assert_eq!(found.as_ref(), all.get(&text), "{text}");
                    remembered += 1;
                }
                None => absent += 1,
            }
            match random.random_range(0..1000) {
                0 => {
                    memo.clear();
                    all.clear();
                }
                1..10 => {
                    memo.forget(text.as_bytes());
                    all.remove(&text);
                }
                _ => {
                    memo.put(text.as_bytes(), n);
                    all.insert(text, n);
                }
            }
        }
        println!("{remembered} remembered, {absent} not");
        assert!(remembered > 50_000 && absent > 10_000, "{remembered}, {absent}");
    }

    #[test]
    fn equal_texts() {
        for len in 0..20 {
            let text = vec![b'a'; len];
            assert!(equal(&text, &text.clone()));
            assert!(!equal(&text, &vec![b'a'; len + 1]));
            for at in 0..len {
                let mut other = text.clone();
                other[at] = b'b';
                assert!(!equal(&text, &other), "{len}, {at}");
            }
        }
    }
}
