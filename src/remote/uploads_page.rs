//! What S3 answers who asks for uploads.
//!
//! Leaves out: asking (`uploads`).

use serde::Deserialize;

/// One answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Page {
    #[serde(default)]
    pub(super) is_truncated: bool,
    pub(super) next_key_marker: Option<String>,
    pub(super) next_upload_id_marker: Option<String>,
    #[serde(default, rename = "Upload")]
    pub(super) uploads: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) upload_id: String,
    pub(super) initiated: String,
}

/// The name of the outermost element is part of it: a store may take the question for another.
#[derive(Debug, Deserialize)]
enum Document {
    #[serde(rename = "ListMultipartUploadsResult")]
    Uploads(Page),
}

impl Page {
    /// The page that a text is, if it is one.
    pub(super) fn read(text: &str) -> Option<Self> {
        let Document::Uploads(page) = quick_xml::de::from_str(text).ok()?;
        Some(page)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn page(inner: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListMultipartUploadsResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>b</Bucket>{inner}\
             </ListMultipartUploadsResult>"
        )
    }

    pub(crate) fn entry(key: &str) -> String {
        format!(
            "<Upload><Key>{key}</Key><UploadId>1+/=</UploadId><Initiator><ID>x</ID></Initiator>\
             <StorageClass>STANDARD</StorageClass><Initiated>2026-11-15T10:00:00.000Z</Initiated>\
             </Upload>"
        )
    }

    pub(crate) fn more(key: &str) -> String {
        format!(
            "<IsTruncated>true</IsTruncated><NextKeyMarker>{key}</NextKeyMarker>\
             <NextUploadIdMarker>9+</NextUploadIdMarker>"
        )
    }

    #[test]
    fn pages_are_read_and_other_answers_are_none() {
        for (name, text, keys, is_truncated) in [
            ("none", page("<IsTruncated>false</IsTruncated>"), vec![], false),
            ("nothing said", page(""), vec![], false),
            ("two", page(&(entry("a") + &entry("b &amp; c"))), vec!["a", "b & c"], false),
            ("apart", page(&(entry("a") + &more("a") + &entry("b"))), vec!["a", "b"], true),
        ] {
            let read = Page::read(&text).unwrap_or_else(|| panic!("{name}"));
            let found: Vec<_> = read.uploads.iter().map(|it| it.key.as_str()).collect();
            assert_eq!((found, read.is_truncated), (keys, is_truncated), "{name}");
        }
        for text in [
            "",
            "ok",
            "<html>",
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            &page("<Upload><Key>a</Key></Upload>"),
        ] {
            assert!(Page::read(text).is_none(), "{text}");
        }
    }
}
