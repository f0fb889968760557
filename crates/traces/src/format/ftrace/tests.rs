use super::{
    super::kernel::{ALL, FIELDS_MAX, Known, Value},
    *,
};
use crate::{events::Summary, format::testing};
use flashsift_events::event::{Action, Event, Side};
use proptest::prelude::*;

/// The fields as Linux 6.18 and 6.1 print them, from the `print fmt` of each tracepoint; `…` stands
/// for text that the reader ignores.
const PRINTED: &[(&str, &str)] = &[
    ("mm_filemap_get_pages", "dev={s_dev:colon} ino={i_ino:x} ofs={index:page}-{last_index:last}"),
    ("mm_filemap_fault", "dev={s_dev:colon} ino={i_ino:x} ofs={index:page}"),
    ("mm_filemap_map_pages", "dev={s_dev:colon} ino={i_ino:x} ofs={index:page}-{last_index:last}"),
    (
        "page_cache_sync_ra",
        "dev={s_dev:colon} ino={i_ino:x} index={index:d} req_count={req_count:d} order=0 size=4",
    ),
    (
        "page_cache_async_ra",
        "dev={s_dev:colon} ino={i_ino:x} index={index:d} req_count={req_count:d} prev_pos=-1",
    ),
    ("page_fault_user", "address={address:0x} ip=0x7f1f91111a10 error_code={error_code:0x}"),
    ("page_fault_kernel", "address={address:0x} ip=__put_user_4 error_code={error_code:0x}"),
    ("writeback_dirty_folio", "bdi {name:s}: ino={ino:d} index={index:d}"),
    ("writeback_dirty_page", "bdi {name:s}: ino={ino:d} index={index:d}"),
    (
        "iomap_dio_complete",
        "dev {dev:colon} ino {ino:0x} size 0x400 offset {pos:0x} flags DIRECT aio 0 error 0 ret \
         {ret:d}",
    ),
    (
        "iomap_iter",
        "dev {dev:colon} ino {ino:0x} pos {pos:0x} length {length:0x} status 0 flags WRITE|DIRECT \
         ({flags:0x}) ops ext4_iomap_ops [ext4] caller __iomap_dio_rw+0x222/0x7e0",
    ),
    (
        "iomap_iter_dstmap",
        "dev {dev:colon} ino {ino:0x} bdev 7:0 addr 0x2000400 offset {offset:0x} length \
         {length:0x} type UNWRITTEN ({type:0x}) flags NEW ({flags:0x})",
    ),
    ("ext4_da_write_begin", "dev {dev:comma} ino {ino:d} pos {pos:d} len {len:d}"),
    ("ext4_write_begin", "dev {dev:comma} ino {ino:d} pos {pos:d} len {len:d} flags 0"),
    ("ext4_da_write_end", "dev {dev:comma} ino {ino:d} pos {pos:d} len 4096 copied {copied:d}"),
    ("ext4_write_end", "dev {dev:comma} ino {ino:d} pos {pos:d} len 4096 copied {copied:d}"),
    (
        "ext4_journalled_write_end",
        "dev {dev:comma} ino {ino:d} pos {pos:d} len 4096 copied {copied:d}",
    ),
    ("ext4_sync_file_enter", "dev {dev:comma} ino {ino:d} parent 2 datasync {datasync:d} "),
    ("ext4_sync_fs", "dev {dev:comma} wait {wait:d}"),
    ("ext4_allocate_inode", "dev {dev:comma} ino {ino:d} dir {dir:d} mode 0{mode:o}"),
    ("ext4_evict_inode", "dev {dev:comma} ino {ino:d} nlink {nlink:d}"),
    ("ext4_alloc_da_blocks", "dev {dev:comma} ino {ino:d} reserved_data_blocks 3"),
    ("ext4_unlink_enter", "dev {dev:comma} ino {ino:d} size 5000 parent {parent:d}"),
    ("ext4_truncate_enter", "dev {dev:comma} ino {ino:d} blocks 516"),
    ("ext4_begin_ordered_truncate", "dev {dev:comma} ino {ino:d} new_size {new_size:d}"),
    ("ext4_es_remove_extent", "dev {dev:comma} ino {ino:d} es [{lblk:d}/{len:d})"),
    ("ext4_truncate_exit", "dev {dev:comma} ino {ino:d} blocks 516"),
    (
        "ext4_journal_start_inode",
        "dev {dev:comma} blocks {blocks:d}, rsv_blocks 0, revoke_creds 8, type {type:d}, ino \
         {ino:d}, caller ext4_dirty_inode+0x34/0x90",
    ),
    (
        "ext4_fallocate_enter",
        "dev {dev:comma} ino {ino:d} offset {offset:d} len {len:d} mode {mode:words}",
    ),
    ("ext4_fallocate_exit", "dev {dev:comma} ino {ino:d} pos 0 blocks 128 ret {ret:d}"),
    ("ext4_punch_hole", "dev {dev:comma} ino {ino:d} offset {offset:d} len {len:d} mode "),
    (
        "f2fs_dataread_start",
        "entry_name /{pathbuf:s}, offset {offset:d}, bytes {bytes:d}, cmdline x, y, pid 5, i_size \
         {i_size:d}, ino {ino:d}",
    ),
    (
        "f2fs_datawrite_start",
        "entry_name /{pathbuf:s}, offset {offset:d}, bytes {bytes:d}, cmdline ino 7, pid 5, \
         i_size {i_size:d}, ino {ino:d}",
    ),
    (
        "f2fs_direct_IO_enter",
        "dev = {dev:paren}, ino = {ino:d} pos = 0 len = 16384 ki_flags = 20000 ki_ioprio = 4004 \
         rw = 1",
    ),
    ("f2fs_dataread_end", "ino {ino:d}, offset {offset:d}, bytes {bytes:d}"),
    ("f2fs_datawrite_end", "ino {ino:d}, offset {offset:d}, bytes {bytes:d}"),
    (
        "f2fs_file_write_iter",
        "dev = {dev:paren}, ino = {ino:d}, offset = {offset:d}, length = 100, written(err) = \
         {ret:d}",
    ),
    ("f2fs_filemap_fault", "dev = {dev:paren}, ino = {ino:d}, index = {index:d}, ret = 404"),
    (
        "f2fs_sync_file_enter",
        "dev = {dev:paren}, ino = {ino:d}, pino = 5, i_mode = 0x81ed, i_size = 5, i_nlink = 1",
    ),
    ("f2fs_sync_fs", "dev = {dev:paren}, superblock is not dirty, wait = {wait:d}"),
    ("f2fs_new_inode", "dev = {dev:paren}, ino = {ino:d}, ret = {ret:d}"),
    (
        "f2fs_evict_inode",
        "dev = {dev:paren}, ino = {ino:d}, pino = 4, i_mode = 0x81ed, i_size = 5, i_nlink = \
         {nlink:d}, i_blocks = 16, i_advise = 0x2",
    ),
    ("f2fs_unlink_exit", "dev = {dev:paren}, ino = {ino:d}, ret = {ret:d}"),
    (
        "f2fs_truncate",
        "dev = {dev:paren}, ino = {ino:d}, pino = 5, i_mode = 0x81ed, i_size = {size:d}, i_nlink \
         = 1",
    ),
    (
        "f2fs_fallocate",
        "dev = {dev:paren}, ino = {ino:d}, mode = {mode:x}, offset = {offset:d}, len = {len:d},  \
         i_size = 5, i_blocks = 512, ret = {ret:d}",
    ),
    ("f2fs_write_begin", "dev = {dev:paren}, ino = {ino:d}, pos = {pos:d}, len = {len:d}"),
    (
        "f2fs_write_end",
        "dev = {dev:paren}, ino = {ino:d}, pos = {pos:d}, len = 4096, copied = {copied:d}",
    ),
    (
        "android_fs_dataread_start",
        "entry_name /{pathbuf:s}, offset {offset:d}, bytes {bytes:d}, cmdline x, pid 1, i_size \
         {i_size:d}, ino {ino:d}",
    ),
    (
        "android_fs_datawrite_start",
        "entry_name /{pathbuf:s}, offset {offset:d}, bytes {bytes:d}, cmdline x, pid 1, i_size \
         {i_size:d}, ino {ino:d}",
    ),
    ("task_newtask", "pid={pid:d} comm={comm:s} clone_flags={clone_flags:x} oom_score_adj=-1000"),
    ("sched_prepare_exec", "interp=/bin/sh filename=/a pid=1 comm=b"),
    ("sched_process_exec", "filename={filename:s} pid=3969 old_pid={old_pid:d}"),
    ("sched_process_exit", "comm=a pid=1 prio=120 group_dead=true"),
    ("block_bio_queue", "{dev:comma} {rwbs:s} {sector:d} + {nr_sector:d} [kworker/1 + 1]"),
    ("block_io_start", "{dev:comma} {rwbs:s} 16384 () {sector:d} + {nr_sector:d} be,0,4 [a]"),
    ("block_rq_issue", "{dev:comma} {rwbs:s} 0 (12 00 00) {sector:d} + {nr_sector:d} 0x2,0,6 [a]"),
    ("block_rq_insert", "{dev:comma} {rwbs:s} 65536 () {sector:d} + {nr_sector:d} [kworker/1:1H]"),
    ("block_rq_requeue", "{dev:comma} {rwbs:s} () {sector:d} + {nr_sector:d} [0]"),
    (
        "mm_filemap_add_to_page_cache",
        "dev {s_dev:colon} ino {i_ino:x} pfn=0x113bad ofs={index:page} order={order:d}",
    ),
    (
        "mm_filemap_delete_from_page_cache",
        "dev {s_dev:colon} ino {i_ino:x} pfn=0x113bad ofs={index:page} order={order:d}",
    ),
    (
        "ufshcd_command",
        "{str:s}: {dev_name:s}: tag: 3, DB: 0x8, size: {transfer_len:d}, IS: 0, LBA: {lba:d}, \
         opcode: {opcode:0x} (WRITE_10), group_id: 0x0, hwq_id: 1",
    ),
    (
        "scsi_dispatch_cmd_start",
        "host_no={host_no:d} channel={channel:d} id={id:d} lun={lun:d} data_sgl=2 prot_sgl=0 \
         prot_op=SCSI_PROT_NORMAL driver_tag=11 scheduler_tag=61 cmnd=(READ_10 lba=5 txlen=8 \
         protect=0 raw={cmnd:s})",
    ),
    (
        "mmc_request_start",
        "{name:s}: start struct mmc_request[00000000c669d954]: cmd_opcode={cmd_opcode:d} \
         cmd_arg={cmd_arg:0x} cmd_flags=0xb5 cmd_retries=0 stop_opcode=12 stop_arg=0x0 \
         stop_flags=0x49d stop_retries=0 sbc_opcode=23 sbc_arg={sbc_arg:0x} sbc_flags=0x15 \
         sbc_retires=0 blocks={blocks:d} block_size={blksz:d} blk_addr={blk_addr:d} \
         data_flags={data_flags:0x} tag=-1 can_retune=0 doing_retune=0",
    ),
    (
        "nvme_setup_cmd",
        "{ctrl_id:s}: disk={disk:s}, qid={qid:d}, cmdid=25169, nsid=1, flags=0x0, meta=0x0, \
         cmd=({opcode:s} slba={slba:d}, len={length:d}, ctrl={control:0x}, dsmgmt=0, reftag=0)",
    ),
];

