//! Databases: known by their programs, by the names of their files, and by the files' content.
//!
//! A database that runs without its syncs, or over whose files memory is mounted, is damaged or
//! lost. So a program or file that is one of many kinds counts, and a wrong guess costs a remedy
//! only.

use super::facts::Ends;
use flashsift_events::names;

/// Programs that keep databases, by name.
const PROGRAMS: &[&str] = &[
    "aerospike",
    "arangod",
    "asd",
    "beam.smp",
    "bitcoind",
    "ceph-mon",
    "ceph-osd",
    "clickhouse",
    "clickhouse-server",
    "cockroach",
    "consul",
    "couchdb",
    "db2sysc",
    "dragonfly",
    "etcd",
    "fb_smp_server",
    "fbserver",
    "fdbserver",
    "firebird",
    "influxd",
    "influxdb3",
    "java",
    "keydb-check-rdb",
    "keydb-server",
    "mariadbd",
    "meilisearch",
    "minio",
    "mongod",
    "mysqld",
    "nats-server",
    "neo4j",
    "ns-slapd",
    "oracle",
    "ovsdb-server",
    "pmxcfs",
    "postgres",
    "postmaster",
    "prometheus",
    "qdrant",
    // The same file as the server.
    "redis-check-rdb",
    "redis-server",
    "rethinkdb",
    "scylla",
    "searchd",
    "slapd",
    "sqlite3",
    "sqlservr",
    "surreal",
    "tarantool",
    "tikv-server",
    "typesense-server",
    "valkey-check-rdb",
    "valkey-server",
    "virtuoso-t",
];

/// The kernel cuts names of processes after so many bytes.
const COMM_BYTES: usize = 15;

/// Whether a program keeps a database.
pub(super) fn is_program(name: &str) -> bool {
    let is_cut = |known: &str| name.len() == COMM_BYTES && known.starts_with(name);
    PROGRAMS.iter().any(|known| *known == name || is_cut(known))
}

/// Beginnings of file names.
const BEGINNINGS: &[&str] = &[
    // MariaDB and MySQL.
    "aria_log",
    "ib_buffer_pool",
    "ib_logfile",
    "ibdata",
    "ibtmp",
    "mariadb-bin.",
    "mysql-bin.",
    "relay-bin.",
    // Berkeley DB.
    "__db.",
    // LevelDB and RocksDB.
    "MANIFEST-",
    // Redis.
    "appendonly",
    // MongoDB.
    "WiredTiger",
];

/// Extensions, compared without regard to case.
const EXTENSIONS: &[&str] = &[
    "aof", "bdb", "bolt", "boltdb", "couch", "dbf", "duckdb", "edb", "fdb", "frm", "gdbm", "ibd",
    "jnl", "kch", "kct", "ldb", "ldf", "mad", "mai", "mdb", "mdbx", "mdf", "myd", "myi", "ndb",
    "rdb", "realm", "redb", "sdb", "sst", "tdb", "tsm", "wal", "wt",
];

/// Names of directories, at any place in a path.
const DIRECTORIES: &[&str] = &[
    "#innodb_redo",
    "#innodb_temp",
    "appendonlydir",
    "debconf",
    "dpkg",
    "pg_commit_ts",
    "pg_multixact",
    "pg_subtrans",
    "pg_wal",
    "pg_xact",
    "pg_xlog",
];

