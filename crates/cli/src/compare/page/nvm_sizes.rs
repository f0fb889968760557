//! Figures against the size of the non-volatile memory of a write buffer, or of the cache: one line
//! a system.

use super::{Comparison, Inks, by_size};
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::nvm::profile::Energy;
use flashsift_report::{Axis, Chart, Figure, Ink, Line, Marks, Scale, Unit, View};
use flashsift_study::{ResultRow, SizeResults};

/// A value of a row, and the axis that it belongs to.
struct Measure<'a> {
    /// Title of the drawing, where a figure has several.
    title: String,
    axis: &'static str,
    unit: Unit,
    value: &'a dyn Fn(&ResultRow) -> Option<f64>,
}

/// A reading of the energy of storage: its name, its unit and its value.
pub(super) struct Reading {
    pub(super) title: &'static str,
    pub(super) axis: &'static str,
    pub(super) value: fn(Energy) -> f64,
}

/// The readings of the paper's table, as in [`Energy`].
pub(super) const READINGS: [Reading; 4] = [
    Reading {
        title: "3.3 mJ a page written to storage, a read by its time",
        axis: "joules",
        value: |energy| energy.energy_by_time_j,
    },
    Reading {
        title: "3.3 mJ a page of storage",
        axis: "joules",
        value: |energy| energy.energy_mj_page_j,
    },
    Reading { title: "storage at 3.3 V", axis: "joules", value: |energy| energy.energy_j },
    Reading {
        title: "the paper's quotient: energy / latency of each access",
        axis: "watts",
        value: |energy| energy.energy_quotient_w,
    },
];

/// Draws storage writes, time and energy against the size of a buffer's memory, if a system is
/// compared with several sizes of it.
pub(super) fn against_buffers(run: &Comparison<'_>, lead: usize) -> Vec<Figure> {
    let figure = |id: &str, title: &str, caption: String, paper: &str, views: Vec<View>| {
        let drawn = !views.is_empty();
        drawn.then(|| Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            caption,
            paper: paper.to_owned(),
            first: lead.min(views.len() - 1),
            views,
        })
    };
    let views = |measures: &[Measure<'_>]| -> Vec<View> {
        let of_size = |size: &SizeResults| {
            let panels: Option<Vec<Chart>> =
                measures.iter().map(|measure| against_memory(size, measure)).collect();
            let panels = panels.filter(|panels| !panels.is_empty())?;
            Some(View { label: format!("cache of {}", run.size_label(size)), panels })
        };
        run.sizes().iter().filter_map(of_size).collect()
    };
    let writes = Measure {
        title: String::new(),
        axis: "pages written, or left at the end",
        unit: Unit::Count,
        value: &|row| Some(row.outcome.writes_due() as f64),
    };
    let lower = "Lower is better. The level line is the same page cache without this memory.";
    let figures = [
        figure(
            "nvm-writes",
            "Pages written to storage, by size of the NVM",
            format!("{lower} Pages left dirty or in the memory are counted as written."),
            "Lim & Bahn 2021, Fig. 8",
            views(&[writes]),
        ),
        times(run).and_then(|(memory, times)| {
            figure(
                "nvm-time",
                "Time on storage and in memory, by size of the NVM",
                format!("{lower} {}", one_after_another(memory)),
                "Lim & Bahn 2021, Fig. 9",
                views(&times.iter().map(Value::measure).collect::<Vec<_>>()),
            )
        }),
        energies(run).and_then(|(memory, energies)| {
            figure(
                "nvm-energy",
                "Energy of memory and storage, by size of the NVM",
                format!("{lower} {}", by_energies(memory)),
                "",
                views(&energies.iter().map(Value::measure).collect::<Vec<_>>()),
            )
        }),
    ];
    figures.into_iter().flatten().collect()
}

/// Draws time and energy against the size of the cache, if several sizes are compared.
pub(super) fn against_caches(run: &Comparison<'_>, inks: &Inks) -> Vec<Figure> {
    if run.sizes().len() < 2 {
        return Vec::new();
    }
    let views = |values: &[Value]| -> Vec<View> {
        let of = |value: &Value| {
            let y = Axis::new(value.axis, value.unit);
            let of_row = |row: &ResultRow| (value.of)(row).unwrap_or(0.0);
            let chart = by_size(run, inks, &value.title, y, false, &of_row);
            View { label: value.title.clone(), panels: vec![chart] }
        };
        values.iter().map(of).collect()
    };
    let figure = |id: &str, title: &str, caption: String, paper: &str, views: Vec<View>| Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption,
        paper: paper.to_owned(),
        views,
        first: 0,
    };
    let time = times(run).map(|(memory, values)| {
        figure(
            "cache-time",
            "Time on storage and in memory, by size of the cache",
            format!("Lower is better. {}", one_after_another(memory)),
            "Kang & Eom 2016, Fig. 7",
            views(&values),
        )
    });
    let energy = energies(run).map(|(memory, values)| {
        figure(
            "cache-energy",
            "Energy of memory and storage, by size of the cache",
            format!("Lower is better. {}", by_energies(memory)),
            "Kang & Eom 2016, Fig. 8",
            views(&values),
        )
    });
    time.into_iter().chain(energy).collect()
}

fn one_after_another(memory: &str) -> String {
    format!(
        "All requests and accesses one after another: storage as modelled, lines of memory with \
         the latencies of {memory}."
    )
}

