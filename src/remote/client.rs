//! Makes the clients, from the environment and the options.
//!
//! Leaves out: what is asked of them.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use super::patience::Patient;
use super::uploads::Asks;
use super::url::{RemoteUrl, Scheme};
use super::{RemoteError, RemoteErrorKind, RemoteOptions};

/// The same store, as far as it can do these.
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) multipart: Option<Arc<dyn MultipartStore>>,
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// Asks for what the client has no request for.
    pub(super) asks: Option<Arc<Asks>>,
}

/// How often credentials are asked for: the machine either offers them or does not.
const CREDENTIAL_RETRIES: usize = 3;

/// The region where none is named, as the client has it.
const DEFAULT_REGION: &str = "us-east-1";

/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// A pause is of a random length up to so many times the one before it. With a smaller base pauses
/// often stay at their beginning, and a store that restarts is given up before it is back.
const PAUSE_BASE: f64 = 8.0;

/// The client for the place at `url`.
pub(super) fn connect(url: &RemoteUrl, options: &RemoteOptions) -> Result<Client, RemoteError> {
    expect_proxies(url)?;
    let made = match url.scheme() {
        Scheme::S3 => s3(url, options)?,
        Scheme::Gcs => gcs(url, options),
        Scheme::Azure => azure(url, options)?,
        Scheme::Http => http(url, options),
        Scheme::File => {
            let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new().with_fsync(true));
            Ok(Client { store, multipart: None, pages: None, asks: None })
        }
    };
    made.map_err(|e| RemoteError::new("set up access to", url.shown(), &e))
}

type Made = Result<Client, object_store::Error>;

fn all<S: ObjectStore + MultipartStore + PaginatedListStore>(store: Arc<S>) -> Client {
    Client {
        store: Arc::<S>::clone(&store),
        multipart: Some(Arc::<S>::clone(&store)),
        pages: Some(store),
        asks: None,
    }
}

fn s3(url: &RemoteUrl, options: &RemoteOptions) -> Result<Made, RemoteError> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(url.authority())
        .with_client_options(client_options("aws_", options))
        .with_retry(retry(options))
        .with_conditional_put(S3ConditionalPut::ETagMatch);
    if builder.get_config_value(&AmazonS3ConfigKey::Checksum).is_none() {
        // Signing hashes the bytes that are sent with it anyway.
        builder = builder.with_checksum_algorithm(Checksum::SHA256);
    }
    for key in [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint] {
        let endpoint = builder.get_config_value(&key);
        expect_whole("AWS_ENDPOINT_URL", url, endpoint.as_deref())?;
        expect_no_bucket("AWS_ENDPOINT_URL", url, endpoint.as_deref())?;
        expect_tls("aws_", url, endpoint.as_deref(), options)?;
    }
    let is_in_host = builder.get_config_value(&AmazonS3ConfigKey::VirtualHostedStyleRequest);
    if is_in_host.is_some_and(|value| value == "true") {
        for key in [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint] {
            if let Some(endpoint) = builder.get_config_value(&key) {
                builder = builder.with_config(key, with_bucket(url, &endpoint)?);
            }
        }
    }
    for (key, variable) in [
        (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
        (AmazonS3ConfigKey::Token, "AWS_SESSION_TOKEN"),
        (AmazonS3ConfigKey::Region, "AWS_REGION"),
    ] {
        expect_header(variable, url, builder.get_config_value(&key).as_deref())?;
    }
    let with_credentials = || {
        // Apart from the requests themselves, so that a machine without credentials says so at once.
        let retry = RetryConfig {
            max_retries: CREDENTIAL_RETRIES,
            backoff: BackoffConfig::default(),
            ..retry(options)
        };
        let lookup = builder.clone().with_retry(retry);
        let provider = Arc::clone(lookup.build()?.credentials());
        let builder = builder.with_credentials(provider).with_http_connector(patient(options));
        let is_set = |key| builder.get_config_value(&key).is_some_and(|value| value == "true");
        let (is_unsigned, is_paid_by_asker) =
            (is_set(AmazonS3ConfigKey::SkipSignature), is_set(AmazonS3ConfigKey::RequestPayer));
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let store = Arc::new(builder.build()?);
        let mut client = all(Arc::clone(&store));
        if !is_unsigned {
            let connections = (patient(options), client_options("aws_", options));
            let asks = Asks::new(store, region, is_paid_by_asker, connections, options);
            client.asks = Some(Arc::new(asks));
        }
        Ok(client)
    };
    Ok(with_credentials())
}

fn gcs(url: &RemoteUrl, options: &RemoteOptions) -> Made {
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(url.authority())
        .with_client_options(client_options("google_", options))
        .with_http_connector(patient(options))
        .with_retry(retry(options));
    Ok(all(Arc::new(builder.build()?)))
}

fn azure(url: &RemoteUrl, options: &RemoteOptions) -> Result<Made, RemoteError> {
    let builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(url.authority())
        .with_client_options(client_options("azure_", options))
        .with_http_connector(patient(options))
        .with_retry(retry(options));
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    expect_whole("AZURE_STORAGE_ENDPOINT", url, endpoint.as_deref())?;
    expect_tls("azure_", url, endpoint.as_deref(), options)?;
    Ok(builder.build().map(|store| all(Arc::new(store))))
}

