//! The screen of `top`: what it shows, and what each key does. No input and output.

use domain::time::Timestamp;
use serde_json::Value;

use super::keys::Key;
use super::parts::{Parts, PoolQuery, items};
use super::pool_rows;
use super::screen::{cut, totals_text, verdict};
use crate::output::printable;

/// Problems above the pools.
const MAX_PROBLEMS: usize = 3;
/// Longest text to search for.
const MAX_SEARCH_CHARS: usize = 60;
/// The orders: key, name, value of the query.
const ORDERS: [(char, &str, Option<&str>); 4] = [
    ('t', "trouble", None),
    ('w', "waiting", Some("waiting")),
    ('c', "cost", Some("cost")),
    ('n', "name", Some("name")),
];
const KEYS: &str = "sort: t trouble, w waiting, c cost, n name   / filter   Enter explain   q quit";

/// The request of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Draw,
    /// Read the status again.
    Read,
    /// Explain this pool.
    Explain(String),
    Quit,
}

/// The choices of the person who looks.
#[derive(Default)]
pub(super) struct Choices {
    order: usize,
    search: String,
    /// Whether keys are letters of the search.
    is_typing: bool,
    /// The pool of the cursor; `None`: the first one.
    pool: Option<String>,
    explained: Option<Explained>,
}

/// The explanation of a pool, and its first line on the screen.
struct Explained {
    pool: String,
    lines: Vec<String>,
    from: usize,
}

/// The last status, and the last error.
pub(super) struct Seen<'a> {
    pub(super) parts: Option<&'a Parts>,
    pub(super) error: Option<&'a str>,
    pub(super) now: Timestamp,
}

impl Choices {
    pub(super) fn query(&self) -> PoolQuery {
        PoolQuery {
            order: ORDERS.get(self.order).and_then(|(_, _, value)| *value),
            search: self.search.clone(),
        }
    }

    /// The pool that is explained.
    pub(super) fn explained_pool(&self) -> Option<&str> {
        self.explained.as_ref().map(|it| it.pool.as_str())
    }

    /// Shows the explanation, or its next version.
    pub(super) fn explain(&mut self, pool: &str, text: &str) {
        let from = match &self.explained {
            Some(before) if before.pool == pool => before.from,
            Some(_) | None => 0,
        };
        self.explained = Some(Explained {
            pool: pool.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            from,
        });
    }

    /// Whether the list is shown, with no search being typed.
    pub(super) fn is_list(&self) -> bool {
        !self.is_typing && self.explained.is_none()
    }

    pub(super) fn press(&mut self, key: Key, parts: Option<&Parts>, height: usize) -> Action {
        if key == Key::Interrupt {
            return Action::Quit;
        }
        if self.is_typing {
            return self.type_key(key);
        }
        if let Some(explained) = &mut self.explained {
            let page = height.saturating_sub(2).max(1);
            match key {
                Key::Escape | Key::Char('q' | 'b') | Key::Backspace => self.explained = None,
                Key::Up | Key::Char('k') => explained.scroll(1, true),
                Key::Down | Key::Char('j') => explained.scroll(1, false),
                Key::PageUp => explained.scroll(page, true),
                Key::PageDown | Key::Char(' ') => explained.scroll(page, false),
                Key::Char(_) | Key::Enter | Key::Interrupt => {}
            }
            return Action::Draw;
        }
        let pools = parts.map_or(&[][..], |parts| items(&parts.pools, "pools"));
        match key {
            Key::Char('q') | Key::Escape => return Action::Quit,
            Key::Char('/') => self.is_typing = true,
            Key::Up | Key::Char('k') => self.move_cursor(pools, 1, true),
            Key::Down | Key::Char('j') => self.move_cursor(pools, 1, false),
            Key::PageUp => self.move_cursor(pools, height, true),
            Key::PageDown => self.move_cursor(pools, height, false),
            Key::Enter => {
                let pool = pools.get(self.cursor(pools));
                if let Some(id) = pool.and_then(|pool| pool["workerPoolId"].as_str()) {
                    return Action::Explain(id.to_owned());
                }
            }
            Key::Char(letter) => {
                let order = ORDERS.iter().position(|(key, ..)| *key == letter);
                if let Some(order) = order.filter(|order| *order != self.order) {
                    self.order = order;
                    self.pool = None;
                    return Action::Read;
                }
            }
            Key::Backspace | Key::Interrupt => {}
        }
        Action::Draw
    }

    fn type_key(&mut self, key: Key) -> Action {
        match key {
            Key::Char(letter) if self.search.chars().count() < MAX_SEARCH_CHARS => {
                self.search.push(letter);
            }
            Key::Backspace => drop(self.search.pop()),
            Key::Enter => {
                self.is_typing = false;
                return Action::Draw;
            }
            Key::Escape => {
                self.is_typing = false;
                self.search.clear();
            }
            Key::Char(_) | Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Interrupt => {
                return Action::Draw;
            }
        }
        Action::Read
    }

