use super::{Answer, ObjectCache, ObjectCell, ObjectOutcome, admission, working_set_bytes};
use crate::{
    policy::{ALL, PolicySpec, Selection, Setup, erased::Erased},
    trace::{Tables, Trace, TraceBuilder, Unit},
};
use flashsift_events::{
    dice::Dice,
    event::{About, Action, Event, FileId, Knows, Side, Space},
    page::{Access, NEVER, Op, Page},
    params::Params,
};
use std::collections::BTreeSet;

/// Builds a trace of requests, each (object, bytes).
fn trace(requests: &[(u64, u64)]) -> Trace {
    let about = About {
        side: Side::Before,
        space: Space::Objects,
        epoch_us: None,
        boot_us: None,
        knows: Knows::NOTHING,
    };
    let tables = Tables { sizes: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Request, u64::MAX).with_tables(tables);
    for (object, len) in requests {
        let action = Action::Read { file: FileId(*object), open: None, offset: 0, len: *len };
        builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
    }
    builder.finish().unwrap()
}

fn simulate(policy: &str, bytes: u64, admission: Option<&str>, trace: &Trace) -> ObjectOutcome {
    let policy = Selection::parse(policy).unwrap();
    let admission = admission.map(|text| admission::Selection::parse(text).unwrap());
    let future = policy.spec.kind.is_offline().then(|| trace.future().unwrap());
    ObjectCell { policy: &policy, bytes, admission: admission.as_ref() }.run(trace, future.as_ref())
}

/// The settings of parameters that deserve a test.
fn settings(spec: &PolicySpec) -> Vec<String> {
    let mut texts = vec![spec.name.to_owned()];
    for (name, more) in [
        ("2q", &["a1out=keeps", "kin=0", "kin=1,kout=4", "kout=0"][..]),
        ("arc", &["steps=whole", "steps=bytes"]),
        ("lhd", &["renew=16", "sample=1,renew=50"]),
        ("hyperbolic", &["sample=1", "size=ignored"]),
    ] {
        if spec.name == name {
            texts.extend(more.iter().map(|params| format!("{name}:{params}")));
        }
    }
    texts
}

/// A policy of objects as the real cache runs it.
pub(super) type Stepped = dyn FnMut(&Access) -> (Answer, Vec<Page>);

/// Each policy of objects keeps the same ones as its slow model, which evicts until an object
/// fits, over random requests for objects of 0 to 100 bytes whose sizes change at times. The bytes
/// held never exceed the capacity.
// Promises: Objects 1, Objects 2.
#[test]
fn every_policy_of_objects_agrees_with_its_model() {
    let policies: Vec<_> = ALL.iter().filter(|spec| spec.takes_objects()).collect();
    assert!(policies.len() >= 10, "{}", policies.len());
    for spec in policies {
        for text in settings(spec) {
            let params = Selection::parse(&text).unwrap().params;
            for seed in 0..300 {
                follow(spec, &text, &params, seed);
            }
        }
    }
}

/// Follows one random history.
fn follow(spec: &PolicySpec, text: &str, params: &Params, seed: u64) {
    let mut dice = Dice::new(seed);
    let objects = 1 + dice.below(40);
    let capacity = u64::from(1 + dice.below(600));
    let setup = Setup { frames: objects, pages: objects, runs: &[], params, bytes: Some(capacity) };
    let mut cache = (spec.objects.unwrap().stepped)(&setup);
    let mut model = (spec.naive)(&setup);
    let mut sizes: Vec<u32> = (0..objects).map(|_| dice.below(101)).collect();
    let mut held: Vec<(Page, u32)> = Vec::new();
    let requests: Vec<u32> =
        (0..200).map(|_| dice.below(objects).min(dice.below(objects))).collect();
    for (step, object) in requests.iter().enumerate() {
        if dice.below(20) == 0 {
            sizes[*object as usize] = dice.below(101);
        }
        let later = requests[step + 1..].iter().position(|other| other == object);
        let next_use = later.map_or(NEVER, |by| (step + 1 + by) as u32);
        let bytes = sizes[*object as usize];
        let access = Access { bytes, next_use, ..Access::new(Page(*object), Op::Read) };
        let answer = if held.iter().any(|(page, _)| *page == access.page) {
            model.hit(&access);
            Answer::Hit
        } else if u64::from(bytes) > capacity || !model.takes(&access) {
            Answer::TooLarge
        } else {
            let room = |held: &[(Page, u32)]| {
                capacity - held.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>()
            };
            while room(&held) < u64::from(bytes) {
                for page in model.evict(Some(&access), &BTreeSet::new()) {
                    held.retain(|(other, _)| *other != page);
                }
            }
            held.push((access.page, bytes));
            model.insert(&access);
            Answer::Entered
        };
        let (found, resident) = cache(&access);
        let mut expected: Vec<Page> = held.iter().map(|(page, _)| *page).collect();
        expected.sort_unstable();
        assert_eq!(
            (found, resident),
            (answer, expected),
            "{text}, seed {seed}, {capacity} bytes: step {step}, {access:?}"
        );
    }
}

