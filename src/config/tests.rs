//! Definitions, read end to end.
