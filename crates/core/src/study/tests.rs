//! Plans respect the memory limit, and each cell is simulated exactly once.

thread_local! {
    /// Simulations that this thread has run.
    pub(super) static SIMULATIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
