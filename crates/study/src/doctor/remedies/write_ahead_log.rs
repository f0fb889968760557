//! SQLite's write-ahead log instead of rollback journals.

use super::{Effect, Findings, MOST, Proposal, RemedySpec, RemedyStep, quoted};
use crate::doctor::{Usage, what_if::Change};
use flashsift_events::names::{self, Sqlite};
use std::collections::BTreeSet;

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "write-ahead-log",
    what: "SQLite keeps a write-ahead log instead of rollback journals",
    propose,
};

/// Transactions below which a database is left alone.
const TRANSACTIONS_MIN: u64 = 3;

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let journals = findings.groups(|usage| match names::companion(&usage.file)? {
        (database, Sqlite::Journal) => Some(database.to_owned()),
        _ => None,
    });
    let propose = |(database, journal): (String, super::Group)| {
        let of = |name: &str| {
            findings.usages.iter().filter(|usage| *usage.file == *name).collect::<Vec<&Usage>>()
        };
        let databases: BTreeSet<_> = findings
            .files
            .named()
            .filter(|(_, name)| *name == database)
            .map(|(id, _)| id)
            .collect();
        let file = *databases.first()?;
        let syncs: u64 = of(&database).iter().map(|usage| usage.syncs).sum();
        if syncs < TRANSACTIONS_MIN {
            return None;
        }
        let written: u64 = of(&database).iter().map(|usage| usage.reached_bytes).sum();
        let programs: Vec<_> = journal.programs.into_iter().collect();
        let journals = findings
            .files
            .named()
            .filter(|(_, name)| {
                matches!(names::companion(name),
                Some((of, Sqlite::Journal)) if of == database)
            })
            .map(|(id, _)| id)
            .collect();
        Some(Proposal {
            subject: database.clone(),
            title: format!("Give {database} a write-ahead log"),
            evidence: format!(
                "{} made {syncs} transactions with rollback journals: {} in the journal, {} in the \
                 database, and file system metadata for each new journal",
                super::listed(&programs),
                findings.data_per_hour(journal.reached_bytes),
                findings.data_per_hour(written),
            ),
            price: "the database gets two more files beside it while it is open; a program that \
                    sets the mode itself must be changed instead"
                .to_owned(),
            steps: vec![RemedyStep::Command {
                run: format!("sqlite3 {} 'PRAGMA journal_mode=WAL;'", quoted(&database)),
                undo: format!("sqlite3 {} 'PRAGMA journal_mode=OLD;'", quoted(&database)),
                read: format!("sqlite3 {} 'PRAGMA journal_mode;'", quoted(&database)),
                value: "wal".to_owned(),
                old: "DELETE".to_owned(),
                of_user: true,
            }],
            programs,
            effect: Effect::Change(Change::WriteAheadLog { database: file, journals }),
        })
    };
    journals.into_iter().filter_map(propose).take(MOST).collect()
}