pub(super) fn by_energies(memory: &str) -> String {
    format!(
        "By the energies of {memory}. The paper gives storage a current and no voltage, so there \
         are four readings; only the first allows the savings that the paper shows."
    )
}

/// A value of every row, with its name.
struct Value {
    title: String,
    axis: &'static str,
    unit: Unit,
    of: OfRow,
}

/// Returns a value of a row; `None` where the row has none.
type OfRow = Box<dyn Fn(&ResultRow) -> Option<f64>>;

impl Value {
    fn measure(&self) -> Measure<'_> {
        Measure { title: self.title.clone(), axis: self.axis, unit: self.unit, value: &*self.of }
    }
}

/// Returns the first memory of the request, and the time of storage and memory on each device;
/// nothing without both.
fn times<'a>(run: &'a Comparison<'_>) -> Option<(&'a str, Vec<Value>)> {
    let row = run.sizes().first()?.rows.first()?;
    let (memory, _) = row.memory.first()?;
    let of_device = |(at, device): (usize, &str)| Value {
        title: device.to_owned(),
        axis: "time on storage and in memory",
        unit: Unit::TimeUs,
        of: Box::new(move |row| {
            let (_, cost) = row.memory.first()?;
            let memory_s = cost.dram_s + cost.nvm_read_s + cost.nvm_write_s;
            Some((row.devices.get(at)?.elapsed_s + memory_s) * 1e6)
        }),
    };
    let values: Vec<Value> =
        row.devices.iter().map(|on| &*on.device).enumerate().map(of_device).collect();
    (!values.is_empty()).then_some((*memory, values))
}

/// Returns the first memory of the request that has energies, and each reading of them.
fn energies<'a>(run: &'a Comparison<'_>) -> Option<(&'a str, Vec<Value>)> {
    let row = run.sizes().first()?.rows.first()?;
    let at = row.memory.iter().position(|(_, cost)| cost.energy.is_some())?;
    let values = READINGS.map(|Reading { title, axis, value }| Value {
        title: title.to_owned(),
        axis,
        unit: Unit::Number,
        of: Box::new(move |row| Some(value(row.memory.get(at)?.1.energy?))),
    });
    Some((row.memory[at].0, values.into()))
}

/// Draws a value against the size of a buffer's memory: a line for each system of several sizes,
/// and a level line for each policy without such memory. Nothing without the former.
fn against_memory(size: &SizeResults, measure: &Measure<'_>) -> Option<Chart> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in &size.rows {
        let (Some(pages), Some(value)) = (row.nvm_pages, (measure.value)(row)) else { continue };
        let (name, point) = (without_size(&row.policy), (f64::from(pages) * BYTES, value));
        match lines.iter_mut().find(|(other, _)| *other == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    for (_, points) in &mut lines {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points.dedup_by(|one, other| one.0 == other.0);
    }
    lines.retain(|(_, points)| points.len() > 1);
    let mut ticks: Vec<f64> =
        lines.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x)).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let (first, last) = (*ticks.first()?, *ticks.last()?);
    let level = size.rows.iter().filter(|row| row.is_plain).filter_map(|row| {
        let value = (measure.value)(row)?;
        Some((format!("{}, without", row.policy), vec![(first, value), (last, value)]))
    });
    let inks = (0..Ink::SERIES).map(Ink::Series).chain(std::iter::repeat(Ink::Other));
    let lines = level.chain(lines).zip(inks);
    let lines = lines.map(|((name, points), ink)| Line::new(name, ink, points));
    Some(Chart {
        title: measure.title.clone(),
        x: Axis::new("non-volatile memory", Unit::Bytes).scale(Scale::Log2).ticks(ticks),
        y: Axis::new(measure.axis, measure.unit),
        marks: Marks::Lines(lines.collect()),
    })
}

const BYTES: f64 = PAGE_BYTES as f64;

/// Parameters that give the size of a buffer.
const SIZES: [&str; 3] = ["pages", "mib", "share"];

/// Returns the name of a row without the size of its buffer: `lru flush-nvm` for
/// `lru flush-nvm:pages=64`.
fn without_size(label: &str) -> String {
    let (before, system) = label.rsplit_once(' ').unwrap_or(("", label));
    let space = if before.is_empty() { "" } else { " " };
    format!("{before}{space}{}", without_params(system, &SIZES))
}

/// Returns a name with parameters, `name:key=value,…`, without some of them.
pub(super) fn without_params(label: &str, without: &[&str]) -> String {
    let (name, params) = label.split_once(':').unwrap_or((label, ""));
    let is_left_out = |param: &&str| without.contains(&param.split('=').next().unwrap_or_default());
    let rest: Vec<&str> = params.split(',').filter(|param| !is_left_out(param)).collect();
    let rest = rest.join(",");
    let colon = if rest.is_empty() { "" } else { ":" };
    format!("{name}{colon}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_one_system_share_a_line() {
        for (label, name) in [
            ("lru flush-nvm:pages=64", "lru flush-nvm"),
            ("lru flush-nvm", "lru flush-nvm"),
            ("lru hybrid-flush:mib=1,flush=no", "lru hybrid-flush:flush=no"),
            ("clock:insert_ref=1 flush-nvm:share=10", "clock:insert_ref=1 flush-nvm"),
        ] {
            assert_eq!(without_size(label), name);
        }
    }
}
