//! A page before it is HTML: a title, and sections that change while somebody looks.

use domain::time::Timestamp;
use maud::Markup;

use crate::api::{Api, Refusal};

/// A request for a page, by a person.
pub struct Visit<'a> {
    pub api: &'a dyn Api,
    /// The segments of the path, decoded.
    pub path: Vec<String>,
    pub query: Vec<(String, String)>,
    pub now: Timestamp,
    pub person: Option<Person>,
    /// The page is opened: what was known some seconds ago will do, because it hears of changes.
    pub is_opened: bool,
}

/// The person who looks.
#[derive(Clone, Debug)]
pub struct Person {
    pub client_id: String,
    /// Proves that a form comes from a page of this person's session.
    pub form_token: String,
}

/// A page.
pub struct View {
    /// Empty for the start page.
    pub title: String,
    /// Things that are wrong now: the title begins with their number.
    pub n_ill: u64,
    /// The part of the site that it belongs to.
    pub part: Part,
    pub sections: Vec<Section>,
    /// The command that shows the same.
    pub command: String,
    /// The events after which it is made again at once.
    pub listens: Listens,
}

/// A part of a page that is replaced when it changes.
pub struct Section {
    pub id: &'static str,
    pub content: Markup,
}

/// Which events change a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listens {
    All,
    Pool(String),
    Task(String),
    Worker {
        pool: String,
        id: String,
    },
    /// The page shows the past, or is a form: nothing moves under the hands of the person.
    Nothing,
    /// Something that the page shows is on its way, without events.
    Soon,
    /// The page never changes again: it is not even made again after some time.
    Never,
}

/// The parts of the site, in the order of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Overview,
    Waiting,
    Workers,
    Health,
    Errors,
    Images,
    Rules,
    Money,
    Providers,
    Events,
    /// Pages that the menu does not name.
    Other,
}

/// Why there is no page.
#[derive(Debug)]
pub enum Problem {
    NotFound,
    Refused(Refusal),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal.is_missing() {
            true => Self::NotFound,
            false => Self::Refused(refusal),
        }
    }
}

pub(crate) type Shown = Result<View, Problem>;

impl Part {
    pub(crate) const MENU: [Self; 10] = [
        Self::Overview,
        Self::Waiting,
        Self::Workers,
        Self::Health,
        Self::Errors,
        Self::Images,
        Self::Rules,
        Self::Money,
        Self::Providers,
        Self::Events,
    ];

    /// The address, the name, and the key after `g` that leads there.
    pub(crate) fn link(self) -> (&'static str, &'static str, char) {
        match self {
            Self::Overview | Self::Other => ("/", "Pools", 'p'),
            Self::Waiting => ("/waiting", "Waiting", 'q'),
            Self::Workers => ("/workers", "Workers", 'w'),
            Self::Health => ("/health", "Health", 'h'),
            Self::Errors => ("/errors", "Errors", 'e'),
            Self::Images => ("/images", "Images", 'i'),
            Self::Rules => ("/rules", "Rules", 'r'),
            Self::Money => ("/money", "Money", 'm'),
            Self::Providers => ("/providers", "Providers", 'c'),
            Self::Events => ("/events", "Events", 'v'),
        }
    }
}

impl View {
    pub(crate) fn new(part: Part, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            n_ill: 0,
            part,
            sections: Vec::new(),
            command: String::new(),
            listens: Listens::All,
        }
    }

    #[must_use]
    pub(crate) fn ill(mut self, n_ill: u64) -> Self {
        self.n_ill = n_ill;
        self
    }

    /// The title of the window, which says when something is wrong.
    pub(crate) fn window_title(&self) -> String {
        let ill = match self.n_ill {
            0 => String::new(),
            n_ill => format!("▲ {n_ill} · "),
        };
        match self.title.as_str() {
            "" => format!("{ill}Fleetwright"),
            title => format!("{ill}{title} · Fleetwright"),
        }
    }

    #[must_use]
    pub(crate) fn section(mut self, id: &'static str, content: Markup) -> Self {
        self.sections.push(Section { id, content });
        self
    }

    #[must_use]
    pub(crate) fn command(mut self, command: impl Into<String>) -> Self {
        self.command = command.into();
        self
    }

    #[must_use]
    pub(crate) fn listens(mut self, listens: Listens) -> Self {
        self.listens = listens;
        self
    }
}

impl Visit<'_> {
    /// A parameter of the address; empty if it is missing.
    pub(crate) fn query(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// This page's address with another value of a parameter.
    pub(crate) fn with(&self, name: &str, value: &str) -> String {
        let names: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let path = match names.split_first() {
            Some((kind, names)) => crate::links::to(kind, names),
            None => "/".to_owned(),
        };
        // A page of a list belongs to its old filter.
        let kept: Vec<_> = self
            .query
            .iter()
            .filter(|(known, _)| name == "after" || known != "after")
            .cloned()
            .collect();
        crate::links::with(&path, &kept, name, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_of_the_window_says_what_is_wrong() {
        let titles = [("", 0), ("", 2), ("Health", 3)].map(|(title, n_ill)| {
            let view = View::new(Part::Other, title);
            view.ill(n_ill).window_title()
        });
        let wanted = [
            "Fleetwright",
            "▲ 2 · Fleetwright",
            "▲ 3 · Health · Fleetwright",
        ];
        assert_eq!(titles, wanted);
    }
}
