//! `lrb`: of a few files drawn at random, the one leaves RAM that is least likely to be read again.
//!
//! Song et al., "Learning Relaxed Belady for Content Distribution Network Caching", NSDI '20. LRB
//! draws 64 cached objects, predicts with boosted trees when each is requested next, and evicts the
//! one whose request is farthest away. Here as there `sample` files are drawn. The differences:
//!
//! - LRB learns while it runs, from gaps between requests. Here `flashsift train --labels reuse`
//!   trains the model beforehand, on the features that all sifters share ([`features`]): accesses
//!   of the first seconds of a file's life. So the score of an old file does not change with its
//!   idle time.
//! - The score is the probability that the file is read after it would have left RAM. LRB predicts
//!   a time.
//! - LRB stores nothing below its cache. Here a file whose score is not below the threshold goes to
//!   flash.
//!
//! Files with the same score leave in the order of their last use. Without a model the scores are
//! those of a perfect one: 1 if the file is used again, else 0.
//!
//! [`features`]: super::features

use super::{
    SetupError, SifterSetup, Spec,
    explanation::{Explanation, Intent},
    features::{FileWindow, MAX_VALUES, Phase, Windows},
    model::FileModel,
    on_pressure::{Judge, OnPressure, Use, Verdict},
    shelf::{Held, Shelf, Slot},
    uses::LastUses,
};
use flashsift_events::{
    event::{Event, Micros},
    params::{Param, ParamKind, Params},
};
use foldhash::fast::FixedState;
use std::{hash::BuildHasher, sync::Arc};

#[cfg(test)]
mod tests;

pub(super) const SPEC: Spec = Spec {
    name: "lrb",
    paper: "Song, Berger, Li & Lloyd, NSDI '20",
    what: "drops the least likely of a few files to be read again, by a model, and writes it if \
           that is likely, too; without a model, by what the rest of the trace tells",
    params: PARAMS,
    offline: |params| params.text(PARAMS, "model").is_empty(),
    build: |setup, params| Ok(Box::new(OnPressure::new(setup, Lrb::new(setup, params)?))),
};

const PARAMS: &[Param] = &[
    Param { name: "model", what: "file of the model", kind: ParamKind::Text },
    Param {
        name: "threshold",
        what: "score from which a file is written; 0: the model's own",
        kind: ParamKind::Number { default: 0.0, min: 0.0, max: 1.0 },
    },
    Param {
        name: "sample",
        what: "files of which one is chosen",
        kind: ParamKind::Number { default: 64.0, min: 1.0, max: 4096.0 },
    },
    Param {
        name: "seed",
        what: "seed of the draws",
        kind: ParamKind::Number { default: 1.0, min: 0.0, max: 4e9 },
    },
];

/// Threshold of the perfect model.
const HALF: f32 = 0.5;
/// Places that are looked at for each file that is wanted: some are empty, and some files in use.
const TRIES: usize = 4;

/// The scores come from here.
enum Predictor {
    Model { model: Arc<FileModel>, windows: Windows },
    Perfect(LastUses),
}

struct Lrb {
    predictor: Predictor,
    threshold: f32,
    sample: usize,
    hasher: FixedState,
    /// Number of places drawn.
    draws: u64,
    /// The files drawn last, their features and their scores.
    drawn: Vec<Slot>,
    rows: Vec<f32>,
    scores: Vec<f32>,
}

impl Lrb {
    fn new(setup: &SifterSetup<'_>, params: &Params) -> Result<Self, SetupError> {
        let number = |name| params.number(PARAMS, name);
        let path = params.text(PARAMS, "model");
        let (predictor, own) = if path.is_empty() {
            (Predictor::Perfect(setup.last_uses.cloned().unwrap_or_default()), HALF)
        } else {
            let model = setup.model("model", path, Phase::First)?;
            let window = *model.features();
            let windows = Windows::new(window, window)
                .ok_or_else(|| SetupError(format!("{path}: its window is not possible")))?;
            let own = model.threshold();
            (Predictor::Model { model, windows }, own)
        };
        let threshold = number("threshold") as f32;
        Ok(Self {
            predictor,
            threshold: if threshold > 0.0 { threshold } else { own },
            sample: number("sample") as usize,
            hasher: FixedState::with_seed(number("seed") as u64),
            draws: 0,
            drawn: Vec::new(),
            rows: Vec::new(),
            scores: Vec::new(),
        })
    }