    fn cursor(&self, pools: &[Value]) -> usize {
        let pool = self.pool.as_deref();
        let found = pools
            .iter()
            .position(|it| it["workerPoolId"].as_str() == pool);
        found.unwrap_or(0)
    }

    fn move_cursor(&mut self, pools: &[Value], by: usize, up: bool) {
        let cursor = self.cursor(pools);
        let cursor = match up {
            true => cursor.saturating_sub(by),
            false => (cursor + by).min(pools.len().saturating_sub(1)),
        };
        let pool = pools.get(cursor);
        self.pool = pool.and_then(|pool| Some(pool["workerPoolId"].as_str()?.to_owned()));
    }

    /// The lines of a screen of this size.
    pub(super) fn lines(&self, seen: &Seen<'_>, width: u16, height: usize) -> Vec<String> {
        let body = height.saturating_sub(1);
        let mut lines = match &self.explained {
            Some(explained) => explained.shown(body),
            None => self.pool_lines(seen, width, body),
        };
        lines.truncate(body);
        lines.resize(body, String::new());
        lines.push(match (seen.error, &self.explained) {
            (Some(error), _) => format!("error: {}", printable(error)),
            (None, None) if self.is_typing => format!("filter: {}_", self.search),
            (None, None) => KEYS.to_owned(),
            (None, Some(it)) => format!("explain pool {}  Up/Down: scroll  Esc: back", it.pool),
        });
        lines.iter().map(|line| cut(line, Some(width))).collect()
    }

    fn pool_lines(&self, seen: &Seen<'_>, width: u16, height: usize) -> Vec<String> {
        let Some(parts) = seen.parts else {
            return vec!["reading the status".to_owned()];
        };
        let mut lines = head(&parts.status);
        let pools = items(&parts.pools, "pools");
        let cursor = self.cursor(pools);
        let order = ORDERS.get(self.order).map_or("", |(_, name, _)| *name);
        let filter = match self.search.is_empty() {
            true => String::new(),
            false => format!(", filter {:?}", self.search),
        };
        let of_all = match parts.n_matching_pools() {
            count if count > pools.len() => format!(" of {count}"),
            _ => String::new(),
        };
        lines.push(format!("Pools by {order}{filter}: {}{of_all}", pools.len()));
        let room = height.saturating_sub(lines.len() + 1).max(1);
        // The cursor stays on the screen.
        let first = cursor.saturating_sub(room.saturating_sub(1));
        let shown = pools.iter().skip(first).take(room);
        let table = pool_rows::table(shown, Some(width.saturating_sub(2)), seen.now);
        for (number, line) in table.lines().enumerate() {
            // The first line has the titles.
            let is_chosen = number > 0 && first + number - 1 == cursor;
            let mark = if is_chosen { "> " } else { "  " };
            lines.push(format!("{mark}{line}"));
        }
        lines
    }
}

/// The verdict, the worst problems and the totals.
fn head(status: &Value) -> Vec<String> {
    let mut lines: Vec<String> = verdict(status).lines().map(str::to_owned).collect();
    for problem in items(status, "problems").iter().take(MAX_PROBLEMS) {
        let word = |key: &str| printable(problem[key].as_str().unwrap_or_default());
        lines.push(format!(
            "{}: {}",
            word("severity").to_uppercase(),
            word("reason")
        ));
    }
    lines.extend(totals_text(status).lines().map(str::to_owned));
    lines
}

impl Explained {
    fn scroll(&mut self, by: usize, up: bool) {
        self.from = match up {
            true => self.from.saturating_sub(by),
            false => (self.from + by).min(self.lines.len().saturating_sub(1)),
        };
    }

