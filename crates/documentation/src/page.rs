//! Documentation as one page of HTML, without scripts and without resources except images.
//!
//! HTML of authors is shown as text. Links lead to the web or to a heading of this page; other
//! links become their text.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, LinkType, Parser, Tag, TagEnd, html::write_html_fmt,
};

use super::join::GENERAL_HEADER;
use super::links::{Destination, decoded, image_type};
use super::path::resolved;
use super::refusal::Refusal;
use super::sheet::{Names, Sheet, cut, options, page_meant, sheets, slug};
use super::tree::Tree;
use super::{MAX_IMAGES_BYTES, MAX_PAGE_BYTES};

/// The page's only style; the server allows it by its digest.
pub const STYLE: &str = include_str!("page.css");

/// A page of two trees needs room for both, and for longer anchors.
const MAX_JOINED_BYTES: usize = 4 * MAX_PAGE_BYTES;
/// Prefix of the anchors of a configuration's pages after those of a worker type.
const GENERAL: &str = "general-";

/// The page of a worker type, of a configuration, or of both. `name` is the documented object.
pub fn page(
    name: &str,
    worker_type: Option<&Tree>,
    configuration: Option<&Tree>,
) -> Result<String, Refusal> {
    render(name, worker_type, configuration, MAX_JOINED_BYTES)
}

/// All texts one after another, for a terminal.
pub fn text(tree: &Tree) -> String {
    let mut text = String::new();
    for sheet in sheets(tree) {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        if !sheet.has_title {
            text.push_str(&format!("# {}\n\n", sheet.title));
        }
        text.push_str(sheet.body.trim());
    }
    text.push('\n');
    text
}

impl Tree {
    /// The title of the documentation: that of its first page.
    pub fn title(&self) -> String {
        let project = self.metadata().project;
        let first = || sheets(self).into_iter().next().map(|sheet| sheet.title);
        let title = project.or_else(first).unwrap_or_default();
        cut(&title)
    }
}

pub(super) fn check(tree: &Tree) -> Result<(), Refusal> {
    render("", None, Some(tree), MAX_PAGE_BYTES).map(drop)
}

fn render(
    name: &str,
    worker_type: Option<&Tree>,
    configuration: Option<&Tree>,
    limit: usize,
) -> Result<String, Refusal> {
    let are_both = worker_type.is_some() && configuration.is_some();
    let mut names = Names::default();
    let mut parts = Vec::new();
    parts.extend(worker_type.map(|tree| Part::new(tree, "", &mut names)));
    let prefix = if are_both { GENERAL } else { "" };
    parts.extend(configuration.map(|tree| Part::new(tree, prefix, &mut names)));
    let mut out = Bounded {
        text: String::new(),
        limit,
    };
    document(&mut out, name, &parts).map_err(|_| Refusal::PageTooLarge)?;
    Ok(out.text)
}

/// One tree of a page.
struct Part<'a> {
    tree: &'a Tree,
    sheets: Vec<Sheet<'a>>,
    /// The anchor of each page, by its path.
    sections: BTreeMap<&'a str, String>,
}

