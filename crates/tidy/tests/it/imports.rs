//! Follows the paths in a crate's modules to the files that define the names.
//!
//! Re-exports are followed: `crate::Engine` is an import of the file that defines `Engine`. Methods
//! and fields are not followed, and neither are names that macros compose.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::repository::{code, crate_of, is_test, rust_files, shipped};

/// The other modules whose items each module names.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate, by their paths; the path of the root is empty.
#[derive(Default)]
struct Modules(BTreeMap<String, Module>);

/// The imports, items and paths in one file of a crate.
#[derive(Default)]
struct Module {
    /// Its imports, by the names that they get in it.
    names: BTreeMap<String, Import>,
    /// Modules of which it imports everything.
    globs: Vec<Vec<String>>,
    /// Items that it defines.
    defined: BTreeSet<String>,
    /// Paths in its other code.
    paths: Vec<Vec<String>>,
    /// Words in its other code.
    words: BTreeSet<String>,
}

struct Import {
    path: Vec<String>,
    is_public: bool,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq)]
enum Target {
    Module(String),
    /// An item that this module's file defines.
    ItemOf(String),
}

/// A path that leads in a circle of re-exports is given up.
const MAX_STEPS: usize = 20;

/// The imports of the modules of each crate. The root is called `lib` or `main`.
pub(crate) fn crates() -> BTreeMap<String, Imports> {
    let mut crates: BTreeMap<String, (&str, Modules)> = BTreeMap::new();
    let reader = Reader::new();
    for (path, text) in rust_files(&["src"]) {
        let (_, file) = path.split_once("/src/").unwrap();
        let module = file.trim_end_matches(".rs").replace('/', "::");
        if is_test(path) {
            continue;
        }
        let (root, modules) = crates.entry(crate_of(path).to_owned()).or_default();
        let module = match file {
            "lib.rs" => {
                *root = "lib";
                String::new()
            }
            // The program beside a library is a crate of its own.
            "main.rs" if *root == "lib" => continue,
            "main.rs" => {
                *root = "main";
                String::new()
            }
            _ => module,
        };
        modules.0.insert(module, reader.read(&code(&shipped(text))));
    }
    let crates = crates.into_iter();
    crates
        .map(|(name, (root, modules))| (name, modules.imports(root)))
        .collect()
}

/// Reads the code of modules.
struct Reader {
    import: Regex,
    defined: Regex,
    path: Regex,
    word: Regex,
}

impl Reader {
    fn new() -> Self {
        let defined = r"(?m)^(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe) )*(?:struct|enum|trait|type|fn|const|static|macro_rules!|mod) (\w+)";
        Self {
            import: Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);").unwrap(),
            defined: Regex::new(defined).unwrap(),
            path: Regex::new(r"(?:^|[^:\w])([a-z_]\w*(?:::\w+)+)").unwrap(),
            word: Regex::new(r"\b[A-Za-z_]\w*").unwrap(),
        }
    }

    fn read(&self, code: &str) -> Module {
        let mut module = Module::default();
        for import in self.import.captures_iter(code) {
            let is_public = import.get(1).is_some();
            module.import(is_public, &[], &import[2]);
        }
        let rest = self.import.replace_all(code, "\n");
        let defined = self.defined.captures_iter(&rest);
        module.defined = defined.map(|found| found[1].to_owned()).collect();
        let paths = self.path.captures_iter(&rest);
        module.paths = paths.map(|found| parts(&found[1])).collect();
        let words = self.word.find_iter(&rest);
        module.words = words.map(|found| found.as_str().to_owned()).collect();
        module
    }
}

impl Module {
    /// Notes an import, or each of several in braces.
    fn import(&mut self, is_public: bool, before: &[String], tree: &str) {
        let tree = tree.trim();
        if let Some((path, inner)) = tree.split_once('{') {
            let inner = inner.strip_suffix('}').unwrap_or(inner);
            let before = [before, &parts(path)].concat();
            for part in split_list(inner) {
                self.import(is_public, &before, part);
            }
            return;
        }
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path = [before, &parts(path)].concat();
        let is_itself = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        if is_itself {
            path.pop();
        }
        match path.last().map(String::as_str) {
            Some("*") => {
                path.pop();
                self.globs.push(path);
            }
            Some(last) => {
                let name = if name.is_empty() { last } else { name.trim() };
                self.names
                    .insert(name.to_owned(), Import { path, is_public });
            }
            None => {}
        }
    }
}