/// Returns the real cache under a policy, for tests.
pub(super) fn stepped<P: crate::policy::Build + 'static>(setup: &Setup<'_>) -> Box<Stepped> {
    let policy = Erased::<false>::new(P::build(setup));
    let objects = setup.pages;
    let mut cache = ObjectCache::new(policy, objects, setup.bytes.unwrap(), false);
    Box::new(move |access| {
        let answer = cache.request(access, |_| true);
        cache.check();
        let resident = (0..objects).map(Page).filter(|page| cache.frames.frame(*page).is_some());
        (answer, resident.collect())
    })
}

/// Ten bytes hold a and b (4 + 5); c (6) takes the place of both, and d (11) of none. The second
/// request for a misses, the third hits.
// Promises: Objects 1.
#[test]
fn an_object_takes_the_place_of_as_many_as_it_needs() {
    let (a, b, c, d) = ((1, 4), (2, 5), (3, 6), (4, 11));
    let trace = trace(&[a, b, c, d, a, a, c]);
    assert_eq!(working_set_bytes(&trace), 26);
    let outcome = simulate("lru", 10, None, &trace);
    let expected = ObjectOutcome {
        requests: 7,
        hits: 2,
        bytes: 40,
        hit_bytes: 10,
        too_large: 1,
        turned_away: 0,
        entered_bytes: 4 + 5 + 6 + 4,
        evictions: 2,
        expired: 0,
    };
    assert_eq!(outcome, expected);
    assert_eq!((outcome.miss_ratio(), outcome.byte_miss_ratio()), (5.0 / 7.0, 0.75));
    assert_eq!(simulate("lru", 1, None, &super::tests::trace(&[])).miss_ratio(), 0.0);
}

/// An object keeps the size that it entered with, and bytes count as requested.
// Promises: Objects 2.
#[test]
fn an_object_keeps_its_size_and_bytes_count_as_requested() {
    let trace = trace(&[(1, 4), (1, 100), (2, 6), (1, 1)]);
    let outcome = simulate("lru", 10, None, &trace);
    assert_eq!((outcome.hits, outcome.hit_bytes, outcome.evictions), (2, 101, 0));
}

/// `bloom` takes an object at its second miss, `size` the smaller ones, `prob` none or all at its
/// bounds, and `size-prob` small ones more often than large ones.
// Promises: Objects 3.
#[test]
fn an_admission_turns_objects_away() {
    let twice = trace(&[(1, 4), (1, 4), (1, 4), (2, 8)]);
    let counts = |admission, trace| {
        let outcome = simulate("lru", 100, Some(admission), trace);
        (outcome.hits, outcome.turned_away, outcome.entered_bytes)
    };
    assert_eq!(counts("bloom", &twice), (1, 2, 4));
    assert_eq!(counts("size:below=8", &twice), (2, 1, 4));
    assert_eq!(counts("prob:p=0", &twice), (0, 4, 0));
    assert_eq!(counts("prob:p=1", &twice), (2, 0, 12));
    let many: Vec<_> = (0..4000).map(|n| (n, if n % 2 == 0 { 100 } else { 1000 })).collect();
    let many = trace(&many);
    let outcome = simulate("fifo", 1 << 30, Some("size-prob:c=500"), &many);
    let small = 2000.0 * (-0.2_f64).exp();
    let large = 2000.0 * (-2.0_f64).exp();
    let entered = (outcome.requests - outcome.turned_away) as f64;
    assert!((entered - small - large).abs() < 120.0, "{entered} for {}", small + large);
    let bytes = outcome.entered_bytes as f64;
    assert!((bytes / (100.0 * small + 1000.0 * large) - 1.0).abs() < 0.1, "{bytes}");
    for admission in admission::ALL {
        simulate("s3fifo", 1000, Some(admission.name), &many);
    }
}

/// An object with 10 s to live is there after 10 s, and expired after 11: that request misses and
/// lets it live for 10 s again. One without stays.
// Promises: Objects 2.
#[test]
fn objects_expire() {
    let about = About {
        side: Side::Before,
        space: Space::Objects,
        epoch_us: None,
        boot_us: None,
        knows: Knows { times: true, ..Knows::NOTHING },
    };
    let tables = Tables { sizes: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Request, u64::MAX).with_tables(tables);
    for (at_s, object, ttl_s) in
        [(0, 1, 10), (0, 2, 0), (10, 1, 10), (11, 1, 10), (20, 1, 10), (99, 2, 0), (99, 1, 0)]
    {
        let event = |action| Event { at_us: at_s * 1_000_000, pid: 0, tid: 0, action };
        if ttl_s > 0 {
            builder.extend(&[event(Action::TimeToLive { ttl_us: ttl_s * 1_000_000 })]).unwrap();
        }
        let action = Action::Read { file: FileId(object), open: None, offset: 0, len: 7 };
        builder.extend(&[event(action)]).unwrap();
    }
    let trace = builder.finish().unwrap();
    for policy in ["lru", "gdsf", "lhd", "s3fifo", "arc", "2q"] {
        let outcome = simulate(policy, 1000, None, &trace);
        assert_eq!((outcome.hits, outcome.expired, outcome.evictions), (3, 2, 0), "{policy}");
    }
}
