//! PostgreSQL looks rows up by their complete keys and reads pages in their order, in pools of any
//! size.
//!
//! It plans a statement once for all values, from what the tables hold on average.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use store::{Explanation, Joins};

use crate::world::{Database, ask_server};
use crate::year_old::{check_names, explain, names};

/// Statements of which PostgreSQL may read the second side of a join completely for each row of
/// the first, and why.
const REREAD: &[(&str, &[&str])] = &[
    (
        "few pools and accounts are in these databases, and few configurations in every one",
        &[
            "turn_delete_of_no_shadow",
            "turn_list_of_no_shadow",
            "wait_account_open",
            "worker_type_payload_schema_version",
        ],
    ),
    (
        "it plans for its values, and may then read both tables once",
        &[
            "launch_failures_between",
            "launch_failures_of_pool",
            "wait_sum_by_cause_of",
            "wait_sum_by_owner_of",
            "wait_sum_by_pool_of",
            "wait_sum_by_time_of",
        ],
    ),
    (
        "it looks for texts in texts, for which no index helps",
        &["pool_memory_list_rivals"],
    ),
    (
        "an empty database expects as few archived launch configs as there are in the list, and \
         few launches that wait for an answer",
        &["launch_config_delete_expirable"],
    ),
];

/// Statements that may look for a row by a part of its key, and why.
const BY_A_PART: &[(&str, &[&str])] = &[
    (
        "few resolved tasks have more dependents than one transaction releases",
        &[
            "task_delete_release",
            "task_recheck_delete",
            "task_recheck_get",
        ],
    ),
    (
        "it reads all of a partial index, which has few rows: notices that are not sent",
        &["notice_sent", "notice_update"],
    ),
    (
        "few rows have this part of the key: an account has one or two for an hour, and few \
         configurations are in every database",
        &["cost_delete_before", "worker_type_payload_schema_version"],
    ),
    (
        "it lists the newest, and leaves out others if a person asks for it",
        &["error_list"],
    ),
];

/// Statements that may read all rows that they know of, and sort them, to return a page of them.
const SORTED: &[(&str, &[&str])] = &[
    (
        "it reads a partial index, which has few rows: launches without an outcome, overrides that \
         have not ended, workers that were requested",
        &[
            "launch_list_pending",
            "override_list_due",
            "override_list_in_force",
            "worker_list_requested",
        ],
    ),
    (
        "it looks for a few among all pools, every few minutes",
        &["pool_list_leaving"],
    ),
    (
        "it looks at the workers of one provider, for a person",
        &["selected_worker_pools_of_provider"],
    ),
    (
        "it takes back the time of a machine with thousands of lost runs whose end was seen late",
        &["metered_run_list_last"],
    ),
];

/// Puts one row of each table into each of 3,000 more pools, under another key.
const SMALL_POOLS: &str = "
DO $$ DECLARE
    grown RECORD;
    others TEXT;
