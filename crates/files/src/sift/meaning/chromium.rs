//! Chromium's simple cache, and its cache of compiled scripts, which uses the same files.
//!
//! A file `<16 hexadecimal digits>_0` (`_s` if it has parts of a resource) begins with a header of
//! 24 bytes and the key. The headers of the response are a stream at the end, before a record that
//! tells their length.
//!
//! - Of a resource the key is `1/0/_dk_https://site https://frame https://host/path`: numbers for
//!   credentials and uploads, the sites of the page and of the frame, and the URL. Behind `_dk_`
//!   there may be flags, such as `s_` for the document of a frame. Without `_dk_` the key is the
//!   numbers and the URL.
//! - Of compiled code it is `_keyhttps://host/path \nhttps://site/`.

use super::{CacheFile, CacheKind, Copied, ResourceType, url};

pub(super) const KIND: CacheKind = CacheKind {
    name: "chromium",
    source: "`net/disk_cache/simple/simple_entry_format.h`, `net/http/http_cache.cc` of Chromium; \
             checked with files of Chromium 156",
    parse,
};

const MAGIC: [u8; 8] = 0xfcfb_6d1b_a772_5c30_u64.to_le_bytes();
const END_MAGIC: [u8; 8] = 0xf4fa_6f45_970d_41d8_u64.to_le_bytes();
const HEADER_BYTES: usize = 24;
const END_BYTES: usize = 24;
/// Flag of the record at the end: a SHA-256 of the key is before it.
const HAS_KEY_HASH: u32 = 2;
const KEY_HASH_BYTES: usize = 32;

fn parse(file: &CacheFile<'_>) -> Option<Copied> {
    let key = key(file.first)?;
    if let Some(code) = key.strip_prefix("_key") {
        let (loaded, page) = code.split_once(" \n")?;
        let site = url::host(page).or_else(|| url::host(loaded))?;
        return url::loaded_by(site, loaded, ResourceType::Code);
    }
    let (credentials, rest) = key.split_once('/')?;
    let (upload, rest) = rest.split_once('/')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if !is_number(credentials) || !is_number(upload) {
        return None;
    }
    let Some(sites) = rest.strip_prefix("_dk_") else {
        let resource = url::resource_type(rest, headers(file.last).and_then(url::content_type));
        return url::loaded_by(url::host(rest)?, rest, resource);
    };
    let (sites, loaded) = sites.rsplit_once(' ')?;
    let page = sites.split(' ').next()?;
    let flags = page.split("://").next()?.rsplit_once('_').map_or("", |(flags, _)| flags);
    let resource = match flags {
        "s" => ResourceType::Document,
        _ => url::resource_type(loaded, headers(file.last).and_then(url::content_type)),
    };
    // The site of a page without an origin of its own is no URL.
    let site = url::host(page).or_else(|| url::host(loaded))?;
    url::loaded_by(site, loaded, resource)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn key(first: &[u8]) -> Option<&str> {
    if !first.starts_with(&MAGIC) {
        return None;
    }
    let len = number(first, 12)? as usize;
    str::from_utf8(first.get(HEADER_BYTES..)?.get(..len)?).ok()
}

/// Returns the stream with the headers, if it is in the last part of the file.
fn headers(last: &[u8]) -> Option<&[u8]> {
    let (before, end) = last.split_at_checked(last.len().checked_sub(END_BYTES)?)?;
    let (flags, len) = (number(end, 8)?, number(end, 16)? as usize);
    if !end.starts_with(&END_MAGIC) {
        return None;
    }
    let hash_bytes = if flags & HAS_KEY_HASH == 0 { 0 } else { KEY_HASH_BYTES };
    let before = &before[..before.len().checked_sub(hash_bytes)?];
    before.get(before.len().checked_sub(len)?..)
}
