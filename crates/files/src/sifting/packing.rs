//! The most that intervals can be worth which share a capacity: an upper bound of a linear program.
//!
//! Each [`Stay`] takes RAM from its first moment to its last. Any part *x* between 0 and 1 of it
//! may be chosen, and is worth *x* times its worth. At each moment the chosen parts fit into the
//! RAM. The most that a choice is worth is the optimum of a linear program. Its dual has a price
//! for RAM at each moment: for any prices that are not negative, the price of the whole RAM, plus
//! the worth of each stay beyond the price of the RAM that it takes, is at least the optimum. So
//! any prices give a bound, and only its tightness depends on how they are found:
//!
//! 1. Of the moments, only the last one before stays end again matters (a *peak*).
//! 2. If all stays are worth their RAM, prices of 0 and 1 are optimal, since the matrix of
//!    intervals is totally unimodular. The peaks with price 1 are a shortest path: from one to the
//!    next, it costs the RAM and the worth of the stays that lie between them.
//! 3. If stays are worth less than their RAM, these prices are too high. Each is lowered to the
//!    value that is best while the others stay, until nothing is gained. Then the path is sought
//!    again over the worth that is left, with lower prices.

#[cfg(test)]
mod tests;

/// RAM that is taken over a time, and what that is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stay {
    /// The first moment.
    pub(super) first: u32,
    /// The last moment; not before the first.
    pub(super) last: u32,
    /// Worth of the whole, not above `ram_bytes`.
    pub(super) worth_bytes: f64,
    /// RAM that the whole takes, above 0.
    pub(super) ram_bytes: f64,
}

/// Most rounds of path and descent.
const ROUNDS: usize = 12;
/// After this many rounds without a gain, the search ends.
const FRUITLESS: usize = 3;
/// Descents of a round.
const DESCENTS: usize = 8;
/// Steps of all descents together: with more, prices stay as they are.
const STEPS_MAX: usize = 400_000_000;
/// A gain below this share of the bound ends a round.
const GAIN: f64 = 1e-5;

/// Returns an upper bound of the worth of any choice of these stays.
pub(super) fn upper_bound(stays: &[Stay], ram_bytes: f64) -> f64 {
    let (stays, peaks) = at_peaks(stays);
    let mut prices = Prices { stays: &stays, ram_bytes, of_peak: vec![0.0; peaks], steps: 0 };
    let mut best = prices.bound();
    if fits(&stays, peaks, ram_bytes) {
        return best;
    }
    let (mut step, mut fruitless) = (1.0, 0);
    for _ in 0..ROUNDS {
        let before = prices.of_peak.clone();
        let path = cheapest_path(&prices.left(), peaks, ram_bytes * step);
        path.iter().for_each(|peak| prices.of_peak[*peak] += step);
        let mut found = prices.bound();
        for _ in 0..DESCENTS {
            if !prices.descend() {
                break;
            }
            let lower = prices.bound();
            let gained = found - lower;
            found = found.min(lower);
            if gained < GAIN * found {
                break;
            }
        }
        fruitless = if best - found > GAIN * best { 0 } else { fruitless + 1 };
        if found < best {
            best = found;
        } else {
            prices.of_peak = before;
        }
        if fruitless == FRUITLESS {
            break;
        }
        step /= 2.0;
    }
    best
}

/// Returns the stays with peaks as moments, and the number of peaks.
fn at_peaks(stays: &[Stay]) -> (Vec<Stay>, usize) {
    const START: bool = false;
    const END: bool = true;
    let ends = stays.iter().enumerate().flat_map(|(n, stay)| {
        // Starts come before ends of the same moment.
        [(stay.first, START, n), (stay.last, END, n)]
    });
    let mut ends: Vec<(u32, bool, usize)> = ends.collect();
    ends.sort_unstable();
    let mut stays = stays.to_vec();
    let (mut peak, mut ended) = (0, false);
    for (_, kind, n) in ends {
        if kind == START {
            peak += u32::from(std::mem::take(&mut ended));
            stays[n].first = peak;
        } else {
            ended = true;
            stays[n].last = peak;
        }
    }
    stays.sort_unstable_by_key(|stay| (stay.last, stay.first));
    (stays, peak as usize + 1)
}

/// Returns whether all stays fit into the RAM together.
fn fits(stays: &[Stay], peaks: usize, ram_bytes: f64) -> bool {
    let mut changes = vec![0.0; peaks + 1];
    for stay in stays {
        changes[stay.first as usize] += stay.ram_bytes;
        changes[stay.last as usize + 1] -= stay.ram_bytes;
    }
    let mut held = 0.0;
    changes.iter().all(|change| {
        held += change;
        held <= ram_bytes
    })
}

/// The prices of RAM: a feasible solution of the dual.
struct Prices<'s> {
    /// By their last peak.
    stays: &'s [Stay],
    ram_bytes: f64,
    of_peak: Vec<f64>,
    /// Steps of all descents.
    steps: usize,
}