const WORDS: [(&str, u64); 4] =
    [("KEEP_SIZE", 1), ("PUNCH_HOLE", 2), ("COLLAPSE_RANGE", 8), ("0x4000", 0x4000)];

/// One field: a value made from a random number, and its printed form.
fn printed(how: &str, random: u64, text: &str) -> (Value<'static>, String) {
    let number = |n: u64, text: String| (Value::Number(n), text);
    let (major, minor) = (random >> 20 & 0xfff, random & 0xf_ffff);
    match how {
        "d" => number(random, random.cast_signed().to_string()),
        "x" => number(random, format!("{random:x}")),
        "0x" => number(random, format!("{random:#x}")),
        "o" => number(random & 0xffff, format!("{:o}", random & 0xffff)),
        "colon" => number(major << 20 | minor, format!("{major}:{minor}")),
        "comma" => number(major << 20 | minor, format!("{major},{minor}")),
        "paren" => number(major << 20 | minor, format!("({major},{minor})")),
        "page" => number(random >> 13, format!("{}", random >> 13 << 12)),
        "last" => number(random >> 13, format!("{}", random >> 13 << 12 | 0xfff)),
        "words" => {
            let words: Vec<_> = WORDS.iter().filter(|(_, bit)| random & bit != 0).collect();
            let bits = words.iter().map(|(_, bit)| bit).sum();
            number(bits, words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join("|"))
        }
        "s" => (Value::Text(text.to_owned().leak().as_bytes()), text.to_owned()),
        other => panic!("{other}"),
    }
}

/// The text of a tracepoint, and the fields from which it was made.
fn made(
    known: &Known,
    template: &str,
    random: &[u64],
    text: &str,
) -> (String, Vec<Value<'static>>) {
    let mut values = vec![None; known.fields.len()];
    let mut out = String::new();
    for part in template.split('{') {
        let Some((field, rest)) = part.split_once('}') else {
            out.push_str(part);
            continue;
        };
        let (name, how) = field.split_once(':').expect("{field:how}");
        let n = known.fields.iter().position(|field| *field == name);
        let text = match known.system {
            "block" | "ufs" | "scsi" | "mmc" | "nvme" => "WFS",
            // A path follows a space, and the name of a disk has no spaces.
            "writeback" => text.trim_ascii_start(),
            _ => text,
        };
        let (value, shown) = printed(how, random[n.unwrap_or(0)], text);
        if let Some(n) = n {
            values[n] = Some(if name == "pathbuf" {
                printed("s", 0, &format!("/{text}")).0
            } else {
                value
            });
        }
        out.push_str(&shown);
        out.push_str(rest);
    }
    let value = |(n, value): (usize, Option<_>)| {
        let field = known.fields[n];
        // Perfetto has it in place of another.
        let value = value.or((field == "str_t").then_some(Value::Number(0)));
        value.unwrap_or_else(|| panic!("{} {field}", known.name))
    };
    (out, values.into_iter().enumerate().map(value).collect())
}

