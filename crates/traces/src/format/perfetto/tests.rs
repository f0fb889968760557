use super::{
    super::kernel::{ALL, Value},
    sample::{Is, bundle, event, generic, message, packet},
    *,
};
use crate::format::testing;
use flashsift_events::event::{Action, Event, Side};
use proptest::prelude::*;

fn read_lines(spec: &FormatSpec, bytes: &[u8]) -> (Vec<String>, String) {
    let (events, summary) = testing::read(spec, bytes).unwrap();
    let line = |Event { at_us, pid, tid, action }: &Event| {
        let what = match action {
            Action::Read { file, offset, len, .. } => format!("{} r {offset} {len}", file.0),
            Action::Write { file, offset, len, .. } => format!("{} w {offset} {len}", file.0),
            Action::Sync { file, .. } => format!("{} sync", file.0),
            Action::Size { file, size } => format!("{} had {size}", file.0),
            Action::Bind { file, name } => format!("{} is {name}", file.0),
            Action::Process { name } => format!("runs {name}"),
            other => panic!("{other:?}"),
        };
        format!("{at_us} {pid}/{tid} {what}")
    };
    (events.iter().map(line).collect(), testing::skipped(&summary))
}

#[test]
fn the_sample_is_read() {
    let (events, skipped) = read_lines(&SPEC, &sample::files());
    assert_eq!(
        events,
        [
            "200 20/20 runs app",
            "200 20/20 0 is /data/a b",
            "200 20/20 0 had 0",
            "200 20/20 0 w 0 5000",
            "600 20/21 0 r 4096 904",
            "900 20/20 0 sync",
        ]
    );
    assert_eq!(
        skipped,
        "3 × event lost by the kernel: its buffer was full (first at 5); 1 × other tracepoint \
         (first at 3); 1 × packet of another kind than ftrace's (first at 1); 1 × request of the \
         block layer, behind the page cache (a format ending in -block reads these) (first at 4)"
    );
}

#[test]
fn a_trace_of_requests_is_one_of_blocks() {
    let expected = [
        "0 0/0 0 is /dev/block/8:0",
        "0 7/7 0 r 32768 4096",
        "2 8/8 0 w 131072 4096",
        "4 7/7 0 w 65536 4096",
    ];
    assert_eq!(read_lines(&BLOCK, &sample::requests()).0, expected);
    assert_eq!(read_lines(&SPEC, &sample::requests()).0, expected);
    let (_, summary) = testing::read(&SPEC, &sample::requests()).unwrap();
    assert_eq!(summary.about.expect("the sample is described").side, Side::After);
    assert_eq!(summary.late, 0);
}

/// Every tracepoint, by Perfetto's number where it has one, by the kernel's names, and described in
/// the trace.
// Promises: Traces 19.
#[test]
fn every_tracepoint_arrives_whole() {
    let mut runner = proptest::test_runner::TestRunner::default();
    let numbers = proptest::collection::vec(any::<u64>(), super::super::kernel::FIELDS_MAX);
    runner
        .run(&(numbers, "[a-z /,=]{0,9}"), |(numbers, text)| {
            let mut layouts = Layouts::new();
            for known in ALL.iter() {
                let is_text = |field: &str| {
                    const TEXTS: [&str; 9] = [
                        "name", "pathbuf", "comm", "filename", "rwbs", "str", "dev_name", "cmnd",
                        "disk",
                    ];
                    TEXTS.contains(&field)
                };
                let is_dev = |field: &str| ["dev", "s_dev"].contains(&field);
                let mut fields = Vec::new();
                let mut expected = Vec::new();
                for (field, &number) in known.fields.iter().zip(&numbers) {
                    let (major, minor) = (number >> 20 & 0xfff, number & 0xf_ffff);
                    fields.push((
                        *field,
                        match () {
                            () if is_text(field) => Is::Text(&text),
                            () if is_dev(field) => {
                                Is::Number(major << 8 | minor & 0xff | (minor & 0xf_ff00) << 12)
                            }
                            () => Is::Number(number),
                        },
                    ));
                    expected.push(match () {
                        () if is_text(field) => Value::Text(text.as_bytes()),
                        () if is_dev(field) => Value::Number(major << 20 | minor),
                        () => Value::Number(number),
                    });
                }
                let same = |fields: &super::super::kernel::Fields<'_>| {
                    fields.0[..expected.len()] == expected
                };

                let bytes = generic(5, 6, known.name, &fields);
                let inner = wire::fields(&bytes).find_map(|field| match field {
                    Ok((GENERIC, Wire::Bytes(inner))) => Some(inner),
                    _ => None,
                });
                match layouts.generic(inner.expect("it is there")) {
                    Ok(Generic::Known(of, read)) => {
                        prop_assert!(of.name == known.name && same(&read), "{}", known.name)
                    }
                    _ => panic!("{}", known.name),
                }

                // The numbers are in the kernel's order, which differs from ours.
                let numbered: Vec<_> =
                    fields.iter().rev().zip(3..).map(|((name, is), n)| (*name, n, *is)).collect();
                let described: Vec<_> = numbered
                    .iter()
                    .map(|(name, n, _)| {
                        message(&[(1, Is::Text(name)), (3, Is::Number(u64::from(*n)))])
                    })
                    .collect();
                let own = [(1, Is::Text(known.name))].into_iter();
                let descriptor = message(
                    &own.chain(described.iter().map(|d| (2, Is::Message(d)))).collect::<Vec<_>>(),
                );
                layouts
                    .describe(&message(&[(1, Is::Number(70_000)), (2, Is::Message(&descriptor))]))
                    .expect("a descriptor");
                let bytes =
                    message(&numbered.iter().map(|(_, n, is)| (*n, *is)).collect::<Vec<_>>());
                let read = layouts.get(70_000).expect("described").read(&bytes).expect("a message");
                prop_assert!(same(&read), "{}", known.name);
            }
            Ok(())
        })
        .unwrap();
}

