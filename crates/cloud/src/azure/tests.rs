//! Tests of the `azure` provider.

mod documented;
mod ending;
mod fake;
mod faults;
mod images;
mod inherited;
mod launching;
mod leftovers;
mod looking;
mod networks;
mod records;
mod registering;
mod site;
mod suites;
mod tokens;
