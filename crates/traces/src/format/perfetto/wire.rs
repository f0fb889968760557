//! A minimal decoder of protocol buffers: numbered fields that hold a number or bytes.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire<'a> {
    Number(u64),
    /// A string, or a nested message.
    Bytes(&'a [u8]),
}

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMessage;

/// The fields of a message, each with its number; iteration ends after an error.
pub(crate) struct MessageFields<'a>(&'a [u8]);

pub(crate) fn fields(message: &[u8]) -> MessageFields<'_> {
    MessageFields(message)
}

impl<'a> Iterator for MessageFields<'a> {
    type Item = Result<(u32, Wire<'a>), NoMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(NoMessage);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> MessageFields<'a> {
    fn field(&mut self) -> Option<(u32, Wire<'a>)> {
        let tag = varint(&mut self.0)?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0)?;
        let value = match tag & 7 {
            0 => Wire::Number(varint(&mut self.0)?),
            1 => Wire::Number(u64::from_le_bytes(*self.take()?)),
            2 => {
                let len = usize::try_from(varint(&mut self.0)?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            5 => Wire::Number(u32::from_le_bytes(*self.take()?).into()),
            // Groups are obsolete.
            _ => return None,
        };
        Some((number, value))
    }

    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Decodes a number in groups of seven bits, the lowest first.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{super::sample::write, *};

    #[test]
    fn every_wire_type_is_decoded() {
        let mut message = Vec::new();
        write::number(&mut message, 1, 300);
        write::number(&mut message, 65_537, u64::MAX);
        write::bytes(&mut message, 2, b"ab");
        message.extend([0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0]);
        let all: Result<Vec<_>, _> = fields(&message).collect();
        assert_eq!(
            all,
            Ok(vec![
                (1, Wire::Number(300)),
                (65_537, Wire::Number(u64::MAX)),
                (2, Wire::Bytes(b"ab")),
                (3, Wire::Number(1)),
                (4, Wire::Number(2)),
            ])
        );
    }

    #[test]
    fn invalid_bytes_are_not_a_message() {
        for bytes in [
            &[0x80][..],
            &[0x08],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x00, 1],
            &[0x0a, 5, 1],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0x09, 1, 2],
            &[0x0b],
            &[0x0e],
        ] {
            let mut all = fields(bytes);
            assert_eq!(all.next(), Some(Err(NoMessage)), "{bytes:x?}");
            assert_eq!(all.next(), None);
        }
    }
}