proptest! {
    /// Holds for any numbers and names, also for names that look like other fields.
    #[test]
    fn the_kernels_text_is_parsed_back(
        random in proptest::collection::vec(any::<u64>(), FIELDS_MAX),
        text in "([a-z:]| |, offset 1| pid=2| ino 3|dev 4,4| clone_flags=5){0,6}[a-z]",
    ) {
        for known in ALL.iter() {
            let template = PRINTED.iter().find(|(name, _)| *name == known.name);
            let (_, template) = template.unwrap_or_else(|| panic!("PRINTED lacks {}", known.name));
            let (shown, expected) = made(known, template, &random, &text);
            let layout = Layout::new(known);
            let read = layout.read(shown.trim_ascii().as_bytes());
            let Some(fields) = read else { panic!("{}: {shown}", known.name) };
            prop_assert_eq!(&fields.0[..expected.len()], &expected[..], "{}: {}", known.name, shown);
        }
    }
}

fn read_lines(spec: &FormatSpec, text: &str) -> (Vec<String>, Summary) {
    let (events, summary) = testing::read(spec, text.as_bytes()).unwrap();
    let line = |Event { at_us, pid, tid, action }: &Event| {
        let thread = format!("{at_us} {pid}/{tid}");
        match action {
            Action::Read { file, offset, len, .. } => {
                format!("{thread} {} r {offset} {len}", file.0)
            }
            Action::Write { file, offset, len, sync, .. } => {
                format!("{thread} {} w{} {offset} {len}", file.0, if *sync { "s" } else { "" })
            }
            Action::Direct { file, offset, len, write, .. } => {
                format!(
                    "{thread} {} direct {} {offset} {len}",
                    file.0,
                    if *write { "w" } else { "r" }
                )
            }
            Action::Folio { file, offset, len } => {
                format!("{thread} {} folio {offset} {len}", file.0)
            }
            Action::Sync { file, .. } => format!("{thread} {} sync", file.0),
            Action::Truncate { file, size } => format!("{thread} {} cut {size}", file.0),
            Action::Punch { file, offset, len } => {
                format!("{thread} {} hole {offset} {len}", file.0)
            }
            Action::Bind { file, name } => format!("{thread} {} is {name}", file.0),
            Action::Unbind { file, name } => format!("{thread} {} is not {name}", file.0),
            Action::Create(create) => {
                let mode = create.mode.map(|mode| format!(" {mode:o}")).unwrap_or_default();
                format!("{thread} {} made{mode}{}", create.file.0, create.name)
            }
            Action::Size { file, size } => format!("{thread} {} had {size}", file.0),
            Action::Gone { file } => format!("{thread} {} gone", file.0),
            Action::Open { file, .. } => format!("{thread} {} opened", file.0),
            Action::Close { file, .. } => format!("{thread} {} closed", file.0),
            Action::Process { name } => format!("{thread} runs {name}"),
            other => panic!("{other:?}"),
        }
    };
    (events.iter().map(line).collect(), summary)
}

/// Returns the lines of the sample that contain one of these words.
fn only(words: &[&str]) -> String {
    let has = |line: &&str| words.iter().any(|word| line.contains(word));
    SAMPLE.lines().filter(has).flat_map(|line| [line, "\n"]).collect()
}

fn events(spec: &FormatSpec, text: &str) -> Vec<String> {
    read_lines(spec, text).0
}

#[test]
fn the_sample_is_read() {
    let (events, summary) = read_lines(&SPEC, SAMPLE);
    assert_eq!(
        events,
        [
            "0 490/490 runs python3",
            "0 490/490 0 made",
            "373 490/490 0 is /data/a b",
            "2896 490/490 0 w 0 9000",
            "4637 490/490 0 sync",
            "136016 490/491 0 r 8192 808",
            "143385 17/17 1 r 0 131072",
            "153395 88/88 runs jbd2/sda1 - 8",
            "153395 88/88 1 w 4096 5000",
            "491382 490/490 0 cut 4096",
            "723898 490/490 0 is not /data/a b",
            "723898 490/490 0 gone",
        ]
    );
    assert_eq!(
        testing::skipped(&summary),
        "3 × event lost by the kernel: its buffer was full (first at 16); 1 × other tracepoint \
         (first at 15); 1 × read from a file of unknown size: rounded to whole pages, perhaps past \
         its end (first at 14); 1 × request of the block layer, behind the page cache (a format \
         ending in -block reads these) (first at 19)"
    );
}

#[test]
fn a_trace_of_requests_is_one_of_blocks() {
    let expected = [
        "0 0/0 0 is /dev/block/8:0",
        "0 21515/21515 runs app",
        "0 21515/21515 0 r 2411139072 16384",
        "5715 88/88 runs kworker/2:1H",
        "5715 88/88 0 ws 10281316352 4096",
        "15715 0/0 1 is /dev/block/8:16",
        "15715 21515/21515 1 sync",
        "15716 21515/21515 1 hole 1048576 32768",
    ];
    let (events, summary) = read_lines(&BLOCK, BLOCK_SAMPLE);
    assert_eq!(events, expected);
    assert_eq!(
        testing::skipped(&summary),
        "1 × other tracepoint (first at 5); 1 × tracepoint that repeats a more exact one \
         (first at 3)"
    );
    assert_eq!(read_lines(&SPEC, BLOCK_SAMPLE).0, expected, "there is nothing else in it");
    let about = summary.about.expect("it says what it is");
    assert_eq!((about.side, about.space), (Side::After, Space::Blocks));

    let issued: String = BLOCK_SAMPLE
        .lines()
        .filter(|line| !line.contains("queue"))
        .flat_map(|l| [l, "\n"])
        .collect();
    assert_eq!(
        read_lines(&BLOCK, &issued).0,
        [
            "0 0/0 0 is /dev/block/8:0",
            "0 21515/21515 runs app",
            "0 21515/21515 0 r 2411139072 16384"
        ]
    );
}

// Promises: Traces 19.
#[test]
fn a_trace_of_both_sides_is_read_as_files_or_as_requests() {
    let both = only(&["ext4_", "block_"]);
    assert_eq!(detect(both.as_bytes(), false), Confidence::Likely);
    assert_eq!(detect(both.as_bytes(), true), Confidence::No);
    let (events, summary) = read_lines(&SPEC, &both);
    assert_eq!(events, ["10 88/88 runs jbd2/sda1 - 8", "10 88/88 0 w 4096 5000"]);
    assert_eq!(summary.about.expect("the sample is described").side, Side::Before);
    let (events, summary) = read_lines(&BLOCK, &both);
    assert_eq!(events.last().expect("a request"), "0 88/88 0 ws 1048576 4096");
    assert_eq!(
        testing::skipped(&summary),
        "2 × tracepoint before the page cache (a format without -block reads these) (first at 1)"
    );
}

