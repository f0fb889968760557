//! A slab with 32-bit keys, since descriptors, tasks and files hold many of them.

use std::ops::{Index, IndexMut};

#[derive(Debug)]
pub(crate) struct Slab<T>(slab::Slab<T>);

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self(slab::Slab::new())
    }
}

impl<T> Slab<T> {
    pub(crate) fn add(&mut self, item: T) -> u32 {
        u32::try_from(self.0.insert(item)).expect("2^32 items do not fit in memory")
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        self.0.get(key as usize)
    }

    pub(crate) fn remove(&mut self, key: u32) -> T {
        self.0.remove(key as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.0.iter().map(|(key, item)| (key as u32, item))
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, key: u32) -> &T {
        &self.0[key as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, key: u32) -> &mut T {
        &mut self.0[key as usize]
    }
}
