//! Files and open file descriptions, and their ends.

use super::{Flags, Out, names::Node, slab::Slab};
use flashsift_events::event::{Action, FileId, OpenId};
use std::num::NonZeroU32;

/// One identity; its number is its [`FileId`], never reused.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Entries that name it. A file whose name cannot be known counts one entry that is never
    /// removed.
    pub(super) links: u32,
    /// Descriptions and mappings.
    pub(super) uses: u32,
    /// The file's size, once the trace has shown it.
    pub(super) size: Option<u64>,
    /// The file has been seen to reach at least this far.
    pub(super) reach: u64,
    pub(super) gone: bool,
}

/// The object behind a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A file or directory on storage.
    File(u32),
    /// `O_PATH`: only a place in the tree.
    Path,
    /// A pipe, socket, device, or a file without storage.
    Other,
    /// A file that no call has named yet.
    Unnamed,
}

/// An open file description, which `dup` and `fork` share.
#[derive(Debug)]
pub(super) struct Description {
    /// Descriptors in all tables, and calls in progress.
    pub(super) refs: u32,
    pub(super) of: Of,
    pub(super) node: Node,
    /// `None`: the file was opened before the trace, which has not shown the offset since.
    pub(super) offset: Option<u64>,
    pub(super) flags: Flags,
    /// The name that the trace last showed for it, after it was found to agree.
    pub(super) shown: Box<[u8]>,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) files: Vec<File>,
    pub(super) open: Slab<Description>,
}

impl Files {
    /// Adds a new identity.
    pub(super) fn add(&mut self, links: u32, size: Option<u64>) -> u32 {
        self.files.push(File { links, size, ..File::default() });
        (self.files.len() - 1) as u32
    }

    pub(super) fn file(&mut self, file: u32) -> &mut File {
        &mut self.files[file as usize]
    }

    /// Adds a new description with one reference.
    pub(super) fn describe(
        &mut self,
        of: Of,
        node: Node,
        offset: Option<u64>,
        flags: Flags,
    ) -> u32 {
        if let Of::File(file) = of {
            self.file(file).uses += 1;
        }
        self.open.add(Description { refs: 1, of, node, offset, flags, shown: Box::default() })
    }

    /// Removes one descriptor of a description.
    pub(super) fn release(&mut self, open: u32, out: &mut Out) {
        let description = &mut self.open[open];
        description.refs -= 1;
        if description.refs > 0 {
            return;
        }
        if let Of::File(file) = self.open.remove(open).of {
            out.push(Action::Close { open: open_id(open), file: id(file) });
            self.unuse(file, out);
        }
    }

    /// Removes one description or mapping of a file.
    pub(super) fn unuse(&mut self, file: u32, out: &mut Out) {
        self.file(file).uses -= 1;
        self.end(file, out);
    }

    /// Removes one name of a file.
    pub(super) fn unlink(&mut self, file: u32, name: Box<str>, out: &mut Out) {
        out.push(Action::Unbind { file: id(file), name: name.into() });
        self.file(file).links -= 1;
        self.end(file, out);
    }

    fn end(&mut self, file: u32, out: &mut Out) {
        let f = self.file(file);
        if f.links == 0 && f.uses == 0 {
            f.gone = true;
            out.push(Action::Gone { file: id(file) });
        }
    }

    /// Notes that the file holds bytes up to `end`; `written`: this call wrote them.
    pub(super) fn reaches(&mut self, file: u32, end: u64, written: bool) {
        let f = self.file(file);
        f.reach = f.reach.max(end);
        if let Some(size) = f.size.as_mut().filter(|_| written) {
            *size = (*size).max(end);
        }
    }

    pub(super) fn ends_at(&mut self, file: u32, size: u64) {
        let f = self.file(file);
        (f.size, f.reach) = (Some(size), size);
    }
}

pub(super) fn id(file: u32) -> FileId {
    FileId(file.into())
}

/// Returns the identity of an open, which lasts as long as its description.
pub(super) fn open_id(description: u32) -> Option<OpenId> {
    NonZeroU32::new(description.wrapping_add(1)).map(OpenId)
}
