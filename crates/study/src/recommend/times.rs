//! The times of the kernel's write-back that a person can set, and the changes that a power cut
//! takes under them.

use super::Setting;
use flashsift_events::{duration::Exact, show};
use flashsift_files::judge::Judgement;
use flashsift_pages::metadata;

/// Times of the kernel's write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritebackTimes {
    /// Age at which a file is written (`vm.dirty_expire_centisecs`).
    pub expire_us: u64,
    /// Interval at which the flusher runs (`vm.dirty_writeback_centisecs`).
    pub tick_us: u64,
    /// Time after which the file system makes names, sizes and places durable: `commit=` of ext4
    /// and btrfs, `cp_interval` of F2FS, `fs.xfs.xfssyncd_centisecs` of XFS.
    pub commit_us: u64,
}

/// F2FS makes a checkpoint after this time (`DEF_CP_INTERVAL` in the kernel's `fs/f2fs/f2fs.h`).
const F2FS_COMMIT_US: u64 = 60 * SECOND_US;
const SECOND_US: u64 = 1_000_000;
/// Ages to try, beside the present one.
const EXPIRES_US: [u64; 3] = [60 * SECOND_US, 300 * SECOND_US, EXPIRE_US_MAX];
const EXPIRE_US_MAX: u64 = 600 * SECOND_US;
/// Commit intervals to try, beside the present one.
const COMMITS_US: [u64; 3] = [30 * SECOND_US, 60 * SECOND_US, 300 * SECOND_US];
/// Times that save this share of the bytes less than the best ones are as good.
pub const AS_GOOD: f64 = 0.01;

impl WritebackTimes {
    /// The kernel's defaults, with ext4's.
    pub const LINUX: Self =
        Self { expire_us: 30 * SECOND_US, tick_us: 5 * SECOND_US, commit_us: 5 * SECOND_US };

    /// Returns the times of a setting; `None` if it has not Linux's write-back.
    pub(super) fn of(setting: &Setting) -> Option<Self> {
        let expire = setting.writeback.expire?;
        let commit_us = setting.metadata.as_ref().map_or(Self::LINUX.commit_us, commit_us);
        Some(Self { expire_us: expire.after_us, tick_us: expire.tick_us, commit_us })
    }

    /// Returns the age that a change which no program synced reaches before it is durable. The
    /// flusher writes a page of this age at its next tick. ext4 and its like allocate the page's
    /// place then, and the inode that tells the place is durable with the next commit.
    pub fn loss_us(self) -> u64 {
        self.expire_us.saturating_add(self.tick_us).saturating_add(self.commit_us)
    }

    /// Returns the price of these times instead of others, in words that follow "Price:".
    pub fn price(self, instead_of: Self) -> String {
        let [now, then] = [instead_of, self].map(|times| time_in_words(times.loss_us()));
        let than = match self.loss_us().cmp(&instead_of.loss_us()) {
            std::cmp::Ordering::Equal => ", as now".to_owned(),
            _ => format!(", not {now}"),
        };
        format!("a power cut loses up to {then} of what no program synced{than}")
    }

    /// Returns the times worth a try that lose at most this much, none of them `self`: longer ones,
    /// and pairs of an expiry and a commit that share what these times lose, or the bound if no
    /// longer ones use it in full. Those that lose least come first. Without a bound it is what the
    /// longest expiry loses. `commits`: the commit can be set, too.
    pub fn candidates(self, lose_at_most_us: Option<u64>, commits: bool) -> Vec<Self> {
        let longer = |own_us: u64, others: &[u64]| {
            let others = others.iter().copied().filter(move |us| *us > own_us);
            std::iter::once(own_us).chain(others).collect::<Vec<u64>>()
        };
        let commits_us = longer(self.commit_us, if commits { &COMMITS_US } else { &[] });
        let of_expire = |expire_us| {
            let with = move |commit_us: &u64| Self { expire_us, commit_us: *commit_us, ..self };
            commits_us.iter().map(with)
        };
        let mut found: Vec<Self> =
            longer(self.expire_us, &EXPIRES_US).into_iter().flat_map(of_expire).collect();
        let longest = Self { expire_us: self.expire_us.max(EXPIRE_US_MAX), ..self };
        let bound_us = lose_at_most_us.unwrap_or(longest.loss_us());
        found.retain(|times| *times != self && times.loss_us() <= bound_us);
        for us in [self.loss_us().min(bound_us), bound_us] {
            if found.iter().any(|times| times.loss_us() == us) {
                continue;
            }
            let left = us.saturating_sub(self.tick_us);
            let parts =
                if commits { &[left / 8, left / 4, left / 2, left / 4 * 3][..] } else { &[] };
            let whole_seconds = |us: u64| us / SECOND_US * SECOND_US;
            let parts = parts.iter().map(|us| whole_seconds(*us).max(SECOND_US));
            for commit_us in std::iter::once(self.commit_us).chain(parts) {
                let expire_us = whole_seconds(left.saturating_sub(commit_us));
                let times = Self { expire_us, commit_us, ..self };
                let fits = expire_us > 0 && times.loss_us() <= us;
                if fits && times != self && !found.contains(&times) {
                    found.push(times);
                }
            }
        }
        found.sort_by_key(|times| times.loss_us());
        found
    }

