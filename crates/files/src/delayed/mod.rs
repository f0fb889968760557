//! Delayed durability: files whose syncs return at once, and reach flash in epochs.
//!
//! The files of a group form one domain of consistency. A sync of one of them returns when its data
//! is in RAM, in the current epoch. Some time later the epoch ends: its changes reach flash
//! together, as one entry of a log ([`record`]) and by steps whose order survives a power cut
//! ([`plan`]). After a crash the group is as it was at the end of some epoch.
//!
//! This keeps the order of syncs and drops their durability, as in optimistic crash consistency
//! (Chidambaram et al., SOSP '13) and as a mobile file cache in non-volatile memory does for the
//! flash below it (FSLRU).

pub mod changes;
pub mod groups;
pub mod plan;
pub mod power_cuts;
pub mod record;
pub mod schedule;
