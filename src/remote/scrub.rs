//! Takes secrets out of texts that come from stores and clients.
//!
//! Invariant: what the environment holds as a secret, and what makes a signed URL one, is in no text
//! that leaves here.

/// Parts of the names of variables whose values are secrets, or lead to them.
const SECRET_NAMES: [&str; 8] =
    ["SECRET", "TOKEN", "ACCESS_KEY", "ACCOUNT_KEY", "SAS", "PASSWORD", "ENCRYPTION", "CREDENTIAL"];
/// What precedes a secret in texts.
const SECRET_MARKS: [&str; 5] =
    ["authorization:", "authorization=", "signature=", "x-amz-security-token", "bearer "];
/// Values that are shorter stand in every text by chance.
const MIN_SECRET_CHARS: usize = 6;
/// Characters of a text that are kept.
const MAX_CHARS: usize = 300;
/// Stands where something was taken out.
const GONE: &str = "…";

/// `text` on one line, without secrets, and not longer than people read.
pub(super) fn scrub(text: &str) -> String {
    scrub_of(text, &secrets())
}

fn scrub_of(text: &str, secrets: &[String]) -> String {
    let mut text = text.split_whitespace().map(without_query).collect::<Vec<_>>().join(" ");
    for secret in secrets {
        text = text.replace(secret.as_str(), GONE);
    }
    let lower = text.to_ascii_lowercase();
    if let Some(at) = SECRET_MARKS.iter().filter_map(|mark| lower.find(mark)).min() {
        text.truncate(at);
        text.push_str(GONE);
    }
    if let Some((at, _)) = text.char_indices().nth(MAX_CHARS) {
        text.truncate(at);
        text.push_str(GONE);
    }
    text
}

/// A word, without user info and query if it holds a URL.
fn without_query(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let rest = rest.split('?').next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Values of the environment that must not be shown, the longest first.
fn secrets() -> Vec<String> {
    let is_secret = |name: &str| {
        let name = name.to_ascii_uppercase();
        let is_ours = ["AWS_", "GOOGLE_", "AZURE_", "FABRIC_"].iter().any(|p| name.starts_with(p));
        is_ours && SECRET_NAMES.iter().any(|part| name.contains(part))
    };
    let mut found: Vec<String> = std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(is_secret))
        .filter_map(|(_, value)| value.into_string().ok())
        .filter(|value| value.chars().count() >= MIN_SECRET_CHARS)
        .collect();
    found.sort_by_key(|value| std::cmp::Reverse(value.len()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out() {
        let secrets = ["hush-hush".to_owned()];
        for (name, text, expected) in [
            ("plain", "Access\n  Denied", "Access Denied"),
            ("value", "key hush-hush is wrong", "key … is wrong"),
            (
                "signed url",
                "GET https://u:p@h/a?X-Amz-Signature=1 failed",
                "GET https://h/a failed",
            ),
            ("header", "sent Authorization: AWS4 abc", "sent …"),
        ] {
            assert_eq!(scrub_of(text, &secrets), expected, "{name}");
        }
        assert_eq!(scrub_of(&"é".repeat(500), &[]).chars().count(), MAX_CHARS + 1);
    }
}
