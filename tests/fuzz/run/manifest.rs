#![no_main]

#[path = "../targets.rs"]
#[expect(dead_code, reason = "a program has one of the targets")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::manifest(bytes));