/// perf 6.1 prints names of tracepoints behind their group, and a name of a program may hold
/// spaces. It was not recognised.
// Promises: Traces 19.
#[test]
fn perf_script_is_ftrace() {
    let text = "# ========\n# captured on    : Thu Nov 27 04:20:00 2026\n#\n\
         Web Content   511/520   [002]  1204.100001: ext4:ext4_da_write_begin: dev 179,2 ino 1201 \
         pos 0 len 4096 flags 0\n\
         \tffffffff817c2061 ext4_da_write_begin+0x291 ([kernel.kallsyms])\n\
         \t           f838f __GI___libc_write+0x4f (/usr/lib/a b/libc.so.6)\n\n\
         Web Content   511/520   [002]  1204.100009:   ext4:ext4_da_write_end: dev 179,2 ino 1201 \
         pos 0 len 4096 copied 4096\n\
         \tffffffff817c3c96 ext4_da_write_end+0x136 ([kernel.kallsyms])\n\n\
         swapper     0 [001]  1204.150000: PERF_RECORD_LOST lost 7\n\
         logd   512 [002]  1204.200000:     250000 cpu-clock:ppp:  ffffffff817c3c96 a (b)\n\
         logd   512 [002]  1204.300001: ext4:ext4_sync_file_enter: dev 179,2 ino 1201 parent 1190 \
         datasync 1\n\
         python  77 1204.400000: filemap:mm_filemap_get_pages: dev 0:62 ino 1f ofs=0-4095\n\
         python  77 1204.500000: filemap:mm_filemap_get_pages: dev=0:62 ino=1f ofs=0-4095\n";
    assert_eq!(detect(text.as_bytes(), false), Confidence::Likely);
    let (seen, summary) = read_lines(&SPEC, text);
    assert_eq!(
        seen,
        [
            "8 511/520 runs Web Content",
            "8 511/520 0 w 0 4096",
            "200000 512/512 runs logd",
            "200000 512/512 0 sync",
            "299999 77/77 runs python",
            "299999 77/77 1 r 0 4096",
            "399999 77/77 1 r 0 4096",
        ]
    );
    let skipped = testing::skipped(&summary);
    assert!(skipped.contains("3 × line of a call chain (first at 5)"), "{skipped}");
    assert!(skipped.contains("7 × event lost by the kernel"), "{skipped}");
    assert!(skipped.contains("1 × other tracepoint (first at 12)"), "{skipped}");
    assert_eq!(summary.skipped.damaged(), 0, "{skipped}");

    let blocks = "dd  4711 [001]  77.500001: block:block_rq_issue: 179,0 WS 8192 () 2048 + 16 \
    none,0,0 [dd]\n\
                  swapper     0 [001]  77.510001: block:block_rq_complete: 179,0 WS () 2048 + 16 \
                  none,0,0 [0]\n\
                  kworker/u8:2-ev    55 [003]  77.600001: block:block_rq_issue: 179,0 R 4096 () \
                  4096 + 8 none,0,0 [k]\n";
    assert_eq!(detect(blocks.as_bytes(), true), Confidence::Likely);
    assert_eq!(
        events(&BLOCK, blocks),
        [
            "0 0/0 0 is /dev/block/179:0",
            "0 4711/4711 runs dd",
            "0 4711/4711 0 ws 1048576 8192",
            "100000 55/55 runs kworker/u8:2-ev",
            "100000 55/55 0 r 2097152 4096",
        ]
    );
}

/// The last lines of a recording of `syscalls:*` with perf 6.1, and of tracefs on Linux 6.18: paths
/// are addresses.
// Promises: Traces 19.
#[test]
fn system_calls_are_accesses_where_nothing_else_is() {
    let perf = "python3   966 [000] 1.000001:  syscalls:sys_enter_openat: dfd: 0xffffff9c, \
    filename: 0x7fdd0c125650, flags: 0x00080042, mode: 0x000001a4\n\
        python3   966 [000] 1.000002:   syscalls:sys_exit_openat: 0x3\n\
        python3   966 [000] 1.000003:   syscalls:sys_enter_write: fd: 0x00000003, buf: \
        0x55c4bf010680, count: 0x00002710\n\
        python3   966 [000] 1.000004:    syscalls:sys_exit_write: 0x2710\n\
        python3   966 [000] 1.000005:   syscalls:sys_enter_fsync: fd: 0x00000003\n\
        python3   966 [000] 1.000006:    syscalls:sys_exit_fsync: 0x0\n\
        python3   966 [000] 1.000007: syscalls:sys_enter_pread64: fd: 0x00000003, buf: 0x1, \
        count: 0x00001000, pos: 0x00001000\n\
        python3   966 [000] 1.000008:  syscalls:sys_exit_pread64: 0x1000\n\
        python3   966 [000] 1.000009:   syscalls:sys_enter_read: fd: 0x00000000, buf: 0x1, count: \
        0x00001000\n\
        python3   966 [000] 1.000010:    syscalls:sys_exit_read: 0x5\n\
        python3   966 [000] 1.000011:   syscalls:sys_enter_getpid: \n\
        python3   966 [000] 1.000012:   syscalls:sys_enter_ftruncate: fd: 0x00000003, length: \
        0x00001388\n\
        python3   966 [000] 1.000013:    syscalls:sys_exit_ftruncate: 0x0\n\
        python3   966 [000] 1.000014:   syscalls:sys_enter_close: fd: 0x00000003\n\
        python3   966 [000] 1.000015:    syscalls:sys_exit_close: 0x0\n";
    let tracefs: String = perf
        .lines()
        .map(|line| {
            let (head, text) = line.split_once(":  ").or(line.split_once(": ")).expect("a line");
            let text = text.trim().trim_start_matches("syscalls:");
            let head = head.replace("   966", "-966").replace("[000] ", "[000] ..... ");
            let (name, text) = text.split_once(": ").unwrap_or((text, ""));
            let hex = text.replace("0x0000", "0x");
            match name.strip_prefix("sys_enter_") {
                Some(name) => format!("{head}: sys_{name}({hex})\n"),
                None => format!("{head}: sys_{} -> {text}\n", &name["sys_exit_".len()..]),
            }
        })
        .collect();
    for text in [perf, &tracefs] {
        assert_eq!(detect(text.as_bytes(), false), Confidence::Likely, "{text}");
        let (events, summary) = read_lines(&SPEC, text);
        assert_eq!(
            events,
            [
                "3 966/966 runs python3",
                "3 966/966 0 opened",
                "3 966/966 0 w 0 10000",
                "5 966/966 0 sync",
                "7 966/966 0 r 4096 4096",
                "12 966/966 0 cut 5000",
                "13 966/966 0 closed",
            ],
            "{text}"
        );
        let skipped = testing::skipped(&summary);
        assert!(
            skipped.contains("1 × call on a descriptor that the trace does not open"),
            "{skipped}"
        );
        assert!(skipped.contains("1 × open of a file whose name is not in the trace"), "{skipped}");
        assert_eq!(summary.skipped.damaged(), 0, "{skipped}");
        let knows = summary.about.expect("it says what it is").knows;
        assert_eq!(
            (knows.opens, knows.syncs, knows.names, knows.removals),
            (true, true, false, false)
        );
    }
    let ends: String =
        perf.lines().filter(|line| !line.contains("sys_enter")).flat_map(|l| [l, "\n"]).collect();
    let error = testing::read(&SPEC, ends.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("both sys_enter_… and sys_exit_…"), "{error}");

    // Tracepoints of reads and writes are more exact; those of writes alone miss the reads.
    let writes = only(&["ext4_"]);
    let (both, summary) = read_lines(&SPEC, &(perf.to_owned() + &writes + &only(&["filemap"])));
    assert_eq!(
        both,
        ["10 88/88 runs jbd2/sda1 - 8", "10 88/88 0 w 4096 5000", "10 17/17 0 r 0 131072"]
    );
    assert!(testing::skipped(&summary).contains("14 × system call beside tracepoints"));
    let (calls, summary) = read_lines(&SPEC, &(perf.to_owned() + &writes));
    assert_eq!(calls, events(&SPEC, perf));
    assert!(testing::skipped(&summary).contains("2 × tracepoint that repeats"));
}

