//! How questions for uploads are signed, held against the definition of signatures, version 4, which is
//! written down here a second time.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use object_store::ClientOptions;
use object_store::aws::AmazonS3Builder;
use object_store::client::HttpRequest;
use sha2::{Digest, Sha256};
use url::Url;

use super::RemoteOptions;
use super::patience::Patient;
use super::spelling::as_signed;
use super::uploads::Asks;

/// All kinds of characters that have to be escaped, and one that must not be.
const PREFIX: &str = "a ~b/k+e%y/ä*/";
const KEY: &str = "a ~b/k+e%y/ä*/x=&?";
const UPLOAD: &str = "9+/=";

/// What botocore 1.43 (`S3SigV4Auth`, payloads signed) makes of the question of these tests, with the bucket in
/// the host, at that time.
const TIME: &str = "20261122T093000Z";
const QUERY: &str = "uploads=&prefix=a%20~b%2Fk%2Be%25y%2F%C3%A4%2A%2F\
                     &key-marker=a%20~b%2Fk%2Be%25y%2F%C3%A4%2A%2Fx%3D%26%3F&upload-id-marker=9%2B%2F%3D";
const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=the-key/20261122/eu-central-1/s3/aws4_request, \
                             SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-request-payer;\
                             x-amz-security-token, \
                             Signature=f004fa561ebec9537227dbb43199887ca1638a0dd2861e23ac5d442f2cc04b01";

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut block = key.to_vec();
    block.resize(64, 0);
    let pad = |with: u8| block.iter().map(|byte| byte ^ with).collect::<Vec<_>>();
    let inner = Sha256::digest([&pad(0x36), text.as_bytes()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// What has to stand under `authorization` for a GET of `url` without a body.
fn authorization(url: &Url, time: &str) -> String {
    let mut query: Vec<&str> = url.query().unwrap().split('&').collect();
    query.sort_unstable();
    let nothing = hex(&Sha256::digest(b""));
    let names = "host;x-amz-content-sha256;x-amz-date;x-amz-request-payer;x-amz-security-token";
    let canonical = format!(
        "GET\n{}\n{}\nhost:{}\nx-amz-content-sha256:{nothing}\nx-amz-date:{time}\n\
         x-amz-request-payer:requester\nx-amz-security-token:the-token\n\n{names}\n{nothing}",
        url.path(),
        query.join("&"),
        url.authority(),
    );
    let day = &time[..8];
    let scope = format!("{day}/eu-central-1/s3/aws4_request");
    let digest = hex(&Sha256::digest(canonical));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
    let steps = [day, "eu-central-1", "s3", "aws4_request", &text];
    let signature = steps.iter().fold(b"AWS4the-secret".to_vec(), |key, step| hmac(&key, step));
    format!(
        "AWS4-HMAC-SHA256 Credential=the-key/{scope}, SignedHeaders={names}, Signature={}",
        hex(&signature)
    )
}

/// The question, as it is sent to a bucket that stands in the host or in the path.
fn request(is_in_host: bool, endpoint: Option<&str>) -> HttpRequest {
    let mut store = AmazonS3Builder::new()
        .with_region("eu-central-1")
        .with_bucket_name("bucket")
        .with_access_key_id("the-key")
        .with_secret_access_key("the-secret")
        .with_token("the-token")
        .with_virtual_hosted_style_request(is_in_host);
    if let Some(endpoint) = endpoint {
        store = store.with_endpoint(endpoint);
    }
    let store = Arc::new(store.build().unwrap());
    let zero = Duration::ZERO;
    let patient = Patient { pauses: zero, most: zero, read_timeout: zero };
    let connections = (patient, ClientOptions::new());
    let region = "eu-central-1".to_owned();
    let asks = Asks::new(store, region, true, connections, &RemoteOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let marks = (KEY.to_owned(), UPLOAD.to_owned());
    as_signed(runtime.block_on(asks.request(PREFIX, Some(&marks))).unwrap())
}

#[test]
fn questions_are_signed_as_botocore_signs_them_with_the_bucket_in_host_or_path() {
    let of_botocore = format!("https://bucket.s3.eu-central-1.amazonaws.com/?{QUERY}");
    assert_eq!(authorization(&Url::parse(&of_botocore).unwrap(), TIME), AUTHORIZATION);
    for (is_in_host, endpoint, want) in [
        (true, None, "https://bucket.s3.eu-central-1.amazonaws.com/"),
        (false, None, "https://s3.eu-central-1.amazonaws.com/bucket/"),
        (false, Some("https://store.example:9000"), "https://store.example:9000/bucket/"),
        (true, Some("https://bucket.store.example:9000"), "https://bucket.store.example:9000/"),
    ] {
        let request = request(is_in_host, endpoint);
        let url = Url::parse(&request.uri().to_string()).unwrap();
        assert_eq!(url.as_str(), format!("{want}?{QUERY}"));
        let header = |name: &str| request.headers()[name].to_str().unwrap();
        assert_eq!(header("authorization"), authorization(&url, header("x-amz-date")), "{want}");
        if request.headers().contains_key("host") {
            assert_eq!(header("host"), url.authority());
        }
    }
}
