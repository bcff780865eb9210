//! Everything that decodes, with thousands of inputs: each is taken exactly if the rules say so, reads
//! back as it was, and is never quoted.

mod config;
mod envelope;
mod headers;
mod id;
mod name;
mod payload;
mod table;
mod typed;
