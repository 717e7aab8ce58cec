//! Rule sets as other programs use them.

mod chance;
mod evaluation;
mod globs;
mod naive;
mod properties;