/// Whether the name of a file is one that a database gives.
pub(super) fn is_file(path: &str) -> bool {
    let name = names::file_name(path);
    let mut directories = path[..path.len() - name.len()].split('/');
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let are_digits = |text: &str, least: usize| {
        text.len() >= least && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    names::is_synced_database(path)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
        || matches!(name, "CURRENT" | "pg_control" | "PG_VERSION")
        // The log of LevelDB and RocksDB, binary logs of MySQL.
        || name.strip_suffix(".log").is_some_and(|number| are_digits(number, 6))
        || name.strip_prefix("binlog.").is_some_and(|number| are_digits(number, 6))
        // bbolt in etcd.
        || path.ends_with("/snap/db")
        || directories.any(|name| DIRECTORIES.contains(&name))
        || is_in_base(path)
}

/// PostgreSQL: `base/OID/FILE`.
fn is_in_base(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let is_number = |text: Option<&str>| {
        text.is_some_and(|text| text.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    is_number(parts.next()) && is_number(parts.next()) && parts.next() == Some("base")
}

/// Bytes at a fixed offset, and the files that have them.
const MAGIC: &[(usize, &[u8])] = &[
    // SQLite: database, rollback journal, write-ahead log.
    (0, b"SQLite format 3\0"),
    (0, b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"),
    (0, b"\x37\x7f\x06\x82"),
    (0, b"\x37\x7f\x06\x83"),
    // LMDB and libmdbx, on machines of 64 and of 32 bits.
    (16, b"\xde\xc0\xef\xbe"),
    (12, b"\xde\xc0\xef\xbe"),
    (16, b"\xbe\xef\xc0\xde"),
    (12, b"\xbe\xef\xc0\xde"),
    (21, b"\x11\x4c\xef\xbd\x9d\x65\x59"),
    // BoltDB and bbolt.
    (16, b"\xed\xda\x0c\xed"),
    (16, b"\xed\x0c\xda\xed"),
    // MariaDB and MySQL: redo logs, binary logs, MyISAM and Aria.
    (0, b"Phys"),
    (16, b"MySQL "),
    (16, b"MariaDB "),
    (0, b"\xfebin"),
    (0, b"\xfdbin"),
    (0, b"\xfe\xfe"),
    // Redis.
    (0, b"REDIS0"),
    (0, b"*2\r\n$6\r\nSELECT"),
    // WiredTiger: its text, its tables, its log.
    (0, b"WiredTiger"),
    (0, b"\x41\xd8\x01\0"),
    (16, b"\x64\x10\x10\0"),
    // Berkeley DB: tree, hash, queue.
    (12, b"\x62\x31\x05\0"),
    (12, b"\0\x05\x31\x62"),
    (12, b"\x61\x15\x06\0"),
    (12, b"\0\x06\x15\x61"),
    (12, b"\x53\x22\x04\0"),
    (12, b"\0\x04\x22\x53"),
    // gdbm, TDB, Kyoto Cabinet.
    (0, b"\xce\x9a\x57\x13"),
    (0, b"\xcf\x9a\x57\x13"),
    (0, b"TDB file\n"),
    (0, b"KC\n"),
    // InfluxDB; Prometheus: blocks, head, index.
    (0, b"\x16\xd1\x16\xd1"),
    (0, b"TSI1"),
    (0, b"SSEG"),
    (0, b"\x85\xbd\x40\xdd"),
    (0, b"\x01\x30\xbc\x91"),
    (0, b"\xba\xaa\xd7\0"),
    // Lucene.
    (0, b"\x3f\xd7\x6c\x17"),
    // H2, DuckDB, Tarantool, redb, Realm, Access.
    (0, b"H:2,block"),
    (8, b"DUCK"),
    (0, b"SNAP\n"),
    (0, b"XLOG\n"),
    (0, b"redb\x1a\x0a\xa9\x0d"),
    (16, b"T-DB"),
    (0, b"\0\x01\0\0Standard"),
];

/// Last bytes of the tables of LevelDB and RocksDB.
const TABLE_ENDS: &[u64] = &[
    0xdb47_7524_8b80_fb57,
    0x88e2_41b7_85f4_cff7,
    0x8242_2296_63bf_9564,
    0x4f34_18eb_7a8f_13b8,
    0x9267_89d0_c5f1_7873,
];

/// Whether a file has the form of a database, its log or its journal.
pub(super) fn is_content(ends: &Ends) -> bool {
    let head = &*ends.head;
    let has =
        |(at, magic): &(usize, &[u8])| head.get(*at..).is_some_and(|rest| rest.starts_with(magic));
    let last = ends.tail.last_chunk().map(|last| u64::from_le_bytes(*last));
    MAGIC.iter().any(has)
        || last.is_some_and(|last| TABLE_ENDS.contains(&last))
        || is_innodb(head)
        || is_postgres(head)
}

/// The first page of a tablespace: its number is 0, its type is `FIL_PAGE_TYPE_FSP_HDR`, and it has
/// the number of the tablespace twice.
fn is_innodb(head: &[u8]) -> bool {
    const FSP_HDR: [u8; 2] = [0, 8];
    head.len() >= 42
        && head[4..8] == [0; 4]
        && head[24..26] == FSP_HDR
        && head[34..38] == head[38..42]
}

/// The control file, a segment of the log, or a page of a table.
fn is_postgres(head: &[u8]) -> bool {
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let control = || {
        let (version, catalog) = (word(8)?, word(12)?);
        Some((700..3000).contains(&version) && (200_000_000..210_000_000).contains(&catalog))
    };
    let log = || {
        let (magic, segment, block) = (half(0)?, word(32)?, word(36)?);
        let sizes = segment.is_power_of_two() && segment >= 1 << 20 && block.is_power_of_two();
        Some((0xd050..0xd200).contains(&magic) && sizes)
    };
    let page = || {
        const SIZE_AND_VERSION: u16 = 8192 | 4;
        let (lower, upper, special) = (half(12)?, half(14)?, half(16)?);
        let is_ordered = 24 <= lower && lower <= upper && upper <= special && special <= 8192;
        Some(half(18)? == SIZE_AND_VERSION && is_ordered)
    };
    [control(), log(), page()].contains(&Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_names_that_the_kernel_may_have_cut() {
        for name in ["mariadbd", "redis-check-rdb", "clickhouse-server", "clickhouse-serv", "java"]
        {
            assert!(is_program(name), "{name}");
        }
        for name in ["mariadb", "postgres2", "logger", "clickhouse-ser", "e"] {
            assert!(!is_program(name), "{name}");
        }
    }

    #[test]
    fn files_are_known_by_their_names() {
        for path in [
            "/srv/mysql/ib_logfile0",
            "/srv/mysql/#innodb_redo/#ib_redo7",
            "/srv/mysql/shop/items.ibd",
            "/srv/mysql/binlog.000017",
            "/srv/pg/pg_wal/000000010000000000000001",
            "/srv/pg/base/16384/2619",
            "/srv/pg/base/16384/2619_fsm",
            "/srv/pg/global/pg_control",
            "/srv/redis/appendonly.aof",
            "/srv/redis/appendonlydir/x",
            "/srv/redis/temp-1234.rdb",
            "/srv/mongo/WiredTiger.turtle",
            "/srv/mongo/collection-0.wt",
            "/srv/ldap/data.mdb",
            "/srv/x/MANIFEST-000004",
            "/srv/x/CURRENT",
            "/srv/x/000003.log",
            "/srv/x/000005.sst",
            "/srv/etcd/member/snap/db",
            "/srv/influx/wal/_00001.wal",
            "/home/a/Cookies-journal",
            "/home/a/notes.db",
            "/var/cache/debconf/config.dat",
            "/var/lib/dpkg/status",
        ] {
            assert!(is_file(path), "{path}");
        }
        for path in [
            "/var/log/syslog",
            "/var/log/mysql/error.log",
            "/home/a/base/notes/1",
            "/home/a/2024.log",
            "/home/a/db",
            "/home/a/.cache/web/1",
            "",
        ] {
            assert!(!is_file(path), "{path}");
        }
    }

    fn has(head: &[u8], tail: &[u8]) -> bool {
        is_content(&Ends { head: head.to_owned(), tail: tail.to_owned() })
    }

    /// Heads of files that the programs wrote.
    #[test]
    fn content_tells_databases_from_other_files() {
        assert!(has(b"SQLite format 3\0\x10\0", b""));
        let at = |at: usize, magic: &[u8]| [&vec![0; at][..], magic].concat();
        assert!(has(&at(16, &0xbeef_c0de_u32.to_le_bytes()), b""), "LMDB");
        assert!(has(&at(16, &0xed0c_daed_u32.to_le_bytes()), b""), "bbolt");
        assert!(has(b"REDIS0011\xfa", b"") && has(b"*2\r\n$6\r\nSELECT\r\n", b""));
        assert!(has(b"x", &0x88e2_41b7_85f4_cff7_u64.to_le_bytes()), "RocksDB");
        let mut tablespace = [0; 64];
        tablespace[25] = 8;
        tablespace[..4].copy_from_slice(b"\xd2\x01\x02\x03");
        tablespace[34..42].copy_from_slice(&[0, 0, 0, 5, 0, 0, 0, 5]);
        assert!(has(&tablespace, b""));
        // PostgreSQL 15: log, control file, a table.
        let mut log = [0; 64];
        log[..2].copy_from_slice(&0xd110_u16.to_le_bytes());
        log[32..36].copy_from_slice(&(16_u32 << 20).to_le_bytes());
        log[36..40].copy_from_slice(&8192_u32.to_le_bytes());
        assert!(has(&log, b""));
        let mut control = [7; 64];
        control[8..12].copy_from_slice(&1300_u32.to_le_bytes());
        control[12..16].copy_from_slice(&202_209_061_u32.to_le_bytes());
        assert!(has(&control, b""));
        let mut table = [0; 64];
        for (at, number) in [(12, 28_u16), (14, 8100), (16, 8192), (18, 0x2004)] {
            table[at..at + 2].copy_from_slice(&number.to_le_bytes());
        }
        assert!(has(&table, b""));
        for other in [&[0; 64][..], &[b'x'; 64], b"", b"Oct 19 12:00:00 host sshd: in\n"] {
            assert!(!has(other, other), "{other:?}");
        }
    }
}
