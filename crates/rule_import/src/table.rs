//! A fleet as tables: for each value of each pool and launch config, which rows need it, and what tells rows apart.
//!
//! One table is about pools, and one for each section about the launch configs in it. A column is what a condition can
//! ask for; it knows the rows' values as numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::leaves::{above, leaves};

/// What a column is about; the order is the one in which rules that ask for it come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    Provider,
    /// By its place among the names of conditions.
    Condition(usize, &'static str),
    /// The worker types of one provisioner: `proj-x/*`.
    Provisioner,
    /// Those that are called the same in different ones: `*/ci`.
    Name,
    WorkerType,
}

#[derive(Debug)]
pub(super) struct Column {
    pub(super) ask: Ask,
    /// In their order; a row's value is a place in it.
    pub(super) values: Vec<String>,
    pub(super) of_rows: Vec<Option<u32>>,
}

/// What a row needs of the value at one pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Need {
    Value(u32),
    /// Nothing may be there in the end; a deletion can see to that.
    Absent,
    /// Only the widest rule may put something here: a deletion of what it is in follows.
    OnlyWidest,
    /// No rule may put or delete anything here.
    Nothing,
    /// It does not matter.
    Any,
}

/// A pointer, or several with the same needs.
#[derive(Debug)]
pub(super) struct Want {
    pub(super) needs: Vec<Need>,
    pub(super) pointers: Vec<Pointer>,
}

#[derive(Debug)]
pub(super) struct Pointer {
    pub(super) path: String,
    /// What the numbers in the needs stand for. `None` is a deletion.
    pub(super) values: Vec<Option<Value>>,
}

#[derive(Debug)]
pub(super) struct Table {
    /// Under which name its values stand; none for what pools are.
    pub(super) section: Option<String>,
    pub(super) n_rows: usize,
    pub(super) columns: Vec<Column>,
    /// Of which no row is different; there is nothing to ask then.
    pub(super) constants: Vec<Column>,
    pub(super) wants: Vec<Want>,
}

/// A row before there is a table: what it presents, by column, and what it should be.
pub(super) struct Row {
    pub(super) presented: BTreeMap<Ask, String>,
    pub(super) document: Map<String, Value>,
}

impl Table {
    pub(super) fn new(section: Option<String>, rows: &[Row]) -> Result<Self, String> {
        let asks: BTreeSet<&Ask> = rows.iter().flat_map(|row| row.presented.keys()).collect();
        let columns = asks.into_iter().map(|ask| Column::new(ask, rows));
        let (columns, constants) = columns.partition(Column::tells_something);
        Ok(Self {
            section,
            n_rows: rows.len(),
            columns,
            constants,
            wants: wants(rows)?,
        })
    }
}

impl Column {
    fn new(ask: &Ask, rows: &[Row]) -> Self {
        let presented = rows.iter().map(|row| row.presented.get(ask));
        let values: BTreeSet<&String> = presented.clone().flatten().collect();
        let number: HashMap<&String, u32> = values.iter().copied().zip(0..).collect();
        Self {
            ask: ask.clone(),
            of_rows: presented.map(|value| Some(number[value?])).collect(),
            values: values.into_iter().cloned().collect(),
        }
    }

    fn tells_something(&self) -> bool {
        self.ask == Ask::WorkerType || self.values.len() > 1 || self.of_rows.contains(&None)
    }
}

/// Something that a row has at a pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    Nothing,
    Object,
    Leaf,
}

/// Where the rows have something: objects and leaves.
struct Tree<'a> {
    n_rows: usize,
    rows: HashMap<&'a str, Vec<There>>,
}

