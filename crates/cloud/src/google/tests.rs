//! Tests of the `google` provider, on a fake of Google or with scripted answers.

mod contract;
mod credentials;
mod fake;
mod faults;
mod scripted;
