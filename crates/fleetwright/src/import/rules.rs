//! Rule sets out of pools: worker configurations that compile to exactly the pools that are there.

mod cloud;
mod cover;
mod factor;
mod leaves;
mod patterns;
mod places;
mod pools;
mod render;
mod solve;
mod table;