/// Text up to a limit.
struct Bounded {
    text: String,
    limit: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.limit {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

impl<'a> Part<'a> {
    fn new(tree: &'a Tree, prefix: &str, names: &mut Names) -> Self {
        let sheets = sheets(tree);
        let sections = sheets
            .iter()
            .map(|sheet| {
                let path = sheet
                    .path
                    .rsplit_once('.')
                    .map_or(sheet.path, |(stem, _)| stem);
                (sheet.path, names.take(format!("{prefix}{}", slug(path))))
            })
            .collect();
        Self {
            tree,
            sheets,
            sections,
        }
    }

    fn section(&self, path: &str) -> &str {
        self.sections.get(path).map_or("", String::as_str)
    }

    /// The anchor on this page for a reference on a page of the tree.
    fn anchor(&self, from: &str, path: &str, fragment: Option<&str>) -> Option<String> {
        let page = page_meant(self.tree, from, &decoded(path)?)?;
        let section = self.section(&page);
        let heading = fragment.and_then(decoded).filter(|fragment| {
            let meant = self.sheets.iter().find(|sheet| sheet.path == page);
            meant.is_some_and(|sheet| sheet.anchors.contains(fragment))
        });
        Some(match heading {
            Some(heading) => heading_anchor(section, &heading),
            None => section.to_owned(),
        })
    }
}

/// No section has two dashes in a row, so headings of different sections never share an anchor.
fn heading_anchor(section: &str, heading: &str) -> String {
    format!("{section}--{heading}")
}

fn document(out: &mut Bounded, name: &str, parts: &[Part<'_>]) -> fmt::Result {
    out.write_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
    out.write_str("<meta name=\"viewport\" content=\"width=device-width\">\n<title>")?;
    escape(out, name)?;
    write!(
        out,
        "</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<nav>\n"
    )?;
    for part in parts {
        out.write_str("<ul>\n")?;
        for sheet in &part.sheets {
            write!(out, "<li><a href=\"#{}\">", part.section(sheet.path))?;
            escape(out, &sheet.title)?;
            out.write_str("</a></li>\n")?;
        }
        out.write_str("</ul>\n")?;
    }
    out.write_str("</nav>\n<main>\n")?;
    let mut images_left = MAX_IMAGES_BYTES;
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            writeln!(
                out,
                "<h1 class=\"general\" id=\"general\">{GENERAL_HEADER}</h1>"
            )?;
        }
        for sheet in &part.sheets {
            section(out, part, sheet, &mut images_left)?;
        }
    }
    out.write_str("</main>\n</body>\n</html>\n")
}

fn section(
    out: &mut Bounded,
    part: &Part<'_>,
    sheet: &Sheet<'_>,
    images_left: &mut usize,
) -> fmt::Result {
    writeln!(out, "<section id=\"{}\">", part.section(sheet.path))?;
    if !sheet.has_title {
        out.write_str("<h1>")?;
        escape(out, &sheet.title)?;
        out.write_str("</h1>\n")?;
    }
    let events = Harmless {
        events: Parser::new_ext(sheet.body, options()),
        part,
        sheet,
        n_headings: 0,
        images_left,
        open: Vec::new(),
        html: None,
        ready: VecDeque::new(),
    };
    write_html_fmt(&mut *out, events)?;
    out.write_str("</section>\n")
}

fn escape(out: &mut Bounded, text: &str) -> fmt::Result {
    text.chars().try_for_each(|character| match character {
        '&' => out.write_str("&amp;"),
        '<' => out.write_str("&lt;"),
        '>' => out.write_str("&gt;"),
        '"' => out.write_str("&quot;"),
        '\'' => out.write_str("&#39;"),
        other => out.write_char(other),
    })
}

/// The events of a page, without those that could do harm.
struct Harmless<'a, 'p> {
    events: Parser<'a>,
    part: &'p Part<'a>,
    sheet: &'p Sheet<'a>,
    n_headings: usize,
    images_left: &'p mut usize,
    /// For each open link and image, whether it is kept.
    open: Vec<bool>,
    /// HTML of the author that is being collected.
    html: Option<String>,
    ready: VecDeque<Event<'a>>,
}

impl<'a> Iterator for Harmless<'a, '_> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.events.next()?;
            if let Some(event) = self.harmless(event) {
                return Some(event);
            }
        }
    }
}

