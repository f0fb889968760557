//! The names and opens of one file, counted.

use crate::event::Action;

/// A number that can be counted down exactly unless it once reached 65,535, where it stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count(u16);

impl Count {
    fn up(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    fn down(&mut self) {
        self.0 = if self.0 == u16::MAX { u16::MAX } else { self.0.saturating_sub(1) };
    }
}

/// Number of names and opens of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    names: Count,
    opens: Count,
}

/// The effect of an event on the names and opens of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange<'a> {
    /// None.
    None,
    /// A descriptor was opened.
    Opened,
    /// The file got this name, in place of another one or beside others.
    Named(&'a str),
    /// The file lost a name or an open, or ended.
    Lost,
}

impl Links {
    /// Returns those of a file that no process has open, with one name or without a name.
    pub fn new(is_named: bool) -> Self {
        Self { names: Count(is_named.into()), opens: Count(0) }
    }

    /// Takes an event of the file after its creation. A name that the trace meets is the only one
    /// of a file that had none; any other file has it already.
    pub fn take<'a>(&mut self, action: &'a Action<'_>) -> LinkChange<'a> {
        match action {
            Action::Open { .. } => {
                self.opens.up();
                LinkChange::Opened
            }
            Action::Link { name, .. } => {
                self.names.up();
                LinkChange::Named(name)
            }
            Action::Bind { name, .. } => {
                self.names.0 = self.names.0.max(1);
                LinkChange::Named(name)
            }
            Action::Rename { names, .. } => {
                self.names.0 = self.names.0.max(1);
                LinkChange::Named(&names.to)
            }
            Action::Close { .. } => {
                self.opens.down();
                LinkChange::Lost
            }
            Action::Unbind { .. } => {
                self.names.down();
                LinkChange::Lost
            }
            Action::Gone { .. } => {
                *self = Self::default();
                LinkChange::Lost
            }
            _ => LinkChange::None,
        }
    }

    /// Returns the number of names; 65,535 stands for any larger number, too.
    pub fn names(self) -> u16 {
        self.names.0
    }

    /// Returns the number of opens, in the same way.
    pub fn opens(self) -> u16 {
        self.opens.0
    }

    /// Returns whether the file has a name.
    pub fn is_named(self) -> bool {
        self.names.0 > 0
    }

    /// Returns whether a process has the file open.
    pub fn is_open(self) -> bool {
        self.opens.0 > 0
    }

    /// Returns whether the file has neither a name nor an open: it ends.
    pub fn is_dead(self) -> bool {
        !self.is_named() && !self.is_open()
    }
}
