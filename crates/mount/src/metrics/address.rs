//! Places at which metrics are served: a Unix socket, or a port that only this machine reaches.

use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A place at which metrics are served.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    /// `unix:PATH`: a socket that only the user of the mount may use. The path is absolute.
    Unix(PathBuf),
    /// `127.0.0.1:PORT` or `[::1]:PORT`. Every user of this machine may use it. Port 0 is one that
    /// the kernel chooses.
    Loopback(SocketAddr),
}

/// A text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither kind of address.
    #[error("{0:?}: write unix:/run/flashsift.sock or 127.0.0.1:9101")]
    Unknown(String),
    /// Other machines could reach it.
    #[error(
        "{0}: other machines could reach it, and there is no password; only addresses of this \
         machine are served, such as 127.0.0.1:{port}", port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// A path that depends on the working directory.
    #[error("unix:{0}: the path has to begin with /")]
    Relative(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Address::Unix(path.into())),
                false => Err(AddressError::Relative(path.to_owned())),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Address::Loopback(address)),
            Ok(address) => Err(AddressError::NotLoopback(address)),
            Err(_) => Err(AddressError::Unknown(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Loopback(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_served() {
        for good in ["unix:/run/a b.sock", "127.0.0.1:9101", "127.8.9.1:0", "[::1]:65535"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "unix:",
            "unix:a",
            "unix:~/a",
            "/run/a",
            "9101",
            ":9101",
            "127.0.0.1",
            "localhost:9101",
            "127.0.0.1:65536",
            "0.0.0.0:9101",
            "[::]:9101",
            "[::ffff:127.0.0.1]:9101",
            "192.0.2.1:9101",
            "127.0.0.1:9101/metrics",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        let refused = "0.0.0.0:9101".parse::<Address>().unwrap_err().to_string();
        assert!(refused.contains("other machines could reach it"), "{refused}");
    }
}
