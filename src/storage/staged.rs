//! Names under which clients of object stores keep on a shared disk what is not whole yet.
//!
//! Invariant: no name of ours has a `#`, so nothing of ours is ever told by one.

/// The name that a file was to get, if it is what a client of object stores writes until it is whole:
/// `x.bin` of `x.bin#1`. A client that was killed leaves it, and no listing of such a client shows it.
#[must_use]
pub fn staged_for(name: &str) -> Option<&str> {
    let (whole, number) = name.split_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !whole.is_empty()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_told_by_the_number_behind_its_name() {
        for (name, want) in [
            ("x.bin#1", Some("x.bin")),
            ("_COMPLETE#12", Some("_COMPLETE")),
            ("x.bin", None),
            ("x.bin#", None),
            ("#1", None),
            ("x#1.bin", None),
            ("x#y#1", None),
        ] {
            assert_eq!(staged_for(name), want, "{name}");
        }
    }
}
