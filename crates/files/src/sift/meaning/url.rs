//! Parts of URLs and of HTTP headers.

use super::{Copied, ResourceType};

/// Endings of the path of a URL, and words of media types, by type.
const TYPES: &[(ResourceType, &[&str], &[&str])] = &[
    (ResourceType::Style, &["css"], &["text/css"]),
    (ResourceType::Script, &["js", "mjs"], &["javascript", "ecmascript"]),
    (ResourceType::Code, &["wasm"], &["application/wasm"]),
    (ResourceType::Font, &["woff", "woff2", "ttf", "otf"], &["font"]),
    (
        ResourceType::Image,
        &["png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico", "bmp"],
        &["image/"],
    ),
    (
        ResourceType::Media,
        &["mp4", "webm", "mp3", "ogg", "m4a", "m4s", "ts", "mpd", "m3u8"],
        &["video/", "audio/", "mpegurl", "dash+xml"],
    ),
    (ResourceType::Document, &["html", "htm", "xhtml", "php"], &["text/html", "xhtml"]),
    (ResourceType::Data, &["json", "xml", "txt", "csv"], &["json", "xml", "text/plain"]),
];

/// Returns the host of a URL or of a site such as `https://example.org`, without its port.
pub(super) fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    (!host.is_empty()).then_some(host)
}

/// Returns the type of a resource by its `Content-Type` or, if that tells nothing, by its URL.
pub(super) fn resource_type(url: &str, content_type: Option<&str>) -> ResourceType {
    let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
    let told =
        TYPES.iter().find(|(.., words)| words.iter().any(|word| content_type.contains(word)));
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let ending = path.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    let ending = ending.map_or("", |(_, ending)| ending);
    let named = TYPES.iter().find(|(_, endings, _)| endings.contains(&ending));
    told.or(named).map_or(ResourceType::Other, |(resource, ..)| *resource)
}

/// Returns the value of `Content-Type` in headers that end in line ends or NUL bytes.
pub(super) fn content_type(headers: &[u8]) -> Option<&str> {
    const NAME: &[u8] = b"content-type:";
    headers.split(|byte| matches!(byte, 0 | b'\n' | b'\r')).find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then(|| str::from_utf8(value).ok().map(str::trim))?
    })
}

/// Returns the copy of a URL that a page of this site loaded.
pub(super) fn loaded_by(site: &str, url: &str, resource: ResourceType) -> Option<Copied> {
    let host = host(url)?;
    let below = host.strip_suffix(site).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'));
    let url = url.split('#').next().unwrap_or(url);
    Some(Copied { site: site.to_owned(), url: url.to_owned(), third_party: !below, resource })
}
