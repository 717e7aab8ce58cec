//! Tables of rows × columns whose cells are also drawn: a heat map, and the board of health.

use maud::{Markup, Render, html};

use super::path::{Percent, units};
use super::unit::{Unit, drawable};

/// The number of shades of a heat map.
const SHADES: i32 = 6;

/// Values by row and column, shaded by their size. The value stands in each cell.
pub struct HeatMap<'a> {
    pub title: &'a str,
    pub unit: Unit,
    /// The name of the rows, such as `Place`.
    pub row_head: &'a str,
    pub columns: &'a [&'a str],
    pub rows: &'a [HeatRow<'a>],
}

/// A row of a heat map, with a value for each column. `None`: nothing was recorded.
pub struct HeatRow<'a> {
    pub name: &'a str,
    pub href: Option<&'a str>,
    pub values: &'a [Option<f64>],
}

impl Render for HeatMap<'_> {
    fn render(&self) -> Markup {
        let values = self.rows.iter().flat_map(|row| row.values);
        let highest = values.copied().flatten().filter_map(drawable);
        let highest = highest.fold(0.0, f64::max);
        html! {
            div class="tw" role="region" aria-label=(self.title) tabindex="0" {
                table class="heat" {
                    thead {
                        tr {
                            th scope="col" { (self.row_head) }
                            @for column in self.columns { th scope="col" class="n" { (column) } }
                        }
                    }
                    tbody {
                        @for row in self.rows {
                            tr {
                                (row_head(row.name, row.href))
                                @for number in 0..self.columns.len() {
                                    (self.cell(row.values.get(number).copied().flatten(), highest))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl HeatMap<'_> {
    fn cell(&self, value: Option<f64>, highest: f64) -> Markup {
        let Some(value) = value.and_then(drawable) else {
            return html! { td class="n z" { "–" } };
        };
        let share = if highest > 0.0 { value / highest } else { 0.0 };
        let shade = units(share, SHADES - 1);
        html! { td class={ "n t" (shade) } { (self.unit.text(value)) } }
    }
}

fn row_head(name: &str, href: Option<&str>) -> Markup {
    html! {
        th scope="row" {
            @match href {
                Some(href) => a href=(href) { (name) },
                None => (name),
            }
        }
    }
}

/// Launches by row and column. Only the lost part is drawn, on a scale of its own: beside all
/// launches it would be too small to compare.
pub struct Board<'a> {
    pub title: &'a str,
    pub row_head: &'a str,
    pub columns: &'a [&'a str],
    pub rows: &'a [BoardRow<'a>],
}

/// A row of a board, with a cell for each column. `None`: nothing can start there.
pub struct BoardRow<'a> {
    pub name: &'a str,
    pub href: Option<&'a str>,
    pub cells: &'a [Option<BoardCell<'a>>],
}

/// The launches of one row in one column.
pub struct BoardCell<'a> {
    pub href: &'a str,
    pub n_tried: f64,
    /// Never registered.
    pub n_failed: f64,
    /// Disappeared after their registration.
    pub n_lost: f64,
    /// A word about its state, such as `shut off until 14:36`.
    pub note: &'a str,
}

impl BoardCell<'_> {
    fn share(&self) -> f64 {
        if self.n_tried > 0.0 {
            (self.n_failed + self.n_lost) / self.n_tried
        } else {
            0.0
        }
    }

    fn is_quiet(&self) -> bool {
        self.n_tried <= 0.0 && self.note.is_empty()
    }
}

impl Render for Board<'_> {
    fn render(&self) -> Markup {
        let cells = self.rows.iter().flat_map(|row| row.cells).flatten();
        let highest = cells.map(BoardCell::share).fold(0.0, f64::max);
        // Above a quarter, the number says the rest.
        let scale = [0.05, 0.1].into_iter().find(|scale| highest <= *scale);
        let scale = scale.unwrap_or(0.25);
        let is_loud = |number: &usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(*number));
            cells.flatten().any(|cell| !cell.is_quiet())
        };
        let (loud, quiet): (Vec<usize>, Vec<usize>) = (0..self.columns.len()).partition(is_loud);
        let quiet: Vec<&str> = quiet
            .into_iter()
            .map(|number| self.columns[number])
            .collect();
        html! {
            div class="tw" role="region" aria-label=(self.title) tabindex="0" {
                table class="board" {
                    thead {
                        tr {
                            th scope="col" { (self.row_head) }
                            @for number in &loud { th scope="col" { (self.columns[*number]) } }
                        }
                    }
                    tbody {
                        @for row in self.rows {
                            tr {
                                (row_head(row.name, row.href))
                                @for number in &loud {
                                    @match row.cells.get(*number) {
                                        Some(Some(cell)) => td data-l=(self.columns[*number]) {
                                            (draw_cell(cell, scale))
                                        },
                                        // A narrow page has no room for it.
                                        _ => td class="none" { span class="dim" { "–" } },
                                    }
                                }
                            }
                        }
                    }
                }
            }
            p class="dim" {
                "A full bar: " (Unit::Percent.text(scale)) " of the launches or more were lost."
                @if !quiet.is_empty() { " Without launches: " (quiet.join(", ")) "." }
            }
        }
    }
}

fn draw_cell(cell: &BoardCell<'_>, scale: f64) -> Markup {
    let of = |n: f64| {
        if cell.n_tried > 0.0 {
            n / cell.n_tried / scale
        } else {
            0.0
        }
    };
    let (failed, lost) = (of(cell.n_failed).min(1.0), of(cell.n_lost));
    let share = cell.share();
    html! {
        a class="cell" href=(cell.href) {
            span class="n" { (Unit::Count.text(cell.n_tried)) }
            svg class="bar" aria-hidden="true" {
                rect class="track" width="100%" height="100%" {}
                @if failed > 0.0 { rect class="h-fail" width=(Percent(failed)) height="100%" {} }
                @if lost > 0.0 {
                    rect class="h-lost" x=(Percent(failed)) height="100%"
                        width=(Percent(lost.min(1.0 - failed))) {}
                }
            }
            span class=(if share > scale { "bad" } else if share > 0.0 { "" } else { "z" }) {
                (Unit::Percent.text(share)) " lost"
            }
            @if !cell.note.is_empty() { span class="cn" { (cell.note) } }
        }
    }
}