/// Linux 6.18, `echo blk > current_tracer`. It was not recognised.
#[test]
fn the_blk_tracer_gives_queued_requests() {
    let text = "# tracer: blk\n#\n\
        jbd2/sda2-8-312     [001] ...1.   12.100001:   8,0    Q  WS 223488 + 8 [jbd2/sda2-8]\n\
        jbd2/sda2-8-312     [001] ...1.   12.100002:   8,0    G  WS 223488 + 8 [jbd2/sda2-8]\n\
        jbd2/sda2-8-312     [001] ...1.   12.100003:   8,0   UT   N [jbd2/sda2-8] 1\n\
        jbd2/sda2-8-312     [001] ...1.   12.100003:   8,0    D  WS 223488 + 8 [jbd2/sda2-8]\n\
             <idle>-0       [001] ..s1.   12.110003:   8,0    C  WS 223488 + 8 [0]\n\
        jbd2/sda2-8-312     [001] ...1.   12.200001:   8,0    Q  FN [jbd2/sda2-8]\n";
    assert_eq!(detect(text.as_bytes(), true), Confidence::Likely);
    let (events, summary) = read_lines(&BLOCK, text);
    assert_eq!(
        events,
        [
            "0 0/0 0 is /dev/block/8:0",
            "0 312/312 runs jbd2/sda2-8",
            "0 312/312 0 ws 114425856 4096",
            "100000 312/312 0 sync",
        ]
    );
    assert_eq!(
        testing::skipped(&summary),
        "3 × other tracepoint (first at 4); 1 × tracepoint that repeats a more exact one \
         (first at 6)"
    );
}

// Promises: Traces 19.
#[test]
fn requests_of_hosts_are_behind_the_cache() {
    let read = |text: &str| {
        let (events, summary) = read_lines(&BLOCK, text);
        let about = summary.about.expect("it says what it is");
        assert_eq!((about.side, about.space), (Side::After, Space::Blocks));
        assert_eq!(detect(text.as_bytes(), true), Confidence::Likely, "{text}");
        assert_eq!(read_lines(&SPEC, text).0, events, "there is nothing else in it");
        (events, testing::skipped(&summary))
    };
    const BLOCKS: &str = "request counted in blocks of the device";
    let (events, skipped) = read(
        "k-9 [2] d..1 40.1: ufshcd_command: send_req: 1d84000.ufshc: tag: 3, DB: 0x8, size: 8192, \
        IS: 0, LBA: 51200, opcode: 0x2a (WRITE_10), group_id: 0x0, hwq_id: 1\n\
         <idle>-0 [2] d.h1 40.2: ufshcd_command: complete_rsp: 1d84000.ufshc: tag: 3, DB: 0x0, \
         size: 8192, IS: 0, LBA: 51200, opcode: 0x2a (WRITE_10), group_id: 0x0, hwq_id: 1\n\
         k-9 [2] d..1 40.3: ufshcd_command: send_req: 0:0:0:4: tag: 4, DB: 0x1, size: 4096, IS: \
         0, LBA: 9, opcode: 0x88 (READ_16), group_id: 0x0\n\
         k-9 [2] d..1 40.4: ufshcd_command: send_req: 0:0:0:4: tag: 4, DB: 0x1, size: -1, IS: 0, \
         LBA: 18446744073709551615, opcode: 0x35 (SYNC), group_id: 0x0\n\
         k-9 [2] d..1 40.5: ufshcd_command: send: ff3b0000.ufs: tag: 0, DB: 0x1, size: 8192, IS: \
         0, LBA: 2880752, opcode: 0x28\n\
         k-9 [2] d..1 40.6: ufshcd_command: send_req: 1d84000.ufshc: tag: 28, DB: 0x0, size: -1, \
         IS: 0, LBA: 18446744073709551615, opcode: 0x0 (0x0), group_id: 0x0\n",
    );
    assert_eq!(
        events,
        [
            "0 0/0 0 is 1d84000.ufshc",
            "0 9/9 runs k",
            "0 9/9 0 w 209715200 8192",
            "200000 0/0 1 is 0:0:0:4",
            "200000 9/9 1 r 36864 4096",
            "300000 9/9 1 sync",
            "400000 0/0 2 is ff3b0000.ufs",
            "400000 9/9 2 r 1474945024 8192",
        ]
    );
    assert!(skipped.contains(&format!("3 × {BLOCKS}")), "{skipped}");

    let start = "start struct mmc_request[c669d954]: cmd_opcode";
    let (events, skipped) = read(&format!(
        "m-8 [0] d..2 4.0: mmc_request_start: mmc0: {start}=25 cmd_arg=0x47fd98 sbc_opcode=23 \
        sbc_arg=0x80000008 blocks=8 block_size=512 blk_addr=4717976 data_flags=0x100 tag=-1\n\
         m-8 [0] d..2 4.1: mmc_request_start: mmc0: {start}=18 cmd_arg=0x10 sbc_opcode=23 \
         sbc_arg=0x8 blocks=8 block_size=512 blk_addr=16 data_flags=0x200 tag=-1\n\
         m-8 [0] d..2 4.2: mmc_request_start: mmc0: {start}=6 cmd_arg=0x3200101 sbc_opcode=0 \
         sbc_arg=0x0 blocks=0 block_size=0 blk_addr=0 data_flags=0x0 tag=-1\n\
         m-8 [0] d..2 4.3: mmc_request_start: mmc0: {start}=13 cmd_arg=0x10000 sbc_opcode=0 \
         sbc_arg=0x0 blocks=0 block_size=0 blk_addr=0 data_flags=0x0 tag=-1\n\
         m-8 [0] d..2 4.4: mmc_request_start: mmc0: {start}=8 cmd_arg=0x0 sbc_opcode=0 \
         sbc_arg=0x0 blocks=1 block_size=512 blk_addr=0 data_flags=0x200 tag=-1\n",
    ));
    assert_eq!(
        events,
        [
            "0 0/0 0 is mmc0",
            "0 8/8 runs m",
            "0 8/8 0 ws 2415603712 4096",
            "100000 8/8 0 r 8192 4096",
            "200000 8/8 0 sync",
        ]
    );
    assert_eq!(skipped, "2 × tracepoint without information on pages (first at 4)");

    let nvme = "flags=0x0, meta=0x0, cmd=(nvme";
    let (events, skipped) = read(&format!(
        "a-7 [3] 9.0: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=4, cmdid=1, nsid=1, \
        {nvme}_cmd_write slba=100, len=7, ctrl=0x4000, dsmgmt=0, reftag=0)\n\
         a-7 [3] 9.1: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=4, cmdid=2, nsid=1, \
         {nvme}_cmd_read slba=8, len=15, ctrl=0x0, dsmgmt=0, reftag=0)\n\
         a-7 [3] 9.2: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=4, cmdid=3, nsid=1, \
         {nvme}_cmd_flush cdw10=00 00)\n\
         a-7 [3] 9.3: nvme_setup_cmd: nvme0: qid=0, cmdid=9, nsid=0, {nvme}_admin_identify cns=1, \
         ctrlid=0)\n\
         a 7 [3] 9.400000: nvme:nvme_setup_cmd: [FAILED TO PARSE] disk=nvme0n1 ctrl_id=0 qid=4 \
         opcode=1 flags=0 fctype=0 cid=5 nsid=1 metadata=0x0 cdw10=ARRAY[64, 00, 00, 00, 00, 00, \
         00, 00, 07, 00, 00, 00, 00, 00]\n",
    ));
    assert_eq!(
        events,
        [
            "0 0/0 0 is nvme0n1",
            "0 7/7 runs a",
            "0 7/7 0 ws 51200 4096",
            "100000 7/7 0 r 4096 8192",
            "200000 7/7 0 sync",
            "400000 7/7 0 w 51200 4096",
        ]
    );
    assert!(skipped.contains(&format!("3 × {BLOCKS}")), "{skipped}");

    let scsi = "a-7 [3] 9.0: scsi_dispatch_cmd_start: host_no=1 channel=0 id=0 lun=2 data_sgl=2 prot_sgl=0 prot_op=SCSI_PROT_NORMAL driver_tag=11 scheduler_tag=61 cmnd=";
    let (events, skipped) = read(&format!(
        "{scsi}(READ_10 lba=505083904 txlen=2560 protect=0 raw=28 00 1e 1a f8 00 00 0a 00 00)\n\
         {scsi}(WRITE_16 lba=4294967296 txlen=8 protect=0 raw=8a 08 00 00 00 01 00 00 00 00 00 00 \
         00 08 00 00)\n\
         {scsi}(SYNCHRONIZE_CACHE - raw=35 00 00 00 00 00 00 00 00 00)\n\
         {scsi}(WRITE_SAME_16 lba=8 txlen=16 unmap=1 raw=93 08 00 00 00 00 00 00 00 08 00 00 00 \
         10 00 00)\n\
         {scsi}(READ_6 lba=8 txlen=0 raw=08 00 00 08 00 00)\n\
         {scsi}(0x4a - raw=4a 01 00 00 10 00 00 00 08 00)\n",
    ));
    assert_eq!(
        events,
        [
            "0 0/0 0 is 1:0:0:2",
            "0 7/7 runs a",
            "0 7/7 0 r 258602958848 1310720",
            "0 7/7 0 ws 2199023255552 4096",
            "0 7/7 0 sync",
            "0 7/7 0 hole 4096 8192",
            "0 7/7 0 r 4096 131072",
        ]
    );
    assert!(skipped.contains(&format!("4 × {BLOCKS}")), "{skipped}");

    // The block layer's request and the host's are one.
    let both = format!(
        "{scsi}(READ_10 raw=28 00 00 00 00 08 00 00 08 00)\na-7 [3] 9.1: block_rq_issue: 8,0 R \
        4096 () 8 + 8 [a]\n"
    );
    assert_eq!(read(&both).0[1..], ["0 7/7 runs a", "0 7/7 0 r 4096 4096"]);
}

