//! Programs by bytes written, with their reads. Processes of one name are one line.

use super::{
    Characterisation, CharacterisationSpec, Found, Ledger, Piece, Seen, Table, Value,
    ranking::Ranking,
};
use flashsift_events::{
    event::{Action, Event},
    names::program_name,
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "top_processes",
    title: "Processes",
    paper: "",
    paper_saw: "",
    opens: true,
    needs: &[],
    build: |_| Box::new(TopProcesses::default()),
};

#[derive(Default)]
struct TopProcesses {
    /// Bytes read and written by each program.
    moved: Vec<[u64; 2]>,
}

/// Name of a process that was started as `/proc/self/exe`, in recordings that do not know better.
/// Chromium starts its services so.
const ITSELF: &str = "exe";

impl TopProcesses {
    fn moved(&mut self, program: u32) -> &mut [u64; 2] {
        let program = program as usize;
        if program >= self.moved.len() {
            self.moved.resize(program + 1, [0; 2]);
        }
        &mut self.moved[program]
    }
}

fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

impl Characterisation for TopProcesses {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        // 0: the format has no process numbers.
        let Some(program) = seen.program.filter(|_| event.pid != 0) else { return };
        match &event.action {
            Action::Read { len, .. } => add(&mut self.moved(program)[0], *len),
            Action::Write { len, .. } => add(&mut self.moved(program)[1], *len),
            _ => {}
        }
    }

    fn held_bytes(&self) -> usize {
        self.moved.len() * size_of::<[u64; 2]>()
    }

    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str> {
        let each = ledger.programs.all().iter().zip(&self.moved);
        let each = each.map(|(program, [read, written])| (program.key(), [*written, *read]));
        let programs = Ranking::new(each);
        if programs.is_empty() {
            return Err("no processes");
        }
        let [all_written, all_read] = [0, 1].map(|by| programs.all(by));
        let by = usize::from(all_written == 0);
        let programs = programs.top(by, top, program_name);
        let mut columns =
            vec![("name", ["most written by", "most read by"][by]), ("processes", "processes")];
        let writes = ledger.about.knows.writes;
        if writes {
            columns.extend([("written_bytes", "written"), ("written_bytes_share", "")]);
        }
        columns.extend([("read_bytes", "read"), ("read_bytes_share", "")]);
        let mut table = Table::new("processes", &columns);
        for program in &programs {
            let mut row = vec![program.name.clone(), Value::Count(program.count)];
            let [written, read] = program.sums;
            if writes {
                row.extend([Value::Bytes(written), Value::share(written, all_written)]);
            }
            row.extend([Value::Bytes(read), Value::share(read, all_read)]);
            table.push(row);
        }
        let found = Found::default().table(table);
        let Some(first) = programs.first().filter(|_| all_written > 0) else { return Ok(found) };
        let most = first.sums[0] >= all_written - first.sums[0];
        let itself = ledger.programs.all().iter().zip(&self.moved);
        let itself = itself.filter(|(program, _)| program.name.as_deref() == Some(ITSELF));
        let itself = itself.fold(0, |sum: u64, (_, [_, written])| sum.saturating_add(*written));
        let mut pieces: Vec<Piece> = vec![
            first.name.clone().into(),
            "makes".into(),
            Value::share(first.sums[0], all_written).into(),
            match most {
                true => "of the bytes written.",
                false => "of the bytes written, more than any other program.",
            }
            .into(),
        ];
        if itself > 0 {
            pieces.extend([
                "Processes called exe, in which a program started itself again, make".into(),
                Value::share(itself, all_written).into(),
                "of them.".into(),
            ]);
        }
        Ok(found.sentence(pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    /// The sentence, with shares in whole percent.
    fn said(found: &Found) -> String {
        let pieces = found.sentence.iter().flatten().map(|piece| match piece {
            Piece::Words(words) => (*words).to_owned(),
            Piece::Text(text) => text.to_string(),
            Piece::Value(Value::Share(share)) => format!("{:.0} %", share * 100.0),
            Piece::Value(Value::Name(name)) => name.to_string(),
            Piece::Value(other) => format!("{other:?}"),
        });
        pieces.collect::<Vec<_>>().join(" ")
    }

    /// The sentence follows one on the data that reaches flash, and "writes most of it: 51 %" read
    /// as a share of those. It is of the bytes written, and says so.
    #[test]
    fn the_sentence_names_the_whole_of_its_share() {
        let all = [
            by(1, process("app")),
            by(2, process("other")),
            by(3, process("third")),
            by(1, write(1, 0, 40)),
            by(2, write(1, 0, 30)),
            by(3, write(1, 0, 30)),
        ];
        let found = describe("top_processes", &all);
        let said = said(&found);
        assert_eq!(said, "app makes 40 % of the bytes written, more than any other program.");
    }

    /// "chromium makes 67 %" left out those of its own processes that it had started as
    /// `/proc/self/exe`.
    #[test]
    fn processes_that_a_program_started_as_itself_are_named() {
        let all = [
            by(1, process("chromium")),
            by(2, process("exe")),
            by(3, process("exe")),
            by(1, write(1, 0, 60)),
            by(2, write(1, 0, 30)),
            by(3, write(1, 0, 10)),
        ];
        assert_eq!(
            said(&describe("top_processes", &all)),
            "chromium makes 60 % of the bytes written. Processes called exe, in which a program \
             started itself again, make 40 % of them."
        );
    }

    // Promises: Describe 17.
    #[test]
    fn programs_and_not_processes_are_counted() {
        let events = [
            by(1, write(1, 0, 10)), // before it has a name
            by(1, process("app")),
            by(1, write(1, 0, 20)),
            by(2, process("app")),
            by(2, write(1, 0, 30)),
            by(2, process("other")), // runs another program
            by(2, write(1, 0, 5)),
            by(2, process("app")), // and again
            by(2, write(1, 0, 1)),
            by(3, read(1, 0, 7)),
            by(4, process("idle")),
        ];
        let found = describe("top_processes", &events);
        assert_eq!(column(&found, "processes", "name"), [name("app"), name("other")]);
        assert_eq!(column(&found, "processes", "processes"), counts([2, 1]));
        assert_eq!(column(&found, "processes", "written_bytes"), [61, 5].map(bytes));
        assert_eq!(said(&found), "app makes 92 % of the bytes written.");
        // If nothing is written, the readers are listed.
        let found = describe("top_processes", &events[9..]);
        assert_eq!(column(&found, "processes", "name"), [name("(process 3)")]);
        assert_eq!(found.sentence, None);
        assert_eq!(
            describe_as(about(), "top_processes", &[at(0, read(1, 0, 1))]),
            Err("no processes")
        );
    }
}
