//! The error of a command line that makes no sense, and options that several commands have.

use flashsift_pages::metadata;
use std::{error::Error, fmt};

/// Exit status 2, as for errors that clap finds.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Reads the option `--metadata`.
pub(crate) fn metadata(text: &str) -> Result<Option<metadata::Selection>, Usage> {
    match text {
        "off" => Ok(None),
        text => {
            metadata::Selection::parse(text).map(Some).map_err(|error| Usage(error.to_string()))
        }
    }
}
