//! Names as the kernel resolves them: a tree of directory entries.
//!
//! An entry keeps its number when it is renamed, so that everything beneath a directory, and every
//! descriptor and current directory on it, moves along. Entries are created when a call first
//! mentions them; their files may stay unknown.

use flashsift_events::names::escape;
use std::collections::HashMap;

/// Number of an entry.
pub(super) type Node = u32;
/// `/`.
pub(super) const ROOT: Node = 0;
/// The directory in which the traced program began, until the trace shows its path.
pub(super) const SOMEWHERE: Node = 1;
const NONE: Node = Node::MAX;

/// The kernel refuses longer paths (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// The kernel follows no more links in one path (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Never opened in the trace.
    Unknown,
    /// The trace removed it.
    Absent,
    /// The trace made this directory and has not opened it.
    Directory,
    /// An opened file or directory.
    File(u32),
    /// A symbolic link. `guess`: it was inferred from an open that led elsewhere than its path, so
    /// the link may instead be a directory on the way.
    Link { target: Box<[u8]>, guess: bool },
}

#[derive(Debug)]
struct Entry {
    parent: Node,
    name: Box<[u8]>,
    children: HashMap<Box<[u8]>, Node>,
    what: What,
}

#[derive(Debug)]
pub(super) struct Names {
    entries: Vec<Entry>,
}

/// The options of a walk for the last component, and for entries that do not exist.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) follow: bool,
    pub(super) make: bool,
}

impl Names {
    pub(super) fn new() -> Self {
        let entry = || Entry {
            parent: NONE,
            name: Box::default(),
            children: HashMap::new(),
            what: What::Unknown,
        };
        Self { entries: vec![entry(), entry()] }
    }

    fn entry(&self, node: Node) -> &Entry {
        &self.entries[node as usize]
    }

    pub(super) fn what(&self, node: Node) -> &What {
        &self.entry(node).what
    }

    pub(super) fn set(&mut self, node: Node, what: What) {
        self.entries[node as usize].what = what;
    }

    /// Returns the file that `node` names, if one is known.
    pub(super) fn file(&self, node: Node) -> Option<u32> {
        match *self.what(node) {
            What::File(file) => Some(file),
            _ => None,
        }
    }

    fn add(&mut self, parent: Node, name: &[u8], what: What) -> Node {
        let node = self.entries.len() as Node;
        self.entries.push(Entry { parent, name: name.into(), children: HashMap::new(), what });
        if parent != NONE {
            self.entries[parent as usize].children.insert(name.into(), node);
        }
        node
    }

    /// Adds an entry that no path leads to: an `O_TMPFILE`, or a file that was deleted before the
    /// trace saw it.
    pub(super) fn nameless(&mut self) -> Node {
        self.add(NONE, b"", What::Unknown)
    }

    /// Resolves `path` for a task whose root is `root`, beginning at `from` unless the path is
    /// absolute. `None`: the path is too long, has too many links, or (without `make`) was never
    /// mentioned.
    pub(super) fn walk(&mut self, from: Node, root: Node, path: &[u8], walk: Walk) -> Option<Node> {
        self.walk_on(from, root, path, walk, &mut LINKS_MAX.clone())
    }

