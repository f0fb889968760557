//! Figures on DRAM and non-volatile memory: where time and energy go.

use super::{
    Comparison,
    nvm_sizes::{READINGS, Reading, by_energies},
};
use flashsift_pages::nvm::profile::MemoryCost;
use flashsift_report::{Axis, Bar, Chart, Figure, Ink, Marks, Scale, Unit, View};
use flashsift_study::ResultRow;

/// Draws the time of storage and memory by system, for the first memory and each device; nothing
/// without both.
pub(super) fn time(run: &Comparison<'_>, lead: usize) -> Option<Figure> {
    let row = run.sizes().first()?.rows.first()?;
    let (memory, _) = row.memory.first()?;
    let devices: Vec<_> = row.devices.iter().map(|device| device.device.to_string()).collect();
    let parts = [
        ("storage reads", Ink::Series(0)),
        ("storage writes, flushes and discards", Ink::Series(1)),
        ("NVM reads", Ink::Series(2)),
        ("NVM writes", Ink::Series(3)),
        ("DRAM", Ink::Series(4)),
    ];
    let views = run.sizes().iter().map(|size| {
        let panels = devices.iter().enumerate().map(|(n, device)| {
            let values = |row: &ResultRow| {
                let on = &row.devices[n];
                let cost = row.memory[0].1;
                let writes_s = on.elapsed_s - on.read_s;
                [on.read_s, writes_s, cost.nvm_read_s, cost.nvm_write_s, cost.dram_s]
                    .map(|seconds| seconds * 1e6)
                    .to_vec()
            };
            bars(device.clone(), &parts, "time", Unit::TimeUs, &size.rows, values)
        });
        View { label: run.size_label(size), panels: panels.collect() }
    });
    (!devices.is_empty()).then(|| Figure {
        id: "memory-time".to_owned(),
        title: "Time on storage and in memory".to_owned(),
        caption: format!(
            "All requests and accesses one after another: storage as modelled, lines of memory \
             with the latencies of {memory}."
        ),
        paper: "Lim & Bahn 2021, Fig. 9; Kang & Eom 2016, Fig. 7".to_owned(),
        views: views.collect(),
        first: lead,
    })
}

/// Draws the energy by system in the readings of the paper's table, for the first memory that has
/// energies.
pub(super) fn energy(run: &Comparison<'_>, lead: usize) -> Option<Figure> {
    let row = run.sizes().first()?.rows.first()?;
    let has_energy = |(_, cost): &(&str, MemoryCost)| cost.energy.is_some();
    let at = row.memory.iter().position(has_energy)?;
    let memory = row.memory[at].0;
    let parts = [("energy", Ink::Series(0))];
    let views = run.sizes().iter().map(|size| {
        let panels = READINGS.iter().map(|Reading { title, axis, value }| {
            let values = |row: &ResultRow| vec![row.memory[at].1.energy.map_or(0.0, value)];
            bars((*title).to_owned(), &parts, axis, Unit::Number, &size.rows, values)
        });
        View { label: run.size_label(size), panels: panels.collect() }
    });
    Some(Figure {
        id: "memory-energy".to_owned(),
        title: "Energy of memory and storage".to_owned(),
        caption: by_energies(memory),
        paper: "Kang & Eom 2016, Fig. 8".to_owned(),
        views: views.collect(),
        first: lead,
    })
}

/// One bar a system, the shortest first.
fn bars(
    title: String,
    parts: &[(&str, Ink)],
    axis: &str,
    unit: Unit,
    rows: &[ResultRow],
    values: impl Fn(&ResultRow) -> Vec<f64>,
) -> Chart {
    let mut order: Vec<(Vec<f64>, &ResultRow)> =
        rows.iter().map(|row| (values(row), row)).collect();
    let sum = |values: &[f64]| values.iter().sum::<f64>();
    order.sort_by(|(one, _), (other, _)| sum(one).total_cmp(&sum(other)));
    let names = order.iter().map(|(_, row)| row.policy.clone()).collect();
    Chart {
        title,
        x: Axis::new(axis, unit),
        y: Axis::new("", Unit::Count).scale(Scale::Names(names)),
        marks: Marks::Bars {
            parts: parts.iter().map(|(name, ink)| ((*name).to_owned(), *ink)).collect(),
            bars: order.into_iter().map(|(values, _)| Bar { values }).collect(),
        },
    }
}
