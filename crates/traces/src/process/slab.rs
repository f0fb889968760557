//! Numbered things that come and go.

use std::ops::{Index, IndexMut};

#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn add(&mut self, item: T) -> u32 {
        let n = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            (self.items.len() - 1) as u32
        });
        self.items[n as usize] = Some(item);
        n
    }

    pub(crate) fn get(&self, n: u32) -> Option<&T> {
        self.items.get(n as usize)?.as_ref()
    }

    pub(crate) fn remove(&mut self, n: u32) -> T {
        self.free.push(n);
        self.items[n as usize].take().expect("only what is there is removed")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter_map(|(n, item)| Some((n as u32, item.as_ref()?)))
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, n: u32) -> &T {
        self.items[n as usize].as_ref().expect("a reference keeps it")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, n: u32) -> &mut T {
        self.items[n as usize].as_mut().expect("a reference keeps it")
    }
}
