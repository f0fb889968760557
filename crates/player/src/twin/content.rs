//! The content that a twin writes: pages of which a part is random and the rest is zero.

use flashsift_events::page::PAGE_BYTES;
use rand::{Rng, SeedableRng};

const POOL_BYTES: usize = 4 << 20;
/// The longest write in one call.
const LONGEST_BYTES: u64 = 2 << 20;
const PAGE: usize = PAGE_BYTES as usize;

/// Content to write, and a place to read to. Both begin at a page, as direct I/O needs it.
pub struct Content {
    pool: Vec<u8>,
    scratch: Vec<u8>,
    next: usize,
}

impl Content {
    /// Creates content of which this share of each page is zero.
    pub fn new(seed: u64, zero_share: f64) -> Self {
        let mut pool = vec![0; POOL_BYTES + PAGE];
        let mut random = rand_pcg::Pcg64::seed_from_u64(seed);
        let first = aligned(&pool);
        let filled = ((1.0 - zero_share) * PAGE_BYTES as f64) as usize;
        for page in pool[first..first + POOL_BYTES].chunks_mut(PAGE) {
            random.fill_bytes(&mut page[..filled]);
        }
        let scratch = vec![0; LONGEST_BYTES as usize + PAGE];
        Self { pool, scratch, next: 0 }
    }

    /// Returns up to `len` bytes.
    pub fn take(&mut self, len: u64) -> &[u8] {
        let len = len.min(LONGEST_BYTES) as usize;
        // An odd number of pages, so that the same file seldom gets the same content again.
        self.next = (self.next + 37 * PAGE) % (POOL_BYTES - LONGEST_BYTES as usize);
        let first = aligned(&self.pool) + self.next;
        &self.pool[first..first + len]
    }

    /// Returns one byte, another each time.
    pub fn byte(&mut self) -> u8 {
        self.next = (self.next + PAGE) % (POOL_BYTES - LONGEST_BYTES as usize);
        (self.next / PAGE) as u8
    }

    /// Returns a buffer of up to `len` bytes.
    pub fn scratch(&mut self, len: u64) -> &mut [u8] {
        let first = aligned(&self.scratch);
        &mut self.scratch[first..first + len.min(LONGEST_BYTES) as usize]
    }
}

fn aligned(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(PAGE)
}