fn write(at_ns: u64, tid: u64, pos: u64) -> Vec<u8> {
    let fields =
        [(1, Is::Number(0x801)), (2, Is::Number(12)), (3, Is::Number(pos)), (5, Is::Number(10))];
    event(at_ns, tid, 42, &fields)
}

/// Perfetto has no message for eMMC's requests, and only some fields of pages that enter the cache.
#[test]
fn requests_of_hosts_and_misses_are_read() {
    let ufs = |at_ns: u64, step: (u32, Is<'_>), lba: u64| {
        let fields = [
            (1, Is::Text("1d84000.ufshc")),
            (4, Is::Number(lba)),
            (5, Is::Number(0x2a)),
            step,
            (8, Is::Number(4096)),
        ];
        bundle(0, &[event(at_ns, 9, 406, &fields)])
    };
    let trace = [
        ufs(1000, (6, Is::Text("send_req")), 2),
        ufs(2000, (6, Is::Text("complete_rsp")), 2),
        ufs(3000, (10, Is::Number(0)), 3),
        ufs(4000, (10, Is::Number(1)), 3),
    ];
    let (events, skipped) = read_lines(&BLOCK, &trace.concat());
    assert_eq!(events, ["0 0/0 0 is 1d84000.ufshc", "0 9/9 0 w 8192 4096", "2 9/9 0 w 12288 4096"]);
    assert!(skipped.contains("2 × request counted in blocks of the device"), "{skipped}");

    let fields = [
        ("name", Is::Text("mmc0")),
        ("cmd_opcode", Is::Number(25)),
        ("cmd_arg", Is::Number(8)),
        ("blocks", Is::Number(8)),
        ("blksz", Is::Number(512)),
        ("blk_addr", Is::Number(16)),
        ("data_flags", Is::Number(0x100)),
    ];
    let mmc = generic(1000, 9, "mmc_request_start", &fields);
    let nvme = generic(2000, 9, "nvme_setup_cmd", &[("disk", Is::Text("nvme0n1"))]);
    let (events, skipped) = read_lines(&BLOCK, &bundle(0, &[mmc, nvme]));
    assert_eq!(events, ["0 0/0 0 is mmc0", "0 9/9 0 w 8192 4096"]);
    assert_eq!(skipped, "1 × other tracepoint (first at 1)");

    let fields = [(2, Is::Number(12)), (3, Is::Number(5)), (4, Is::Number(0x801))];
    let added = event(1000, 9, 97, &fields);
    let (events, skipped) = read_lines(&SPEC, &bundle(0, &[added]));
    assert_eq!(events, ["0 9/9 0 r 20480 4096"]);
    assert!(skipped.starts_with("1 × page that entered the page cache"), "{skipped}");
}

