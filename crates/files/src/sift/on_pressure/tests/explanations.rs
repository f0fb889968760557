//! Explanations of every sifter over random histories: each decision has one that is consistent
//! with it, and asking for explanations changes no decision.

use super::*;
use crate::sift::{
    BoxedSift, Explanation, Intent,
    model::{FileModel, testing},
};
use flashsift_events::dice::Dice;
use std::sync::Arc;

/// How a run asks for explanations.
#[derive(Clone, Copy, PartialEq)]
enum Asks {
    Never,
    /// For each decision.
    Decisions,
    /// For each decision, and for some file after each event.
    Always,
}

type Decided = Vec<(Micros, Decision, Option<Explanation>)>;

/// Takes the pending decisions. Flash refuses some files.
fn perform(sifter: &mut BoxedSift, now: Micros, dice: &mut Dice, asks: Asks, out: &mut Decided) {
    while let Some(decision) = sifter.poll() {
        let Some(file) = decision.file() else { continue };
        let explanation = (asks != Asks::Never).then(|| sifter.explain(now, file)).flatten();
        out.push((now, decision, explanation));
        let is_write = matches!(decision, Decision::WriteBack { .. });
        let result = if is_write && dice.below(8) == 0 { Err(Blocked::NoSpace) } else { Ok(()) };
        sifter.done(now, file, result);
    }
}

