//! The meaning of a cache file: the site, the URL and the type of what it holds a copy of.
//!
//! A program finds a file of its cache by a key, which the file repeats in its content or has in
//! its name. Each kind of cache is one file here and one line in [`ALL`]. It looks at the file's
//! path and at [`FileParts`]: its first and its last 4 KiB, and 4 KiB at the place that its last
//! bytes name. A [`Meaning`] is hashes and classes: no text of the file leaves this module.
//!
//! The content is that of any program, so each parser takes any bytes. It returns `None` for those
//! that it does not know.

use flashsift_events::event::{Action, FileId, MaybeOwned};
use foldhash::fast::FixedState;
use std::{fmt, hash::BuildHasher};

mod cargo;
mod chromium;
mod firefox;
mod npm;
mod pip;
#[cfg(test)]
mod tests;
mod thumbnails;
mod url;

/// Every kind of cache.
pub const ALL: &[CacheKind] =
    &[chromium::KIND, firefox::KIND, thumbnails::KIND, pip::KIND, npm::KIND, cargo::KIND];

/// A kind of cache.
pub struct CacheKind {
    /// Name, in lower case.
    pub name: &'static str,
    /// Where the format is defined, and how this reading of it was checked.
    pub source: &'static str,
    parse: fn(&CacheFile<'_>) -> Option<Copied>,
}

/// The meaning of a cache file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Name of the kind of cache.
    pub kind: &'static str,
    /// Hash of the site of the page that it belongs to; of a package its name, of a thumbnail the
    /// directory of its picture.
    pub site: u64,
    /// Hash of the URL that it is a copy of; of a package its name and version.
    pub url: u64,
    /// The URL is of another site than the page.
    pub third_party: bool,
    /// Type of the content.
    pub resource: ResourceType,
}

impl fmt::Display for Meaning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, {}", self.kind, self.resource.name())?;
        if self.third_party { write!(out, " of a third party") } else { Ok(()) }
    }
}

impl Meaning {
    /// Returns the event that tells the meaning of this file.
    pub fn told(&self, file: FileId) -> Action<'static> {
        let Self { kind, site, url, third_party, resource } = *self;
        let what = MaybeOwned::owned_str(&format!("{kind}, {}", resource.name()));
        Action::Meaning { file, what, site, url, third_party }
    }
}

/// Type of a cached resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    /// A page, or a frame of one.
    Document,
    /// A style sheet.
    Style,
    /// A script.
    Script,
    /// A script or a module that the browser compiled.
    Code,
    /// A picture.
    Image,
    /// A font.
    Font,
    /// Sound or video.
    Media,
    /// JSON, XML and the like.
    Data,
    /// A package of a package manager.
    Package,
    /// Anything else.
    Other,
}

impl ResourceType {
    /// Every type.
    pub const ALL: [Self; 10] = [
        Self::Document,
        Self::Style,
        Self::Script,
        Self::Code,
        Self::Image,
        Self::Font,
        Self::Media,
        Self::Data,
        Self::Package,
        Self::Other,
    ];

    /// Returns the type in a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Style => "style sheet",
            Self::Script => "script",
            Self::Code => "compiled script",
            Self::Image => "image",
            Self::Font => "font",
            Self::Media => "media",
            Self::Data => "data",
            Self::Package => "package",
            Self::Other => "other",
        }
    }

    /// Returns the type of a package manager's download by its first bytes: archives are packages.
    fn of_download(first: &[u8]) -> Self {
        let is_archive = first.starts_with(b"PK\x03\x04") || first.starts_with(b"\x1f\x8b");
        if is_archive { Self::Package } else { Self::Data }
    }
}

/// The parts of a file that are looked at.
#[derive(Clone, Debug)]
pub struct FileParts {
    size: u64,
    parts: [[u8; FileParts::BYTES]; 3],
    /// Bytes of each part.
    lens: [usize; 3],
}

impl FileParts {
    /// Most bytes of a part.
    pub const BYTES: usize = 4096;

    /// Reads the parts of a file of this size by `read_at`, which fills a slice from an offset.
    ///
    /// # Errors
    /// Those of `read_at`.
    pub fn read<E>(
        size: u64,
        mut read_at: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let len = size.min(Self::BYTES as u64) as usize;
        let (mut parts, mut lens) = ([[0; Self::BYTES]; 3], [len, len, 0]);
        for (part, at) in parts.iter_mut().zip([0, size - len as u64]) {
            read_at(at, &mut part[..len])?;
        }
        if let Some(at) = firefox::metadata_at(size, &parts[1][..len]) {
            lens[2] = (size - at).min(Self::BYTES as u64) as usize;
            read_at(at, &mut parts[2][..lens[2]])?;
        }
        Ok(Self { size, parts, lens })
    }

    /// Returns the parts of a file with this content.
    #[cfg(test)]
    pub(super) fn of(content: &[u8]) -> Self {
        let read = |at: u64, into: &mut [u8]| -> Result<(), std::convert::Infallible> {
            into.copy_from_slice(&content[at as usize..][..into.len()]);
            Ok(())
        };
        Self::read(content.len() as u64, read).unwrap_or_else(|never| match never {})
    }

    /// Returns the size of the file, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the first and the last bytes, each filled up with zeros.
    pub(super) fn padded(&self) -> [&[u8; Self::BYTES]; 2] {
        [&self.parts[0], &self.parts[1]]
    }

    fn part(&self, number: usize) -> &[u8] {
        &self.parts[number][..self.lens[number]]
    }
}

/// The facts about a file that a kind of cache may use.
struct CacheFile<'a> {
    path: &'a str,
    first: &'a [u8],
    last: &'a [u8],
    /// The bytes from the place on that the last four name.
    named: &'a [u8],
    size: u64,
}

impl<'a> CacheFile<'a> {
    fn file_name(&self) -> &'a str {
        self.path.rsplit_once('/').map_or(self.path, |(_, name)| name)
    }

    /// Returns the path below the last directory of this name.
    fn below(&self, directory: &str) -> Option<&'a str> {
        self.path.rsplit_once(directory).map(|(_, below)| below)
    }
}

/// The original of a cache file, in plain text. It ends here: a [`Meaning`] has the hashes.
struct Copied {
    site: String,
    url: String,
    third_party: bool,
    resource: ResourceType,
}

/// Returns the meaning of a file with this path and content. `None`: it is of no known kind.
pub fn of(path: &str, parts: &FileParts) -> Option<Meaning> {
    let [first, last, named] = [0, 1, 2].map(|number| parts.part(number));
    let file = CacheFile { path, first, last, named, size: parts.size };
    let known = |kind: &CacheKind| Some((kind.name, (kind.parse)(&file)?));
    let (kind, copied) = ALL.iter().find_map(known)?;
    let hash = |text: &str| FixedState::with_seed(3).hash_one((kind, text));
    Some(Meaning {
        kind,
        site: hash(&copied.site),
        url: hash(&copied.url),
        third_party: copied.third_party,
        resource: copied.resource,
    })
}