    /// Draws idle files; all of them if there are few.
    fn draw(&mut self, now: Micros, shelf: &Shelf<Window>) {
        self.drawn.clear();
        if shelf.places() <= self.sample {
            self.drawn.extend(shelf.idle(now));
            return;
        }
        for _ in 0..self.sample * TRIES {
            let place = self.hasher.hash_one(self.draws) % shelf.places() as u64;
            self.draws += 1;
            let file = shelf.at_place(place as usize).filter(|slot| shelf.is_idle(*slot, now));
            self.drawn.extend(file);
            if self.drawn.len() == self.sample {
                return;
            }
        }
        if self.drawn.is_empty() {
            self.drawn.extend(shelf.idle(now).next());
        }
    }

    /// Returns the score of one file.
    fn score_of(&self, now: Micros, file: &Held<Window>) -> f32 {
        match &self.predictor {
            Predictor::Perfect(last) => f32::from(u8::from(last.get(file.id) >= now)),
            Predictor::Model { model, .. } => {
                let mut row = [0.0; MAX_VALUES];
                let row = &mut row[..model.features().values()];
                if let Some(window) = &file.state {
                    window.values(Phase::First, row);
                }
                model.score(row)
            }
        }
    }

    /// Scores the files that were drawn.
    fn score(&mut self, now: Micros, shelf: &Shelf<Window>) {
        self.scores.clear();
        self.scores.resize(self.drawn.len(), 0.0);
        match &self.predictor {
            Predictor::Perfect(_) => {
                let files = self.drawn.iter().map(|slot| &shelf[*slot]);
                let scores: Vec<f32> = files.map(|file| self.score_of(now, file)).collect();
                self.scores = scores;
            }
            Predictor::Model { model, .. } => {
                let width = model.features().values();
                self.rows.clear();
                self.rows.resize(width * self.drawn.len(), 0.0);
                for (row, slot) in self.rows.chunks_mut(width).zip(&self.drawn) {
                    if let Some(window) = &shelf[*slot].state {
                        window.values(Phase::First, row);
                    }
                }
                model.score_rows(&self.rows, &mut self.scores);
            }
        }
    }
}

/// The first accesses of a file; `None` without a model.
type Window = Option<FileWindow>;

impl Judge for Lrb {
    type State = Window;

    fn created(&mut self, _: Micros, _: Slot, file: &mut Held<Window>) {
        if let Predictor::Model { windows, .. } = &self.predictor {
            file.state = Some(FileWindow::new(file.born_us, *windows));
        }
    }

    fn event(&mut self, file: &mut Held<Window>, event: &Event<'_>) {
        if let Some(window) = &mut file.state {
            window.handle(event);
        }
    }

    fn used(&mut self, _: Micros, _: &mut Held<Window>, _: Use) -> bool {
        true
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<Window>) -> Option<(Slot, Verdict)> {
        self.draw(now, shelf);
        self.score(now, shelf);
        let scored = self.drawn.iter().zip(&self.scores);
        let (slot, score) = scored.min_by(|(a, a_score), (b, b_score)| {
            let order = |slot: Slot| (shelf[slot].used_us, shelf[slot].id);
            a_score.total_cmp(b_score).then_with(|| order(**a).cmp(&order(**b)))
        })?;
        let verdict = if *score < self.threshold { Verdict::Drop } else { Verdict::Write };
        Some((*slot, verdict))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<Window>, slot: Slot) -> Explanation {
        let score = self.score_of(now, &shelf[slot]);
        let (intent, rule) = match score < self.threshold {
            true => (Intent::Drop, "It will probably not be read again."),
            false => (Intent::Write, "It may be read again."),
        };
        Explanation::of_held(now, &shelf[slot], intent, rule).below(
            "score of a later read",
            f64::from(score),
            f64::from(self.threshold),
        )
    }
}