/// A trace of `mm_filemap_add_to_page_cache` was refused, though older kernels have no better
/// tracepoint of reads.
// Promises: Traces 19.
#[test]
fn pages_that_enter_the_cache_are_misses_where_nothing_else_reads() {
    let added = "less-9 [5] 72.5: mm_filemap_add_to_page_cache: dev 253:3 ino 13f730 pfn=0x113bad \
    ofs=0 order=0\n\
                 less-9 [5] 72.6: mm_filemap_add_to_page_cache: dev 253:3 ino 0x13f730 \
                 pfn=0x113bad ofs=16384 order=2\n\
                 less-9 [5] 72.7: mm_filemap_add_to_page_cache: dev 253:3 ino 13f730 \
                 page=0x2776a0 pfn=2586272 ofs=4096\n";
    let (events, summary) = read_lines(&SPEC, added);
    assert_eq!(
        events,
        [
            "0 9/9 runs less",
            "0 9/9 0 r 0 4096",
            "100000 9/9 0 r 16384 16384",
            "200000 9/9 0 r 4096 4096",
        ]
    );
    assert!(!summary.about.expect("it says what it is").knows.writes);
    let skipped = testing::skipped(&summary);
    assert!(
        skipped.starts_with("3 × page that entered the page cache, taken as a read that missed"),
        "{skipped}"
    );

    // The new page of a write is none.
    let begin = "a-5 [0] 73.1: ext4_da_write_begin: dev 253,3 ino 1308464 pos 8192 len 10\n";
    let page = "a-5 [0] 73.2: mm_filemap_add_to_page_cache: dev 253:3 ino 13f730 pfn=0x1 ofs=8192 \
    order=0\n";
    let end = "a-5 [0] 73.3: ext4_da_write_end: dev 253,3 ino 1308464 pos 8192 len 10 copied 10\n";
    let (events, summary) = read_lines(&SPEC, &[added, begin, page, end].concat());
    assert_eq!(events.len(), 6, "{events:?}");
    assert_eq!(events[5], "800000 5/5 0 w 8192 10");
    assert!(summary.about.expect("it says what it is").knows.writes);

    let pages = "a-5 [0] 74.0: mm_filemap_get_pages: dev=253:3 ino=13f730 ofs=0-4095\n";
    let (events, summary) = read_lines(&SPEC, &(added.to_owned() + pages));
    assert_eq!(events, ["0 5/5 runs a", "0 5/5 0 r 0 4096"]);
    assert!(testing::skipped(&summary).contains("3 × tracepoint that repeats a more exact one"));
}

/// Pages that became dirty were "stores through a mapping", also where nothing shows writes.
// Promises: Traces 19.
#[test]
fn dirty_pages_alone_are_writes_of_either_kind() {
    let dirty = "# tracer: nop\n\
        mysqld-811 [001] ..... 300.000101: writeback_dirty_folio: bdi 8:0: ino=131 index=4\n\
        mysqld-811 [001] ..... 300.000201: writeback_dirty_page: bdi 8:0: ino=131 index=5\n";
    let (events, summary) = read_lines(&SPEC, dirty);
    assert_eq!(
        events,
        ["0 811/811 runs mysqld", "0 811/811 0 w 16384 4096", "100 811/811 0 w 20480 4096"]
    );
    let skipped = testing::skipped(&summary);
    assert!(skipped.starts_with("2 × page that became dirty, taken as a write: a write(2) looks like a store through a mapping"), "{skipped}");
    let (_, summary) = read_lines(&SPEC, &(dirty.to_owned() + &only(&["ext4_"])));
    let skipped = testing::skipped(&summary);
    assert!(skipped.contains("2 × store through a mapping, known to its folio"), "{skipped}");
    assert!(skipped.contains("2 × store through a mapping whose folio is unknown"), "{skipped}");
}

