//! The sifters that remember names, beside plain lists of files and names.

use super::*;
use flashsift_events::dice::Dice;

/// Names that are remembered in these tests.
const GHOSTS: usize = 6;

/// A file in RAM.
struct Naive {
    id: FileId,
    name: String,
    pages: u64,
    reads: u32,
    used_us: Micros,
}

/// The names that were added last.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn remove(&mut self, name: &str) {
        self.0.retain(|known| known != name);
    }

    fn add(&mut self, name: &str) {
        self.remove(name);
        self.0.push(name.into());
        self.0.drain(..self.0.len().saturating_sub(GHOSTS));
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }
}

/// Compares the decisions of a sifter with those of plain lists. `lru`: a use makes a file the
/// newest. The rule says whether a file is written, and remembers names.
fn leaves_as_lists_say(
    sifter: &str,
    lru: bool,
    mut writes: impl FnMut(&Naive, &mut Names) -> bool,
) {
    let (mut drops, mut writes_all) = (0, 0);
    for seed in 0..300 {
        let (mut dice, droppable) = (Dice::new(seed), droppable());
        let budget_bytes = 40 * PAGE_BYTES;
        let last = LastUses::default();
        let setup = setup(budget_bytes, &droppable, &last);
        let mut sifter = Selection::parse(sifter).unwrap().build(&setup).unwrap();
        let (mut files, mut names) = (Vec::<Naive>::new(), Names::default());
        for step in 1..300 {
            // Some uses come too soon after the one before to count as new ones.
            let now = step * 700_000;
            let at = |action| Event { at_us: now, pid: 1, tid: 1, action };
            let offset = 0;
            if files.is_empty() || dice.below(3) == 0 {
                let id = FileId(step);
                let name = format!("/d0/{}", dice.below(30));
                let create = MaybeOwned::owned_str(&name);
                let create =
                    Create { file: id, name: create, owner: None, mode: None, sync: false };
                sifter.handle(now, &at(Action::Create(MaybeOwned::owned(create))));
                files.push(Naive { id, name, pages: 0, reads: 0, used_us: now });
                let pages = 1 + u64::from(dice.below(12));
                let len = pages * PAGE_BYTES;
                let write = Action::Write { file: id, open: None, offset, len, sync: false };
                sifter.handle(now, &at(write));
                files.last_mut().unwrap().pages = pages;
            } else {
                let n = dice.below(files.len() as u32) as usize;
                let file = files[n].id;
                let action = match dice.below(12) {
                    // A file that is deleted is no ghost.
                    0 => {
                        files.remove(n);
                        Action::Gone { file }
                    }
                    _ => {
                        files[n].reads += u32::from(now - files[n].used_us >= 1_000_000);
                        files[n].used_us = now;
                        if lru {
                            let used = files.remove(n);
                            files.push(used);
                        }
                        Action::Read { file, open: None, offset, len: 1 }
                    }
                };
                sifter.handle(now, &at(action));
            }
            let cost = |files: &[Naive]| -> u64 {
                files.iter().map(|file| FILE_COST_BYTES + file.pages * PAGE_BYTES).sum()
            };
            let mut expected = Vec::new();
            while cost(&files) > budget_bytes
                && let Some(n) = files.iter().position(|file| file.used_us != now)
            {
                let (left, why) = (files.remove(n), Reason::Space);
                let file = left.id;
                expected.push(match writes(&left, &mut names) {
                    true => Decision::WriteBack { file, keep_in_ram: false, why },
                    false => Decision::Drop { file, why },
                });
            }
            let found: Vec<_> = std::iter::from_fn(|| sifter.poll()).collect();
            assert_eq!(found, expected, "seed {seed}, step {step}");
            for decision in found {
                sifter.done(now, decision.file().unwrap(), Ok(()));
                match decision {
                    Decision::Drop { .. } => drops += 1,
                    _ => writes_all += 1,
                }
            }
            sifter.check();
        }
    }
    assert!(drops > 3000 && writes_all > 3000, "{drops} drops, {writes_all} written");
}

// Promises: Sift 10.
#[test]
fn s3_fifo_drops_as_a_queue_with_ghosts_does() {
    for reads in [1, 2] {
        let sifter = format!("s3-fifo:reads={reads},ghosts={GHOSTS}");
        leaves_as_lists_say(&sifter, false, |file, ghosts| {
            let deserves = file.reads >= reads || ghosts.has(&file.name);
            match deserves {
                true => ghosts.remove(&file.name),
                false => ghosts.add(&file.name),
            }
            deserves
        });
    }
}

// Promises: Sift 10.
#[test]
fn reject_first_drops_a_name_that_is_not_remembered() {
    for (order, lru) in [("lru", true), ("fifo", false)] {
        let sifter = format!("reject-first:order={order},ghosts={GHOSTS}");
        leaves_as_lists_say(&sifter, lru, |file, known| {
            let deserves = known.has(&file.name);
            known.add(&file.name);
            deserves
        });
    }
}