BEGIN
    FOR grown IN SELECT table_name AS name, MIN(column_name) AS pool
        FROM information_schema.columns WHERE table_schema = current_schema()
        AND column_name IN ('worker_pool_id', 'task_queue_id') GROUP BY table_name
    LOOP
        SELECT string_agg(DISTINCT format(
            ', %L, CASE jsonb_typeof(old -> %L) WHEN ''string'' THEN to_jsonb((old ->> %L) || n)
            ELSE to_jsonb(n + 1000000000) END', a.attname, a.attname, a.attname), '') INTO others
        FROM pg_index AS i JOIN pg_attribute AS a
            ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = grown.name::regclass AND i.indisunique AND a.attname <> grown.pool
        AND NOT EXISTS (SELECT 1 FROM pg_attribute AS p WHERE p.attrelid = i.indrelid
            AND p.attnum = ANY (i.indkey) AND p.attname = grown.pool);
        EXECUTE format('INSERT INTO %I OVERRIDING SYSTEM VALUE
            SELECT (jsonb_populate_record(NULL::%I, old
                || jsonb_build_object(%L, ''small/pool-'' || n %s))).*
            FROM (SELECT to_jsonb(x) AS old FROM %I AS x LIMIT 1) AS o
            CROSS JOIN generate_series(1, 3000) AS n',
            grown.name, grown.name, grown.pool, COALESCE(others, ''), grown.name);
    END LOOP;
END $$";

// PostgreSQL looks the rows of a join up one after the other, and full scans do not show a second
// side without an index, such as a list that the statement got or what it counts itself. A plan
// from a time when the database was empty stays until its tables are counted.
#[tokio::test]
async fn postgres_reads_no_second_side_again_for_each_row_and_no_pool_for_each_page() {
    let databases = (Database::new_postgres(), Database::year_old_postgres());
    let (Some(new), Some(year_old)) = databases else {
        return;
    };
    let mut explained = explain(&new.open(), Joins::Lookups).await;
    let explained_later = explain(&year_old.open(), Joins::Lookups).await;
    // Nearly all accounts may be those of one owner.
    let meter = explained_later
        .iter()
        .find(|it| it.statement == "meter_insert");
    let plan = meter.unwrap().lines.join("\n");
    assert!(plan.contains("cost_accounts_by_name"), "{plan}");
    // Workers of a large pool are not all read for each page of them.
    check(&explained_later, SORTED, sorted_pages);
    explained.extend(explained_later);
    check(&explained, REREAD, reread_sides);
}

// A large pool is beside very many small ones, so that an average pool has a single worker: then
// the pool alone looks as good as the complete key.
#[tokio::test]
async fn postgres_looks_for_a_worker_by_its_key_where_nearly_all_pools_are_small() {
    let Some(database) = Database::year_old_postgres() else {
        return;
    };
    let store = database.open();
    database.raw(SMALL_POOLS);
    store.gather_statistics().await.unwrap();
    let explained = explain(&store, Joins::Lookups).await;
    check(&explained, REREAD, reread_sides);
    check(&explained, SORTED, sorted_pages);
    let indexes = indexes(&database);
    check(&explained, BY_A_PART, |lines| {
        looks_by_a_part(lines, &indexes)
    });
}

/// Fails if something is found in the plan of a statement that is not on the list.
fn check<'p>(
    explained: &'p [Explanation],
    list: &[(&str, &[&'static str])],
    find: impl Fn(&'p [String]) -> Vec<&'p str>,
) {
    let allowed = names(list);
    let found = explained.iter().filter_map(|explanation| {
        let found = find(&explanation.lines);
        let is_found = !found.is_empty() && !allowed.contains(explanation.statement);
        is_found.then_some((explanation.statement, found))
    });
    let found: Vec<_> = found.collect();
    assert!(
        found.is_empty(),
        "add an index, or a reason to the list: {found:#?}"
    );
    check_names(&allowed, explained);
}

/// The indexes of a database by their names.
type Indexes = BTreeMap<String, Index>;

struct Index {
    columns: Vec<String>,
    /// Those of each unique index of the table.
    keys: Vec<Vec<String>>,
}

fn indexes(database: &Database) -> Indexes {
    const COLUMNS: &str = "SELECT i.relname, ARRAY(
            SELECT pg_get_indexdef(x.indexrelid, k, true)
            FROM generate_series(1, x.indnkeyatts) AS k ORDER BY k), ARRAY(
            SELECT pg_get_indexdef(u.indexrelid, k, true)
            FROM generate_series(1, u.indnkeyatts) AS k ORDER BY k)
        FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
        JOIN pg_index AS u ON u.indrelid = x.indrelid AND u.indisunique AND u.indpred IS NULL
        WHERE i.relnamespace = CAST(current_schema() AS regnamespace)";
    ask_server(&database.options.url, |client| {
        let mut indexes = Indexes::new();
        for row in client.query(COLUMNS, &[]).unwrap() {
            let keys = Vec::new();
            let columns = row.get(1);
            let index = indexes.entry(row.get(0)).or_insert(Index { columns, keys });
            index.keys.push(row.get(2));
        }
        indexes
    })
}

/// One step of a plan.
struct Node<'p> {
    /// The column at which its text begins.
    depth: usize,
    text: &'p str,
    /// Its conditions, and more.
    details: Vec<&'p str>,
    /// The places of the nodes that contain it, from the inside out.
    parents: Vec<usize>,
}

const ARROW: &str = "->  ";

/// How much deeper than a node its sides are, and plans of the subqueries that it computes.
const SIDE: usize = 6;
const EXTRA_PLAN: usize = 8;

fn nodes(lines: &[String]) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    for line in lines {
        let arrow = line.find(ARROW);
        match nodes.last_mut() {
            Some(last) if arrow.is_none() => last.details.push(line.trim()),
            _ => {
                let depth = arrow.map_or(0, |arrow| arrow + ARROW.len());
                let is_parent =
                    |node: &Node<'_>| [node.depth + SIDE, node.depth + EXTRA_PLAN].contains(&depth);
                let parent = nodes.iter().rposition(is_parent);
                let others = parent.map_or(Vec::new(), |parent| nodes[parent].parents.clone());
                let parents = parent.into_iter().chain(others).collect();
                let text = line[depth..].split("  (cost").next().unwrap_or_default();
                nodes.push(Node {
                    depth,
                    text,
                    details: Vec::new(),
                    parents,
                });
            }
        }
    }
    nodes
}

impl<'p> Node<'p> {
    /// The table or list that it reads, by the name that conditions use.
    fn alias(&self) -> Option<&'p str> {
        self.text.split_once(" on ")?.1.rsplit(' ').next()
    }

    fn conditions(&self, kind: &str) -> impl Iterator<Item = &'p str> {
        self.details
            .iter()
            .filter_map(move |line| line.strip_prefix(kind))
    }

    /// The columns of a condition that must be equal to something.
    fn compared(&self, kind: &str) -> BTreeSet<&'p str> {
        let conditions = self.conditions(kind).flat_map(|condition| {
            let equal = condition.match_indices(" = ");
            equal.flat_map(move |(at, sign)| {
                let before = condition[..at].rsplit([' ', '(']).next();
                let after = condition[at + sign.len()..].split([' ', ')']).next();
                [before, after]
            })
        });
        conditions.flatten().collect()
    }
}