    fn shown(&self, height: usize) -> Vec<String> {
        let lines = self.lines.iter().skip(self.from).take(height);
        lines.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn parts(n_pools: usize, n_problems: usize) -> Parts {
        let problem = json!({"severity": "ill", "reason": "4 tasks wait in a/p0: quota"});
        let mut parts = Parts::of(json!({
            "ill": n_problems, "warned": 0, "problems": vec![problem; n_problems],
            "totals": {"waiting": 4, "requested": 1, "booting": 2, "idle": 0, "busy": 7,
                "leaving": 0},
            "pools": {"all": n_pools, "ill": 0, "warned": 0, "waiting": 1, "quiet": 0},
        }));
        let pool = |number: usize| {
            json!({"workerPoolId": format!("a/p{number}"), "waiting": 4, "requested": 1,
                "booting": 2, "idle": 0, "busy": 7, "leaving": 0, "maximum": 12, "errors": 0,
                "trouble": [], "wait": {"cause": "quota"}})
        };
        parts.pools = json!({"pools": (0..n_pools).map(pool).collect::<Vec<_>>()});
        parts
    }

    fn screen(choices: &Choices, parts: &Parts, height: usize) -> String {
        let seen = Seen {
            parts: Some(parts),
            error: None,
            now: Timestamp::from_millis(0),
        };
        let lines = choices.lines(&seen, 80, height);
        assert_eq!(lines.len(), height);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{lines:#?}"
        );
        lines.join("\n")
    }

    #[test]
    fn the_pools_are_listed_and_one_is_chosen_with_keys() {
        let (parts, mut choices) = (parts(9, 1), Choices::default());
        insta::assert_snapshot!(screen(&choices, &parts, 10), @r"
        1 problem is ill.
        ILL: 4 tasks wait in a/p0: quota
        Waiting 4; capacity: 3 starting, 7 busy, 0 idle, 0 leaving
        Pools 9: 0 ill, 0 with warnings, 1 with waiting tasks, 0 quiet
        Pools by trouble: 9
          POOL  WAITING  STARTING  BUSY  IDLE  MAX  NOTES
        > a/p0        4         3     7     0   12  quota
          a/p1        4         3     7     0   12  quota
          a/p2        4         3     7     0   12  quota
        sort: t trouble, w waiting, c cost, n name   / filter   Enter explain   q quit
        ");
        let mut press = |key| choices.press(key, Some(&parts), 10);
        for key in [Key::Down, Key::Char('j'), Key::Down, Key::Up, Key::Down] {
            assert_eq!(press(key), Action::Draw);
        }
        assert_eq!(press(Key::Enter), Action::Explain("a/p3".to_owned()));
        // The chosen pool stays on the screen.
        assert!(screen(&choices, &parts, 10).contains("> a/p3"));
        let mut press = |key| choices.press(key, Some(&parts), 10);
        press(Key::PageDown);
        assert_eq!(press(Key::Enter), Action::Explain("a/p8".to_owned()));
        press(Key::PageUp);
        assert_eq!(press(Key::Enter), Action::Explain("a/p0".to_owned()));
        assert_eq!(press(Key::Char('q')), Action::Quit);
    }

    #[test]
    fn keys_sort_and_filter() {
        let mut choices = Choices::default();
        assert_eq!(choices.query(), PoolQuery::default());
        assert_eq!(choices.press(Key::Char('c'), None, 9), Action::Read);
        assert_eq!(choices.query().order, Some("cost"));
        assert_eq!(choices.press(Key::Char('c'), None, 9), Action::Draw);
        assert_eq!(choices.press(Key::Char('/'), None, 9), Action::Draw);
        for letter in ['q', 'w', 'x'] {
            assert_eq!(choices.press(Key::Char(letter), None, 9), Action::Read);
        }
        choices.press(Key::Backspace, None, 9);
        assert_eq!(choices.query().search, "qw");
        let seen = Seen {
            parts: None,
            error: None,
            now: Timestamp::from_millis(0),
        };
        assert_eq!(choices.lines(&seen, 80, 2)[1], "filter: qw_");
        assert_eq!(choices.press(Key::Enter, None, 9), Action::Draw);
        assert_eq!(choices.query().search, "qw");
        choices.press(Key::Char('/'), None, 9);
        assert_eq!(choices.press(Key::Escape, None, 9), Action::Read);
        assert_eq!(choices.query().search, "");
        assert_eq!(choices.press(Key::Interrupt, None, 9), Action::Quit);
    }

    #[test]
    fn an_explanation_scrolls_and_leads_back() {
        let mut choices = Choices::default();
        choices.explain("a/b", "one\ntwo\nthree\nfour\n");
        let seen = Seen {
            parts: None,
            error: Some("the server is away"),
            now: Timestamp::from_millis(0),
        };
        assert_eq!(
            choices.lines(&seen, 80, 3),
            ["one", "two", "error: the server is away"]
        );
        choices.press(Key::Down, None, 3);
        // Its next version stays where it was.
        choices.explain("a/b", "one\nTWO\nthree\nfour\n");
        assert_eq!(choices.lines(&seen, 80, 3)[0], "TWO");
        choices.press(Key::PageDown, None, 30);
        assert_eq!(choices.lines(&seen, 80, 3)[0], "four");
        assert_eq!(choices.explained_pool(), Some("a/b"));
        assert_eq!(choices.press(Key::Escape, None, 3), Action::Draw);
        assert_eq!(choices.explained_pool(), None);
    }

    #[test]
    fn few_problems_stand_above_the_pools() {
        for count in sizes_around("fleetwright::commands::status::top_screen::MAX_PROBLEMS", 3) {
            let parts = parts(1, count);
            let text = screen(&Choices::default(), &parts, 24);
            assert_eq!(
                text.matches("ILL: ").count(),
                count.min(MAX_PROBLEMS),
                "{text}"
            );
        }
    }
}
