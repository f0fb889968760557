use super::{
    estimate::{BLOCKS_MIN, Interval95},
    *,
};

mod planted;

const MINUTE_US: Micros = 60_000_000;
const MB: u64 = 1_000_000;

/// Six days of sessions of 60 min with 15 min of washout.
fn plan(seed: u64) -> TrialPlan {
    TrialPlan::new(6 * GAP_US_MAX, seed)
}

/// A trial with its sessions filled in: `cost` gives a session of this arm in this block.
fn filled(blocks: usize, session: impl Fn(Arm, usize) -> TrialCounts) -> Trial {
    let mut trial = Trial::new(plan(1), 0).unwrap();
    for block in 0..blocks {
        let sessions = trial.plan.order(block).into_iter();
        trial
            .sessions
            .extend(sessions.map(|arm| TrialSession { arm, counts: session(arm, block) }));
    }
    trial.elapsed_us = trial.plan.length_us;
    trial
}

fn counts(requested_bytes: u64, written_bytes: u64) -> TrialCounts {
    TrialCounts { requested_bytes, written_bytes, ..TrialCounts::default() }
}

fn sum(all: impl IntoIterator<Item = TrialCounts>) -> TrialCounts {
    let mut sums = TrialCounts::default();
    all.into_iter().for_each(|counts| sums.add(&counts));
    sums
}

#[test]
fn orders_are_balanced_and_say_nothing_about_the_next_arm() {
    let plan = plan(42);
    let blocks = 6000;
    let orders: Vec<_> = (0..blocks).map(|block| plan.order(block)).collect();
    let rank = |arm: Arm| plan.arms.iter().position(|other| *other == arm).unwrap();
    let (mut permutations, mut first_after_last) = ([0; 9], [0; 9]);
    for order in &orders {
        let arms: std::collections::BTreeSet<_> = order.iter().map(|arm| rank(*arm)).collect();
        assert_eq!(arms.len(), 3, "{order:?}");
        permutations[rank(order[0]) * 3 + rank(order[1])] += 1;
    }
    for both in orders.windows(2) {
        first_after_last[rank(both[0][2]) * 3 + rank(both[1][0])] += 1;
    }
    // Standard deviations of 29 and 24; five of them.
    let is_near = |count: i32, expected: i32| (count - expected).abs() < 150;
    let possible = (0..9).filter(|pair| pair / 3 != pair % 3);
    assert!(possible.clone().all(|pair| is_near(permutations[pair], 1000)), "{permutations:?}");
    assert!(first_after_last.iter().all(|count| is_near(*count, 667)), "{first_after_last:?}");
    let other = TrialPlan { seed: 43, ..plan.clone() };
    let same = (0..blocks).filter(|block| other.order(*block) == orders[*block]).count();
    assert!(is_near(same as i32, 1000), "another seed gives another order: {same}");
}

#[test]
fn plans_that_compare_nothing_are_refused() {
    let refused = |change: fn(&mut TrialPlan)| {
        let mut plan = plan(1);
        change(&mut plan);
        Trial::new(plan, 0).unwrap_err().to_string()
    };
    let arms = "a trial needs the arm `sift` and `keep`, `plain` or both, each once";
    assert_eq!(refused(|plan| plan.arms = vec![Arm::Sift]), arms);
    assert_eq!(refused(|plan| plan.arms = vec![Arm::Keep, Arm::Plain]), arms);
    assert_eq!(refused(|plan| plan.arms = vec![Arm::Sift, Arm::Keep, Arm::Keep]), arms);
    let washout = refused(|plan| plan.washout_us = plan.session_us);
    assert_eq!(washout, "the washout must be shorter than a session");
    let length = refused(|plan| plan.length_us = plan.session_us * 3 - 1);
    assert_eq!(length, "the trial is shorter than one session of each arm");
}

