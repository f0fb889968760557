//! Firefox's `cache2/entries/<40 hexadecimal digits>`.
//!
//! The body comes first. The last four bytes are its length (big-endian), behind which the metadata
//! begins: a hash, one of each 256 KiB of the body, a header, the key, and pairs of names and
//! values that end in NUL. The key is `O^partitionKey=%28https%2Csite%29,:https://host/path`: tags
//! that end in commas, a colon and the URL.

use super::{CacheFile, CacheKind, Copied, url};

pub(super) const KIND: CacheKind = CacheKind {
    name: "firefox",
    source: "`netwerk/cache2/CacheFileMetadata.h`, `CacheFileUtils.cpp` of Firefox; checked with \
             files of Firefox 153",
    parse,
};

/// Most bytes of metadata: the certificates of a site are part of it.
const METADATA_BYTES_MAX: u64 = 1 << 16;
/// Part of the body that has a hash, bytes.
const CHUNK_BYTES: u64 = 1 << 18;
/// The least of a version, seven numbers of the header and the key.
const LEAST_BYTES: u64 = 40;

/// Returns the place that the last four bytes of a file of this size name, if metadata may begin
/// there.
pub(super) fn metadata_at(size: u64, last: &[u8]) -> Option<u64> {
    let at = u32::from_be_bytes(*last.last_chunk()?).into();
    let bytes = size.checked_sub(at)?;
    (LEAST_BYTES..=METADATA_BYTES_MAX).contains(&bytes).then_some(at)
}

fn parse(file: &CacheFile<'_>) -> Option<Copied> {
    let name = file.file_name();
    if name.len() != 40 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let body_bytes = metadata_at(file.size, file.last)?;
    let chunks = body_bytes.div_ceil(CHUNK_BYTES) as usize;
    let header = file.named.get(4 + 2 * chunks..)?;
    let number = |at: usize| Some(u32::from_be_bytes(*header.get(4 * at..)?.first_chunk()?));
    // Behind the length of the key are, since version 2, flags.
    let (version, key_bytes) = (number(0)?, number(6)? as usize);
    let key_at = if version >= 2 { 32 } else { 28 };
    let (key, elements) = header.get(key_at..)?.split_at_checked(key_bytes)?;
    let (tags, loaded) = split(str::from_utf8(key).ok()?)?;
    let site = page_site(tags).or_else(|| url::host(loaded).map(str::to_owned))?;
    let resource = url::resource_type(loaded, url::content_type(elements));
    url::loaded_by(&site, loaded, resource)
}

/// Splits a key into its tags and the URL, behind the first colon that begins a tag.
fn split(key: &str) -> Option<(&str, &str)> {
    match key.strip_prefix(':') {
        Some(url) => Some(("", url)),
        None => key.split_once(",:"),
    }
}

/// Returns the site of the page in `partitionKey=(https,site)`, whose signs are percent-encoded.
fn page_site(tags: &str) -> Option<String> {
    let (_, partition) = tags.split_once("partitionKey=")?;
    let partition = partition.split(['&', ',']).next()?;
    let text = partition.replace("%28", "(").replace("%29", ")").replace("%2C", ",");
    let mut parts = text.trim_matches(['(', ')']).split(',').skip(1);
    parts.next().filter(|site| !site.is_empty()).map(str::to_owned)
}
