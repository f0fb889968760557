//! Perfetto's field numbers: `FtraceEvent` has a field for each known tracepoint, whose message has
//! the kernel's fields under numbers of its own.
//!
//! The numbers come from `protos/perfetto/trace/ftrace/*.proto` (Perfetto v53). A number is never
//! reused, so the table holds for older and newer traces too. A tracepoint that Perfetto does not
//! know (all of `filemap`, most of the useful ones of F2FS) comes with the kernel's own names.

use super::{
    super::kernel::{ALL, FIELDS_MAX, Fields, Known, Value},
    wire::{NoMessage, Wire, fields},
};
use std::collections::HashMap;

/// A tracepoint, its number in `FtraceEvent`, and its fields in the order of their numbers, from 1.
const TABLE: &[(&str, u32, &str)] = &[
    ("ext4_da_write_begin", 41, "dev ino pos len flags"),
    ("ext4_da_write_end", 42, "dev ino pos len copied"),
    ("ext4_sync_file_enter", 43, "dev ino parent datasync"),
    ("block_rq_issue", 45, "dev sector nr_sector bytes rwbs comm cmd"),
    ("mm_filemap_add_to_page_cache", 97, "pfn i_ino index s_dev page"),
    ("mm_filemap_delete_from_page_cache", 98, "pfn i_ino index s_dev page"),
    ("block_bio_queue", 119, "dev sector nr_sector rwbs comm"),
    ("block_rq_insert", 126, "dev sector nr_sector bytes rwbs comm cmd"),
    ("block_rq_requeue", 129, "dev sector nr_sector errors rwbs cmd"),
    ("ext4_alloc_da_blocks", 134, "dev ino data_blocks"),
    ("ext4_allocate_inode", 136, "dev ino dir mode"),
    ("ext4_begin_ordered_truncate", 137, "dev ino new_size"),
    ("ext4_es_remove_extent", 155, "dev ino lblk len"),
    ("ext4_evict_inode", 160, "dev ino nlink"),
    ("ext4_fallocate_enter", 174, "dev ino offset len mode pos"),
    ("ext4_fallocate_exit", 175, "dev ino pos blocks ret"),
    ("ext4_journalled_write_end", 189, "dev ino pos len copied"),
    ("ext4_punch_hole", 205, "dev ino offset len mode"),
    ("ext4_sync_fs", 212, "dev wait"),
    ("ext4_truncate_enter", 215, "dev ino blocks"),
    ("ext4_truncate_exit", 216, "dev ino blocks"),
    ("ext4_unlink_enter", 217, "dev ino parent size"),
    ("ext4_write_begin", 219, "dev ino pos len flags"),
    ("ext4_write_end", 230, "dev ino pos len copied"),
    ("task_newtask", 235, "pid comm clone_flags oom_score_adj"),
    ("sched_process_exec", 237, "filename pid old_pid"),
    ("sched_process_exit", 238, "comm pid tgid prio"),
    ("f2fs_evict_inode", 244, "dev ino pino mode size nlink blocks advise"),
    ("f2fs_fallocate", 245, "dev ino mode offset len size blocks ret"),
    ("f2fs_new_inode", 250, "dev ino ret"),
    ("f2fs_sync_file_enter", 255, "dev ino pino mode size nlink blocks advise"),
    ("f2fs_sync_fs", 257, "dev dirty wait"),
    ("f2fs_truncate", 258, "dev ino pino mode size nlink blocks advise"),
    ("f2fs_unlink_exit", 269, "dev ino ret"),
    ("f2fs_write_begin", 271, "dev ino pos len flags"),
    ("f2fs_write_end", 273, "dev ino pos len copied"),
    (
        "ufshcd_command",
        406,
        "dev_name doorbell intr lba opcode str tag transfer_len group_id str_t",
    ),
    ("android_fs_dataread_start", 432, "bytes cmdline i_size ino offset pathbuf pid"),
    ("android_fs_datawrite_start", 434, "bytes cmdline i_size ino offset pathbuf pid"),
    ("block_io_start", 546, "dev sector nr_sector bytes ioprio rwbs comm cmd"),
];