    /// Returns the number of the times to propose: of those that save as much as the best one, to
    /// [`AS_GOOD`], those that lose least; of equals, those that save most. `None` if the best save
    /// no more than that: the present times are as good.
    pub fn proposed<'a>(
        judged: impl Iterator<Item = (usize, Self, &'a Judgement)> + Clone,
    ) -> Option<usize> {
        let share = |judgement: &Judgement| judgement.share(judgement.saving);
        let best = judged.clone().map(|(.., judgement)| share(judgement)).fold(0.0, f64::max);
        let good = judged.filter(|(.., judgement)| share(judgement) >= best - AS_GOOD);
        let cheapest = good.min_by(|(_, one, saves), (_, other, less)| {
            let losses = one.loss_us().cmp(&other.loss_us());
            losses.then_with(|| share(less).total_cmp(&share(saves)))
        });
        cheapest.map(|(n, ..)| n).filter(|_| best > AS_GOOD)
    }

    /// Returns the settings that differ from `now`, as people write them: `expire=5m,commit=30s`.
    pub fn name(self, now: Self) -> String {
        let word = |us: u64| match us % (60 * SECOND_US) {
            0 => format!("{}m", us / 60 / SECOND_US),
            _ => Exact(us).to_string(),
        };
        let expire = (self.expire_us != now.expire_us).then_some(("expire", self.expire_us));
        let commit = (self.commit_us != now.commit_us).then_some(("commit", self.commit_us));
        let words =
            expire.into_iter().chain(commit).map(|(name, us)| format!("{name}={}", word(us)));
        words.collect::<Vec<_>>().join(",")
    }

    /// Returns a setting with these times instead of its own.
    pub(super) fn in_place_of(self, setting: &Setting) -> Result<Setting, String> {
        let own = Self::of(setting).ok_or("the baseline has not Linux's write-back")?;
        let mut setting = setting.clone();
        if let Some(expire) = &mut setting.writeback.expire {
            (expire.after_us, expire.tick_us) = (self.expire_us, self.tick_us);
        }
        if self.commit_us != own.commit_us {
            let own = setting.metadata.as_ref();
            let own = own.ok_or("the file system's own writes are not modelled")?;
            // A later value replaces an earlier one.
            let label = own.label();
            let sign = if label.contains(':') { ',' } else { ':' };
            let text = format!("{label}{sign}commit={}us", self.commit_us);
            let metadata = metadata::Selection::parse(&text).map_err(|error| error.to_string())?;
            setting.metadata = Some(metadata);
        }
        Ok(setting)
    }
}

/// Returns a time as people set it: `40 s`, `5 min 10 s`.
pub fn time_in_words(us: u64) -> String {
    let (whole_s, rest_us) = (us / SECOND_US, us % SECOND_US);
    if rest_us != 0 {
        return show::duration(us);
    }
    let parts = [(whole_s / 3600, "h"), (whole_s / 60 % 60, "min"), (whole_s % 60, "s")];
    let parts = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n} {unit}"));
    let text = parts.collect::<Vec<_>>().join(" ");
    if text.is_empty() { "0 s".to_owned() } else { text }
}

