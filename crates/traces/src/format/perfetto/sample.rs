//! Small traces in the form in which Perfetto writes them.

use super::{GENERIC, packet};
use flate2::{Compression, write::ZlibEncoder};
use std::io::Write;

pub(crate) mod write {
    //! An encoder of protocol buffers.

    pub(crate) fn varint(out: &mut Vec<u8>, mut number: u64) {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }

    /// Encodes a field that holds a number.
    pub(crate) fn number(out: &mut Vec<u8>, field: u32, number: u64) {
        varint(out, u64::from(field) << 3);
        varint(out, number);
    }

    /// Encodes a field that holds a string or a message.
    pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
        varint(out, u64::from(field) << 3 | 2);
        varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

/// The value of a field.
#[derive(Clone, Copy)]
pub(super) enum Is<'a> {
    Number(u64),
    Text(&'a str),
    Message(&'a [u8]),
}

/// Encodes a message of these fields.
pub(super) fn message(fields: &[(u32, Is<'_>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, is) in fields {
        match is {
            Is::Number(number) => write::number(&mut out, *field, *number),
            Is::Text(text) => write::bytes(&mut out, *field, text.as_bytes()),
            Is::Message(message) => write::bytes(&mut out, *field, message),
        }
    }
    out
}

/// Encodes a packet in the form of the file.
pub(super) fn packet(fields: &[(u32, Is<'_>)]) -> Vec<u8> {
    message(&[(1, Is::Message(&message(fields)))])
}

/// Encodes an `FtraceEvent` of a known tracepoint.
pub(super) fn event(at_ns: u64, tid: u64, number: u32, fields: &[(u32, Is<'_>)]) -> Vec<u8> {
    message(&[
        (1, Is::Number(at_ns)),
        (2, Is::Number(tid)),
        (number, Is::Message(&message(fields))),
    ])
}

/// Encodes an `FtraceEvent` of a tracepoint that Perfetto does not know.
pub(super) fn generic(at_ns: u64, tid: u64, name: &str, fields: &[(&str, Is<'_>)]) -> Vec<u8> {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, is)| match is {
            Is::Number(_) => message(&[(1, Is::Text(name)), (5, *is)]),
            _ => message(&[(1, Is::Text(name)), (3, *is)]),
        })
        .collect();
    let named = [(1, Is::Text(name))].into_iter();
    let all: Vec<_> = named.chain(fields.iter().map(|field| (2, Is::Message(field)))).collect();
    event(at_ns, tid, GENERIC, &all)
}

/// Encodes a packet with a bundle of one processor's events.
pub(super) fn bundle(cpu: u64, events: &[Vec<u8>]) -> Vec<u8> {
    let events = events.iter().map(|event| (2, Is::Message(event)));
    let bundle = message(&[(1, Is::Number(cpu))].into_iter().chain(events).collect::<Vec<_>>());
    packet(&[(10, Is::Number(2)), (packet::FTRACE_EVENTS, Is::Message(&bundle))])
}

/// Returns a trace of two processors whose events depend on each other; one bundle is compressed.
pub(super) fn files() -> Vec<u8> {
    let process = message(&[(1, Is::Number(20)), (3, Is::Text("/system/bin/app"))]);
    let thread = message(&[(1, Is::Number(21)), (2, Is::Text("io")), (3, Is::Number(20))]);
    let tree = message(&[(1, Is::Message(&process)), (2, Is::Message(&thread))]);
    let dev = Is::Number(0x10309);
    let call = |offset, size| {
        [
            ("pathbuf", Is::Text("/data/a b")),
            ("offset", Is::Number(offset)),
            ("bytes", Is::Number(4096)),
            ("i_size", Is::Number(size)),
            ("ino", Is::Number(9)),
        ]
    };
    let ended = [("ino", Is::Number(9)), ("offset", Is::Number(4096)), ("bytes", Is::Number(904))];
    let written = [
        ("dev", dev),
        ("ino", Is::Number(9)),
        ("offset", Is::Number(0)),
        ("ret", Is::Number(5000)),
    ];
    let first = bundle(
        0,
        &[
            generic(1_000_000, 20, "f2fs_datawrite_start", &call(0, 0)),
            generic(1_200_000, 20, "f2fs_file_write_iter", &written),
            event(1_900_000, 20, 255, &[(1, dev), (2, Is::Number(9))]),
            event(1_950_000, 20, 4, &[(1, Is::Text("app")), (2, Is::Number(20))]),
        ],
    );
    let second = bundle(
        1,
        &[
            generic(1_500_000, 21, "f2fs_dataread_start", &call(4096, 5000)),
            generic(1_600_000, 21, "f2fs_dataread_end", &ended),
            event(
                1_700_000,
                21,
                119,
                &[(1, dev), (2, Is::Number(8)), (3, Is::Number(8)), (4, Is::Text("R"))],
            ),
        ],
    );
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&second).expect("memory takes anything");
    let packed = packed.finish().expect("memory takes anything");
    let cpu = message(&[(1, Is::Number(0)), (3, Is::Number(3))]);
    let stats = message(&[(1, Is::Number(2)), (2, Is::Message(&cpu))]);
    [
        packet(&[(8, Is::Number(1)), (6, Is::Message(b"")), (10, Is::Number(1))]),
        packet(&[(packet::PROCESS_TREE, Is::Message(&tree)), (10, Is::Number(3))]),
        first,
        packet(&[(packet::COMPRESSED, Is::Message(&packed))]),
        packet(&[(packet::FTRACE_STATS, Is::Message(&stats)), (10, Is::Number(2))]),
    ]
    .concat()
}

/// Returns a trace that holds only requests.
pub(super) fn requests() -> Vec<u8> {
    let request = |at_ns, tid, sector, flags| {
        let fields = [
            (1, Is::Number(0x800)),
            (2, Is::Number(sector)),
            (3, Is::Number(8)),
            (5, Is::Text(flags)),
            (6, Is::Text("app")),
        ];
        event(at_ns, tid, 45, &fields)
    };
    [
        packet(&[(8, Is::Number(1)), (10, Is::Number(1))]),
        bundle(0, &[request(5_000, 7, 64, "R"), request(9_000, 7, 128, "WS")]),
        bundle(1, &[request(7_000, 8, 256, "WFS")]),
    ]
    .concat()
}
