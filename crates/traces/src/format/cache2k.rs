//! The traces of cache2k's benchmarks, which Caffeine's simulator reads too: keys of 32 bits, and
//! nothing else. Each is a read of an object of one page.
//!
//! There is no magic number. Some of the traces number their keys in the order in which they first
//! occur: that is proof enough. The others have to be named.

use super::{Confidence, FileId, FormatSpec, Knows, Side, Space};
use crate::{
    Error,
    events::{Access, AccessKind, Events},
    input::Input,
};
use flashsift_events::{event::About, page::PAGE_BYTES};

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "cache2k",
    what: "keys of 32 bits, as of cache2k's benchmarks and Caffeine's simulator",
    detect,
    read,
    ahead: false,
    sample: || [0, 1, 2, 0, 1, 3, 4, 3, 5, 0].iter().flat_map(|n: &u32| n.to_be_bytes()).collect(),
};

/// Whether each new key is the next number, and keys come again.
fn detect(head: &[u8]) -> Confidence {
    const KEYS_MIN: u32 = 4;
    let keys = head.as_chunks().0;
    let mut next = 0;
    for key in keys {
        let key = u32::from_be_bytes(*key);
        if key > next {
            return Confidence::No;
        }
        next += u32::from(key == next);
    }
    let again = keys.len() > next as usize;
    if next >= KEYS_MIN && again { Confidence::Maybe } else { Confidence::No }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Objects,
        knows: Knows::NOTHING,
    })?;
    let mut number = 0;
    input.records(|keys| {
        for key in keys {
            number += 1;
            events.at(number);
            let (at_us, pid, tid, open, offset, kind) = (0, 0, 0, None, 0, AccessKind::Read);
            let (file, len) = (FileId(u32::from_be_bytes(*key).into()), PAGE_BYTES);
            events.access(Access { at_us, pid, tid, file, open, offset, len, kind })?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use flashsift_events::event::Action;

    #[test]
    fn each_key_is_a_read_of_an_object() {
        let sample = (SPEC.sample)();
        assert_eq!(detect(&sample), Confidence::Maybe);
        let (events, summary) = testing::read(&SPEC, &sample).unwrap();
        let keys: Vec<_> = events
            .iter()
            .map(|event| match event.action {
                Action::Read { file, offset: 0, len: PAGE_BYTES, .. } => file.0,
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(keys, [0, 1, 2, 0, 1, 3, 4, 3, 5, 0]);
        assert_eq!(testing::skipped(&summary), "");
        assert!(testing::read(&SPEC, &sample[..6]).is_err());
    }

    #[test]
    fn other_bytes_are_not_recognised() {
        for bytes in [&[][..], &[0; 4096], &[0xff; 4096], b"\0\0\0\0\0\0\0\x01\0\0\0\x02"] {
            assert_eq!(detect(bytes), Confidence::No);
        }
    }
}
