//! Charts from plain data.
//!
//! Each chart is a struct that renders itself into SVG and HTML, without scripts and inline
//! styles. Shapes stretch with the width of
//! the page; texts and hatches do not. All charts of a page share one [`TimeRange`].

mod bars;
mod canary;
mod capacity;
mod gauge;
mod heat;
mod histogram;
mod legend;
mod life;
mod lines;
mod over_time;
mod path;
mod plot;
mod rows;
mod series;
mod spark;
mod time;
mod tone;
mod unit;
mod value_axis;

pub use bars::{BarPart, ShareBar, TimeBars};
pub use canary::{CanaryChart, CanaryPoint, FailureRate, interval_of};
pub use capacity::{CapacityChart, Mark, MarkKind, WorkerStates};
pub use gauge::Gauge;
pub use heat::{Board, BoardCell, BoardRow, HeatMap, HeatRow};
pub use histogram::{Bin, Histogram};
pub use life::{Life, LifeLine, Segment};
pub use lines::{Line, LineChart};
pub use plot::MomentLinks;
pub use rows::{Row, RowChart, RowShape};
pub use series::{Gather, Series};
pub use spark::SparkLine;
pub use time::{Scrubber, TimeRange};
pub use tone::{Tone, hatches};
pub use unit::Unit;

/// The colours of all pages: light, dark and forced.
pub const PALETTE: &str = include_str!("assets/palette.css");
/// The styles of the charts. They need the palette.
pub const STYLE: &str = include_str!("assets/charts.css");
/// Moves one cursor over all charts of a page. Charts can be read without it.
pub const SCRIPT: &str = include_str!("assets/charts.js");

#[cfg(test)]
mod tests;
