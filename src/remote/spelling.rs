//! Spells the queries of signed requests as they are signed.
//!
//! A signature is made of a query's names and values, each escaped in one way (AWS, "Create a signed
//! request", canonical query string): all but letters, digits and `-._~` as `%XX`. The client signs that,
//! but sends a space as `+`, `~` as `%7E` and `*` as it is, which mean the same. S3 reads them before it
//! checks; there are servers that check what they got.

use object_store::client::HttpRequest;

/// What begins the header of a signed request.
const SIGNED: &str = "AWS4-";

/// The same request, with its query as it was signed.
pub(super) fn as_signed(mut request: HttpRequest) -> HttpRequest {
    let authorization = request.headers().get("authorization").and_then(|it| it.to_str().ok());
    if authorization.is_some_and(|it| it.starts_with(SIGNED)) {
        let url = request.uri().to_string();
        let spelled = url.split_once('?').map(|(path, query)| format!("{path}?{}", strict(query)));
        if let Some(Ok(url)) = spelled.map(|url| url.parse()) {
            *request.uri_mut() = url;
        }
    }
    request
}

fn strict(query: &str) -> String {
    query.replace('+', "%20").replace('*', "%2A").replace("%7E", "~")
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    #[test]
    fn signed_queries_are_sent_as_they_are_signed_and_others_as_they_are() {
        let sent = "http://s/b~/k+*?list-type=2&prefix=a+b%2F%7E*%2B%25&start-after=";
        for (authorization, want) in [
            (
                Some("AWS4-HMAC-SHA256 Credential=k"),
                "http://s/b~/k+*?list-type=2&prefix=a%20b%2F~%2A%2B%25&start-after=",
            ),
            (Some("Bearer t"), sent),
            (None, sent),
        ] {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = sent.parse().unwrap();
            if let Some(value) = authorization {
                request.headers_mut().insert("authorization", value.parse().unwrap());
            }
            let spelled = as_signed(request);
            assert_eq!(spelled.uri().to_string(), want, "{authorization:?}");
        }
        let mut plain = HttpRequest::new(HttpRequestBody::empty());
        *plain.uri_mut() = "http://s/b/k".parse().unwrap();
        plain.headers_mut().insert("authorization", "AWS4-HMAC-SHA256".parse().unwrap());
        assert_eq!(as_signed(plain).uri().to_string(), "http://s/b/k");
    }
}