/// Where the trace tells the pages that enter the page cache, it tells their folios.
// Promises: Record 28.
#[test]
fn folios_of_stores_are_found_among_the_pages_that_entered_the_cache() {
    let text = "app-7 [0] 1.0: ext4_allocate_inode: dev 8,1 ino 12 dir 2 mode 0100644\n\
        app-7 [0] 1.1: mm_filemap_get_pages: dev=8:1 ino=c ofs=0-4095\n\
        app-7 [0] 1.2: mm_filemap_add_to_page_cache: dev 8:1 ino c pfn=0x1 ofs=16384 order=2\n\
        app-7 [0] 1.3: writeback_dirty_folio: bdi 8:1: ino=12 index=4\n\
        app-7 [0] 1.4: mm_filemap_delete_from_page_cache: dev 8:1 ino c pfn=0x1 ofs=16384 order=2\n\
        app-7 [0] 1.5: ext4_da_write_begin: dev 8,1 ino 12 pos 0 len 10\n\
        app-7 [0] 1.6: ext4_da_write_end: dev 8,1 ino 12 pos 0 len 10 copied 10\n\
        app-8 [0] 1.7: writeback_dirty_folio: bdi 8:1: ino=12 index=4\n";
    let (events, _) = read_lines(&SPEC, text);
    let stores = events.iter().filter(|line| line.contains(" w ") || line.contains("folio"));
    assert_eq!(
        stores.collect::<Vec<_>>(),
        [
            "300000 7/7 0 w 16384 4096",
            "300000 7/7 0 folio 16384 16384",
            "600000 7/7 0 w 0 10",
            "700000 8/8 0 w 16384 4096",
        ]
    );
}

/// perf and trace-cmd print the kernel's own fields where they lack a function that it calls.
#[test]
fn fields_that_a_tool_could_not_print_are_read() {
    let text = "dd 4711 [001] 1.000000: block:block_rq_issue: [FAILED TO PARSE] dev=8388608 \
    sector=2048 nr_sector=16 bytes=8192 ioprio=0 rwbs=WS comm=a b cmd=\n\
                dd 4711 [001] 1.000001: scsi:scsi_dispatch_cmd_start: [FAILED TO PARSE] host_no=0 \
                channel=0 id=0 lun=0 opcode=42 cmd_len=10 data_sglen=1 cmnd=ARRAY[2a, 00, 00]\n";
    assert_eq!(events(&BLOCK, text).last().expect("a request"), "0 4711/4711 0 ws 1048576 8192");
    let text = "sh 7 [001] 1.000000: sched:sched_process_exec: [FAILED TO PARSE] filename=/bin/a \
    b pid=7 old_pid=7\n\
                a b 7 [001] 1.000001: ext4:ext4_da_write_begin: [FAILED TO PARSE] dev=7340032 \
                ino=12 pos=0 len=5 flags=0\n\
                a b 7 [001] 1.000002: ext4:ext4_da_write_end: [FAILED TO PARSE] dev=7340032 \
                ino=12 pos=0 len=5 copied=5\n";
    assert_eq!(events(&SPEC, text), ["2 7/7 runs a b", "2 7/7 0 w 0 5"]);
}

#[test]
fn a_request_given_back_is_issued_once() {
    let again = "a-1 [0] 1.0: block_rq_issue: 8,0 R 4096 () 8 + 8 [a]\n\
                 a-1 [0] 1.1: block_rq_requeue: 8,0 R () 8 + 8 [0]\n\
                 k-2 [0] 1.2: block_rq_issue: 8,0 R 4096 () 8 + 8 [k]\n\
                 k-2 [0] 1.3: block_rq_issue: 8,0 R 4096 () 8 + 8 [k]\n";
    let (events, summary) = read_lines(&BLOCK, again);
    assert_eq!(events.iter().filter(|event| event.contains(" r ")).count(), 2, "{events:?}");
    let skipped = testing::skipped(&summary);
    assert!(skipped.contains("1 × request issued again"), "{skipped}");
}

/// An access becomes one event, from the most exact tracepoint in the trace.
// Promises: Traces 19.
#[test]
fn of_several_tracepoints_one_is_believed() {
    const START: &str = "a-5 [0] 1.0: f2fs_datawrite_start: entry_name /f, offset 0, bytes 9000, \
    cmdline a, pid 5, i_size 0, ino 9\n";
    const PIECES: &str = "a-5 [0] 1.1: f2fs_write_begin: dev = (8,3), ino = 9, pos = 0, len = \
                          4096\n\
                          a-5 [0] 1.2: f2fs_write_end: dev = (8,3), ino = 9, pos = 0, len = 4096, \
                          copied = 4096\n";
    const END: &str = "a-5 [0] 1.3: f2fs_datawrite_end: ino 9, offset 0, bytes 4096\n";
    const ITER: &str = "a-5 [0] 1.4: f2fs_file_write_iter: dev = (8,3), ino = 9, offset = 0, \
    length = 9000, written(err) = 4096\n";
    const ANDROID: &str = "a-5 [0] 1.05: android_fs_datawrite_start: entry_name /g, offset 0, \
    bytes 5, cmdline a, pid 5, i_size 0, ino 9\n";
    let writes = |text: &[&str]| {
        let (events, summary) = read_lines(&SPEC, &text.concat());
        let writes: Vec<_> = events.iter().filter(|event| event.contains(" w ")).cloned().collect();
        let [write] = &writes[..] else { panic!("{events:?}") };
        (write.rsplit_once(" w 0 ").expect("at 0").1.to_owned(), testing::skipped(&summary))
    };
    assert_eq!(writes(&[START, PIECES, END, ITER]).0, "4096");
    assert_eq!(writes(&[START, PIECES, END]).0, "4096");
    assert_eq!(writes(&[ANDROID, START, PIECES]).0, "4096");
    let (len, skipped) = writes(&[START]);
    assert_eq!(
        (&*len, &*skipped),
        (
            "9000",
            "1 × access of which only the request is known: less may have been moved (first at 1)"
        )
    );
    assert_eq!(writes(&[ANDROID]).0, "5");
    assert_eq!(
        writes(&[START, ITER, ITER.replace("9, off", "10, off").replace("4096", "-14").as_str()]).0,
        "4096"
    );

    let reads = only(&["f2fs_dataread", "f2fs_truncate"])
        + "a-7 [0] 104.1: mm_filemap_get_pages: dev=179:0 ino=6 ofs=8192-12287\n"
        + "a-7 [0] 104.2: mm_filemap_get_pages: dev=8:0 ino=6 ofs=8192-12287\n";
    let reads: Vec<_> =
        events(&SPEC, &reads).into_iter().filter(|event| event.contains(" r ")).collect();
    assert_eq!(
        reads,
        ["26 490/491 0 r 8192 808", "1497395 7/7 1 r 8192 4096"],
        "the F2FS tells its reads itself"
    );
}

/// Android kernels up to 5.10 report the misses and whole calls, and not the file system.
#[test]
fn traces_of_old_android_kernels_are_read() {
    let text = "    app.main-21    (   20) [000] .... 50.000000: android_fs_dataread_start: \
                entry_name /data/x, offset 4096, bytes 8192, cmdline app.main, pid 21, i_size \
                20000, ino 40\n\
                    kworker-3     (    3) [000] .... 50.000100: android_fs_dataread_end: ino 40, \
                offset 4096, bytes 8192\n\
                app.main-21    (   20) [000] .... 50.000200: android_fs_datawrite_start: \
                entry_name /data/x, offset 20000, bytes 96, cmdline app.main, pid 21, i_size \
                20000, ino 40\n\
                app.main-20    (   20) [000] .... 50.000300: f2fs_sync_file_enter: dev = (259,9), \
                ino = 40, pino = 5, i_mode = 0x81ed, i_size = 20096, i_nlink = 1\n";
    let (events, summary) = read_lines(&SPEC, text);
    assert_eq!(
        events,
        [
            "0 20/21 runs app.main",
            "0 20/21 0 is /data/x",
            "0 20/21 0 had 20000",
            "0 20/21 0 r 4096 8192",
            "200 20/21 0 w 20000 96",
            "300 20/20 0 sync",
        ]
    );
    assert_eq!(
        testing::skipped(&summary),
        "2 × access of which only the request is known: less may have been moved (first at 1); \
         2 × access to an unnamed file system: taken as of the one F2FS, else the one ext4 (first \
         at 1); 1 × other tracepoint (first at 2); 1 × read that missed the page cache; reads that \
         hit are not in the trace (first at 1)"
    );
}