impl Prices<'_> {
    /// Returns the price of RAM from the beginning to before each peak.
    fn sums(&self) -> Vec<f64> {
        let mut sum = 0.0;
        let add = |price: &f64| {
            sum += price;
            sum
        };
        std::iter::once(0.0).chain(self.of_peak.iter().map(add)).collect()
    }

    /// Returns the stays that are worth more than their price, with the difference as their worth.
    fn left(&self) -> Vec<Stay> {
        let sums = self.sums();
        let left = self.stays.iter().map(|stay| {
            let price = sums[stay.last as usize + 1] - sums[stay.first as usize];
            let worth_bytes = (stay.worth_bytes - price * stay.ram_bytes).max(0.0);
            Stay { worth_bytes, ..*stay }
        });
        left.filter(|stay| stay.worth_bytes > 0.0).collect()
    }

    /// Returns the bound that these prices give.
    fn bound(&self) -> f64 {
        let left: f64 = self.left().iter().map(|stay| stay.worth_bytes).sum();
        self.of_peak.iter().sum::<f64>() * self.ram_bytes + left
    }

    /// Gives each peak that has a price the best price beside those of the others, one after the
    /// other. Returns whether it did: it takes too many steps if stays span many such peaks.
    fn descend(&mut self) -> bool {
        let peaks: Vec<usize> =
            (0..self.of_peak.len()).filter(|peak| self.of_peak[*peak] > 0.0).collect();
        let at = |peak: u32| peaks.partition_point(|known| *known < peak as usize);
        let spans: Vec<_> =
            self.stays.iter().map(|stay| at(stay.first)..at(stay.last + 1)).collect();
        self.steps += spans.iter().map(|span| span.len()).sum::<usize>();
        if self.steps > STEPS_MAX {
            return false;
        }
        let mut across: Vec<Vec<u32>> = vec![Vec::new(); peaks.len()];
        for (n, span) in spans.iter().enumerate() {
            span.clone().for_each(|peak| across[peak].push(n as u32));
        }
        // The price of a byte of each stay.
        let mut costs: Vec<f64> = spans
            .iter()
            .map(|span| span.clone().map(|peak| self.of_peak[peaks[peak]]).sum())
            .collect();
        let mut gains: Vec<(f64, f64)> = Vec::new();
        for (peak, across) in peaks.iter().zip(&across) {
            let before = self.of_peak[*peak];
            gains.clear();
            for n in across {
                let stay = &self.stays[*n as usize];
                let gain = stay.worth_bytes / stay.ram_bytes - (costs[*n as usize] - before);
                if gain > 0.0 {
                    gains.push((gain, stay.ram_bytes));
                }
            }
            gains.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            let mut taken = 0.0;
            let filled = gains.iter().find(|(_, ram_bytes)| {
                taken += ram_bytes;
                taken > self.ram_bytes
            });
            let price = filled.map_or(0.0, |(gain, _)| *gain);
            self.of_peak[*peak] = price;
            for n in across {
                costs[*n as usize] += price - before;
            }
        }
        true
    }
}

/// Returns the peaks of the cheapest path from the beginning to the end: each peak on it costs
/// `peak_bytes`, and each stay that lies between two of them its worth. Stays are sorted by their
/// last peak.
fn cheapest_path(stays: &[Stay], peaks: usize, peak_bytes: f64) -> Vec<usize> {
    // Position 0 is the beginning, position n + 1 is peak n.
    let mut costs = Costs::new(peaks + 1);
    let mut before: Vec<usize> = vec![0];
    costs.set(0, 0.0);
    let mut ended = stays.iter().peekable();
    for position in 1..=peaks + 1 {
        while let Some(stay) = ended.next_if(|stay| (stay.last as usize + 1) < position) {
            costs.add(stay.first as usize + 1, stay.worth_bytes);
        }
        let (from, cost) = costs.least();
        before.push(from);
        if position <= peaks {
            costs.set(position, cost + peak_bytes);
        }
    }
    let mut path = Vec::new();
    let mut position = before[peaks + 1];
    while position > 0 {
        path.push(position - 1);
        position = before[position];
    }
    path.reverse();
    path
}

/// Numbers at positions: adds to all before a position, and finds the least.
struct Costs {
    width: usize,
    /// The least below each node of a binary tree, with what was added to the node.
    least: Vec<f64>,
    added: Vec<f64>,
}

impl Costs {
    fn new(positions: usize) -> Self {
        let width = positions.next_power_of_two();
        Self { width, least: vec![f64::INFINITY; 2 * width], added: vec![0.0; 2 * width] }
    }

    /// Sets a position to which nothing was added.
    fn set(&mut self, position: usize, cost: f64) {
        self.least[self.width + position] = cost;
        self.renew(self.width + position);
    }

    /// Adds to the positions before `end`, of which there is at least one.
    fn add(&mut self, end: usize, cost: f64) {
        let (mut from, mut to) = (self.width, self.width + end);
        while from < to {
            if from % 2 == 1 {
                self.add_at(from, cost);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                self.add_at(to, cost);
            }
            (from, to) = (from / 2, to / 2);
        }
        self.renew(self.width);
        self.renew(self.width + end - 1);
    }

    fn add_at(&mut self, node: usize, cost: f64) {
        self.least[node] += cost;
        self.added[node] += cost;
    }

    fn renew(&mut self, mut node: usize) {
        while node > 1 {
            node /= 2;
            let below = self.least[2 * node].min(self.least[2 * node + 1]);
            self.least[node] = below + self.added[node];
        }
    }

    /// Returns the position with the least number, and the number.
    fn least(&self) -> (usize, f64) {
        let mut node = 1;
        while node < self.width {
            node *= 2;
            node += usize::from(self.least[node + 1] < self.least[node]);
        }
        (node - self.width, self.least[1])
    }
}
