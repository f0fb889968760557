//! The sifter of a mount: a sifter for the files that may be dropped, and [`Keep`] for all others.
//!
//! The sifter is the same object that a simulation runs. Both have one RAM. If it is full, the
//! oldest files of either leave until a sixteenth of it is free: of `keep`, those that were changed
//! first; of the sifter, those that were used least recently, dropped or written as it decides. One
//! of the two loses none while it holds less than a quarter of the RAM and the other one can lose
//! some. When each had half of the RAM, files left it so much earlier that in simulation a mount
//! with a sifter wrote up to 1.8 times as much as one without.
//!
//! This machine adds what a user wants of a live sifter:
//!
//! - It can be [switched](Live::switch) at any time. A file that is in RAM stays with the machine
//!   that got it; new files go where the mode says.
//! - A ceiling limits the bytes that are fetched again, whatever the sifter is. Above it a drop
//!   becomes a write-back.
//! - The RAM can be [changed](Live::resize), as memory pressure demands.

use super::{
    Birth, Blocked, BoxedSift, Criterion, Decision, Droppable, Explanation, FILE_COST_BYTES,
    Intent, Keep, KeepConfig, Reason, SelectedSifter, Selection, SetupError, Sift, SifterSetup,
    meaning::{self, FileParts, Meaning},
    model::FileModel,
};
pub use ceiling::AGAIN;
use ceiling::{Ceiling, ContentKey};
use flashsift_events::event::{Action, Create, Event, FileId, Micros};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use journal::Journal;
use latecomers::Latecomers;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tally::{Programs, Tally};

mod ceiling;
mod journal;
pub(crate) mod latecomers;
pub mod ram_budget;
mod tally;
#[cfg(test)]
mod tests;

/// Divisor of the RAM: when it is full, at least this part of it is freed.
const FREED: u64 = 16;
/// Divisor of the RAM: the part that the sifter, or `keep`, has for certain.
const LEAST: u64 = 4;

/// The fate of new files in a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveMode {
    /// Every new file is created on flash.
    Plain,
    /// Every new file waits in RAM; none is dropped.
    #[default]
    Keep,
    /// The sifter decides on files that may be dropped.
    Sift,
}

impl LiveMode {
    /// Every mode.
    pub const ALL: [LiveMode; 3] = [LiveMode::Plain, LiveMode::Keep, LiveMode::Sift];

    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            LiveMode::Plain => "plain",
            LiveMode::Keep => "keep",
            LiveMode::Sift => "sift",
        }
    }
}

/// A sifter, and the files that it decides on.
#[derive(Clone)]
pub struct LiveSifter {
    /// The sifter and its parameters. It may not be offline.
    pub sifter: Selection,
    /// The files that may be dropped.
    pub droppable: Droppable,
    /// The models that its parameters name, by the text that names them.
    pub models: Vec<(String, Arc<FileModel>)>,
    /// The most RAM that its files take, bytes. It is not its own: other files may take it.
    pub budget_bytes: u64,
    /// Most bytes that may be fetched again, as a share of those of droppable files that plain ext4
    /// would write.
    pub again: f64,
    /// The events tell when a file is open.
    pub knows_opens: bool,
}

impl std::fmt::Debug for LiveSifter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "LiveSifter({}, {} bytes)", self.sifter.label(), self.budget_bytes)
    }
}

impl LiveSifter {
    /// Returns a sifter without models for files with these names, which take at most this RAM.
    pub fn new(sifter: Selection, droppable: Droppable, budget_bytes: u64) -> Self {
        let (models, again, knows_opens) = (Vec::new(), AGAIN, true);
        Self { sifter, droppable, models, budget_bytes, again, knows_opens }
    }

    /// Builds the sifter with this much RAM, bytes.
    ///
    /// # Errors
    /// The sifter knows the rest of the history, or its parameters name a model that does not suit.
    pub fn build(&self, budget_bytes: u64) -> Result<BoxedSift, SetupError> {
        if self.sifter.is_offline() {
            let label = self.sifter.label();
            return Err(SetupError(format!(
                "{label} knows the rest of the history, and so exists in simulation only; choose \
                 another sifter, such as controller"
            )));
        }
        self.sifter.build(&SifterSetup {
            budget_bytes,
            patterns: &[],
            droppable: &self.droppable,
            knows_opens: self.knows_opens,
            last_uses: None,
            models: &self.models,
        })
    }
}

