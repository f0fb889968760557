//! One HTTP request for the metrics: bytes in, the answer out.

use super::CONTENT_TYPE;

/// Longest request, bytes: the line and all headers.
pub(super) const REQUEST_BYTES: usize = 8 << 10;
const HEADERS: usize = 64;

/// Returns the whole answer to a request, or `None` if more of the request is needed. `metrics` is
/// called only if the answer contains them.
///
/// A page of another site that a browser shows may have its own name lead to this machine
/// (DNS rebinding), and would read the answer: one for a name that is not of this machine is
/// refused. `any_host`: no browser reaches it.
pub(super) fn answer(
    request: &[u8],
    any_host: bool,
    metrics: impl FnOnce() -> String,
) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(refusal("431 Request Header Fields Too Large", ""));
        }
        Err(_) => return Some(refusal("400 Bad Request", "")),
    }
    let hosts = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    if !any_host && !hosts.map(|header| header.value).all(is_of_this_machine) {
        return Some(refusal("421 Misdirected Request", ""));
    }
    let with_content = match parsed.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Some(refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n")),
    };
    let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default();
    Some(match path {
        "/metrics" => whole("200 OK", "", &metrics(), with_content),
        _ => refusal("404 Not Found", ""),
    })
}

/// Whether a `Host` names this machine by its loopback address, or as `localhost`.
fn is_of_this_machine(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

fn refusal(status: &str, header: &str) -> Vec<u8> {
    whole(status, header, &format!("{status}\nthe metrics are at /metrics\n"), true)
}

fn whole(status: &str, header: &str, content: &str, with_content: bool) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n{header}\
         Connection: close\r\n\r\n{}",
        content.len(),
        if with_content { content } else { "" }
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answered(request: &[u8]) -> Option<String> {
        let answer = answer(request, false, || "a 1\n".to_owned());
        answer.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_metrics_are_at_one_place() {
        let get = answered(b"GET /metrics HTTP/1.1\r\nHost: [::1]:9\r\n\r\n").unwrap();
        assert_eq!(
            get,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: 4\r\nConnection: close\r\n\r\na 1\n"
        );
        let head = answered(b"HEAD /metrics?a=b HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(head, get.strip_suffix("a 1\n").unwrap());
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/../secret HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("get /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("\u{16}\u{3}\u{1}", "400"),
            ("GET /metrics HTTP/9\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\n: x\r\n\r\n", "400"),
        ] {
            let answer = answered(request.as_bytes()).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        }
    }

    /// Every `Host` was answered, and so a page of any site whose name led here.
    #[test]
    fn other_hosts_are_refused() {
        let get = |host: &str| format!("GET /metrics HTTP/1.1\r\n{host}\r\n");
        let answered = |host: &str| answered(get(host).as_bytes()).unwrap();
        for good in [
            "",
            "Host: localhost\r\n",
            "host:127.0.0.1:9101\r\n",
            "HOST: LocalHost:1\r\n",
            "Host: 127.9.9.9\r\n",
            "Host: [::1]\r\n",
        ] {
            assert!(answered(good).contains(" 200 "), "{good}");
        }
        for bad in [
            "Host: evil.example\r\n",
            "Host: localhost.evil.example:9101\r\n",
            "Host: \r\n",
            "Host: localhost\r\nHost: evil.example\r\n",
            "Host: 192.0.2.1\r\n",
            "Host: \u{fc}\r\n",
            "Host: 127.0.0.1.evil.example\r\n",
        ] {
            assert!(answered(bad).contains(" 421 "), "{bad}");
            let by_socket = answer(get(bad).as_bytes(), true, || "a 1\n".to_owned()).unwrap();
            assert!(by_socket.starts_with(b"HTTP/1.1 200 "), "{bad}");
        }
    }

    #[test]
    fn an_endless_request_is_refused() {
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(REQUEST_BYTES));
        assert_eq!(answered(&long.as_bytes()[..REQUEST_BYTES - 1]), None);
        assert!(answered(&long.as_bytes()[..REQUEST_BYTES]).unwrap().contains(" 431 "));
        let many = format!("GET /metrics HTTP/1.1\r\n{}", "A: b\r\n".repeat(HEADERS + 1));
        assert!(answered(many.as_bytes()).unwrap().contains(" 431 "));
    }

    proptest! {
        #[test]
        fn every_request_gets_an_answer_or_waits(
            request in prop::collection::vec(any::<u8>(), 0..200),
            valid in 0_usize..40,
        ) {
            let beginning = &b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"[..valid.min(34)];
            if let Some(answer) = answered(&[beginning, &request].concat()) {
                prop_assert!(answer.starts_with("HTTP/1.1 "));
                prop_assert!(answer.contains("\r\n\r\n"));
            }
        }
    }
}