/// A number that no field has.
const NO_FIELD: u32 = 0;

/// Layout of one tracepoint's message.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) known: &'static Known,
    /// Number of each of the tracepoint's fields, in its order.
    numbers: [u32; FIELDS_MAX],
}

impl Layout {
    /// `number`: returns the number of a field; the result is `None` if the message lacks a needed
    /// field.
    fn new(known: &'static Known, number: impl Fn(&str) -> Option<u32>) -> Option<Self> {
        let mut numbers = [0; FIELDS_MAX];
        for (slot, field) in numbers.iter_mut().zip(known.fields) {
            *slot = match number(field) {
                None if !known.needs(field) => NO_FIELD,
                number => number?,
            };
        }
        Some(Self { known, numbers })
    }

    pub(super) fn read<'a>(&self, message: &'a [u8]) -> Result<Fields<'a>, NoMessage> {
        let mut values = [Value::Number(0); FIELDS_MAX];
        for field in fields(message) {
            let (number, wire) = field?;
            if let Some(n) =
                self.numbers[..self.known.fields.len()].iter().position(|&of| of == number)
            {
                values[n] = value(self.known.fields[n], wire);
            }
        }
        Ok(Fields(values))
    }
}

fn value<'a>(field: &str, wire: Wire<'a>) -> Value<'a> {
    match wire {
        Wire::Number(dev) if matches!(field, "dev" | "s_dev") => Value::Number(kernel_dev(dev)),
        Wire::Number(number) => Value::Number(number),
        Wire::Bytes(text) => Value::Text(text),
    }
}

/// Converts a device from the encoding of `stat` to the kernel's major << 20 | minor.
fn kernel_dev(dev: u64) -> u64 {
    let major = dev >> 32 & 0xffff_f000 | dev >> 8 & 0xfff;
    let minor = dev >> 12 & 0xffff_ff00 | dev & 0xff;
    major << 20 | minor & 0xf_ffff
}

/// All layouts of a trace.
pub(super) struct Layouts {
    by_name: HashMap<&'static str, &'static Known>,
    by_number: HashMap<u32, Layout, foldhash::fast::FixedState>,
}

/// First field number for which a trace describes its tracepoints itself.
const DESCRIBED: u32 = 65_536;
/// An upper bound for the number of a kernel's tracepoints.
const DESCRIBED_MAX: usize = 10_000;

impl Layouts {
    pub(super) fn new() -> Self {
        let by_name: HashMap<_, _> = ALL.iter().map(|known| (known.name, known)).collect();
        let known = |&(name, number, names): &(&str, u32, &str)| {
            let field = |field: &str| {
                names.split(' ').zip(1..).find(|(name, _)| *name == field).map(|(_, n)| n)
            };
            Some((number, Layout::new(by_name.get(name)?, field)?))
        };
        let by_number = TABLE.iter().filter_map(known).collect();
        Self { by_name, by_number }
    }

    /// Returns the layout of the field with this number.
    pub(super) fn get(&self, number: u32) -> Option<&Layout> {
        self.by_number.get(&number)
    }

