//! The short form of fuzzing that every test run does: the kept inputs and a fixed number of mutations of them
//! through the bodies of the fuzz targets. The long form is in `fuzz/README.md`.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "the library of the fuzz crate")]
mod targets;

#[path = "../../../fuzz/src/mutations.rs"]
#[allow(unreachable_pub, clippy::print_stdout, reason = "shared by suites, which print figures")]
mod mutations;

use targets::TARGETS;

#[test]
fn kept_inputs_and_their_mutations_are_survived() {
    for target in TARGETS {
        mutations::run_all(target.name, target.run, target.mutations);
    }
}

/// Every kept input belongs to a target; those that are not in the list are run by the suites of other crates.
#[test]
fn the_corpus_has_no_strays() {
    let fuzz = mutations::root().join("fuzz");
    for folder in std::fs::read_dir(fuzz.join("corpus")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(fuzz.join(format!("fuzz_targets/{name}.rs")).is_file(), "no target is called {name}");
    }
}