/// A number of files and their bytes, since the mount began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBytes {
    /// Number of files.
    pub files: u64,
    /// Their bytes: the end of each file's data.
    pub bytes: u64,
}

impl FileBytes {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// The files of a [`Live`] that may be dropped, since the mount began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveCounts {
    /// In RAM now, with the sifter.
    pub held: FileBytes,
    /// Dropped: they never reached flash.
    pub dropped: FileBytes,
    /// Dropped files whose names or contents were created again, with the bytes that they had.
    pub created_again: FileBytes,
    /// Moved from the sifter's RAM to flash.
    pub written: FileBytes,
    /// Deleted by their applications in the sifter's RAM.
    pub died: FileBytes,
    /// Not dropped but written, because of the ceiling on bytes fetched again.
    #[serde(default)]
    pub refused: FileBytes,
}

pub use journal::{LiveDecision, LiveFate};
pub use tally::SiftedBy;

/// A file in the sifter's RAM.
struct HeldFile {
    name: Box<str>,
    /// The program that created it.
    program: Arc<str>,
    bytes: u64,
    content: Option<ContentKey>,
    meaning: Option<Meaning>,
}

impl HeldFile {
    fn new(name: &str, program: Arc<str>) -> Self {
        Self { name: name.into(), program, bytes: 0, content: None, meaning: None }
    }
}

