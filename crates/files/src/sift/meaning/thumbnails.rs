//! Thumbnails of the desktop: a PNG file with the URI of the picture in a `tEXt` chunk.

use super::{CacheFile, CacheKind, Copied, ResourceType};

pub(super) const KIND: CacheKind = CacheKind {
    name: "thumbnails",
    source: "Thumbnail Managing Standard of freedesktop.org; RFC 2083 (PNG)",
    parse,
};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
const KEYWORD: &[u8] = b"Thumb::URI\0";
/// Length and type before the data of a chunk, and its checksum behind it.
const AROUND_BYTES: usize = 12;

fn parse(file: &CacheFile<'_>) -> Option<Copied> {
    let mut rest = file.first.strip_prefix(SIGNATURE)?;
    loop {
        let len = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let chunk = rest.get(4..)?;
        if let Some(text) = chunk.strip_prefix(b"tEXt")
            && let Some(uri) = text.get(..len)?.strip_prefix(KEYWORD)
        {
            let uri = str::from_utf8(uri).ok()?;
            let (directory, _) = uri.rsplit_once('/')?;
            let (site, url) = (directory.to_owned(), uri.to_owned());
            return Some(Copied { site, url, third_party: false, resource: ResourceType::Image });
        }
        rest = rest.get(len.checked_add(AROUND_BYTES)?..)?;
    }
}
