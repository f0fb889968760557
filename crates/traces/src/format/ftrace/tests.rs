use super::{
    super::kernel::{ALL, FIELDS_MAX, Known, Value},
    *,
};
use crate::{events::Summary, format::testing};
use flashsift_core::event::{Action, Event, Side};
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
            "block" => "WFS",
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
        value.unwrap_or_else(|| panic!("{} {}", known.name, known.fields[n]))
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
    const START: &str = "a-5 [0] 1.0: f2fs_datawrite_start: entry_name /f, offset 0, bytes 9000, cmdline a, pid 5, i_size 0, ino 9\n";
    const PIECES: &str = "a-5 [0] 1.1: f2fs_write_begin: dev = (8,3), ino = 9, pos = 0, len = \
                          4096\n\
                          a-5 [0] 1.2: f2fs_write_end: dev = (8,3), ino = 9, pos = 0, len = 4096, \
                          copied = 4096\n";
    const END: &str = "a-5 [0] 1.3: f2fs_datawrite_end: ino 9, offset 0, bytes 4096\n";
    const ITER: &str = "a-5 [0] 1.4: f2fs_file_write_iter: dev = (8,3), ino = 9, offset = 0, length = 9000, written(err) = 4096\n";
    const ANDROID: &str = "a-5 [0] 1.05: android_fs_datawrite_start: entry_name /g, offset 0, bytes 5, cmdline a, pid 5, i_size 0, ino 9\n";
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
        + "  com.app-20 (20) [0] 1.35: task_newtask: pid=22 comm=com.app clone_flags=11 oom_score_adj=0\n"
        + &write("  com.app-22 (22) [0]", "1.4")
        + "  com.app-22 (22) [0] 1.45: sched_process_exec: filename=/bin/a-long-name-as-such pid=22 old_pid=22\n"
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
    let sched = "a-1 [0] 1.0: sched_switch: x\na-1 [0] 1.1: sched_waking: x\na-1 [0] 1.1: sched_switch: x\n";
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
    let text = "a-5 [0] ..... 900: f2fs_dataread_end: ino 9, offset 0, bytes 5\na-5 [0] 901: f2fs_dataread_end: ino 9, offset 5, bytes 5\n";
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