fn http(url: &RemoteUrl, options: &RemoteOptions) -> Made {
    // Who writes `http://` has allowed it; no credentials go there.
    let options = RemoteOptions { allow_http: true, ..*options };
    let store = HttpBuilder::new()
        .with_url(url.authority())
        .with_client_options(client_options("http_", &options))
        .with_http_connector(patient(&options))
        .with_retry(retry(&options))
        .build()?;
    Ok(Client { store: Arc::new(store), multipart: None, pages: None, asks: None })
}

/// What requests share; the environment (`AWS_READ_TIMEOUT`, `AWS_PROXY_URL`, …) goes before the options.
fn client_options(prefix: &str, options: &RemoteOptions) -> ClientOptions {
    let made = ClientOptions::new()
        .with_allow_http(options.allow_http)
        .with_timeout_disabled()
        .with_connect_timeout(options.connect_timeout)
        .with_read_timeout(options.read_timeout);
    environment(prefix).fold(made, |made, (key, value)| made.with_config(key, value))
}

/// What the environment says to a client, whose variables begin with `prefix`.
fn environment(prefix: &str) -> impl Iterator<Item = (ClientConfigKey, String)> {
    let prefix = prefix.to_ascii_uppercase();
    std::env::vars_os().filter_map(move |(name, value)| {
        let name = name.to_str()?.strip_prefix(&prefix)?.to_ascii_lowercase();
        Some((name.parse().ok()?, value.into_string().ok()?))
    })
}

fn retry(options: &RemoteOptions) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: MAX_PAUSE,
            base: PAUSE_BASE,
        },
        max_retries: options.retries,
        retry_timeout: options.retry_timeout,
    }
}

/// Clients that say what they wait for.
fn patient(options: &RemoteOptions) -> Patient {
    let retries = u32::try_from(options.retries).unwrap_or(u32::MAX);
    Patient {
        pauses: MAX_PAUSE.saturating_mul(retries),
        most: options.retry_timeout,
        read_timeout: options.read_timeout,
    }
}

/// Refuses an endpoint that is no address: the client takes it for granted that it is one.
fn expect_whole(
    variable: &str,
    url: &RemoteUrl,
    endpoint: Option<&str>,
) -> Result<(), RemoteError> {
    let Some(endpoint) = endpoint else { return Ok(()) };
    let is_whole = url::Url::parse(endpoint).is_ok_and(|it| {
        matches!(it.scheme(), "http" | "https") && it.has_host() && it.query().is_none()
    });
    if is_whole {
        return Ok(());
    }
    let said = if endpoint.is_empty() {
        format!("{variable} is empty; unset it, or let it be https://HOST")
    } else {
        format!("{variable} is no address such as https://HOST or http://HOST:PORT")
    };
    Err(RemoteError::of("use", url.shown(), RemoteErrorKind::Setup, Some(said)))
}

/// Refuses an endpoint with the bucket in its path, where it would stand twice.
fn expect_no_bucket(
    variable: &str,
    url: &RemoteUrl,
    endpoint: Option<&str>,
) -> Result<(), RemoteError> {
    let path = endpoint.and_then(|it| url::Url::parse(it).ok()).map(|it| it.path().to_owned());
    let last = path.as_deref().and_then(|path| path.trim_end_matches('/').rsplit('/').next());
    if last != Some(url.authority()) {
        return Ok(());
    }
    let said = format!("{variable} ends with the bucket `{}`: leave it away", url.authority());
    Err(RemoteError::of("use", url.shown(), RemoteErrorKind::Setup, Some(said)))
}

/// The endpoint with the bucket in its host: the client does that with Amazon's own alone.
fn with_bucket(url: &RemoteUrl, endpoint: &str) -> Result<String, RemoteError> {
    let bucket = url.authority();
    let mut whole = url::Url::parse(endpoint).ok();
    let domain = whole.as_ref().and_then(|it| it.domain()).map(str::to_owned);
    if domain.as_ref().is_some_and(|it| it.starts_with(&format!("{bucket}."))) {
        return Ok(endpoint.to_owned());
    }
    if let (Some(whole), Some(domain)) = (&mut whole, domain)
        && whole.set_host(Some(&format!("{bucket}.{domain}"))).is_ok()
    {
        return Ok(whole.as_str().trim_end_matches('/').to_owned());
    }
    let said = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST puts the bucket before the endpoint's name, and it has none";
    Err(RemoteError::of("use", url.shown(), RemoteErrorKind::Setup, Some(said.to_owned())))
}

