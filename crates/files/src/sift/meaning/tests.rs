//! Each kind of cache on heads as its program writes them, and all kinds on damaged ones.

use super::*;
use flashsift_events::dice::Dice;

const ENTRY: &str = "/Default/Cache/Cache_Data/733617f8e6811825_0";
const FIREFOX: &str = "/p/cache2/entries/2DE8A99AE27BA51D3947A762FAB152995B3366CD";

fn meaning(path: &str, content: &[u8]) -> Option<Meaning> {
    of(path, &FileParts::of(content))
}

/// An entry of Chromium's simple cache with this key, a body and these headers.
pub(in crate::sift) fn chromium(key: &str, body_bytes: usize, headers: &str) -> Vec<u8> {
    let key_bytes = (key.len() as u32).to_le_bytes();
    let mut file = 0xfcfb_6d1b_a772_5c30_u64.to_le_bytes().to_vec();
    file.extend([&5_u32.to_le_bytes()[..], &key_bytes, &[7; 4], &[0; 4], key.as_bytes()].concat());
    file.extend(vec![b'x'; body_bytes]);
    let end = |flags: u32, len: u32| {
        let magic = 0xf4fa_6f45_970d_41d8_u64.to_le_bytes();
        [&magic[..], &flags.to_le_bytes(), &[9; 4], &len.to_le_bytes(), &[0; 4]].concat()
    };
    file.extend(end(1, body_bytes as u32));
    file.extend(headers.as_bytes());
    file.extend([1; 32]);
    file.extend(end(3, headers.len() as u32));
    file
}

/// An entry of Firefox's cache.
fn firefox(key: &str, body_bytes: usize, elements: &str) -> Vec<u8> {
    let mut file = vec![b'x'; body_bytes];
    file.extend(vec![1; 4 + 2 * body_bytes.div_ceil(1 << 18)]);
    for number in [3, 1, 0, 0, 0, 0, key.len() as u32, 0] {
        file.extend(u32::to_be_bytes(number));
    }
    file.extend(format!("{key}\0{elements}\0").as_bytes());
    file.extend((body_bytes as u32).to_be_bytes());
    file
}

fn thumbnail(uri: &str) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [("IHDR", "1234567890123"), ("tEXt", &format!("Thumb::URI\0{uri}"))] {
        file.extend((data.len() as u32).to_be_bytes());
        file.extend([kind.as_bytes(), data.as_bytes(), &[0; 4]].concat());
    }
    file
}

/// The text of a meaning, and which of these have its site and its URL.
#[track_caller]
fn is(found: Option<Meaning>, shown: &str) -> Meaning {
    let found = found.expect("it is known");
    assert_eq!(found.to_string(), shown);
    found
}

/// The keys are those that Chromium 156 wrote for a page with scripts, pictures and a frame.
// Promises: Mount 85.
#[test]
fn chromium_entries_tell_site_url_and_type() {
    let of = |key: &str, headers: &str| meaning(ENTRY, &chromium(key, 20_000, headers));
    let page = "1/0/_dk_http://site.test http://site.test http://site.test:8765/page1";
    let own = is(of(page, "HTTP/1.1 200\0Content-Type: text/html\0"), "chromium, document");
    let script = "1/0/_dk_http://site.test http://site.test http://other.test:8765/lib/third.js";
    let third = is(of(script, ""), "chromium, script of a third party");
    assert_eq!(own.site, third.site);
    assert_ne!(own.url, third.url);
    let image = "1/0/_dk_http://site.test http://site.test http://cdn.site.test:8765/c.png?x=/a.js";
    assert_eq!(is(of(image, ""), "chromium, image").site, own.site);
    let frame = "1/0/_dk_s_http://site.test http://ads.test http://ads.test:8765/frame";
    is(of(frame, "content-type: image/png"), "chromium, document of a third party");
    // The same URL below another page is another file, with the same hash of its URL.
    let elsewhere = is(of(&script.replace("site.test", "b.test"), ""), &third.to_string());
    assert!(elsewhere.url == third.url && elsewhere.site != third.site);
    is(of("1/0/https://a.test/x.woff2", ""), "chromium, font");
    let code = "_keyhttp://other.test:8765/lib/third.js \nhttp://site.test/";
    let code = is(of(code, ""), "chromium, compiled script of a third party");
    assert_eq!((code.site, code.url), (third.site, third.url));
    let by_hash = "7F41E9AB55BF003B552BDE32BBA25ACBBCC3DF74D873B999935085E68D5292B5";
    assert_eq!(of(by_hash, ""), None);
    assert_eq!(of("1/0/_dk_http://site.test http://site.test data:,", ""), None);
}

/// The body comes first, and the metadata may be longer than the last part of the file.
// Promises: Mount 85.
#[test]
fn firefox_entries_tell_site_url_and_type() {
    let key = "O^partitionKey=%28http%2Csite.localhost%29,:http://site.localhost:8765/b.js?v=1";
    let of = |key: &str, body_bytes: usize, elements: &str| {
        meaning(FIREFOX, &firefox(key, body_bytes, elements))
    };
    let head = "request-method\0GET\0response-head\0HTTP/1.1 200 OK\r\nContent-Type: text/css\r\n";
    let script = is(of(key, 20_000, ""), "firefox, script");
    assert_eq!(is(of(key, 20_000, head), "firefox, style sheet").url, script.url);
    let certificates = format!("security-info\0{}\0{head}", "A".repeat(9000));
    assert_eq!(of(key, 600_000, &certificates), Some(script));
    assert_eq!(of(key, 0, ""), Some(script));
    let other = key.replace("//site", "//ads");
    let third = is(of(&other, 300, ""), "firefox, script of a third party");
    assert!(third.site == script.site && third.url != script.url);
    is(of(":https://a.test/", 300, head), "firefox, style sheet");
    assert_eq!(meaning("/p/cache2/entries/other", &firefox(key, 300, head)), None);
}

