//! Everything that decodes, with thousands of inputs: each is accepted exactly if it is valid, is read back
//! unchanged, and is never quoted.

mod config;
mod decode_error;
mod envelope;
mod headers;
mod id;
mod name;
mod payload;
mod table;
mod typed;