/// Refuses proxies that are no addresses: clients fail without a word of them, or go without.
fn expect_proxies(url: &RemoteUrl) -> Result<(), RemoteError> {
    let (own, everybodys): (_, &[&str]) = match url.scheme() {
        Scheme::S3 => ("AWS_PROXY_URL", &EVERYBODYS_PROXIES),
        Scheme::Gcs => ("GOOGLE_PROXY_URL", &EVERYBODYS_PROXIES),
        Scheme::Azure => ("AZURE_PROXY_URL", &EVERYBODYS_PROXIES),
        Scheme::Http => ("HTTP_PROXY_URL", &EVERYBODYS_PROXIES),
        Scheme::File => return Ok(()),
    };
    for variable in std::iter::once(&own).chain(everybodys) {
        let value = std::env::var_os(variable).unwrap_or_default();
        if !value.to_str().is_some_and(|value| value.is_empty() || is_proxy(value)) {
            let said = format!("{variable} is no address such as http://HOST:PORT");
            let kind = RemoteErrorKind::Setup;
            return Err(RemoteError::of("use", url.shown(), kind, Some(said)));
        }
    }
    Ok(())
}

/// Variables that all clients heed.
const EVERYBODYS_PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Whether a text names a proxy; without a scheme it is `http`.
fn is_proxy(text: &str) -> bool {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let schemes = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
    url::Url::parse(&whole).is_ok_and(|it| it.has_host() && schemes.contains(&it.scheme()))
}

/// Refuses what cannot be part of a request, such as a key with the line break of its file.
fn expect_header(variable: &str, url: &RemoteUrl, value: Option<&str>) -> Result<(), RemoteError> {
    if value.is_none_or(|value| value.bytes().all(|b| b.is_ascii_graphic())) {
        return Ok(());
    }
    let said = format!("{variable} holds a space, a line break or another character no key has");
    Err(RemoteError::of("use", url.shown(), RemoteErrorKind::Setup, Some(said)))
}

/// Refuses an endpoint whose traffic anybody can read, unless that was allowed.
fn expect_tls(
    prefix: &str,
    url: &RemoteUrl,
    endpoint: Option<&str>,
    options: &RemoteOptions,
) -> Result<(), RemoteError> {
    let is_plain = endpoint.is_some_and(|e| e.to_ascii_lowercase().starts_with("http://"));
    let allowed = client_options(prefix, options).get_config_value(&ClientConfigKey::AllowHttp);
    let allowed = allowed.unwrap_or_default().to_ascii_lowercase();
    if is_plain && !matches!(&*allowed, "1" | "true" | "on" | "yes" | "y") {
        return Err(RemoteError::of("use", url.shown(), RemoteErrorKind::PlainHttp, None));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_stands_in_the_host_once() {
        let url = RemoteUrl::parse("s3://bucket/prefix").unwrap();
        for (endpoint, want) in [
            ("https://s3.example.org", Some("https://bucket.s3.example.org")),
            ("http://localhost:9000", Some("http://bucket.localhost:9000")),
            ("https://bucket.example.org", Some("https://bucket.example.org")),
            ("https://bucket2.example.org", Some("https://bucket.bucket2.example.org")),
            ("http://127.0.0.1:9000", None),
            ("http://[::1]:9000", None),
        ] {
            assert_eq!(with_bucket(&url, endpoint).ok().as_deref(), want, "{endpoint}");
        }
    }

    #[test]
    fn what_the_client_would_stumble_over_is_refused_first() {
        let url = RemoteUrl::parse("s3://bucket/prefix").unwrap();
        for (endpoint, is_whole) in [
            (None, true),
            (Some("https://s3.example.org"), true),
            (Some("http://127.0.0.1:9000"), true),
            (Some("https://example.org/base/"), true),
            (Some(""), false),
            (Some("127.0.0.1:9000"), false),
            (Some("localhost:9000"), false),
            (Some("http://"), false),
            (Some("http://127.0.0.1:99999"), false),
            (Some("ftp://example.org"), false),
            (Some("https://example.org?x=1"), false),
            (Some("garbage"), false),
        ] {
            let found = expect_whole("AWS_ENDPOINT_URL", &url, endpoint);
            assert_eq!(found.is_ok(), is_whole, "{endpoint:?}");
            if let Err(e) = found {
                assert_eq!(e.kind(), RemoteErrorKind::Setup);
                assert!(e.to_string().contains("AWS_ENDPOINT_URL is "), "{e}");
            }
        }
        for (endpoint, is_right) in [
            ("https://example.org", true),
            ("https://example.org/base/", true),
            ("https://example.org/bucket", false),
            ("https://example.org/base/bucket/", false),
        ] {
            let found = expect_no_bucket("AWS_ENDPOINT_URL", &url, Some(endpoint));
            assert_eq!(found.is_ok(), is_right, "{endpoint}");
        }
        for (proxy, is_one) in [
            ("http://proxy:3128", true),
            ("proxy:3128", true),
            ("proxy", true),
            ("http://user:pass@proxy:3128/", true),
            ("socks5h://proxy", true),
            ("http://", false),
            ("proxy:port", false),
            ("not a proxy", false),
            ("ftp://proxy", false),
        ] {
            assert_eq!(is_proxy(proxy), is_one, "{proxy}");
        }
        for (key, is_one) in
            [(None, true), (Some("AK/+=1"), true), (Some("a\nb"), false), (Some("ä"), false)]
        {
            let found = expect_header("AWS_ACCESS_KEY_ID", &url, key);
            assert_eq!(found.is_ok(), is_one, "{key:?}");
        }
    }
}
