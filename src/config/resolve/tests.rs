//! Whole files, from text to meaning or to the list of faults.

mod faults;
mod meaning;
mod secrets;
mod unknown;