impl<'a> Harmless<'a, '_> {
    fn harmless(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        match event {
            Event::Start(Tag::HtmlBlock) => {
                self.html = Some(String::new());
                None
            }
            Event::End(TagEnd::HtmlBlock) => {
                self.show_html();
                None
            }
            Event::Html(html) => match &mut self.html {
                Some(block) => {
                    block.push_str(&html);
                    None
                }
                None => Some(Event::Text(html)),
            },
            // Every part of an HTML block is the author's.
            Event::Text(text) if self.html.is_some() => {
                self.html.get_or_insert_default().push_str(&text);
                None
            }
            Event::InlineHtml(html) => inline(html),
            Event::Start(Tag::Heading { level, .. }) => Some(Event::Start(Tag::Heading {
                level,
                id: self.next_anchor(),
                classes: Vec::new(),
                attrs: Vec::new(),
            })),
            Event::Start(tag @ Tag::Link { .. }) => {
                let kept = self.link(tag);
                self.open.push(kept.is_some());
                kept.map(Event::Start)
            }
            Event::Start(tag @ Tag::Image { .. }) => {
                let kept = self.image(tag);
                self.open.push(kept.is_some());
                kept.map(Event::Start)
            }
            Event::End(end @ (TagEnd::Link | TagEnd::Image)) => {
                let is_kept = self.open.pop().unwrap_or(false);
                is_kept.then_some(Event::End(end))
            }
            plain @ (Event::Start(_)
            | Event::End(_)
            | Event::Text(_)
            | Event::Code(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_)) => Some(plain),
            // These are not among our options.
            Event::InlineMath(_) | Event::DisplayMath(_) | Event::FootnoteReference(_) => None,
        }
    }

    /// Shows an HTML block as text; comments are removed.
    fn show_html(&mut self) {
        let Some(html) = self.html.take().filter(|html| !is_comment(html)) else {
            return;
        };
        let block = CodeBlockKind::Indented;
        self.ready.extend([
            Event::Start(Tag::CodeBlock(block)),
            Event::Text(html.into()),
            Event::End(TagEnd::CodeBlock),
        ]);
    }

    fn next_anchor(&mut self) -> Option<CowStr<'a>> {
        let anchor = self.sheet.anchors.get(self.n_headings)?;
        self.n_headings += 1;
        let section = self.part.section(self.sheet.path);
        Some(heading_anchor(section, anchor).into())
    }

    fn link(&self, mut tag: Tag<'a>) -> Option<Tag<'a>> {
        // An e-mail address in angle brackets gets the prefix `mailto:`, and stays.
        if let Tag::Link {
            link_type,
            dest_url,
            ..
        } = &mut tag
            && *link_type != LinkType::Email
        {
            match Destination::of(dest_url) {
                Destination::Web => {}
                Destination::Inside { path, fragment } => {
                    let anchor = self.part.anchor(self.sheet.path, path, fragment)?;
                    *dest_url = format!("#{anchor}").into();
                }
                Destination::Data | Destination::Refused => return None,
            }
        }
        Some(tag)
    }

    fn image(&mut self, mut tag: Tag<'a>) -> Option<Tag<'a>> {
        if let Tag::Image { dest_url, .. } = &mut tag {
            match Destination::of(dest_url) {
                Destination::Inside { path, .. } => *dest_url = self.own_image(path)?.into(),
                other if other.is_image(dest_url) => {}
                Destination::Web | Destination::Data | Destination::Refused => return None,
            }
        }
        Some(tag)
    }

    /// An image of the tree as a data URL, while the limit allows it.
    fn own_image(&mut self, reference: &str) -> Option<String> {
        let path = resolved(self.sheet.path, &decoded(reference)?)?;
        let kind = image_type(&path)?;
        let content = self.part.tree.files.get(&path)?;
        *self.images_left = self.images_left.checked_sub(content.len())?;
        Some(format!("data:{kind};base64,{}", STANDARD.encode(content)))
    }
}

fn inline(html: CowStr<'_>) -> Option<Event<'_>> {
    match html.as_ref() {
        "<br>" | "<br/>" | "<br />" => Some(Event::HardBreak),
        html if is_comment(html) => None,
        _ => Some(Event::Text(html)),
    }
}

fn is_comment(html: &str) -> bool {
    let inner = html.trim().strip_prefix("<!--");
    inner.is_some_and(|inner| inner.find("-->") == inner.len().checked_sub(3))
}

#[cfg(test)]
mod tests;
