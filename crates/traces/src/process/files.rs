//! Files and open file descriptions, and when they end.

use super::{Flags, Out, names::Node, slab::Slab};
use flashsift_core::event::{Action, FileId, OpenId};
use std::num::NonZeroU32;

/// One identity; its number is its [`FileId`], never reused.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Entries that name it. A file without a name that we can know counts one that is never lost.
    pub(super) links: u32,
    /// Descriptions and mappings.
    pub(super) uses: u32,
    /// Where it ends, once something in the trace said so.
    pub(super) size: Option<u64>,
    /// It has been seen to reach at least here.
    pub(super) reach: u64,
    pub(super) gone: bool,
}

/// What a description leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A file or directory on storage.
    File(u32),
    /// `O_PATH`: a place in the tree, no more.
    Path,
    /// A pipe, socket, device, or a file that no storage lies under.
    Other,
}

/// An open file description: what `dup` and `fork` share.
#[derive(Debug)]
pub(super) struct Description {
    /// Descriptors in all tables, and calls that are under way.
    pub(super) refs: u32,
    pub(super) of: Of,
    pub(super) node: Node,
    /// `None`: opened before the trace, nothing told since.
    pub(super) offset: Option<u64>,
    pub(super) flags: Flags,
    /// The name that the trace last showed for it and that was found to agree.
    pub(super) shown: Box<[u8]>,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) files: Vec<File>,
    pub(super) open: Slab<Description>,
}

impl Files {
    /// A new identity.
    pub(super) fn add(&mut self, links: u32, size: Option<u64>) -> u32 {
        self.files.push(File { links, size, ..File::default() });
        (self.files.len() - 1) as u32
    }

    pub(super) fn file(&mut self, file: u32) -> &mut File {
        &mut self.files[file as usize]
    }

    /// A new description with one reference.
    pub(super) fn describe(&mut self, of: Of, node: Node, offset: Option<u64>, flags: Flags) -> u32 {
        if let Of::File(file) = of {
            self.file(file).uses += 1;
        }
        self.open.add(Description { refs: 1, of, node, offset, flags, shown: Box::default() })
    }

    /// One descriptor less.
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

    /// One description or mapping less.
    pub(super) fn unuse(&mut self, file: u32, out: &mut Out) {
        self.file(file).uses -= 1;
        self.end(file, out);
    }

    /// One name less.
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

    /// The file was seen to hold bytes up to `end`; `written`: this call put them there.
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

/// A description is an open: it lasts as long as one.
pub(super) fn open_id(description: u32) -> Option<OpenId> {
    NonZeroU32::new(description.wrapping_add(1)).map(OpenId)
}