    fn walk_on(
        &mut self,
        from: Node,
        root: Node,
        path: &[u8],
        walk: Walk,
        links: &mut u32,
    ) -> Option<Node> {
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        let mut at = if path.starts_with(b"/") { root } else { from };
        let directory = path.ends_with(b"/");
        let mut parts =
            path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".").peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            let parent = self.entry(at).parent;
            if part == b".." && at != SOMEWHERE && self.entry(at).name.as_ref() != b".." {
                at = if at == root || parent == NONE { at } else { parent };
                continue;
            }
            at = match self.entry(at).children.get(part) {
                Some(&child) => child,
                None if walk.make => self.add(at, part, What::Unknown),
                None => return None,
            };
            if let What::Link { target, guess } = self.what(at) {
                let same_name = target.rsplit(|&b| b == b'/').next() == Some(part);
                if !last || walk.follow || directory || (*guess && same_name) {
                    *links = links.checked_sub(1)?;
                    let (target, from) = (target.clone(), self.entry(at).parent);
                    at = self.walk_on(from, root, &target, Walk { follow: true, ..walk }, links)?;
                }
            }
        }
        Some(at)
    }

    /// Infers a link after an open of `asked` led to `real`. Without a traced `symlink` the link
    /// can be at `asked` itself or at a directory above. If both paths end in one name, and no file
    /// was ever opened under the literal name of that directory, the directory is taken as the link
    /// (`/var/run` → `/run`); otherwise `asked` is.
    pub(super) fn learn_link(&mut self, asked: Node, real: Node) {
        let parents = (self.entry(asked).parent, self.entry(real).parent);
        let same_name = self.entry(asked).name == self.entry(real).name;
        let directory =
            parents.0 != NONE && parents.0 > SOMEWHERE && parents.1 != NONE && same_name && {
                let children = self.entry(parents.0).children.values();
                !matches!(self.what(parents.0), What::File(_) | What::Directory)
                    && children
                        .into_iter()
                        .all(|&child| matches!(self.what(child), What::Unknown | What::Link { .. }))
                    && !self.is_above(parents.0, parents.1)
            };
        let (link, to) = if directory { parents } else { (asked, real) };
        if matches!(self.what(link), What::Unknown | What::Absent | What::Link { guess: true, .. })
            && link > SOMEWHERE
        {
            let target = self.path(to).into_boxed_slice();
            if target.starts_with(b"/") {
                self.set(link, What::Link { target, guess: true });
            }
        }
    }

    /// Forgets guessed links on the literal `path`, which turned out not to be a link.
    pub(super) fn unlearn_links(&mut self, path: &[u8]) {
        let mut at = ROOT;
        for part in path.split(|&b| b == b'/').filter(|part| !part.is_empty()) {
            let Some(&child) = self.entry(at).children.get(part) else { return };
            at = child;
            if matches!(self.what(at), What::Link { guess: true, .. }) {
                self.set(at, What::Unknown);
            }
        }
    }

    /// Returns whether the trace made the entry as a directory, or mentioned an entry in it.
    pub(super) fn is_directory(&self, node: Node) -> bool {
        let entry = self.entry(node);
        matches!(entry.what, What::Directory) || !entry.children.is_empty()
    }

    /// Returns whether `above` is an ancestor of `node`, or `node` itself.
    pub(super) fn is_above(&self, above: Node, mut node: Node) -> bool {
        loop {
            if node == above {
                return true;
            }
            match self.entry(node).parent {
                NONE => return false,
                parent => node = parent,
            }
        }
    }

    /// Returns the absolute path or, without a leading `/`, the known part of it. A path that is
    /// longer than the kernel accepts loses its beginning.
    pub(super) fn path(&self, mut node: Node) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut bytes = 0;
        while self.entry(node).parent != NONE && bytes < PATH_BYTES_MAX {
            let entry = self.entry(node);
            parts.push(&*entry.name);
            bytes += entry.name.len() + 1;
            node = entry.parent;
        }
        let mut path = Vec::with_capacity(bytes + 4);
        match node {
            ROOT if parts.is_empty() => path.push(b'/'),
            ROOT | SOMEWHERE => {}
            _ if parts.is_empty() && self.entry(node).parent == NONE => {
                path.extend_from_slice(b"(deleted)")
            }
            _ => path.extend_from_slice(b"..."),
        }
        for part in parts.iter().rev() {
            if node != SOMEWHERE || !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        path
    }

    /// Returns the name as events carry it: UTF-8, other bytes as `\xNN`.
    pub(super) fn name(&self, node: Node) -> Box<str> {
        escape(&self.path(node)).into()
    }

    /// Returns whether the first component below `/` is one without storage.
    pub(super) fn is_virtual(&self, mut node: Node) -> bool {
        let mut top = node;
        while node > SOMEWHERE {
            top = node;
            match self.entry(node).parent {
                NONE => return false,
                parent => node = parent,
            }
        }
        node == ROOT && matches!(&*self.entry(top).name, b"dev" | b"proc" | b"sys")
    }

    /// Returns every entry at or beneath `node` that names a file, with the file.
    pub(super) fn files_beneath(&self, top: Node) -> Vec<(Node, u32)> {
        let mut found = Vec::new();
        let mut ahead = vec![top];
        while let Some(node) = ahead.pop() {
            found.extend(self.file(node).map(|file| (node, file)));
            ahead.extend(self.entry(node).children.values());
        }
        // The order of a hash map differs from run to run. The directory comes before its content.
        found.sort_unstable_by_key(|&(node, _)| (node != top, node));
        found
    }

    /// Takes `node` out of its directory and notes that the name is free.
    pub(super) fn remove(&mut self, node: Node) {
        let parent = std::mem::replace(&mut self.entries[node as usize].parent, NONE);
        if parent != NONE {
            let name = self.entry(node).name.clone();
            self.add(parent, &name, What::Absent);
        }
    }

    /// Puts `node` in the place of `to`, which is no longer in the tree afterwards. Neither is
    /// above the other.
    pub(super) fn rename(&mut self, node: Node, to: Node) {
        let (parent, name) = (self.entry(to).parent, self.entry(to).name.clone());
        self.remove(node);
        self.entries[to as usize].parent = NONE;
        self.place(node, parent, name);
    }

    /// Swaps the places of two entries, neither of which is above the other.
    pub(super) fn exchange(&mut self, a: Node, b: Node) {
        let place = |node| (self.entry(node).parent, self.entry(node).name.clone());
        let (of_a, of_b) = (place(a), place(b));
        self.place(a, of_b.0, of_b.1);
        self.place(b, of_a.0, of_a.1);
    }

    fn place(&mut self, node: Node, parent: Node, name: Box<[u8]>) {
        if parent != NONE {
            self.entries[parent as usize].children.insert(name.clone(), node);
        }
        let entry = &mut self.entries[node as usize];
        (entry.parent, entry.name) = (parent, name);
    }

    /// Returns how many entries name each file.
    ///
    /// # Panics
    /// If an entry and its directory disagree.
    #[cfg(test)]
    pub(super) fn check(&self) -> HashMap<u32, u32> {
        let mut links = HashMap::new();
        for (node, entry) in self.entries.iter().enumerate() {
            if let What::File(file) = entry.what {
                *links.entry(file).or_insert(0) += 1;
            }
            if entry.parent != NONE {
                assert_eq!(
                    self.entry(entry.parent).children.get(&entry.name),
                    Some(&(node as Node))
                );
            }
            for (name, &child) in &entry.children {
                assert_eq!(
                    (self.entry(child).parent, &self.entry(child).name),
                    (node as Node, name)
                );
            }
        }
        links
    }
}
