//! Writes and removes small objects from threads that may block.
//!
//! Leaves out: pushing, which has its own requests (`exporters`).

use bytes::Bytes;
use futures::{StreamExt, stream};
use object_store::{Attribute, Attributes, Error, PutOptions};

use super::blocking::Pending;
use super::{Remote, RemoteError, Scheme};

impl Remote {
    /// Removes objects, many at once. What is not there counts as removed.
    ///
    /// # Errors
    /// The store's; some may be gone then.
    pub fn delete_all(&self, relatives: Vec<String>) -> Result<(), RemoteError> {
        let remote = self.clone();
        let asked = async move {
            let paths: Vec<_> = relatives.iter().map(|name| Ok(remote.path(name))).collect();
            let mut deleted = remote.store().delete_stream(stream::iter(paths).boxed());
            while let Some(one) = deleted.next().await {
                match one {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(e) => return Err(remote.error("delete objects in", "", &e)),
                }
            }
            Ok(())
        };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }

    /// Writes a small object with one entry of metadata, where the store keeps any.
    ///
    /// # Errors
    /// The store's.
    pub fn put_small(
        &self,
        relative: &str,
        bytes: Bytes,
        (name, value): (&'static str, String),
    ) -> Result<(), RemoteError> {
        let (remote, relative) = (self.clone(), relative.to_owned());
        let asked = async move {
            let attributes = match remote.scheme() {
                Scheme::File => Attributes::new(),
                _ => Attributes::from_iter([(Attribute::Metadata(name.into()), value)]),
            };
            let options = PutOptions { attributes, ..PutOptions::default() };
            let put = remote.store().put_opts(&remote.path(&relative), bytes.into(), options).await;
            put.map(drop).map_err(|e| remote.error("write", &relative, &e))
        };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }
}
