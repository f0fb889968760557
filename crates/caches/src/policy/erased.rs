//! A policy behind a pointer, so that one loop serves all policies. Calls through the pointer cost
//! a few nanoseconds an access, so this is for loops that take much longer anyway: a loop for each
//! policy is tens of kilobytes of code.

use super::Policy;
use crate::cache::{Frames, Victims};
use flashsift_events::{
    address::Address,
    page::{Access, Frame, Page},
};

/// [`Policy`] without its constants.
trait Object {
    fn insert(&mut self, frame: Frame, access: &Access);
    fn hit(&mut self, frame: Frame, access: &Access);
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims);
    fn takes(&self, access: &Access) -> bool;
    fn remove(&mut self, frame: Frame, frames: &Frames);
    fn forget(&mut self, page: Page);
    fn cleaned(&mut self, frame: Frame);
    fn moved(&mut self, frame: Frame, from: Option<Address>, frames: &Frames);
    fn expect_access(&self, page: Page);
    fn expect_hit(&self, frame: Frame);
    fn expect_miss(&self, page: Page);
    fn check(&self, frames: &Frames);
}

impl<P: Policy> Object for P {
    fn insert(&mut self, frame: Frame, access: &Access) {
        Policy::insert(self, frame, access);
    }
    fn hit(&mut self, frame: Frame, access: &Access) {
        Policy::hit(self, frame, access);
    }
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        Policy::evict(self, incoming, frames, victims);
    }
    fn takes(&self, access: &Access) -> bool {
        Policy::takes(self, access)
    }
    fn remove(&mut self, frame: Frame, frames: &Frames) {
        Policy::remove(self, frame, frames);
    }
    fn forget(&mut self, page: Page) {
        Policy::forget(self, page);
    }
    fn cleaned(&mut self, frame: Frame) {
        Policy::cleaned(self, frame);
    }
    fn moved(&mut self, frame: Frame, from: Option<Address>, frames: &Frames) {
        Policy::moved(self, frame, from, frames);
    }
    fn expect_access(&self, page: Page) {
        Policy::expect_access(self, page);
    }
    fn expect_hit(&self, frame: Frame) {
        Policy::expect_hit(self, frame);
    }
    fn expect_miss(&self, page: Page) {
        Policy::expect_miss(self, page);
    }
    fn check(&self, frames: &Frames) {
        Policy::check(self, frames);
    }
}

/// A policy of any type. It gets the future, if there is one. `expect_move` is left out: by the
/// time of a call, its prefetch is late.
pub struct Erased<const WANTS_ADDRESSES: bool>(Box<dyn Object>);

impl<const WANTS_ADDRESSES: bool> Erased<WANTS_ADDRESSES> {
    /// The constant is that of the policy.
    pub fn new<P: Policy + 'static>(policy: P) -> Self {
        assert_eq!(P::WANTS_ADDRESSES, WANTS_ADDRESSES);
        Self(Box::new(policy))
    }
}

impl<const WANTS_ADDRESSES: bool> Policy for Erased<WANTS_ADDRESSES> {
    const OFFLINE: bool = true;
    const WANTS_ADDRESSES: bool = WANTS_ADDRESSES;

    fn insert(&mut self, frame: Frame, access: &Access) {
        self.0.insert(frame, access);
    }
    fn hit(&mut self, frame: Frame, access: &Access) {
        self.0.hit(frame, access);
    }
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        self.0.evict(incoming, frames, victims);
    }
    fn takes(&self, access: &Access) -> bool {
        self.0.takes(access)
    }
    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.0.remove(frame, frames);
    }
    fn forget(&mut self, page: Page) {
        self.0.forget(page);
    }
    fn cleaned(&mut self, frame: Frame) {
        self.0.cleaned(frame);
    }
    fn moved(&mut self, frame: Frame, from: Option<Address>, frames: &Frames) {
        self.0.moved(frame, from, frames);
    }
    fn expect_access(&self, page: Page) {
        self.0.expect_access(page);
    }
    fn expect_hit(&self, frame: Frame) {
        self.0.expect_hit(frame);
    }
    fn expect_miss(&self, page: Page) {
        self.0.expect_miss(page);
    }
    fn check(&self, frames: &Frames) {
        self.0.check(frames);
    }
}
