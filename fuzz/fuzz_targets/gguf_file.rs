//! A file of random bytes: opened, and everything in it used, or refused in one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparkinfer_gguf::test_support::mutate::Tally;

fuzz_target!(|data: &[u8]| {
    Tally::default().try_file(data.to_vec());
});