    /// Adds a tracepoint that a bundle describes (`GenericEventDescriptor`: number,
    /// `DescriptorProto`).
    pub(super) fn describe(&mut self, descriptor: &[u8]) -> Result<(), NoMessage> {
        let (mut number, mut name, mut names) = (0, None, Vec::new());
        for field in fields(descriptor) {
            match field? {
                (1, Wire::Number(id)) => number = u32::try_from(id).unwrap_or(0),
                (2, Wire::Bytes(message)) => {
                    for field in fields(message) {
                        match field? {
                            (1, Wire::Bytes(text)) => name = std::str::from_utf8(text).ok(),
                            (2, Wire::Bytes(field)) => names.extend(described(field)?),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let known = name.and_then(|name| self.by_name.get(name));
        if let Some(known) = known
            && number >= DESCRIBED
            && self.by_number.len() < DESCRIBED_MAX
            && let Some(layout) = Layout::new(known, |field| {
                names.iter().find(|(name, _)| *name == field).map(|(_, n)| *n)
            })
        {
            self.by_number.insert(number, layout);
        }
        Ok(())
    }

    /// Reads a tracepoint under the kernel's names (`GenericFtraceEvent`): its own, then each
    /// field's with its value.
    pub(super) fn generic<'a>(&self, message: &'a [u8]) -> Result<Generic<'a>, NoMessage> {
        let mut name: &[u8] = b"";
        let mut known = None;
        let mut values = [Value::Number(0); FIELDS_MAX];
        let mut have = 0_u32;
        for field in fields(message) {
            match field? {
                (1, Wire::Bytes(text)) => {
                    name = text;
                    known = std::str::from_utf8(text)
                        .ok()
                        .and_then(|name| self.by_name.get(name).copied());
                }
                (2, Wire::Bytes(field)) => {
                    let Some(known) = known else { continue };
                    let (field, wire) = named(field)?;
                    if let Some(n) = known.fields.iter().position(|of| of.as_bytes() == field)
                        && let Some(wire) = wire
                    {
                        values[n] = value(known.fields[n], wire);
                        have |= 1 << n;
                    }
                }
                _ => {}
            }
        }
        let whole = |known: &Known| {
            known
                .fields
                .iter()
                .enumerate()
                .all(|(n, field)| have & 1 << n != 0 || !known.needs(field))
        };
        Ok(match known {
            Some(known) if whole(known) => Generic::Known(known, Fields(values)),
            // Perfetto leaves out the arrays of bytes that hold their commands.
            Some(known) if matches!(known.system, "scsi" | "nvme") => Generic::Other(name),
            Some(_) => Generic::Lacking,
            None => Generic::Other(name),
        })
    }
}

/// A tracepoint under the kernel's names.
pub(super) enum Generic<'a> {
    Known(&'static Known, Fields<'a>),
    /// It lacks a needed field.
    Lacking,
    Other(&'a [u8]),
}

/// Reads a field of a `GenericFtraceEvent`: its name, and a string or number.
fn named(message: &[u8]) -> Result<(&[u8], Option<Wire<'_>>), NoMessage> {
    let (mut name, mut value) = (&[][..], None);
    for field in fields(message) {
        match field? {
            (1, Wire::Bytes(text)) => name = text,
            (3..=5, wire) => value = Some(wire),
            _ => {}
        }
    }
    Ok((name, value))
}

/// Reads a `FieldDescriptorProto`: name and number.
fn described(message: &[u8]) -> Result<Option<(&str, u32)>, NoMessage> {
    let (mut name, mut number) = (None, 0);
    for field in fields(message) {
        match field? {
            (1, Wire::Bytes(text)) => name = std::str::from_utf8(text).ok(),
            (3, Wire::Number(n)) => number = u32::try_from(n).unwrap_or(0),
            _ => {}
        }
    }
    Ok(name.map(|name| (name, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tracepoint that Perfetto has a message for has all fields that the reader uses. The check
    /// covers fields that the list of tracepoints gains later.
    #[test]
    fn every_field_has_a_number() {
        for (name, _, names) in TABLE {
            let known = ALL
                .iter()
                .find(|known| known.name == *name)
                .unwrap_or_else(|| panic!("no tracepoint {name} is read"));
            for field in known.fields.iter().filter(|field| known.needs(field)) {
                assert!(names.split(' ').any(|name| name == *field), "{name} lacks {field}");
            }
        }
        assert_eq!(Layouts::new().by_number.len(), TABLE.len());
    }

    #[test]
    fn devices_are_the_kernels_again() {
        // makedev(3), glibc's encoding.
        for (major, minor, dev) in
            [(8, 3, 0x803), (259, 9, 0x10309), (253, 300, 0x10_fd2c), (4095, 0xf_ffff, 0xffff_ffff)]
        {
            assert_eq!(kernel_dev(dev), major << 20 | minor, "{major}:{minor}");
        }
    }
}
