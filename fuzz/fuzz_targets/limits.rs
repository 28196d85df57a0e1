#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redraft_fuzz::limits(data));