// Promises: Mount 85.
#[test]
fn thumbnails_and_packages_tell_their_source() {
    let one = is(meaning("/normal/a.png", &thumbnail("file:///p/one.jpg")), "thumbnails, image");
    let two = is(meaning("/normal/b.png", &thumbnail("file:///p/two.jpg")), "thumbnails, image");
    assert!(one.site == two.site && one.url != two.url);
    let wheel = |name: &str| meaning(&format!("/wheels/01/23/{name}"), b"PK\x03\x04");
    let idna = is(wheel("idna-3.20-py3-none-any.whl"), "pip, package");
    assert_eq!(wheel("idna-3.9-py3-none-any.whl").unwrap().site, idna.site);
    is(meaning("/http-v2/0/1/0123.body", b"PK\x03\x04"), "pip, package");
    is(meaning("/http-v2/0/1/0123.body", b"{\"meta\""), "pip, data");
    is(meaning("/_cacache/content-v2/sha512/0a/1b/2c", b"\x1f\x8b\x08"), "npm, package");
    let line = |url: &str| {
        let key = format!("make-fetch-happen:request-cache:https://registry.npmjs.org/{url}");
        let line = format!("\n500f\t{{\"key\":\"{key}\",\"integrity\":\"sha512-a\"}}");
        is(meaning("/_cacache/index-v5/0a/1b/2c", line.as_bytes()), "npm, data")
    };
    assert_eq!(line("npm").site, line("npm/-/npm-11.0.0.tgz").site);
    let cargo = |name: &str| meaning(&format!("/registry/cache/i/{name}.crate"), b"");
    let [old, new, other] =
        ["a-2-1.0.0-rc-1.2", "a-2-1.0.0", "a-1.0.0"].map(|name| cargo(name).unwrap());
    assert!(old.site == new.site && old.url != new.url && new.site != other.site);
    assert_eq!(cargo("no-version"), None);
    assert_eq!(meaning("/Pictures/a.png", b"\x89PNG\r\n\x1a\n"), None);
}

/// Every kind has one name, and says where its format is from.
#[test]
fn kinds_have_names_and_sources() {
    let names: std::collections::BTreeSet<&str> = ALL.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), ALL.len());
    assert!(ALL.iter().all(|kind| kind.source.len() > 10));
    for (at, resource) in ResourceType::ALL.into_iter().enumerate() {
        assert_eq!(resource as usize, at);
    }
}

/// A key that is put together from random parts is taken apart again.
#[test]
fn keys_are_taken_apart_as_they_were_put_together() {
    let mut dice = Dice::new(1);
    let mut below = |n: u32| dice.below(n);
    for _ in 0..2000 {
        let [site, host] = [0, 0].map(|_| format!("s{}.test", below(3)));
        let sub = ["", "www.", "a.b."][below(3) as usize];
        let port = ["", ":80", ":8765"][below(3) as usize];
        let (ending, shown) =
            [("js", "script"), ("css", "style sheet"), ("php?a= b", "document")][below(3) as usize];
        let url = format!("https://{sub}{host}{port}/{}.{}", below(9), ending.replace(' ', "%20"));
        let key = format!("1/0/_dk_https://{site} https://{site} {url}");
        let found = meaning(ENTRY, &chromium(&key, below(9000) as usize, "")).unwrap();
        let is_third = site != host;
        let third = if is_third { " of a third party" } else { "" };
        assert_eq!(
            (found.to_string(), found.third_party),
            (format!("chromium, {shown}{third}"), is_third)
        );
        let tags = format!("O^partitionKey=%28https%2C{site}%29,");
        let other = meaning(FIREFOX, &firefox(&format!("{tags}:{url}"), below(9000) as usize, ""));
        assert_eq!(other.unwrap().to_string(), found.to_string().replace("chromium", "firefox"));
    }
}

/// Files that end early, or of which bytes have changed, and random ones: no parser panics, and a
/// file that is whole is known by one kind.
// Promises: Mount 85.
#[test]
fn any_bytes_are_taken() {
    let key = "1/0/_dk_http://site.test http://site.test http://site.test:8765/a.css";
    let heads = [
        (ENTRY, chromium(key, 300, "HTTP/1.1 200\0Content-Type: text/css\0")),
        (ENTRY, chromium("_keyhttps://a.test/b.js \nhttps://a.test/", 5000, "")),
        (FIREFOX, firefox("O^partitionKey=%28https%2Ca.test%29,:https://a.test/", 700, "a\0b")),
        ("/normal/a.png", thumbnail("file:///p/one.jpg")),
        ("/_cacache/index-v5/0a", b"\n5\t{\"key\":\"make-fetch-happen:request-cache:x\"".to_vec()),
    ];
    let mut dice = Dice::new(2);
    for (path, head) in &heads {
        assert!(meaning(path, head).is_some(), "{path}");
        for len in 0..head.len().min(500) {
            meaning(path, &head[..len]);
            meaning(path, &head[len..]);
        }
        for _ in 0..500 {
            let mut damaged = head.clone();
            for _ in 0..=dice.below(4) {
                let at = dice.below(head.len() as u32) as usize;
                damaged[at] = [0, 0xff, dice.below(256) as u8][dice.below(3) as usize];
            }
            for (path, _) in &heads {
                meaning(path, &damaged);
            }
        }
    }
    for n in 0..500 {
        let content: Vec<u8> = (0..dice.below(200)).map(|_| dice.below(256) as u8).collect();
        for path in ["", "/", "/é.crate", "/wheels/-.whl", "/wheels/a.whl", heads[n % 5].0] {
            meaning(path, &content);
        }
    }
}
