//! Tests of the `google` provider, on a fake of Google or with scripted answers.

mod bids;
mod console;
mod contract;
mod credentials;
mod fake;
mod faults;
mod images;
mod inherited;
mod leftovers;
mod scripted;
