//! The commands, one file each: arguments whose help texts are the documentation, a function that computes a
//! report, and the printing of it.

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod devices;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod fill;
pub(crate) mod inspect;
pub(crate) mod quantize;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod selftest;
pub(crate) mod serve;
pub(crate) mod synth;
pub(crate) mod tokenize;
pub(crate) mod trace;
pub(crate) mod verify;