/// The second sides of joins that PostgreSQL reads without an index, for each row of the first.
fn reread_sides(lines: &[String]) -> Vec<&str> {
    let nodes = nodes(lines);
    let joins = nodes.iter().enumerate().filter_map(|(join, node)| {
        let is_side = |side: &Node<'_>| {
            side.parents.first() == Some(&join) && side.depth == node.depth + SIDE
        };
        let mut sides = (0..nodes.len()).filter(|side| is_side(&nodes[*side]));
        let is_join = node.text.starts_with("Nested Loop");
        is_join.then(|| sides.nth(1))?
    });
    let reread = joins.filter(|side| {
        let mut inside = nodes
            .iter()
            .enumerate()
            .filter(|(place, node)| place == side || node.parents.contains(side));
        !inside.any(|(_, node)| node.conditions("Index Cond: ").next().is_some())
    });
    reread.map(|side| nodes[side].text).collect()
}

/// The scans that know the complete key of a row, and use an index in which only a part of it
/// comes first.
fn looks_by_a_part<'p>(lines: &'p [String], indexes: &Indexes) -> Vec<&'p str> {
    const BITMAP: &str = "Bitmap Index Scan on ";
    let nodes = nodes(lines);
    let scans = nodes.iter().enumerate().filter(|(place, node)| {
        let name = match node.text.strip_prefix(BITMAP) {
            Some(name) => Some(name),
            None => node.text.split(" using ").nth(1),
        };
        let Some(index) = name.and_then(|name| indexes.get(name.split(' ').next()?)) else {
            return false;
        };
        let parents = || node.parents.iter().map(|parent| &nodes[*parent]);
        // The first side of a join does not know yet what the second one contains.
        let inside = iter::once(*place).chain(node.parents.iter().copied());
        let filters = inside.zip(parents()).filter_map(|(side, join)| {
            let first = nodes
                .iter()
                .position(|node| node.parents.first() == nodes[side].parents.first());
            (first != Some(side)).then_some(join)
        });
        let table = match node.text.starts_with(BITMAP) {
            true => parents().find(|parent| parent.text.starts_with("Bitmap Heap Scan")),
            false => Some(*node),
        };
        let Some((table, alias)) = table.and_then(|table| Some((table, table.alias()?))) else {
            return false;
        };
        let looked_up = node.compared("Index Cond: ");
        let mut known = table.compared("Filter: ");
        known.extend(&looked_up);
        for column in filters.flat_map(|join| join.compared("Join Filter: ")) {
            let column = column.split_once('.').filter(|(of, _)| *of == alias);
            known.extend(column.map(|(_, column)| column));
        }
        let is_first = |column: &&String| looked_up.contains(column.as_str());
        let first: Vec<_> = index.columns.iter().take_while(is_first).collect();
        let is_known = |key: &&Vec<String>| key.iter().all(|it| known.contains(it.as_str()));
        let mut keys = index.keys.iter().filter(is_known).peekable();
        let is_complete = |key: &Vec<String>| key.iter().all(|column| first.contains(&column));
        keys.peek().is_some() && !keys.any(is_complete)
    });
    scans.map(|(_, node)| node.text).collect()
}

/// The scans whose rows are all sorted for a page of them.
fn sorted_pages(lines: &[String]) -> Vec<&str> {
    let nodes = nodes(lines);
    let is_sorted = |node: &&Node<'_>| {
        let mut parents = node.parents.iter().map(|parent| nodes[*parent].text);
        let is_page = parents.next() == Some("Sort") && parents.next() == Some("Limit");
        is_page && node.text.contains("Scan") && !node.text.starts_with("Subquery Scan")
    };
    let sorted = nodes.iter().filter(is_sorted);
    sorted.map(|node| node.text).collect()
}

