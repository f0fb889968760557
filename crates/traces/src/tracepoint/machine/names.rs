//! Names: applies the reports of fanotify in the order of their changes.

use super::{
    super::{Name, NameKind, inodes::Kind, names::Whose},
    TracepointMachine,
};
use flashsift_events::event::{Action, MaybeOwned, Renamed};

impl TracepointMachine {
    /// Takes a report about a name before the points of its time. Creations, links and renames come
    /// in their order, deletions in theirs. (fanotify merges the changes to a name while its queue
    /// is unread, which loses the order between the two.)
    pub fn name(&mut self, name: Name) {
        // Its file is found now: only the order of names among themselves counts.
        let Some(file) = self.whose(&name) else { return };
        match name.kind {
            NameKind::Found { .. } => self.named(file, &name),
            // The name is needed with the file's first access.
            NameKind::Opened | NameKind::Created if self.files[file].names.is_empty() => {
                self.named(file, &name)
            }
            NameKind::Opened => {}
            // The points have not reached this time yet.
            NameKind::Deleted => self.deleted.push_back(name),
            _ => self.later.push_back(name),
        }
    }

    /// Applies the reports about names up to that time.
    pub(super) fn names_until(&mut self, at_ns: u64) {
        while let Some(name) = self.later.pop_front_if(|name| name.at_ns <= at_ns) {
            self.went(&name);
        }
        while let Some(name) = self.deleted.pop_front_if(|name| name.at_ns <= at_ns) {
            self.went(&name);
        }
    }

    /// Returns the file of a name, if it is already known.
    fn whose(&mut self, name: &Name) -> Option<u32> {
        let current = self.files.current(name.handle.inode).filter(|&file| {
            let file = &self.files[file];
            file.older && file.handle.is_none()
        });
        let file = match self.binding.whose(name, current) {
            Whose::Known(file) => file,
            Whose::Gone => return None,
            Whose::Older => {
                let file = self.files.begin(name.handle.inode, true);
                self.binding.bind(name.handle, file);
                file
            }
            Whose::ToCome
                if name.kind == NameKind::Created
                    && self.without_allocations.contains(&name.handle.inode.dev) =>
            {
                self.begins_named(name)
            }
            Whose::ToCome => {
                self.binding.wait(name.clone());
                return None;
            }
        };
        self.files[file].handle.get_or_insert(name.handle);
        if let Some(at_ns) = self.files[file].gone_ns {
            // The name is too late: the file was emitted without it.
            self.binding.gone(name.handle, at_ns);
            self.files.forget(file);
            return None;
        }
        Some(file)
    }

    /// Applies the reports up to the first one that matches `this`. Without a match, applies none
    /// and returns false.
    pub(super) fn catch_up(&mut self, this: impl Fn(&Name) -> bool) -> bool {
        let Some(n) = self.later.iter().position(this) else { return false };
        for _ in 0..=n {
            let name = self.later.pop_front().expect("they are that many");
            self.went(&name);
        }
        true
    }

    pub(super) fn unbound(&mut self, tid: u32, file: u32, path: Box<str>) {
        if self.by_path.get(&path) == Some(&file) {
            self.by_path.remove(&path);
        }
        if let Some(file) = self.files[file].id {
            self.emit(tid, Action::Unbind { file, name: MaybeOwned::owned_str(&path) });
        }
    }

    pub(super) fn give_up_waiting(&mut self, before_ns: u64) {
        // A recorder that was kept from looking gets the reports of a long time at once, all with
        // the time of the look. They are applied when the points have reached that time, which may
        // be long after the end of their files.
        let pending = self.later.iter().chain(&self.deleted).map(|name| name.handle).collect();
        self.binding.forget_gone(before_ns, &pending);
        while let Some((gone_ns, file)) =
            self.nameless.pop_front_if(|(gone_ns, _)| *gone_ns < before_ns)
        {
            if let Some(inode) = self.files.ended(file, gone_ns).map(|file| file.inode) {
                self.binding.nameless(inode, file);
                self.files.forget(file);
            }
        }
        for name in self.binding.given_up(before_ns) {
            let file = match self.files.current(name.handle.inode) {
                Some(file)
                    if self.files[file].handle.is_none_or(|handle| handle == name.handle) =>
                {
                    file
                }
                // Its inode number now belongs to another file.
                Some(_) => continue,
                None => self.files.begin(name.handle.inode, true),
            };
            self.binding.bind(name.handle, file);
            self.files[file].handle = Some(name.handle);
            match name.kind {
                NameKind::Deleted | NameKind::Moved { .. } => self.went(&name),
                _ => self.named(file, &name),
            }
        }
    }

    /// Gives the file this name.
    pub(super) fn named(&mut self, file: u32, name: &Name) {
        if name.directory {
            self.files[file].kind = Kind::Directory;
        }
        if let NameKind::Found { size } = name.kind {
            let f = &mut self.files[file];
            f.has(size);
            f.size = Some(f.size.map_or(size, |old| old.max(size)));
            f.found_ns = name.at_ns;
        }
        if !name.is_nameless(name.handle.inode.ino) {
            let f = &self.files[file];
            let further = name.kind == NameKind::Created && (f.was_named || f.older);
            self.add_name(file, name.dir, name.path.clone(), name.tid, further);
        }
    }

