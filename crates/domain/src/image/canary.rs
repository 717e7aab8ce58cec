//! stub
#[derive(Debug)]
pub struct Canary;