#[test]
fn systrace_pages_hold_the_same() {
    let data = "USER PID\nroot 1\n";
    let page = format!(
        "<!DOCTYPE html>\n<html>\n<title>Android System Trace</title>\n<script>{}</script>\n\
         <!-- BEGIN TRACE -->\n  <script class=\"trace-data\" type=\"application/text\">\n\
         {data}  </script>\n  <script class=\"trace-data\" type=\"application/text\">\n\
         {SAMPLE}\n  </script>\n<!-- END TRACE -->\n</html>\n",
        "x".repeat(2 << 20)
    );
    let (events, summary) = read_lines(&SPEC, &page);
    assert_eq!(events, read_lines(&SPEC, SAMPLE).0);
    assert!(testing::skipped(&summary).contains("2 × line of systrace's other data (first at 7)"));
    assert_eq!(summary.skipped.damaged(), 0, "{:?}", summary.skipped);
    assert_eq!(detect(page.as_bytes(), false), Confidence::Likely);
    let old: String = SAMPLE.lines().flat_map(|line| [line, "\\n\\\n"]).collect();
    let old = format!(
        "<!DOCTYPE HTML>\n<html>\n<script>\n  var linuxPerfData = \"\\\n{old}\\n\";\n  </script>\n\
         </html>\n"
    );
    let (events, summary) = read_lines(&SPEC, &old);
    assert_eq!(
        (events, summary.skipped.damaged()),
        (read_lines(&SPEC, SAMPLE).0, 0),
        "{:?}",
        summary.skipped
    );

    let cats = b"<!DOCTYPE html>\n<html><title>Cats</title>";
    assert_eq!(detect(cats, false), Confidence::No);
    assert!(testing::read(&SPEC, cats).unwrap_err().to_string().contains("without a trace"));
}

#[test]
fn a_process_that_is_renamed_runs_another_program() {
    let write = |task: &str, at: &str| {
        format!("{task} {at}: f2fs_datawrite_end: ino 9, offset 0, bytes 5\n")
    };
    let text = write("  <...>-21 (20) [0]", "1.0")
        + &write("  zygote-20 (20) [0]", "1.1")
        + &write("  Binder:20_1-21 (20) [0]", "1.2")
        + &write("  com.app-20 (20) [0]", "1.3")
        + "  com.app-20 (20) [0] 1.35: task_newtask: pid=22 comm=com.app clone_flags=11 \
        oom_score_adj=0\n"
        + &write("  com.app-22 (22) [0]", "1.4")
        + "  com.app-22 (22) [0] 1.45: sched_process_exec: filename=/bin/a-long-name-as-such \
        pid=22 old_pid=22\n"
        + &write("  a-long-name-as--22 (22) [0]", "1.5");
    let runs: Vec<_> =
        events(&SPEC, &text).into_iter().filter(|event| event.contains(" runs ")).collect();
    assert_eq!(
        runs,
        [
            "0 20/21 runs zygote",
            "300000 20/20 runs com.app",
            "400000 22/22 runs com.app",
            "500000 22/22 runs a-long-name-as-such",
        ]
    );
}

#[test]
fn a_trace_without_accesses_names_the_missing_tracepoints() {
    let error = |spec: &FormatSpec, text: &str| {
        testing::read(spec, text.as_bytes()).unwrap_err().to_string()
    };
    let sched = "a-1 [0] 1.0: sched_switch: x\na-1 [0] 1.1: sched_waking: x\na-1 [0] 1.1: \
    sched_switch: x\n";
    let lacks = error(&SPEC, sched);
    assert!(lacks.contains("(mostly sched_switch, sched_waking) tells"), "{lacks}");
    assert!(
        lacks.contains("f2fs_dataread_end") && lacks.contains("ext4_da_write_begin"),
        "{lacks}"
    );
    assert!(error(&BLOCK, &only(&["f2fs"])).contains("is a request of the block layer"));
    assert!(testing::read(&SPEC, b"some\nother\ntext\n").is_ok(), "unknown text is skipped");
}

#[test]
fn damage_is_counted() {
    let (_, summary) = read_lines(
        &SPEC,
        "a-5 [0] 1.0: f2fs_dataread_end: ino 9, offset 0, bytes 5\n\
         a-5 [0] 1.0: f2fs_dataread_end: ino 9, bytes 5\n\
         a-5 [0] 1.0: f2fs_dataread_end: ino 9, offset -1, bytes 5\na-5 [0] 1.0 f2fs_dataread_end\n\
         a-5 [0] 2.0: f2fs_dataread_end: ino 9, offset 9223372036854775807, bytes 5\n\
         a-5 [0] 2.0: f2fs_dataread_end: ino 9, offset 0, bytes 5\n\
         a-5 [0] 1.5: f2fs_dataread_end: ino 9, offset 5, bytes 5\n\
         a-5 [0] 0.5: mm_filemap_get_pages: dev=1:1 ino=c ofs=8192-4095\n",
    );
    assert_eq!(
        testing::skipped(&summary),
        "1 × line that ftrace does not print (first at 4); 1 × tracepoint whose text lacks a field \
         that is needed (first at 2); 3 × tracepoint with numbers that cannot be (first at 3)"
    );
    assert_eq!((summary.accesses, summary.late), (3, 1), "no time goes back");
}

#[test]
fn a_counter_clock_gives_no_times() {
    let text = "a-5 [0] ..... 900: f2fs_dataread_end: ino 9, offset 0, bytes 5\na-5 [0] 901: \
    f2fs_dataread_end: ino 9, offset 5, bytes 5\n";
    let (events, summary) = read_lines(&SPEC, text);
    assert_eq!(events, ["0 5/5 runs a", "0 5/5 0 r 0 5", "0 5/5 0 r 5 5"]);
    let knows = summary.about.expect("the sample is described").knows;
    assert_eq!((knows.times, knows.syncs, knows.removals), (false, false, false));
}

/// The source of the write was not in memory: the kernel copies a part, refuses the rest, and
/// begins again.
#[test]
fn a_piece_of_a_write_that_comes_again_is_one() {
    let pieces = [
        (0, 10_000, 5667),
        (0, 5667, 5667),
        (5667, 4333, 0),
        (5667, 4333, 2525),
        (8192, 1808, 1808),
    ];
    let text: String = pieces
        .iter()
        .flat_map(|(at, left, copied)| {
            [
                format!("a-5 [0] 1.0: ext4_da_write_begin: dev 7,5 ino 13 pos {at} len {left}\n"),
                format!(
                    "a-5 [0] 1.0: ext4_da_write_end: dev 7,5 ino 13 pos {at} len {left} copied \
                     {copied}\n"
                ),
            ]
        })
        .collect();
    assert_eq!(events(&SPEC, &text)[1..], ["0 5/5 0 w 0 10000"]);
    assert_eq!(events(&SPEC, &text.repeat(2))[1..], ["0 5/5 0 w 0 10000", "0 5/5 0 w 0 10000"]);
}
