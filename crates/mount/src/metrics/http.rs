//! One HTTP request for the metrics: bytes in, the answer out.

use super::CONTENT_TYPE;

/// Longest request, bytes: the line and all headers.
pub(super) const REQUEST_BYTES: usize = 8 << 10;
const HEADERS: usize = 64;

/// Returns the whole answer to a request, or `None` if more of the request is needed. `metrics` is
/// called only if the answer contains them.
pub(super) fn answer(request: &[u8], metrics: impl FnOnce() -> String) -> Option<Vec<u8>> {
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
        let answer = answer(request, || "a 1\n".to_owned());
        answer.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_metrics_are_at_one_place() {
        let get = answered(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
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
