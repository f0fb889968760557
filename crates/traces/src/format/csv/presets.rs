//! The tables that are known by name: `--format NAME` stands for `--columns` of this list.

/// A table whose columns are known.
#[derive(Debug)]
pub struct Preset {
    /// Value of `--format`.
    pub name: &'static str,
    /// Description in one line.
    pub what: &'static str,
    /// The value of `--columns` that reads it.
    pub columns: &'static str,
    /// A small trace. A table that looks like it may be one of these.
    pub sample: &'static str,
}

const fn preset(
    name: &'static str,
    what: &'static str,
    columns: &'static str,
    sample: &'static str,
) -> Preset {
    Preset { name, what, columns, sample }
}

/// Every table that has a name.
pub const PRESETS: &[Preset] = &[
    preset(
        "alibaba",
        "block traces of Alibaba's cloud, 2020",
        "device=1,op=2,offset=3,len=4,time=5,unit=us",
        "419,W,8792731648,16384,1577808000000046\n725,R,59110326272,4096,1577808000000059\n\
         419,W,8792748032,4096,1577808000000310\n",
    ),
    preset(
        "tencent",
        "block traces of Tencent's cloud, 2018",
        "time=1,offset=2,len=3,op=4,device=5,block=512,read=0,write=1",
        "1538323199,42942224,8,1,1063\n1538323199,1835008,128,0,1283\n\
         1538323200,42942232,16,1,1063\n",
    ),
    preset(
        "systor",
        "block traces of virtual desktops, SYSTOR '17",
        "time=1,op=3,device=4,offset=5,len=6",
        "Timestamp,Response,IOType,LUN,Offset,Size\n\
         1456135200.013118000,0.000806000,R,0,899056122368,131072\n\
         1456135200.023118000,,,0,4096,512\n\
         1456135200.033118000,0.001204000,W,4,4096,8192\n",
    ),
    preset(
        "spc",
        "block traces of the Storage Performance Council, as of UMass",
        "device=1,offset=2,len=3,op=4,time=5,offset-unit=512",
        "0,303567,3584,w,0.000000\n1,55590,3072,R,0.000000\n0,303574,3584,w,0.026214\n",
    ),
    preset(
        "fiu",
        "block traces of FIU (SyLab) with a hash of the content",
        "time=1,pid=2,process=3,offset=4,len=5,op=6,device=7:8,block=512,unit=ns,separator=space",
        "89967404237807 4892 syslogd 904265560 8 W 6 0 531e779a35cd9e1d2bf2bbb2d03a34f9\n\
         89967404305111 2395 kjournald 904265568 16 W 6 0 86cd4a3ae0dfa1b5ac1a0bd7b48bc9fe\n\
         89968195792462 20782 gzip 283193184 8 R 6 1 56f11b711d91a065a2b6458eca924523\n",
    ),
    preset(
        "baleen",
        "requests to Meta's Tectonic, as of Baleen, 2023; op_count is not used",
        BALEEN,
        "# block_id io_offset io_size op_time op_name user_namespace user_name rs_shard_id \
         op_count host_name\n\
         5 2490368 131072 1675036800.5 2 10 3 8 1 42\n\
         5 0 1048576 1675036801 4 10 3 8 1 42\n5 0 1048576 1675036801 2 10 3 9 2 42\n",
    ),
    preset(
        "baleen-2021",
        "requests to Meta's Tectonic, as of Baleen, 2021, without shards",
        BALEEN,
        "# block_id io_offset io_size op_time op_name user_namespace user_name host_name \
         op_count\n\
         81 0 5242880 1634198412.0 1 1 1 7 1\n81 0 524288 1634198413.0 3 1 1 7 1\n",
    ),
    preset(
        "baleen-2019",
        "requests to Meta's Tectonic, as of Baleen, 2019, without shards and hosts",
        "file=1,offset=2,len=3,time=4,op=5,read=1/2/5,write=3/4/6,skip=*,separator=space",
        "# block_id io_offset io_size op_time op_name pipeline user_namespace user_name\n\
         137 0 1048576 1570482000.0 3 0 1 5\n137 65536 131072 1570482001.0 1 0 1 5\n",
    ),
    preset(
        "cloudphysics",
        "CSV of CloudPhysics' VMware traces, with SCSI's commands, as libCacheSim has it",
        "time=time,op=op,len=size,offset=lbn,device=disk,offset-unit=512,\
         read=8/08/28/88/a8,write=a/0a/2a/8a/aa,sync=35/91,skip=*",
        "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,57344,6238199\n\
         1,5633901,35,0,0\n",
    ),
    preset(
        "libcachesim-csv",
        "time, object and size: the columns of libCacheSim's examples and of its converter",
        "time=1,object=2,len=3",
        "0,6451210,76,3\n0,13084,313,9223372036854775807\n1,6451210,76,-1\n",
    ),
    preset(
        "libcachesim-txt",
        "one object a line, as libCacheSim's txt; each is one page",
        "object=1,separator=tab",
        "video/7\nvideo/19\nvideo/7\n",
    ),
    preset(
        "twitter",
        "requests to Twitter's caches, 2020; objects have the size of their value",
        "time=1,object=2,len=4,op=6,ttl=7,read=get/gets,\
         write=set/add/replace/cas/append/prepend/incr/decr,delete=delete,skip=*",
        "0,aaaQ,11,71,1,get,0\n0,aabR,12,230,4,set,86400\n1,aabR,12,230,4,get,0\n",
    ),
    preset(
        "lirs",
        "one page a line, as the authors of LIRS and Caffeine have it; objects: libcachesim-txt",
        "offset=1,block=4096,separator=tab,comment=*",
        "0\n1\n2\n*\n0\n505\n",
    ),
    preset(
        "arc",
        "ranges of sectors, as the authors of ARC and Caffeine have them",
        "offset=1,len=2,device=disk,block=512,separator=space",
        "110765 64 0 0\n110829 8 0 1\n110765 64 0 2\n",
    ),
    preset(
        "adapt-size",
        "time, object and size, as the authors of AdaptSize and Caffeine have them",
        "time=1,object=2,len=3,separator=space",
        "1 0 68\n2 1 7454\n3 0 68\n",
    ),
];

const BALEEN: &str =
    "file=1:8,offset=2,len=3,time=4,op=5,read=1/2/5,write=3/4/6,skip=*,separator=space";

/// Returns the table of that name.
pub fn named(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name))
}

impl Preset {
    /// Returns the header of the table, if its sample has one: a line without a number.
    pub(super) fn header(&self) -> Option<&'static str> {
        let line = self.sample.lines().next()?;
        let is_number = |word: &str| word.parse::<f64>().is_ok();
        let is_header = line.contains([',', ' ']) && !line.split([',', ' ']).any(is_number);
        is_header.then_some(line)
    }
}

/// Returns the table that begins with this header.
pub(super) fn with_header(line: &str) -> Option<&'static Preset> {
    let line = line.trim();
    PRESETS.iter().find(|preset| preset.header().is_some_and(|h| h.eq_ignore_ascii_case(line)))
}