fn parts(path: &str) -> Vec<String> {
    let parts = path.split("::").map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Splits at commas that are not in braces.
fn split_list(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found.retain(|part| !part.trim().is_empty());
    found
}

impl Modules {
    fn imports(&self, root: &str) -> Imports {
        let shown = |module: &str| {
            let module = if module.is_empty() { root } else { module };
            module.to_owned()
        };
        let of_module = |(name, module): (&String, &Module)| {
            let others = self.imports_of(name, module).into_iter();
            (shown(name), others.map(|other| shown(&other)).collect())
        };
        self.0.iter().map(of_module).collect()
    }

    fn imports_of(&self, name: &str, module: &Module) -> BTreeSet<String> {
        let named = module.names.iter().filter(|(alias, import)| {
            // A re-export of a name that the module does not use is no import.
            !import.is_public || module.words.contains(*alias)
        });
        let named = named.map(|(_, import)| &import.path).chain(&module.paths);
        let mut found: Vec<Target> = named
            .filter_map(|path| self.resolve(name, path, MAX_STEPS))
            .collect();
        for glob in &module.globs {
            if let Some(Target::Module(of)) = self.resolve(name, glob, MAX_STEPS) {
                let words = module.words.iter();
                found.extend(words.filter_map(|word| self.known_item(&of, word, MAX_STEPS)));
            }
        }
        let mut others = BTreeSet::new();
        for target in found {
            match target {
                Target::ItemOf(other) if other != name => {
                    others.insert(other);
                }
                // The import of a module is counted where its items are named.
                Target::ItemOf(_) | Target::Module(_) => {}
            }
        }
        others
    }

    /// Where a path in a module leads; `None`: out of the crate.
    fn resolve(&self, module: &str, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => String::new(),
            "self" => module.to_owned(),
            "super" => parent(module),
            first => match self.known_item(module, first, steps)? {
                Target::Module(module) => module,
                item @ Target::ItemOf(_) => return Some(item),
            },
        };
        for part in rest {
            at = match part.as_str() {
                "super" => parent(&at),
                part => match self.known_item(&at, part, steps) {
                    Some(Target::Module(module)) => module,
                    Some(item @ Target::ItemOf(_)) => return Some(item),
                    // Perhaps a macro defines it there.
                    None => return Some(Target::ItemOf(at)),
                },
            };
        }
        Some(Target::Module(at))
    }

    /// The module or item of a module with this name.
    fn known_item(&self, module: &str, name: &str, steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let child = join(module, name);
        if self.0.contains_key(&child) {
            return Some(Target::Module(child));
        }
        let it = self.0.get(module)?;
        if let Some(import) = it.names.get(name) {
            let is_itself = import.path.len() == 1 && import.path[0] == name;
            return (!is_itself).then(|| self.resolve(module, &import.path, steps))?;
        }
        if it.defined.contains(name) {
            return Some(Target::ItemOf(module.to_owned()));
        }
        it.globs
            .iter()
            .find_map(|glob| match self.resolve(module, glob, steps)? {
                Target::Module(of) if of != module => self.known_item(&of, name, steps),
                Target::Module(_) | Target::ItemOf(_) => None,
            })
    }
}

fn parent(module: &str) -> String {
    let parent = module.rsplit_once("::").map(|(parent, _)| parent);
    parent.unwrap_or_default().to_owned()
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() {
        name.to_owned()
    } else {
        format!("{module}::{name}")
    }
}

#[test]
fn imports_lead_to_the_files_that_define_what_they_name() {
    let reader = Reader::new();
    let files = [
        (
            "",
            "mod a;\nmod d;\npub use a::{Thing, b::{self, Deep as Deeper}};\npub fn root() {}",
        ),
        (
            "a",
            "mod b;\nmod c;\npub use c::*;\npub struct Thing;\nfn f() { b::g() }",
        ),
        (
            "a::b",
            "use std::fmt;\npub struct Deep;\npub fn g() -> super::Thing { fmt::x() }",
        ),
        (
            "a::c",
            "use crate::Deeper;\npub const LIMIT: u8 = 1;\nmade_by_a_macro!();",
        ),
        (
            "d",
            "use crate::{Thing, a::{self, LIMIT}, b};\nfn h() { crate::root(); b::g() }",
        ),
        (
            "e",
            "pub use crate::d::h;\nuse super::a::*;\nfn i() -> Thing { crate::a::c::Made }",
        ),
        (
            "f",
            "use serde_json::Value;\nuse crate::e::h;\npub(crate) use crate::d::k;\nfn l() { k() }",
        ),
    ];
    let mut modules = Modules::default();
    for (name, code) in files {
        modules.0.insert(name.to_owned(), reader.read(code));
    }
    let imports = modules.imports("lib");
    for (module, others) in [
        ("lib", &[][..]),
        ("a", &["a::b"]),
        ("a::b", &["a"]),
        ("a::c", &["a::b"]),
        ("d", &["a", "a::b", "a::c", "lib"]),
        ("e", &["a", "a::c"]),
        ("f", &["d"]),
    ] {
        let found: Vec<_> = imports[module].iter().map(String::as_str).collect();
        assert_eq!(found, others, "{module}");
    }
}