/// Lets several files be created with the same name: sifters remember names.
fn with_short_name(event: Event<'static>) -> Event<'static> {
    let Action::Create(create) = &event.action else { return event };
    let (file, owner, mode, sync) = (create.file, create.owner, create.mode, create.sync);
    let short = if create.name.contains('.') { create.name.len() } else { 5 };
    let name = create.name.get(..short).unwrap_or(&create.name);
    let create = Create { file, name: MaybeOwned::owned_str(name), owner, mode, sync };
    Event { action: Action::Create(MaybeOwned::owned(create)), ..event }
}

fn decided(
    sifter: &str,
    models: &[(String, Arc<FileModel>)],
    budget_bytes: u64,
    seed: u64,
    asks: Asks,
) -> Decided {
    let events: Vec<_> = events(seed, 300).into_iter().map(with_short_name).collect();
    let (droppable, last) = (droppable(), LastUses::of_all(&events));
    let setup = SifterSetup { models, ..setup(budget_bytes, &droppable, &last) };
    let mut sifter = Selection::parse(sifter).unwrap().build(&setup).unwrap();
    if asks != Asks::Never {
        sifter.record_explanations();
    }
    let (mut dice, mut asked, mut out) = (Dice::new(seed), Dice::new(seed + 1), Vec::new());
    for event in &events {
        let now = event.at_us;
        while let Some(due) = sifter.next_deadline().filter(|due| *due <= now) {
            sifter.handle_deadline(due);
            perform(&mut sifter, due, &mut dice, asks, &mut out);
        }
        if dice.below(20) == 0 {
            sifter.need_space(now, 1 << 14);
            perform(&mut sifter, now, &mut dice, asks, &mut out);
        }
        sifter.handle(now, event);
        perform(&mut sifter, now, &mut dice, asks, &mut out);
        if asks == Asks::Always {
            let file = FileId(asked.below(100).into());
            sifter.explain(now + u64::from(asked.below(3)) * 10_000_000, file);
        }
    }
    out
}

/// Each decision has an explanation with the same end of the file. A drop meets all of its
/// criteria; a file that is written by a judgement misses at least one. The numbers are finite, and
/// no name comes twice.
// Promises: Sift 17.
#[test]
fn explanations_are_consistent_with_decisions() {
    let model = |phase, units, score| {
        let bytes = testing::constant(phase, units, score);
        Arc::new(FileModel::from_bytes(&bytes).unwrap())
    };
    let models = [
        ("burns".to_owned(), model(1, 20, 0.2)),
        ("stays".to_owned(), model(1, 20, 0.7)),
        ("lives".to_owned(), model(2, 60, 0.7)),
        ("passes".to_owned(), model(2, 60, 0.2)),
    ];
    let variants = [
        "touch:pause=1ms",
        "random:p=0.3",
        "s3-fifo:reads=2,ghosts=3",
        "controller:again=0.5,cold-mib=0",
        "controller:again=1,price=40,cold-mib=0",
        "controller:again=1,cap-mib=0.01,cold-mib=0,ghosts=20",
        "cachesifter:model=burns,ms=1",
        "cachesifter:model=stays,ms=1",
        "cachesifter:model=stays,model2=lives,k1=3s,k2=9s,t1=2s",
        "cachesifter:model=stays,model2=passes,k1=3s,k2=9s,t1=2s,ms=0.02,t2=4s",
    ];
    let mut unexpected = Vec::new();
    for sifter in ALL.iter().map(|spec| spec.name).chain(variants) {
        let (mut drops, mut missed) = (0, 0);
        for seed in 0..120 {
            let budget_bytes = [0, 1 << 13, 1 << 16, 1 << 19][seed as usize % 4];
            let at = format!("{sifter} in {budget_bytes} bytes, seed {seed}");
            let run = |asks| decided(sifter, &models, budget_bytes, seed, asks);
            let found = run(Asks::Decisions);
            let decisions = |found: &Decided| -> Vec<(Micros, Decision)> {
                found.iter().map(|(at, decision, _)| (*at, *decision)).collect()
            };
            assert_eq!(decisions(&found), decisions(&run(Asks::Never)), "{at}");
            assert_eq!(found, run(Asks::Always), "{at}");
            for (now, decision, explanation) in &found {
                let at = format!("{at}, {now} µs: {decision:?} {explanation:#?}");
                let found = explanation.as_ref().unwrap_or_else(|| panic!("none: {at}"));
                assert_eq!(found.intent, decision.intent(), "{at}");
                assert!(found.rule.ends_with('.') && found.rule.len() > 10, "{at}");
                let holds = found.criteria.iter().all(|criterion| criterion.holds());
                match found.intent {
                    Intent::Drop => assert!(holds, "{at}"),
                    _ => assert!(!holds || found.criteria.is_empty(), "{at}"),
                }
                drops += u32::from(found.intent == Intent::Drop);
                missed += u32::from(!holds);
                let numbers = found.criteria.iter().flat_map(|one| [one.value, one.threshold]);
                let costs = found.chance.into_iter().chain(found.drop_costs_bytes);
                let features = found.features.iter().map(|feature| feature.value);
                assert!(numbers.chain(costs).chain(features).all(f64::is_finite), "{at}");
                let names: BTreeSet<&str> = found.features.iter().map(|one| &*one.name).collect();
                assert_eq!(names.len(), found.features.len(), "{at}");
                let chance = found.chance.unwrap_or(0.0);
                assert!((0.0..=1.0).contains(&chance), "{at}");
            }
        }
        let (drops_files, judges) = match sifter {
            "none" | "keep" | "tmpfs" => (false, false),
            "drop-all" | "cachesifter:model=burns,ms=1" => (true, false),
            "cachesifter:model=stays,ms=1" => (false, true),
            _ if sifter.contains("model2=lives") => (false, true),
            _ if sifter.contains("model2=passes") => (true, false),
            _ => (true, true),
        };
        if (drops > 50, missed > 50) != (drops_files, judges) {
            unexpected.push(format!("{sifter}: {drops} drops, {missed} missed a criterion"));
        }
    }
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

/// The numbers of a decision by hand: files of one page, of which RAM holds three. A fetched byte
/// is so dear that no file is dropped.
// Promises: Sift 17.
#[test]
fn a_write_of_the_controller_by_hand() {
    let (droppable, last) = (Droppable::matching(&["/d0/*".into()]), LastUses::default());
    let budget_bytes = 3 * (FILE_COST_BYTES + PAGE_BYTES);
    let setup = setup(budget_bytes, &droppable, &last);
    let mut sifter = Selection::parse("controller:again=0.5,cold-mib=0,price=200")
        .unwrap()
        .build(&setup)
        .unwrap();
    sifter.record_explanations();
    for file in 1..4 {
        assert_eq!(decisions(&mut *sifter, file, create(file, "/d0/a")), []);
        assert_eq!(decisions(&mut *sifter, file, write(file, 1)), []);
    }
    let now = 4_000_000;
    let found = decisions(&mut *sifter, now, create(4, "/d0/b"));
    let file = found[0].file().unwrap();
    assert_eq!((found.len(), found[0].intent()), (1, Intent::Write), "{found:?}");
    let explanation = sifter.explain(now, file).unwrap();
    let criterion = |name: &str| {
        let mut all = explanation.criteria.iter();
        all.find(|criterion| criterion.score.contains(name)).unwrap()
    };
    let fetched = criterion("fetched again");
    assert_eq!((fetched.value, fetched.threshold), (0.0, 2048.0), "half of what leaves RAM");
    assert_eq!(explanation.write_costs_bytes, 4096);
    let chance = explanation.chance.unwrap();
    let factor = feature(&explanation, "correction_factor");
    assert_eq!(factor, 2.0, "nothing is known yet");
    let corrected = chance * factor;
    let price = criterion("chance times price");
    assert_eq!((price.value, price.threshold), (corrected * 200.0, 1.0 - corrected));
    assert!(!price.holds());
    assert_eq!(explanation.drop_costs_bytes, Some(corrected * 200.0 * 4096.0));
    assert_eq!(feature(&explanation, "idle_s"), (now - file.0) as f64 / 1e6);
}

fn feature(explanation: &Explanation, name: &str) -> f64 {
    let found = explanation.features.iter().find(|feature| feature.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {explanation:?}")).value
}