fn directory(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The sifter of a mount.
pub struct Live {
    mode: LiveMode,
    /// RAM for all files, bytes.
    budget_bytes: u64,
    keep: Keep,
    chosen: Option<LiveSifter>,
    sifter: Option<BoxedSift>,
    /// The sifter is on its way out: it gets no new file, and a new one follows when it has none.
    is_stale: bool,
    /// Files that the sifter has in RAM.
    held: HashMap<FileId, HeldFile, FixedState>,
    /// Those of them that are being dropped.
    dropping: HashSet<FileId, FixedState>,
    latecomers: Latecomers,
    counts: LiveCounts,
    ceiling: Ceiling,
    journal: Journal,
    programs: Programs,
    by_directory: Tally,
    by_program: Tally,
    /// The time of the last call.
    now: Micros,
}

impl Live {
    /// Returns a mount's sifter without a file.
    pub fn new(keep: KeepConfig) -> Self {
        Self {
            mode: LiveMode::Keep,
            budget_bytes: keep.budget_bytes,
            keep: Keep::new(keep),
            chosen: None,
            sifter: None,
            is_stale: false,
            held: HashMap::default(),
            dropping: HashSet::default(),
            latecomers: Latecomers::default(),
            counts: LiveCounts::default(),
            ceiling: Ceiling::default(),
            journal: Journal::default(),
            programs: Programs::default(),
            by_directory: Tally::default(),
            by_program: Tally::default(),
            now: 0,
        }
    }

    /// Returns one with this RAM that drops files by this sifter.
    ///
    /// # Errors
    /// The sifter cannot be built.
    pub fn sifting(budget_bytes: u64, chosen: LiveSifter) -> Result<Self, SetupError> {
        let mut live = Self::new(KeepConfig { budget_bytes, ..KeepConfig::default() });
        live.choose(0, chosen)?;
        live.switch(0, LiveMode::Sift);
        Ok(live)
    }

    /// Returns the mode.
    pub fn mode(&self) -> LiveMode {
        self.mode
    }

    /// Returns the RAM for all files, bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Returns the machine of the files that the sifter does not decide on.
    pub fn keep(&self) -> &Keep {
        &self.keep
    }

    /// Returns the sifter that was chosen.
    pub fn chosen(&self) -> Option<&LiveSifter> {
        self.chosen.as_ref()
    }

    /// Returns the counts since the mount began.
    pub fn counts(&self) -> LiveCounts {
        let bytes = self.held.values().map(|file| file.bytes).sum();
        LiveCounts { held: FileBytes { files: self.held.len() as u64, bytes }, ..self.counts }
    }

    /// Returns the bytes fetched again, as a share of those of droppable files that plain ext4
    /// would have written, since the mount began or [`Live::reset`].
    pub fn again_share(&self) -> f64 {
        self.ceiling.share()
    }

    /// Forgets what came back: the ceiling counts anew.
    pub fn reset(&mut self) {
        self.ceiling.reset();
    }

    /// Chooses the sifter. Files in the RAM of the one before go to flash.
    ///
    /// # Errors
    /// The sifter cannot be built. Nothing has changed then.
    pub fn choose(&mut self, now: Micros, chosen: LiveSifter) -> Result<(), SetupError> {
        chosen.build(self.sifters_part(chosen.budget_bytes))?;
        self.ceiling.set(chosen.again, chosen.budget_bytes);
        self.chosen = Some(chosen);
        self.replace_sifter(now);
        Ok(())
    }

    /// Sets the mode for new files.
    pub fn switch(&mut self, now: Micros, mode: LiveMode) {
        if mode != self.mode {
            self.mode = mode;
            self.replace_sifter(now);
        }
    }

    /// Changes the RAM for all files, bytes. If it is less than before, files leave it.
    pub fn resize(&mut self, now: Micros, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        self.share_out(now);
    }

    /// Sends the files of the sifter to flash, and builds the chosen one when it has none.
    fn replace_sifter(&mut self, now: Micros) {
        if let Some(sifter) = &mut self.sifter {
            let action = Action::SyncAll;
            sifter.handle(now, &Event { at_us: now, pid: 0, tid: 0, action });
        }
        self.latecomers.clear();
        self.is_stale = true;
        self.rebuild(now);
    }

    fn rebuild(&mut self, now: Micros) {
        if self.is_stale && self.held.is_empty() {
            let bytes = self.chosen.as_ref().map_or(0, |chosen| chosen.budget_bytes);
            let chosen = self.chosen.as_ref().filter(|_| self.mode == LiveMode::Sift);
            // It could be built when it was chosen.
            self.sifter = chosen.and_then(|one| one.build(self.sifters_part(bytes)).ok());
            if let Some(sifter) = &mut self.sifter {
                sifter.record_explanations();
            }
            self.is_stale = false;
        }
        self.share_out(now);
    }

    fn sifters_part(&self, wanted_bytes: u64) -> u64 {
        wanted_bytes.min(self.budget_bytes)
    }

    fn share_out(&mut self, now: Micros) {
        let wanted = self.chosen.as_ref().map_or(0, |chosen| chosen.budget_bytes);
        let part = self.sifters_part(wanted);
        if let Some(sifter) = &mut self.sifter {
            sifter.resize(now, part);
        }
        self.keep.resize(now, self.budget_bytes);
        self.keep_within_budget(now);
    }

    /// Returns the RAM of the sifter's files that no decision moves out, bytes.
    fn sifted_bytes(&self) -> u64 {
        self.sifter.as_ref().map_or(0, |sifter| sifter.held_bytes())
    }

    /// Decides that the oldest files leave RAM so that the others are within the budget. Alone,
    /// `keep` does so itself.
    fn keep_within_budget(&mut self, now: Micros) {
        if self.sifter.is_some() && self.held_bytes() > self.budget_bytes {
            let wanted = self.budget_bytes - self.budget_bytes / FREED;
            while self.held_bytes() > wanted && self.free_one(now) {}
        }
    }

    /// Whether the file that leaves RAM next is one of `keep`, and not one of the sifter.
    fn keep_is_next(&self, now: Micros) -> bool {
        let sifters = self.sifter.as_ref().and_then(|sifter| sifter.oldest_us(now));
        let least = self.budget_bytes / LEAST;
        match (self.keep.oldest_us(now), sifters) {
            (_, None) => true,
            (None, Some(_)) => false,
            _ if self.keep.held_bytes() < least => false,
            _ if self.sifted_bytes() < least => true,
            (Some(kept_us), Some(sifted_us)) => kept_us <= sifted_us,
        }
    }

    /// Decides that one more file leaves RAM. Returns whether one can.
    fn free_one(&mut self, now: Micros) -> bool {
        let before = self.held_bytes();
        let keep_is_next = self.keep_is_next(now);
        for is_keeps in [keep_is_next, !keep_is_next] {
            match &mut self.sifter {
                _ if is_keeps => self.keep.free_one(now),
                Some(sifter) => sifter.need_space(now, 1),
                None => {}
            }
            if self.held_bytes() < before {
                return true;
            }
        }
        false
    }

    /// Returns the files that the sifter decides on now.
    fn sifted(&self) -> Option<&Droppable> {
        let sifts = self.mode == LiveMode::Sift && self.sifter.is_some() && !self.is_stale;
        self.chosen.as_ref().filter(|_| sifts).map(|chosen| &chosen.droppable)
    }

    /// Whether the sifter decides on a file with this name.
    fn sifts(&self, create: &Create<'_>) -> bool {
        self.sifted().is_some_and(|droppable| droppable.has(&create.name))
    }

    fn created(&mut self, now: Micros, event: &Event<'_>, create: &Create<'_>) {
        let sifts = self.sifts(create);
        match &mut self.sifter {
            Some(sifter) if sifts => {
                if sifter.birth(now, create) == Birth::Ram {
                    let held = HeldFile::new(&create.name, self.programs.get(event.pid));
                    self.held.insert(create.file, held);
                }
                sifter.handle(now, event);
            }
            _ => self.keep.handle(now, event),
        }
    }

    /// Hands a file of `keep` to the sifter, if this event gave it a droppable name.
    fn adopt(&mut self, now: Micros, event: &Event<'_>) {
        let sifts = self.sifted().is_some();
        let Some(LiveSifter { droppable, .. }) = self.chosen.as_ref().filter(|_| sifts) else {
            return;
        };
        let Some(late) = self.latecomers.after(event, &self.keep, droppable) else { return };
        let create = late.create();
        let Some(sifter) = &mut self.sifter else { return };
        if sifter.birth(now, &create) != Birth::Ram {
            return;
        }
        self.keep.release(late.file);
        late.events(event, &create).for_each(|event| sifter.handle(now, &event));
        let bytes = late.bytes();
        let held = HeldFile::new(&late.name, self.programs.get(event.pid));
        let requested = |of: &mut SiftedBy| of.requested_bytes += bytes;
        requested(self.by_directory.entry(directory(&held.name)));
        requested(self.by_program.entry(&held.program));
        self.held.insert(late.file, HeldFile { bytes, ..held });
    }

    /// A process gives a file this name.
    fn named(&mut self, event: &Event<'_>, name: &str) {
        if let Some(bytes) = self.ceiling.named(name) {
            self.journal.created_again(event.at_us, name);
            let program = self.programs.get(event.pid);
            self.created_again(name, &program, bytes);
        }
    }

    fn created_again(&mut self, name: &str, program: &str, bytes: u64) {
        self.counts.created_again.add(bytes);
        self.by_directory.entry(directory(name)).created_again.add(bytes);
        self.by_program.entry(program).created_again.add(bytes);
    }

    /// Takes the content of a file that a process has closed.
    pub fn closed(&mut self, now: Micros, file: FileId, parts: &FileParts) {
        self.has_content(now, file, ContentKey::of(parts));
        if let Some(held) = self.held.get_mut(&file) {
            held.meaning = meaning::of(&held.name, parts);
        }
    }

    fn has_content(&mut self, now: Micros, file: FileId, content: ContentKey) {
        let Some(held) = self.held.get_mut(&file) else { return };
        if held.content.replace(content) != Some(content)
            && let Some(bytes) = self.ceiling.closed(&held.name, content)
        {
            let (name, program) = (held.name.clone(), Arc::clone(&held.program));
            self.journal.created_again(now, &name);
            self.created_again(&name, &program, bytes);
        }
    }

    /// Returns the last 2048 decisions of the sifter, the oldest first.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = &LiveDecision> {
        self.journal.decisions()
    }

    /// Returns the 20 directories with the most bytes of dropped files, the largest first.
    pub fn directories(&self) -> Vec<SiftedBy> {
        let held = self.held.values().map(|file| (directory(&file.name), file.bytes));
        self.by_directory.largest(held)
    }

    /// Returns the 20 programs with the most bytes of dropped files, the largest first.
    pub fn programs(&self) -> Vec<SiftedBy> {
        self.by_program.largest(self.held.values().map(|file| (&*file.program, file.bytes)))
    }

    /// Explains what the sifter does with a file that it has in RAM. `None`: it has none of this
    /// number.
    pub fn explain_held(&self, now: Micros, file: FileId) -> Option<Explanation> {
        let held = self.held.get(&file)?;
        let explanation = self.sifter.as_ref()?.explain(now, file)?;
        Some(explanation.of_meaning(held.meaning))
    }

    /// Notes the effects of an event on the files that the sifter has.
    fn note(&mut self, event: &Event<'_>) {
        match &event.action {
            Action::Create(create) => self.named(event, &create.name),
            Action::Link { name, .. } => self.named(event, name),
            Action::Rename { names, .. } => self.named(event, &names.to),
            Action::Unbind { name, .. } => self.ceiling.deleted(name),
            Action::Process { name } => self.programs.named(event.pid, name),
            _ => {}
        }
        if self.held.is_empty() {
            return;
        }
        if let Action::RenameDirectory { names } = &event.action {
            for file in self.held.values_mut() {
                if let Some(moved) = names.moved(&file.name) {
                    file.name = moved.into();
                }
            }
        }
        let Some(id) = event.action.file() else { return };
        let Some(file) = self.held.get_mut(&id) else { return };
        if let Some((_, name)) = event.action.new_name() {
            file.name = name.into();
        }
        match &event.action {
            Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. } => {
                file.bytes = file.bytes.max(offset.saturating_add(*len));
                self.by_directory.entry(directory(&file.name)).requested_bytes += len;
                self.by_program.entry(&file.program).requested_bytes += len;
            }
            Action::Truncate { size, .. } => file.bytes = file.bytes.min(*size),
            Action::Gone { .. } => {
                self.journal.forget_pending(id);
                self.counts.died.add(file.bytes);
                self.held.remove(&id);
            }
            _ => {}
        }
    }

    /// Polls the sifter. One that is on its way out drops nothing, any other up to the ceiling.
    fn poll_sifter(&mut self) -> Option<Decision> {
        let mut decision = self.sifter.as_mut()?.poll()?;
        let sifter = self.sifter.as_ref()?;
        let Some((file, held)) =
            decision.file().and_then(|file| Some((file, self.held.get(&file)?)))
        else {
            return Some(decision);
        };
        let mut explanation = sifter.explain(self.now, file);
        if let Decision::Drop { why, .. } = decision {
            let refusal = match self.is_stale {
                true => {
                    let rule = "The sifter was switched off before it dropped the file.";
                    Some(Explanation::new(Intent::Write, rule, held.bytes))
                }
                false => {
                    let judged = self.ceiling.judge(&held.name, held.bytes);
                    let is_refused = !judged.criteria.iter().all(Criterion::holds);
                    is_refused.then(|| {
                        self.counts.refused.add(held.bytes);
                        judged
                    })
                }
            };
            if refusal.is_some() {
                // The drop was for want of space: BACKING's page cache may have it for a while.
                decision = Decision::WriteBack { file, keep_in_ram: false, why };
                explanation = refusal;
            } else {
                self.dropping.insert(file);
            }
        }
        let explanation = explanation.map(|reason| reason.of_meaning(held.meaning));
        self.journal.decided(self.now, file, held, decision, explanation);
        Some(decision)
    }

    /// Whether this event is the performance of a drop, and no application's deletion.
    pub fn drops(&self, event: &Event<'_>) -> bool {
        let removes = matches!(event.action, Action::Unbind { .. } | Action::Gone { .. });
        removes && event.action.file().is_some_and(|file| self.dropping.contains(&file))
    }
}

