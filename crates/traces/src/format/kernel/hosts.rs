//! Requests as a host controller gets them: UFS, eMMC and SD, NVMe, SCSI. They have no flags of the
//! block layer, and all but eMMC's count the device's own blocks.

use super::requests::{Device, Request};
use crate::{
    format::block::{Op, Rwbs, SECTOR_BYTES},
    tracepoint::Values,
};

/// Bytes of a block of UFS devices: the smallest that the standard allows, and the usual one.
const UFS_BLOCK_BYTES: u64 = 4096;

pub(super) const UFS: &[&str] = &["str", "str_t", "dev_name", "transfer_len", "lba", "opcode"];
pub(super) const MMC: &[&str] =
    &["name", "cmd_opcode", "cmd_arg", "sbc_arg", "blocks", "blksz", "blk_addr", "data_flags"];
pub(super) const NVME: &[&str] = &["ctrl_id", "disk", "qid", "opcode", "slba", "length", "control"];
pub(super) const SCSI: &[&str] = &["host_no", "channel", "id", "lun", "cmnd"];

/// A request is reported as it is sent, and again at each step of its end.
pub(super) fn ufs(v: &dyn Values) -> Option<Request> {
    let step = v.text(0);
    let sent = if step.is_empty() { v.number(1) == 0 } else { step.starts_with("send") };
    // Up to Linux 5.11, which called the step `send`, the address is in sectors.
    let block_bytes = if step == "send" { SECTOR_BYTES } else { UFS_BLOCK_BYTES };
    let (len, block) = (v.number(3), v.number(4));
    let op = match v.number(5) {
        _ if !sent => return None,
        0x35 => return Some(flush(&v.text(2))),
        0x08 | 0x28 | 0x88 => Op::Read,
        0x0a | 0x2a | 0x8a => Op::Write,
        _ => return None,
    };
    let sectors = len.cast_signed().is_positive().then_some(len / SECTOR_BYTES)?;
    let sector = block.saturating_mul(block_bytes / SECTOR_BYTES);
    Some(Request { own_blocks: true, ..request(&v.text(2), op, false, (sector, sectors)) })
}

/// A request of data is a read or write of blocks, or, with a command queue, has no opcode.
pub(super) fn mmc(v: &dyn Values) -> Option<Request> {
    const SWITCH: u64 = 6;
    const CACHE_FLUSH: u64 = 32;
    const WRITES: u64 = 1 << 8;
    const RELIABLE: u64 = 1 << 31;
    let (opcode, arg) = (v.number(1), v.number(2));
    if opcode == SWITCH && arg >> 16 & 0xff == CACHE_FLUSH {
        return Some(flush(&v.text(0)));
    }
    let bytes = v.number(4).saturating_mul(v.number(5));
    if !matches!(opcode, 0 | 17 | 18 | 24 | 25 | 46 | 47) || bytes < SECTOR_BYTES {
        return None;
    }
    let op = if v.number(7) & WRITES != 0 { Op::Write } else { Op::Read };
    let sync = op == Op::Write && v.number(3) & RELIABLE != 0;
    Some(request(&v.text(0), op, sync, (v.number(6), bytes / SECTOR_BYTES)))
}

pub(super) fn nvme(v: &dyn Values) -> Option<Request> {
    const FORCED: u64 = 1 << 14;
    if v.number(2) == 0 {
        // The queue of the administrator.
        return None;
    }
    let device = match &*v.text(1) {
        "" => v.text(0).into_owned(),
        disk => disk.to_owned(),
    };
    let op = match (&*v.text(3), v.number(3)) {
        ("nvme_cmd_flush", _) | ("", 0) => return Some(flush(&device)),
        ("nvme_cmd_write", _) | ("", 1) => Op::Write,
        ("nvme_cmd_read", _) | ("", 2) => Op::Read,
        _ => return None,
    };
    let sync = op == Op::Write && v.number(6) & FORCED != 0;
    let span = (v.number(4), v.number(5).saturating_add(1));
    Some(Request { own_blocks: true, ..request(&device, op, sync, span) })
}

pub(super) fn scsi(v: &dyn Values) -> Option<Request> {
    let [host, channel, id, lun] = [0, 1, 2, 3].map(|field| v.number(field));
    let device = format!("{host}:{channel}:{id}:{lun}");
    let text = v.text(4);
    // As numbers, or as a field that the tool could not print: `ARRAY[28, 00, …]`.
    let bytes: Vec<u64> = text
        .trim_start_matches("ARRAY[")
        .split(|c: char| !c.is_ascii_hexdigit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| u64::from_str_radix(digits, 16).ok())
        .collect::<Option<_>>()?;
    let number = |from: usize, to: usize| {
        bytes.get(from..to).map(|bytes| bytes.iter().fold(0, |n, byte| n << 8 | byte & 0xff))
    };
    let opcode = *bytes.first()?;
    let op = match opcode {
        0x35 | 0x91 => return Some(flush(&device)),
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
        // WRITE SAME that frees the blocks.
        0x41 | 0x93 if number(1, 2)? & 8 != 0 => Op::Discard,
        _ => return None,
    };
    let span = match opcode >> 5 {
        // The length of the oldest command has a byte: 0 is 256 blocks.
        0 => (number(1, 4)? & 0x1f_ffff, number(4, 5).map(|n| if n == 0 { 256 } else { n })?),
        1 | 2 => (number(2, 6)?, number(7, 9)?),
        4 => (number(2, 10)?, number(10, 14)?),
        _ => (number(2, 6)?, number(6, 10)?),
    };
    let sync = op == Op::Write && opcode >> 5 != 0 && number(1, 2)? & 8 != 0;
    Some(Request { own_blocks: true, ..request(&device, op, sync, span) })
}

fn flush(device: &str) -> Request {
    let flags = Rwbs { op: Op::None, flush: true, sync: false };
    Request { flags: Some(flags), ..request(device, Op::None, false, (0, 0)) }
}

fn request(device: &str, op: Op, sync: bool, (sector, sectors): (u64, u64)) -> Request {
    let flags = Some(Rwbs { op, flush: false, sync });
    Request { device: Device::Host(device.into()), flags, sector, sectors, own_blocks: false }
}