    /// Adds a link. `further`: the file had a name before, known to the trace or not.
    pub(super) fn add_name(
        &mut self,
        file: u32,
        dir: u64,
        path: Box<str>,
        tid: u32,
        further: bool,
    ) {
        self.placed(file, &path);
        self.files[file].was_named = true;
        if let Some(known) = self.files[file].names.iter_mut().find(|(_, p)| *p == path) {
            known.0 = dir;
            return;
        }
        self.takes_path(file, &path, tid);
        self.files[file].names.push((dir, path.clone()));
        if let Some(file) = self.files[file].id {
            let name = MaybeOwned::owned_str(&path);
            self.emit(
                tid,
                match further {
                    true => Action::Link { file, name },
                    false => Action::Bind { file, name },
                },
            );
        }
    }

    /// Assigns the path to this file. A previous file at the path was replaced, or lost the path
    /// without a report.
    fn takes_path(&mut self, file: u32, path: &str, tid: u32) {
        if self.files[file].kind == Kind::Directory {
            return;
        }
        if let Some(other) = self.by_path.insert(path.into(), file)
            && other != file
        {
            self.files[other].names.retain(|(_, p)| **p != *path);
            if let Some(file) = self.files[other].id {
                self.emit(tid, Action::Unbind { file, name: MaybeOwned::owned_str(path) });
            }
        }
    }

    /// Derives from the path whether its file is below the recorded directory.
    fn placed(&mut self, file: u32, path: &str) {
        let Some(under) = &self.under else { return };
        let inside = path
            .strip_prefix(&**under)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let f = &mut self.files[file];
        f.inside = Some(inside || f.inside == Some(true) && f.id.is_some());
        if f.kind == Kind::Directory {
            match inside {
                true => self.dirs.insert(f.inode),
                false => self.dirs.remove(&f.inode),
            };
        }
    }

    /// Removes or moves a name.
    pub(super) fn went(&mut self, name: &Name) {
        let Some(file) = self.whose(name) else { return };
        match &name.kind {
            NameKind::Deleted => {
                if self.files[file].names.iter().any(|(_, path)| *path == name.path) {
                    self.files[file].names.retain(|(_, path)| *path != name.path);
                    self.unbound(name.tid, file, name.path.clone());
                }
            }
            NameKind::Moved { from, .. } => {
                if name.directory {
                    self.files[file].kind = Kind::Directory;
                }
                self.moved(file, from, name);
                if name.directory {
                    self.moved_along(file, from, &name.path, name.tid);
                }
            }
            NameKind::Opened if self.files[file].was_named => {}
            _ => self.named(file, name),
        }
    }

    fn moved(&mut self, file: u32, from: &str, name: &Name) {
        self.placed(file, from);
        let in_scope = self.is_in_scope(name.tid, file);
        self.placed(file, &name.path);
        if self.by_path.get(from) == Some(&file) {
            self.by_path.remove(from);
        }
        self.files[file].names.retain(|(_, path)| **path != *from);
        if self.files[file].names.iter().any(|(_, path)| *path == name.path) {
            return;
        }
        self.takes_path(file, &name.path, name.tid);
        if (in_scope || self.is_in_scope(name.tid, file))
            && self.files[file].id.is_none()
            && !name.directory
        {
            // The file was not seen under its old name.
            let id = self.id(name.tid, file);
            self.emit(name.tid, Action::Bind { file: id, name: MaybeOwned::owned_str(from) });
        }
        self.files[file].names.push((name.dir, name.path.clone()));
        if let Some(file) = self.files[file].id.filter(|_| !name.directory) {
            let names = Renamed::owned(from, &name.path);
            self.emit(name.tid, Action::Rename { file, names });
        }
    }

    /// Moves all paths below a directory with it: one event reports the move.
    fn moved_along(&mut self, directory: u32, from: &str, to: &str, tid: u32) {
        let below = |path: &str| {
            path.strip_prefix(from)
                .filter(|rest| rest.starts_with('/'))
                .map(|rest| format!("{to}{rest}").into_boxed_str())
        };
        let moved: Vec<_> = (self.files.iter())
            .flat_map(|(file, f)| f.names.iter().map(move |(_, path)| (file, path)))
            .filter_map(|(file, path)| Some((file, path.clone(), below(path)?)))
            .collect();
        let mut in_scope = self.is_in_scope(tid, directory);
        for (file, from, to) in moved {
            in_scope |= self.files[file].id.is_some();
            for (_, path) in self.files[file].names.iter_mut().filter(|(_, path)| *path == from) {
                path.clone_from(&to);
            }
            if self.by_path.get(&from) == Some(&file) {
                self.by_path.remove(&from);
                self.by_path.insert(to.clone(), file);
            }
            self.placed(file, &to);
        }
        if in_scope {
            self.emit(tid, Action::RenameDirectory { names: Renamed::owned(from, to) });
        }
    }
}