#[test]
fn sorted_pages_are_found_in_plans() {
    let sorted = lines(&[
        "Limit  (cost=1)",
        "  ->  Sort  (cost=1)",
        "        Sort Key: worker_id",
        "        ->  Bitmap Heap Scan on workers  (cost=1)",
        "              ->  Bitmap Index Scan on workers_pkey  (cost=1)",
        "                    Index Cond: (worker_pool_id = $1)",
    ]);
    assert_eq!(sorted_pages(&sorted), ["Bitmap Heap Scan on workers"]);
    let in_order = lines(&[
        "Limit  (cost=1)",
        "  ->  Incremental Sort  (cost=1)",
        "        Presorted Key: created",
        "        ->  Index Scan using workers_newest on workers  (cost=1)",
    ]);
    assert_eq!(sorted_pages(&in_order), Vec::<&str>::new());
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn reread_sides_are_found_in_plans() {
    let found = lines(&[
        "Limit  (cost=1)",
        "  CTE recent",
        "    ->  Seq Scan on workers  (cost=1)",
        "  ->  Nested Loop Left Join  (cost=1)",
        "        Join Filter: (a = b)",
        "        ->  Nested Loop  (cost=1)",
        "              ->  CTE Scan on recent  (cost=1)",
        "              ->  Index Scan using workers_pkey on workers w  (cost=1)",
        "                    Index Cond: (a = recent.a)",
        "        ->  HashAggregate  (cost=1)",
        "              ->  CTE Scan on recent r  (cost=1)",
    ]);
    assert_eq!(reread_sides(&found), ["HashAggregate"]);
    let list = lines(&[
        "Nested Loop  (cost=1)",
        "  ->  Index Scan using workers_pkey on workers w  (cost=1)",
        "        Index Cond: (worker_pool_id = $2)",
        "  ->  Function Scan on json_array_elements v  (cost=1)",
    ]);
    assert_eq!(
        reread_sides(&list),
        ["Function Scan on json_array_elements v"]
    );
    let looked_up = lines(&[
        "Nested Loop  (cost=1)",
        "  ->  Function Scan on json_array_elements v  (cost=1)",
        "  ->  Bitmap Heap Scan on tasks  (cost=1)",
        "        ->  Bitmap Index Scan on tasks_pkey  (cost=1)",
        "              Index Cond: (a = v.a)",
    ]);
    assert_eq!(reread_sides(&looked_up), Vec::<&str>::new());
}

#[test]
fn looks_by_a_part_of_a_key_are_found_in_plans() {
    let columns = |columns: &[&str]| columns.iter().map(|it| (*it).to_owned()).collect();
    let index = |name: &str, of: &[&str]| {
        let keys = vec![columns(&["pool", "id"])];
        let columns = columns(of);
        (name.to_owned(), Index { columns, keys })
    };
    let indexes = [
        index("workers_pkey", &["pool", "id"]),
        index("workers_newest", &["pool", "created", "id"]),
        index("workers_running", &["pool", "id", "state"]),
    ];
    let indexes = indexes.into();
    let check = |plan: &[&str]| looks_by_a_part(&lines(plan), &indexes).len();
    for by_a_part in [
        &[
            "Index Scan using workers_newest on workers  (cost=1)",
            "  Index Cond: ((pool = $1) AND (id = $2))",
        ] as &[&str],
        &[
            "Index Scan using workers_newest on workers  (cost=1)",
            "  Index Cond: (pool = $1)",
            "  Filter: (id = $2)",
        ],
        &[
            "Bitmap Heap Scan on workers  (cost=1)",
            "  Filter: (id = $2)",
            "  ->  Bitmap Index Scan on workers_pkey  (cost=1)",
            "        Index Cond: (pool = $1)",
        ],
        &[
            "Nested Loop  (cost=1)",
            "  Join Filter: (v.id = w.id)",
            "  ->  Function Scan on v  (cost=1)",
            "  ->  Index Scan using workers_pkey on workers w  (cost=1)",
            "        Index Cond: (pool = $1)",
        ],
    ] {
        assert_eq!(check(by_a_part), 1, "{by_a_part:?}");
    }
    for complete in [
        &[
            "Index Scan using workers_running on workers  (cost=1)",
            "  Index Cond: ((pool = $1) AND (id = $2))",
        ] as &[&str],
        &[
            "Index Scan using workers_newest on workers  (cost=1)",
            "  Index Cond: ((pool = $1) AND (created < $2))",
            "  Filter: (state = $3)",
        ],
        &[
            "Nested Loop  (cost=1)",
            "  Join Filter: (v.id = u.id)",
            "  ->  Function Scan on v  (cost=1)",
            "  ->  Index Scan using workers_pkey on workers w  (cost=1)",
            "        Index Cond: (pool = $1)",
        ],
    ] {
        assert_eq!(check(complete), 0, "{complete:?}");
    }
}