/// Events come out in the order of their times, independent of the bundles of the processors.
#[test]
fn bundles_of_several_processors_are_put_in_order() {
    let mut runner = proptest::test_runner::TestRunner::default();
    let events = proptest::collection::vec((1..1000_u64, 0..4_u64), 1..200);
    runner
        .run(&(events, 1..20_usize), |(events, cycle)| {
            let mut at_ns = 0;
            let events: Vec<_> = (0..)
                .zip(&events)
                .map(|(n, &(later, cpu))| {
                    at_ns += later * 1000;
                    (at_ns, cpu, n * 100)
                })
                .collect();
            let mut trace = Vec::new();
            for part in events.chunks(cycle) {
                for cpu in 0..4 {
                    let of_cpu = part.iter().filter(|(_, of, _)| *of == cpu);
                    trace.extend(bundle(
                        cpu,
                        &of_cpu.map(|&(at, cpu, pos)| write(at, cpu + 1, pos)).collect::<Vec<_>>(),
                    ));
                }
            }
            let (found, summary) = testing::read(&SPEC, &trace).unwrap();
            let expected: Vec<_> = events
                .iter()
                .map(|&(at, cpu, pos)| ((at - events[0].0) / 1000, cpu as u32 + 1, pos))
                .collect();
            let found: Vec<_> = found
                .iter()
                .filter_map(|event| match event.action {
                    Action::Write { offset, .. } => Some((event.at_us, event.tid, offset)),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(summary.late, 0);
            Ok(())
        })
        .unwrap();
}

#[test]
fn losses_are_noted() {
    let stats = |phase, overrun, dropped| {
        let cpu =
            message(&[(1, Is::Number(0)), (3, Is::Number(overrun)), (8, Is::Number(dropped))]);
        let stats =
            message(&[(1, Is::Number(phase)), (2, Is::Message(&cpu)), (2, Is::Message(&cpu))]);
        packet(&[(packet::FTRACE_STATS, Is::Message(&stats))])
    };
    let gap = message(&[(1, Is::Number(0)), (3, Is::Number(1)), (2, Is::Message(&write(5, 1, 0)))]);
    let trace = [
        stats(1, 10, 1),
        packet(&[
            (packet::FTRACE_EVENTS, Is::Message(&gap)),
            (packet::PREVIOUS_PACKET_DROPPED, Is::Number(1)),
        ]),
        packet(&[
            (packet::PREVIOUS_PACKET_DROPPED, Is::Number(1)),
            (packet::FIRST_ON_SEQUENCE, Is::Number(1)),
        ]),
        stats(2, 15, 1),
        stats(2, 17, 1),
        packet(&[(8, Is::Number(1))])[..3].to_vec(),
    ]
    .concat();
    assert_eq!(
        read_lines(&SPEC, &trace).1,
        "1 × bundle of events before which some were lost (first at 2); 14 × event lost by the \
         kernel: its buffer was full (first at 6); 1 × packet before which some were lost: \
         Perfetto's buffer was full (first at 2); 1 × packet of another kind than ftrace's (first \
         at 3); 1 × packet that is cut short at the end of the trace (first at 6)"
    );
}

#[test]
fn compressed_packets_are_read() {
    let plain = bundle(0, &[write(5, 1, 0)]);
    let zstd = packet(&[(
        packet::ZSTD_COMPRESSED,
        Is::Message(&::zstd::encode_all(&plain[..], 0).unwrap()),
    )]);
    assert_eq!(read_lines(&SPEC, &zstd).0, ["0 1/1 0 w 0 10"]);
    let twice = packet(&[(
        packet::ZSTD_COMPRESSED,
        Is::Message(&::zstd::encode_all(&zstd[..], 0).unwrap()),
    )]);
    let broken = packet(&[(packet::COMPRESSED, Is::Message(b"no zlib"))]);
    let bomb = ::zstd::encode_all(&vec![0; INFLATED_BYTES_MAX as usize + 1][..], 0).unwrap();
    let bomb = packet(&[(packet::ZSTD_COMPRESSED, Is::Message(&bomb))]);
    let (events, skipped) = read_lines(&SPEC, &[plain, twice, broken, bomb].concat());
    assert_eq!(events.len(), 1);
    assert_eq!(
        skipped,
        "3 × compressed packets that cannot be unpacked, or are packed twice (first at 2)"
    );
}

#[test]
fn processes_get_their_names() {
    let rename = |at_ns, pid, name| {
        event(at_ns, pid, 236, &[(1, Is::Number(pid)), (2, Is::Text("x")), (3, Is::Text(name))])
    };
    let tree = |name| {
        let process = message(&[(1, Is::Number(20)), (3, Is::Text(name))]);
        packet(&[(packet::PROCESS_TREE, Is::Message(&message(&[(1, Is::Message(&process))])))])
    };
    let trace = [
        tree("zygote64"),
        bundle(
            0,
            &[write(1_000, 20, 0), rename(2_000, 20, "m.android.chrome"), write(3_000, 20, 10)],
        ),
        tree("com.android.chrome"),
        bundle(0, &[write(5_000, 20, 20)]),
    ]
    .concat();
    let (events, _) = read_lines(&SPEC, &trace);
    let runs: Vec<_> = events.iter().filter(|event| event.contains("runs")).collect();
    assert_eq!(
        runs,
        [
            "0 20/20 runs zygote64",
            "2 20/20 runs m.android.chrome",
            "4 20/20 runs com.android.chrome"
        ]
    );
}

#[test]
fn unreadable_traces_name_the_reason() {
    let error = |bytes: &[u8]| testing::read(&SPEC, bytes).unwrap_err().to_string();
    let good = bundle(0, &[write(5, 1, 0)]);
    assert!(error(&[&good[..], b"x"].concat()).ends_with(&format!("at byte {}", good.len())));
    assert!(
        error(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
            .contains("claims 18446744073709551615 bytes")
    );
    let sched =
        bundle(0, &[event(5, 1, 4, &[(1, Is::Text("a"))]), generic(6, 1, "irq_entry", &[])]);
    let lacks = error(&sched);
    assert!(lacks.contains("irq_entry") && lacks.contains("f2fs_dataread_end"), "{lacks}");
    let lacking =
        bundle(0, &[generic(6, 1, "f2fs_dataread_end", &[("ino", Is::Number(5))]), write(5, 1, 0)]);
    assert_eq!(
        read_lines(&SPEC, &lacking).1,
        "1 × tracepoint that lacks a field that is needed (first at 1)"
    );
}
