//! Lets the relative links of a text lead elsewhere, and leaves everything else as it was written.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Parser, Tag};

use super::links::{Destination, decoded};
use super::path::resolved;
use super::sheet::options;
use super::tree::Tree;

/// `moved` says how the text refers to a file from now on.
pub(super) fn relink(
    tree: &Tree,
    page: &str,
    text: &str,
    moved: impl Fn(&str) -> String,
) -> String {
    let new = |url: &str| {
        let Destination::Inside { path, fragment } = Destination::of(url) else {
            return None;
        };
        if path.is_empty() {
            return None;
        }
        let target = resolved(page, &decoded(path)?)?;
        // What means no file is left alone.
        tree.files.contains_key(&target).then_some(())?;
        let fragment = fragment.map(|text| format!("#{text}")).unwrap_or_default();
        Some(format!("{}{fragment}", moved(&target).replace(' ', "%20")))
    };
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let parser = Parser::new_ext(text, options());
    for (_, definition) in parser.reference_definitions().iter() {
        let found = place(text, &definition.span, "]:", &definition.dest);
        edits.extend(found.zip(new(&definition.dest)));
    }
    for (event, range) in parser.into_offset_iter() {
        let Event::Start(
            Tag::Link {
                link_type: LinkType::Inline,
                dest_url,
                ..
            }
            | Tag::Image {
                link_type: LinkType::Inline,
                dest_url,
                ..
            },
        ) = event
        else {
            continue;
        };
        let found = place(text, &range, "](", &dest_url);
        edits.extend(found.zip(new(&dest_url)));
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut done = String::new();
    let mut at = 0;
    for (range, url) in edits {
        // One that contains another, as a link around an image does, is behind it.
        if range.start >= at {
            done.push_str(&text[at..range.start]);
            done.push_str(&url);
            at = range.end;
        }
    }
    done.push_str(&text[at..]);
    done
}

/// Where in the source of a link its destination stands: behind the last bracket that is followed by it. One that is
/// written with escapes is not found, and stays.
fn place(text: &str, range: &Range<usize>, bracket: &str, url: &str) -> Option<Range<usize>> {
    let source = text.get(range.clone())?;
    source.rmatch_indices(bracket).find_map(|(at, _)| {
        let behind = &source[at + bracket.len()..];
        let written = behind.trim_start().trim_start_matches('<');
        let start = range.start + source.len() - written.len();
        written.starts_with(url).then(|| start..start + url.len())
    })
}
