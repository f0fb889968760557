//! pip's downloads (`http-v2/…/<hash of the URL>.body`) and the wheels that it built
//! (`wheels/…/<name>-<version>-….whl`). The URL of a download is nowhere in its file.

use super::{CacheFile, CacheKind, Copied, ResourceType};

pub(super) const KIND: CacheKind = CacheKind {
    name: "pip",
    source: "`pip/_internal/network/cache.py`, `pip/_internal/cache.py` of pip; file names of \
             PEP 427",
    parse,
};

fn parse(file: &CacheFile<'_>) -> Option<Copied> {
    let name = file.file_name();
    if let Some(wheel) = name.strip_suffix(".whl") {
        file.below("/wheels/")?;
        let mut parts = wheel.split('-');
        let (package, version) = (parts.next()?, parts.next()?);
        let (site, url) = (package.to_owned(), format!("{package}-{version}"));
        return Some(Copied { site, url, third_party: false, resource: ResourceType::Package });
    }
    file.below("/http-v2/")?;
    let (site, url) = (String::new(), name.strip_suffix(".body")?.to_owned());
    let resource = ResourceType::of_download(file.first);
    Some(Copied { site, url, third_party: false, resource })
}
