//! Parses pages of the kernel's ring buffer from `trace_pipe_raw` (layout: `events/header_page` and
//! `events/header_event`; Documentation/trace/ring-buffer-design).

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Records were lost before this page.
const MISSED: u64 = 1 << 31;
/// The number of lost records follows the data.
const MISSED_STORED: u64 = 1 << 30;

/// Summary of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSummary {
    /// Number of records.
    pub records: u64,
    /// Bytes of the records.
    pub bytes: usize,
    /// Number of records lost before them; 1 if the page does not say how many.
    pub lost: u64,
}

/// Passes every record of a page to `take`, with its time in nanoseconds.
pub fn records<'a>(page: &'a [u8], mut take: impl FnMut(u64, &'a [u8])) -> PageSummary {
    let mut result = PageSummary::default();
    let (Some(time), Some(commit)) = (u64_at(page, 0), u64_at(page, 8)) else { return result };
    let mut time = time;
    let end = (commit & 0xf_ffff) as usize + 16;
    result.bytes = end;
    if commit & MISSED != 0 {
        result.lost = match commit & MISSED_STORED {
            0 => 1,
            _ => u64_at(page, end).unwrap_or(1).max(1),
        };
    }
    let Some(page) = page.get(..end) else { return result };
    let mut at = 16;
    while let Some(header) = u32_at(page, at) {
        let (kind, delta) = (header & 31, u64::from(header >> 5));
        let (data, len) = match kind {
            0 => match u32_at(page, at + 4) {
                Some(len @ 4..) => (at + 8, len as usize - 4),
                _ => return result,
            },
            PADDING if delta == 0 => return result,
            PADDING => {
                time += delta;
                at += 4 + u32_at(page, at + 4).unwrap_or(u32::MAX) as usize;
                continue;
            }
            TIME_EXTEND => {
                time += delta + (u64::from(u32_at(page, at + 4).unwrap_or(0)) << 27);
                at += 8;
                continue;
            }
            TIME_STAMP => {
                // An absolute time without its five highest bits.
                let low = delta + (u64::from(u32_at(page, at + 4).unwrap_or(0)) << 27);
                time = time & 0xf8 << 56 | low;
                at += 8;
                continue;
            }
            words => (at + 4, words as usize * 4),
        };
        time += delta;
        let Some(record) = page.get(data..data + len) else { return result };
        take(time, record);
        result.records += 1;
        at = data + len.next_multiple_of(4);
    }
    result
}

/// Returns the number of a record's tracepoint and its thread.
pub fn head(record: &[u8]) -> Option<(u16, u32)> {
    Some((u16::from_ne_bytes(record.get(..2)?.try_into().ok()?), u32_at(record, 4)?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut page = time.to_ne_bytes().to_vec();
        page.extend((data.len() as u64 | flags).to_ne_bytes());
        page.extend(data);
        page
    }

    fn read(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, PageSummary) {
        let mut all = Vec::new();
        let page = records(page, |time, record| all.push((time, record.to_vec())));
        (all, page)
    }

    #[test]
    fn records_and_their_times_are_decoded() {
        let words = [
            2 | 100 << 5,
            1,
            2, // eight bytes, 100 ns later
            TIME_EXTEND | 5 << 5,
            1, // 5 + 2^27 ns
            7 << 5,
            12,
            3,
            4, // length in a word of its own
            1,
            5, // at the same time
            PADDING,
            0, // the end
        ];
        let (all, page) = read(&page(1000, 0, &words));
        let word = |words: &[u32]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
        let later = 1100 + 5 + (1 << 27) + 7;
        assert_eq!(all, [(1100, word(&[1, 2])), (later, word(&[3, 4])), (later, word(&[5]))]);
        assert_eq!(page, PageSummary { records: 3, bytes: 16 + 4 * words.len(), lost: 0 });
    }

    // Promises: Record 11.
    #[test]
    fn losses_are_reported() {
        let mut bytes = page(0, MISSED | MISSED_STORED, &[1, 9]);
        bytes.extend(41_u64.to_ne_bytes());
        assert_eq!((read(&bytes).1.records, read(&bytes).1.lost), (1, 41));
        assert_eq!(read(&page(0, MISSED, &[])).1.lost, 1);
    }

    #[test]
    fn damage_ends_a_page() {
        for len in 0..40 {
            let bytes = page(5, 0, &[2 | 9 << 5, 1, 2, 0, 400, 1, 0, 3]);
            let (all, _) = read(&bytes[..len.min(bytes.len())]);
            assert!(all.len() <= 1);
        }
        assert_eq!(read(&page(5, 0, &[PADDING | 1 << 5, u32::MAX])).0, []);
    }
}