impl<'a> Tree<'a> {
    fn new(leaves: &'a [Vec<(String, &'a Value)>]) -> Self {
        let mut tree = Self {
            n_rows: leaves.len(),
            rows: HashMap::new(),
        };
        for (row, leaves) in leaves.iter().enumerate() {
            for (pointer, value) in leaves {
                for object in above(pointer) {
                    tree.set(object, row, There::Object);
                }
                let there = if value.is_object() {
                    There::Object
                } else {
                    There::Leaf
                };
                tree.set(pointer, row, there);
            }
        }
        tree
    }

    fn set(&mut self, pointer: &'a str, row: usize, there: There) {
        let n_rows = self.n_rows;
        let rows = self
            .rows
            .entry(pointer)
            .or_insert_with(|| vec![There::Nothing; n_rows]);
        rows[row] = there;
    }

    fn at(&self, pointer: &str, row: usize) -> There {
        match pointer {
            "" => There::Object,
            pointer => self
                .rows
                .get(pointer)
                .map_or(There::Nothing, |rows| rows[row]),
        }
    }

    /// Objects that most rows have, but not all that have what they are in: these are best deleted where
    /// they are not wanted.
    fn exceptionally_missing(&self) -> BTreeSet<&'a str> {
        let is_one = |pointer: &str, rows: &Vec<There>| {
            let inside = rows.iter().filter(|there| **there == There::Object).count();
            let possible = (0..self.n_rows)
                .filter(|row| self.at(parent(pointer), *row) == There::Object)
                .count();
            !rows.contains(&There::Leaf) && inside < possible && inside * 2 > possible
        };
        let found = self
            .rows
            .iter()
            .filter(|(pointer, rows)| is_one(pointer, rows));
        found.map(|(pointer, _)| *pointer).collect()
    }

    /// What a row needs at a pointer where it has no leaf.
    fn without_leaf(&self, pointer: &str, row: usize, deletable: &BTreeSet<&str>) -> Need {
        let mut inside = "";
        for object in above(pointer).chain([pointer]) {
            match self.at(object, row) {
                There::Object => inside = object,
                There::Leaf => return Need::Nothing,
                There::Nothing if object == pointer => return Need::Absent,
                There::Nothing if deletable.contains(object) => return Need::OnlyWidest,
                There::Nothing => return Need::Nothing,
            }
        }
        debug_assert_eq!(inside, pointer, "what is in objects only is one");
        Need::Any
    }
}

fn parent(pointer: &str) -> &str {
    pointer.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn wants(rows: &[Row]) -> Result<Vec<Want>, String> {
    let leaves: Vec<_> = rows
        .iter()
        .map(|row| leaves(&row.document))
        .collect::<Result<_, _>>()?;
    let tree = Tree::new(&leaves);
    let deletable = tree.exceptionally_missing();
    let mut by_pointer: BTreeMap<&str, Vec<(usize, &Value)>> = BTreeMap::new();
    for (row, leaves) in leaves.iter().enumerate() {
        for (pointer, value) in leaves {
            by_pointer.entry(pointer).or_default().push((row, value));
        }
    }
    let mut wants: BTreeMap<Vec<u64>, Want> = BTreeMap::new();
    let mut add = |needs: Vec<Need>, pointer: Pointer| {
        let key = needs.iter().map(|need| need.code()).collect();
        let want = wants.entry(key).or_insert_with(|| Want {
            needs,
            pointers: Vec::new(),
        });
        want.pointers.push(pointer);
    };
    for (pointer, leaves) in &by_pointer {
        let (needs, pointer) = of_leaf(pointer, leaves, &tree, &deletable);
        add(needs, pointer);
    }
    for pointer in &deletable {
        let missing = |row| match (tree.at(pointer, row), tree.at(parent(pointer), row)) {
            (There::Nothing, There::Object) => Need::Value(0),
            _ => Need::Nothing,
        };
        let pointer = Pointer {
            path: (*pointer).to_owned(),
            values: vec![None],
        };
        add((0..rows.len()).map(missing).collect(), pointer);
    }
    Ok(wants.into_values().collect())
}

fn of_leaf(
    pointer: &str,
    leaves: &[(usize, &Value)],
    tree: &Tree<'_>,
    deletable: &BTreeSet<&str>,
) -> (Vec<Need>, Pointer) {
    let mut needs: Vec<Need> = (0..tree.n_rows)
        .map(|row| tree.without_leaf(pointer, row, deletable))
        .collect();
    let mut values: Vec<Option<Value>> = Vec::new();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let is_object = leaves.iter().any(|(_, value)| value.is_object());
    let only_objects = leaves.iter().all(|(_, value)| value.is_object());
    for need in &mut needs {
        // A deletion, or a text, would take more than this leaf from the rows that have more there.
        let loses = is_object && *need == Need::Absent || !only_objects && *need == Need::Any;
        if loses {
            *need = Need::Nothing;
        }
    }
    for (row, value) in leaves {
        let number = *numbers.entry(value.to_string()).or_insert_with(|| {
            values.push(Some((*value).clone()));
            u32::try_from(values.len() - 1).expect("no more values than rows, which are counted so")
        });
        needs[*row] = Need::Value(number);
    }
    let pointer = Pointer {
        path: pointer.to_owned(),
        values,
    };
    (needs, pointer)
}

impl Need {
    pub(super) const FIRST_VALUE: u64 = 4;

    /// A number of its own for each need.
    pub(super) fn code(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Absent => 1,
            Self::OnlyWidest => 2,
            Self::Any => 3,
            Self::Value(number) => Self::FIRST_VALUE + u64::from(number),
        }
    }
}