fn commit_us(metadata: &metadata::Selection) -> u64 {
    let has_commit = metadata.spec.params.iter().any(|param| param.name == "commit");
    match has_commit {
        true => metadata.params.duration_us(metadata.spec.params, "commit"),
        false => F2FS_COMMIT_US,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_caches::policy;
    use flashsift_pages::{system, writeback::Modes};

    /// No proposal loses more than it may, whatever the bound and the present times are.
    // Promises: Tune 11.
    #[test]
    fn times_within_a_bound_lose_at_most_that() {
        let now = WritebackTimes::LINUX;
        assert_eq!(now.loss_us(), 40 * SECOND_US);
        for (bound_s, commits) in [(40, true), (40, false), (60, true), (300, true), (7, true)] {
            let found = now.candidates(Some(bound_s * SECOND_US), commits);
            assert!(found.iter().all(|times| times.loss_us() <= bound_s * SECOND_US), "{found:?}");
            assert!(found.iter().all(|times| times.expire_us > 0 && *times != now), "{found:?}");
            assert!(commits || found.iter().all(|times| times.commit_us == now.commit_us));
            let most = found.iter().map(|times| times.loss_us()).max().unwrap_or(0);
            assert!(!commits || most > (bound_s - 2) * SECOND_US, "{found:?}");
            assert!(found.is_sorted_by_key(|times| times.loss_us()));
        }
        let found = now.candidates(Some(60 * SECOND_US), true);
        assert_eq!(now.candidates(Some(3 * SECOND_US), true), []);
        let price = found[0].price(now);
        assert_eq!(
            [0, 40, 60, 310, 3900].map(|s| time_in_words(s * SECOND_US)).join(", "),
            "0 s, 40 s, 1 min, 5 min 10 s, 1 h 5 min"
        );
        assert_eq!(price, "a power cut loses up to 40 s of what no program synced, as now");
        let price = found.last().unwrap().price(now);
        assert_eq!(price, "a power cut loses up to 1 min of what no program synced, not 40 s");
        assert!(now.price(now).ends_with("synced, as now"));
    }

    /// A bound leaves out what loses more, and the longest times lose the greatest one: `recommend`
    /// and `doctor` try the same as `tune writeback`, whose list was once another.
    // Promises: Recommend 8.
    #[test]
    fn a_bound_cuts_the_list_that_all_commands_share() {
        let now = WritebackTimes::LINUX;
        let all = now.candidates(None, true);
        let names: Vec<String> = all.iter().map(|times| times.name(now)).collect();
        assert_eq!(names.iter().filter(|name| name.contains("expire=5m")).count(), 4, "{names:?}");
        assert!(names.contains(&"commit=30s".to_owned()), "{names:?}");
        assert_eq!(names.last().unwrap(), "expire=10m");
        assert_eq!(now.candidates(Some(all.last().unwrap().loss_us()), true), all);
        let no_more = now.candidates(Some(now.loss_us()), true);
        assert!(!no_more.is_empty() && all.starts_with(&no_more), "{no_more:?}");
        // Present times that are as long leave little to try.
        let longest = *all.last().unwrap();
        assert!(longest.candidates(None, true).iter().all(|t| t.loss_us() <= longest.loss_us()));
    }

    #[test]
    fn times_replace_those_of_a_setting() {
        let metadata = Some(metadata::Selection::parse("ext4:groups=8,commit=9s").unwrap());
        let (policy, writeback) = (policy::Selection::parse("lru").unwrap(), Modes::linux());
        let system = system::PLAIN.clone();
        let setting = Setting { policy, writeback, metadata, system, frames: 9 };
        let times =
            WritebackTimes { expire_us: 7_000_000, tick_us: 1_000_000, commit_us: 1_500_000 };
        let changed = times.in_place_of(&setting).unwrap();
        assert_eq!(WritebackTimes::of(&changed), Some(times));
        assert!(changed.metadata.unwrap().label().contains("groups=8"));
        let f2fs = Some(metadata::Selection::parse("f2fs").unwrap());
        let setting = Setting { metadata: f2fs, ..setting };
        assert!(times.in_place_of(&setting).err().unwrap().contains("commit"));
        let kept = WritebackTimes { commit_us: F2FS_COMMIT_US, ..times };
        assert_eq!(WritebackTimes::of(&kept.in_place_of(&setting).unwrap()), Some(kept));
    }
}
