//! npm's cache. A line of `_cacache/index-v5` has the URL in its key. Content
//! (`_cacache/content-v2/<algorithm>/…`) is found by its own hash, and has no URL.

use super::{CacheFile, CacheKind, Copied, ResourceType};

pub(super) const KIND: CacheKind = CacheKind {
    name: "npm",
    source: "`lib/entry-index.js`, `lib/content/path.js` of cacache; checked with files of npm 11",
    parse,
};

const KEY: &str = "\"key\":\"make-fetch-happen:request-cache:";

fn parse(file: &CacheFile<'_>) -> Option<Copied> {
    let third_party = false;
    if let Some(digest) = file.below("/content-v2/") {
        let (site, url) = (String::new(), digest.to_owned());
        let resource = ResourceType::of_download(file.first);
        return Some(Copied { site, url, third_party, resource });
    }
    file.below("/index-v5/")?;
    let valid = file.first.utf8_chunks().next()?.valid();
    let (_, url) = valid.split_once(KEY)?;
    let (url, _) = url.split_once('"')?;
    // A package's archives are below its description.
    let package = url.split_once("/-/").map_or(url, |(package, _)| package);
    let (site, url) = (package.to_owned(), url.to_owned());
    Some(Copied { site, url, third_party, resource: ResourceType::Data })
}
