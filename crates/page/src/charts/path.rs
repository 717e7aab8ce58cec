//! Paths of SVG in steps, with relative whole numbers: few bytes.

use maud::{PreEscaped, Render};

use crate::numbers::digits;

/// The width of the stretched drawing of a chart, in its own units.
pub(super) const WIDTH: i32 = 2_000;
/// The height of the stretched drawing of a chart, in its own units.
pub(super) const HEIGHT: i32 = 500;

/// A share of a length, in units of a drawing.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a share of 0 to 1 of a small length"
)]
pub(super) fn units(share: f64, length: i32) -> i32 {
    (share.clamp(0.0, 1.0) * f64::from(length)).round() as i32
}

/// The distance from the top for a share from the bottom.
pub(super) fn from_top(share: f64, height: i32) -> i32 {
    height - units(share, height)
}

/// A piece of a chart: the value from one place to the next. `None`: nothing was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from: i32,
    pub(super) to: i32,
    pub(super) y: Option<i32>,
}

/// The line over the steps, with a gap where nothing was recorded.
pub(super) fn line(steps: impl Iterator<Item = Step>) -> String {
    draw(steps, None)
}

/// The area between the steps and the base.
pub(super) fn area(steps: impl Iterator<Item = Step>, base: i32) -> String {
    draw(steps, Some(base))
}

fn draw(steps: impl Iterator<Item = Step>, base: Option<i32>) -> String {
    let mut path = String::new();
    let mut open: Option<Step> = None;
    for step in steps.filter(|step| step.to > step.from) {
        let Some(y) = step.y else {
            end(&mut path, open.take(), base);
            continue;
        };
        match &mut open {
            Some(piece) if piece.to == step.from => {
                if piece.y != Some(y) {
                    push(&mut path, 'h', piece.to - piece.from);
                    push(&mut path, 'v', y - piece.y.unwrap_or(y));
                    piece.from = step.from;
                    piece.y = Some(y);
                }
                piece.to = step.to;
            }
            _ => {
                end(&mut path, open.take(), base);
                push(&mut path, 'M', step.from);
                push(&mut path, ' ', base.unwrap_or(y));
                if base.is_some() {
                    push(&mut path, 'V', y);
                }
                open = Some(step);
            }
        }
    }
    end(&mut path, open, base);
    path
}

fn end(path: &mut String, open: Option<Step>, base: Option<i32>) {
    if let Some(piece) = open {
        push(path, 'h', piece.to - piece.from);
        if let Some(base) = base {
            push(path, 'V', base);
            path.push('z');
        }
    }
}

/// Short vertical lines.
pub(super) fn ticks(places: impl Iterator<Item = i32>, from: i32, length: i32) -> String {
    let mut path = String::new();
    let mut last = None;
    for place in places {
        if last != Some(place) {
            push(&mut path, 'M', place);
            push(&mut path, ' ', from);
            push(&mut path, 'v', length);
        }
        last = Some(place);
    }
    path
}

/// A command with its number. Thousands of paths stand on a page, and the standard library's
/// formatting would take most of their time.
fn push(path: &mut String, command: char, number: i32) {
    path.push(command);
    if number < 0 {
        path.push('-');
    }
    let number = number.unsigned_abs();
    let mut size = 1;
    while number / size >= 10 {
        size *= 10;
    }
    while size > 0 {
        path.push(char::from_digit(number / size % 10, 10).unwrap_or('0'));
        size /= 10;
    }
}

/// A share as `12.34%`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Percent(pub(super) f64);

impl Render for Percent {
    fn render_to(&self, buffer: &mut String) {
        let share = self.0.clamp(0.0, 1.0);
        buffer.push_str(&digits(share * 100.0, 2));
        buffer.push('%');
    }
}

/// A length in pixels with at most one decimal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels(pub(super) f64);

impl Render for Pixels {
    fn render_to(&self, buffer: &mut String) {
        // Not the sign of texts, which is no ASCII character.
        let text = digits(self.0.max(0.0), 1);
        PreEscaped(text).render_to(buffer);
    }
}