impl Sift for Live {
    fn birth(&mut self, now: Micros, create: &Create<'_>) -> Birth {
        if self.mode == LiveMode::Plain {
            return Birth::Flash(Reason::All);
        }
        let sifts = self.sifts(create);
        match &mut self.sifter {
            Some(sifter) if sifts => sifter.birth(now, create),
            _ => self.keep.birth(now, create),
        }
    }

    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        if self.drops(event) {
            // The result of the decision follows, and says the same.
            return;
        }
        self.now = now;
        self.ceiling.advance(now);
        self.note(event);
        match &event.action {
            Action::Create(create) if self.mode != LiveMode::Plain => {
                self.created(now, event, create);
            }
            Action::Create(_) => {}
            _ => {
                if let Some(sifter) = &mut self.sifter {
                    sifter.handle(now, event);
                }
                self.keep.handle(now, event);
                self.adopt(now, event);
            }
        }
        self.keep_within_budget(now);
    }

    fn done(&mut self, now: Micros, file: FileId, result: Result<(), Blocked>) {
        let is_drop = self.dropping.remove(&file);
        if result.is_ok()
            && let Some(held) = self.held.remove(&file)
        {
            self.journal.done(file, is_drop);
            match is_drop {
                true => self.ceiling.dropped(&held.name, held.content, held.bytes),
                false => self.ceiling.written(held.bytes),
            }
            let of_all = if is_drop { &mut self.counts.dropped } else { &mut self.counts.written };
            of_all.add(held.bytes);
            let left = |of: &mut SiftedBy| {
                let part = if is_drop { &mut of.dropped } else { &mut of.written };
                part.add(held.bytes);
            };
            left(self.by_directory.entry(directory(&held.name)));
            left(self.by_program.entry(&held.program));
        }
        if let Some(sifter) = &mut self.sifter {
            sifter.done(now, file, result);
        }
        self.keep.done(now, file, result);
        if !self.keep.has(file) {
            self.latecomers.left(file);
        }
        if self.is_stale {
            self.rebuild(now);
        }
    }

    fn need_space(&mut self, now: Micros, bytes: u64) {
        self.now = now;
        let (before, mut files) = (self.held_bytes(), 0);
        let wanted = bytes.max(self.budget_bytes / FREED);
        // The space is for pages, and the rest of what a file takes is none.
        let freed = |live: &Self, files: u64| {
            (before - live.held_bytes()).saturating_sub(files * FILE_COST_BYTES)
        };
        if self.sifter.is_some() {
            while freed(self, files) < wanted && self.free_one(now) {
                files += 1;
            }
        }
        if files == 0 {
            self.keep.need_space(now, bytes);
        }
    }

    fn resize(&mut self, now: Micros, budget_bytes: u64) {
        Live::resize(self, now, budget_bytes);
    }

    fn held_bytes(&self) -> u64 {
        self.keep.held_bytes() + self.sifted_bytes()
    }

    fn oldest_us(&self, now: Micros) -> Option<Micros> {
        let sifter = self.sifter.as_ref().and_then(|sifter| sifter.oldest_us(now));
        sifter.into_iter().chain(self.keep.oldest_us(now)).min()
    }

    fn next_deadline(&self) -> Option<Micros> {
        let sifter = self.sifter.as_ref().and_then(|sifter| sifter.next_deadline());
        sifter.into_iter().chain(self.keep.next_deadline()).min()
    }

    fn handle_deadline(&mut self, now: Micros) {
        self.now = now;
        if let Some(sifter) = &mut self.sifter {
            sifter.handle_deadline(now);
        }
        self.keep.handle_deadline(now);
        self.keep_within_budget(now);
    }

    fn poll(&mut self) -> Option<Decision> {
        self.poll_sifter().or_else(|| self.keep.poll())
    }

    fn explain(&self, now: Micros, file: FileId) -> Option<Explanation> {
        self.explain_held(now, file).or_else(|| self.keep.explain(now, file))
    }

    fn check(&self) {
        self.keep.check();
        self.ceiling.check();
        self.journal.check();
        self.programs.check();
        self.by_directory.check();
        self.by_program.check();
        self.latecomers.check(&self.keep);
        if let Some(sifter) = &self.sifter {
            sifter.check();
        }
        assert!(self.held.is_empty() || self.sifter.is_some(), "held files have a sifter");
        assert!(self.dropping.iter().all(|file| self.held.contains_key(file)));
        assert!(self.held.keys().all(|file| !self.keep.has(*file)), "each file has one machine");
    }
}