#[test]
fn damaged_trials_are_refused() {
    let trial = filled(2, |_, _| counts(100 * MB, 50 * MB));
    let text = trial.to_json();
    assert_eq!(Trial::from_json(&text).unwrap(), trial);
    let refused = |text: &str| Trial::from_json(text).unwrap_err().to_string();
    let newer = text.replacen("\"schema\":1", "\"schema\":2", 1);
    assert_eq!(refused(&newer), "the stored trial has schema 2; this version reads 1");
    assert_eq!(refused(&text[..text.len() / 2]), "the stored trial is damaged");
    assert_eq!(refused("{}"), "the stored trial is damaged");
    let seed = text.replacen("\"seed\":1", "\"seed\":4", 1);
    assert!(refused(&seed).contains("not in the order of its plan"), "{}", refused(&seed));
    let arms = text.replacen(r#"["sift","keep","plain"]"#, "[]", 1);
    assert!(refused(&arms).contains("needs the arm `sift`"));
}

/// A minute of use between two observations, without and with the washout.
#[test]
fn a_session_counts_use_after_its_washout() {
    let mut trial = Trial::new(plan(1), 0).unwrap();
    let arms: Vec<Arm> = trial.plan.order(0);
    let mut sample = Sample { device_bytes: Some(7), ..Sample::default() };
    assert_eq!(trial.observe(0, sample), Some(arms[0]));
    let mut now_us = 0;
    for minute in 1..=60 {
        assert_eq!(trial.arm_at(now_us), Some(arms[0]));
        now_us += MINUTE_US;
        sample.requested_bytes += MB;
        sample.written_bytes += 1 << minute.min(20);
        let next = if minute == 60 { arms[1] } else { arms[0] };
        assert_eq!(trial.observe(now_us, sample), Some(next), "{minute}");
    }
    // A day without writes is no use.
    for _ in 0..24 * 60 {
        now_us += MINUTE_US;
        assert_eq!(trial.observe(now_us, sample), Some(arms[1]));
    }
    let counted = TrialCounts { use_us: 45 * MINUTE_US, ..counts(45 * MB, 0) };
    let written_bytes = (16..=60).map(|minute| 1 << minute.min(20)).sum();
    let expected = TrialSession { arm: arms[0], counts: TrialCounts { written_bytes, ..counted } };
    assert_eq!(trial.sessions, [expected]);
    assert_eq!(trial.uncounted.requested_bytes, 15 * MB);
    assert_eq!((trial.elapsed_us, trial.has_ended()), (GAP_US_MAX + HOUR_US, false));
    // Five days later, observed once a day.
    for day in 1..=5 {
        now_us += GAP_US_MAX;
        assert_eq!(trial.observe(now_us, sample).is_some(), day < 5);
    }
    assert_eq!(trial.arm_at(0), None);
    sample.requested_bytes += MB;
    let ended = trial.clone();
    assert_eq!(trial.observe(now_us + MINUTE_US, sample), None);
    assert_eq!(trial, ended, "a trial that has ended counts nothing");
}

#[test]
fn an_idle_session_runs_again() {
    let mut trial = Trial::new(plan(3), 0).unwrap();
    let arms = trial.plan.order(0);
    let mut sample = Sample::default();
    trial.observe(0, sample);
    for minute in 1..=120 {
        // 900 kB after the washout of the first session, 90 MB in the second.
        sample.requested_bytes += if minute <= 60 { 20_000 } else { 2 * MB };
        trial.observe(minute * MINUTE_US, sample);
    }
    assert_eq!((trial.idle_sessions, trial.sessions.len(), trial.arm()), (1, 1, arms[1]));
    assert_eq!(trial.sessions[0].arm, arms[0]);
    let all = sum([trial.uncounted, trial.sessions[0].counts]);
    assert_eq!(all.requested_bytes, sample.requested_bytes);
}

/// Files that are only written later save nothing.
#[test]
fn data_that_waits_counts_as_written() {
    let trial = filled(8, |arm, block| {
        let base = (40 + 3 * block as u64) * MB;
        let waits = if arm == Arm::Plain { 0 } else { base - MB * 4 };
        TrialCounts { held_growth_bytes: waits as i64, ..counts(2 * base, base - waits) }
    });
    let found = trial.result();
    assert_eq!(found.comparisons[0].beside, Arm::Plain);
    assert!(found.comparisons.iter().all(|of| of.finding == TrialFinding::NoEffect), "{found:?}");
}

/// A sifter is charged for the bytes that it makes programs write, in every arm.
#[test]
fn bytes_fetched_again_are_charged_to_sifting() {
    let trial = filled(8, |arm, _| match arm {
        // 60 of 100 MB are dropped; a third of these comes back in each arm.
        Arm::Sift => TrialCounts { fetched_again_bytes: 20 * MB, ..counts(120 * MB, 40 * MB) },
        _ => TrialCounts { fetched_again_bytes: 20 * MB, ..counts(120 * MB, 120 * MB) },
    });
    let found = trial.result();
    for of in &found.comparisons {
        let Interval95 { estimate, .. } = of.ratio.unwrap();
        assert!((estimate - 0.8).abs() < 1e-9, "40 + 20 + 20 of 100 MB: {of:?}");
    }
    assert_eq!(found.fetched_again_bytes, 8 * 60 * MB);
    let sift = found.totals[0];
    assert_eq!((sift.arm, sift.sessions), (Arm::Sift, 8));
    let cost_per_byte = sift.counts.cost_bytes() / sift.counts.own_bytes() as f64;
    assert_eq!(cost_per_byte, 0.4, "totals are as counted");
}

#[test]
fn each_finding_has_a_true_sentence() {
    let sentence = |share: fn(usize) -> f64, again: u64, longer_us: fn(usize) -> u64| {
        let trial = filled(10, |arm, block| {
            let own = (90 + 5 * block as u64) * MB;
            let with = if arm == Arm::Sift { share(block) } else { 1.0 };
            let again = if arm == Arm::Sift { again } else { 0 };
            let open_us = if arm == Arm::Sift { 50_000 + 1000 * longer_us(block) } else { 50_000 };
            TrialCounts {
                fetched_again_bytes: again,
                opens: 1000,
                open_us,
                ..counts(own + again, (own as f64 * 0.5 * with) as u64)
            }
        });
        let found = trial.result();
        found.comparisons.iter().map(|of| found.sentence_of(of)).collect::<Vec<_>>()
    };
    let less =
        sentence(|block| 0.62 + 0.02 * (block as f64 - 4.5), 3 << 19, |block| 2 + block as u64 % 3);
    assert_eq!(
        less,
        [
            "With sifting, programs' data cost 38 % less flash (95 %: 34…42 %); 15 MiB were \
             fetched again; opening a file took 2.90 µs longer (95 %: 2.27…3.53).",
            "With sifting, programs' data cost 38 % less flash than without drops (95 %: 34…42 \
             %); 15 MiB were fetched again; opening a file took 2.90 µs longer (95 %: 2.27…3.53).",
        ]
    );
    let more = sentence(|block| 1.2 + 0.04 * (block % 3) as f64, 0, |block| block as u64 % 2);
    assert_eq!(
        more[0],
        "With sifting, programs' data cost 24 % more flash (95 %: 21…26 %); nothing was fetched \
         again; opening a file took 0.500 µs longer (95 %: 0.123…0.877)."
    );
    let none = sentence(|block| 0.95 + 0.1 * (block % 2) as f64, 0, |_| 0);
    assert_eq!(
        none[0],
        "No effect found: with sifting, programs' data cost between 3.8 % less and 3.8 % more \
         flash (95 %); nothing was fetched again; opening a file took as long, within the error \
         (95 %: 0…0 µs longer)."
    );
    let unsure = sentence(|block| 0.2 + 1.3 * (block % 2) as f64, 0, |_| 0);
    assert_eq!(unsure[0], "Not enough data yet: about 51 more days.");
    let free = sentence(|_| 0.0, 0, |_| 0);
    assert!(free[0].starts_with("With sifting, programs' data cost 100 % less flash"), "{free:?}");
}

#[test]
fn nothing_written_is_no_saving() {
    let found = filled(8, |_, _| counts(100 * MB, 0)).result();
    assert_eq!(found.comparisons[0].finding, TrialFinding::NoCost);
    assert_eq!(
        found.sentence(),
        "No data of programs reached flash, with sifting or without; nothing was fetched again."
    );
}

#[test]
fn no_claim_before_the_end_nor_with_few_blocks() {
    let half = |arm: Arm, _: usize| counts(100 * MB, if arm == Arm::Sift { 20 } else { 40 } * MB);
    let mut trial = filled(8, half);
    assert_eq!(trial.result().comparisons[0].finding, TrialFinding::Less);
    trial.elapsed_us -= 2 * GAP_US_MAX;
    let found = trial.result();
    assert_eq!(found.sentence(), "Not enough data yet: about 2 more days.");
    assert_eq!((found.has_ended, found.comparisons[0].ratio.unwrap().high), (false, 0.5));
    // Three blocks in six days: six more days for three more.
    let few = filled(3, half);
    assert_eq!(few.result().sentence(), "Not enough data yet: about 6 more days.");
    let five = filled(5, half);
    assert_eq!(five.result().sentence(), "Not enough data yet: about 2 more days.");
    assert_eq!(filled(0, half).result().sentence(), "Not enough data yet: about 6 more days.");
    let mut none = filled(1, half);
    none.sessions.truncate(0);
    none.elapsed_us = 1;
    assert_eq!(none.result().sentence(), "Not enough data yet: about 6 more days.");
}

/// A history of a mount, and the intervals that a trial should count.
struct History {
    random: Pcg64,
    now_us: Micros,
    sample: Sample,
}

impl History {
    /// Lets time pass, or jump, and the mount write, or start again.
    fn step(&mut self) {
        let random = &mut self.random;
        let passed = match random.random_range(0..40) {
            0 => random.random_range(0..40 * GAP_US_MAX),
            1 => random.random_range(0..GAP_US_MAX),
            _ => random.random_range(0..3 * MINUTE_US),
        };
        self.now_us = match random.random_range(0..50) {
            0 => self.now_us.saturating_sub(passed),
            _ => self.now_us + passed,
        };
        if random.random_range(0..30) == 0 {
            self.sample = Sample { mount_id: self.sample.mount_id + 1, ..Sample::default() };
            self.sample.device_bytes = random.random_bool(0.9).then_some(0);
        }
        let mut some = || if random.random_bool(0.7) { random.random_range(0..MB) } else { 0 };
        let sample = &mut self.sample;
        sample.requested_bytes += some();
        sample.written_bytes += some();
        sample.fetched_again_bytes += some() / 8;
        sample.opens += some();
        sample.open_us += some();
        sample.held_bytes = some();
        sample.device_bytes = sample.device_bytes.map(|bytes| bytes + some());
    }
}

/// Cuts intervals into sessions afresh, and adds them up.
fn naive(trial: &Trial, intervals: &[(TrialCounts, Micros)]) -> (Vec<TrialSession>, TrialCounts) {
    let mut sessions = Vec::new();
    let mut counted = Vec::new();
    let mut rest = intervals;
    loop {
        let use_until = |end: usize| rest[..end].iter().map(|of| of.0.use_us).sum::<Micros>();
        let ends = (1..=rest.len()).find(|end| use_until(*end) >= trial.plan.session_us);
        let end = ends.unwrap_or(rest.len());
        let begin = (0..end).find(|at| use_until(*at) >= trial.plan.washout_us).unwrap_or(end);
        let counts = sum(rest[begin..end].iter().map(|of| of.0));
        let Some(end) = ends else { break };
        if counts.own_bytes() >= trial.plan.idle_bytes {
            let arm = trial.plan.order(sessions.len() / 3)[sessions.len() % 3];
            sessions.push(TrialSession { arm, counts });
            counted.push(counts);
        }
        rest = &rest[end..];
    }
    (sessions, sum(intervals.iter().map(|of| of.0)))
}

/// Stops, starts and jumps of the clock neither lose a byte nor count one twice. A trial that is
/// stored and read is the same trial.
#[test]
fn histories_lose_and_double_nothing() {
    for seed in 0..200 {
        let random = Pcg64::seed_from_u64(seed);
        let mut history = History { random, now_us: 1 << 50, sample: Sample::default() };
        let mut trial = Trial::new(
            TrialPlan {
                length_us: 30 * GAP_US_MAX,
                session_us: 12 * MINUTE_US,
                washout_us: 3 * MINUTE_US,
                idle_bytes: 3 * MB,
                ..plan(seed)
            },
            history.now_us,
        )
        .unwrap();
        let mut intervals = Vec::new();
        let mut before: Option<(Micros, Sample)> = None;
        for step in 0..1500 {
            history.step();
            let (now_us, now) = (history.now_us, history.sample);
            let arm = trial.arm();
            let stored = Trial::from_json(&trial.to_json()).unwrap();
            assert_eq!(stored, trial, "seed {seed}, step {step}");
            let had_ended = trial.has_ended();
            let may_end = trial.arm_at(now_us).is_none();
            let next = trial.observe(now_us, now);
            if had_ended {
                break;
            }
            assert_eq!(next.is_none(), may_end, "seed {seed}, step {step}");
            assert_eq!(next, trial.arm_at(now_us), "seed {seed}, step {step}");
            if let Some((last_us, last)) = before {
                let base = if last.mount_id == now.mount_id { last } else { Sample::default() };
                let device = now.device_bytes.zip(last.device_bytes).map(|(now, before)| {
                    if last.mount_id == history.sample.mount_id { now - before } else { 0 }
                });
                let requested_bytes = now.requested_bytes - base.requested_bytes;
                let passed_us = now_us.saturating_sub(last_us).min(5 * MINUTE_US);
                let counts = TrialCounts {
                    use_us: if requested_bytes > 0 { passed_us } else { 0 },
                    written_bytes: now.written_bytes - base.written_bytes,
                    held_growth_bytes: now.held_bytes as i64 - base.held_bytes as i64,
                    device_bytes: device,
                    requested_bytes,
                    fetched_again_bytes: now.fetched_again_bytes - base.fetched_again_bytes,
                    opens: now.opens - base.opens,
                    open_us: now.open_us - base.open_us,
                };
                intervals.push((counts, now_us));
            }
            before = Some((now_us, now));
            let changed = next.is_some_and(|next| next != arm);
            assert!(!changed || trial.running == Running::default(), "seed {seed}, step {step}");
        }
        let (sessions, all) = naive(&trial, &intervals);
        assert_eq!(trial.sessions, sessions, "seed {seed}");
        let counted = sum(trial.sessions.iter().map(|session| session.counts));
        let found = sum([counted, trial.uncounted, trial.running.counts]);
        assert_eq!(found, all, "seed {seed}");
        assert!(sessions.len() > 6, "seed {seed}: {} sessions", sessions.len());
        assert_eq!(trial.result().fetched_again_bytes, all.fetched_again_bytes);
    }
}

/// A counter that falls without a new mount began at zero as well.
#[test]
fn a_counter_that_falls_has_restarted() {
    let last =
        Sample { written_bytes: 10, requested_bytes: 20, held_bytes: 5, ..Sample::default() };
    let now = Sample { written_bytes: 12, requested_bytes: 3, held_bytes: 2, ..Sample::default() };
    let found = TrialCounts::between(&last, &now);
    assert_eq!((found.written_bytes, found.requested_bytes, found.held_growth_bytes), (12, 3, 2));
    let device = |before, after| {
        let with = |device_bytes| Sample { device_bytes, ..Sample::default() };
        TrialCounts::between(&with(before), &with(after)).device_bytes
    };
    assert_eq!(device(Some(5), Some(9)), Some(4));
    assert_eq!(device(Some(5), Some(3)), Some(3));
    assert_eq!(device(None, Some(3)), None);
}
