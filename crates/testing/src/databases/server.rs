//! Databases on PostgreSQL. One serves one test after another, and is emptied in between, because
//! creating and dropping one takes longer than most tests.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use postgres::{Client, NoTls};

use super::template::Template;

/// Names of templates begin so. The number changes with what this file does to a template.
const TEMPLATE: &str = "fleetwright_template3";
/// Databases that no test uses have a name that begins so.
const SPARE: &str = "fleetwright_spare";

/// Keeps the rows of the template, so that they can be written again.
const KEEP_FIRST_ROWS: &str = "
    CREATE SCHEMA first_rows;
    DO $$
    DECLARE name text; has_rows boolean;
    BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO has_rows;
            IF has_rows THEN
                EXECUTE format('CREATE TABLE first_rows.%I AS TABLE public.%1$I', name);
            END IF;
        END LOOP;
    END $$";

/// Makes a used database equal to the template. To delete a few rows is quicker than to truncate.
const RESTORE: &str = "
    DO $$
    DECLARE name text; size bigint;
    BEGIN
        FOR name, size IN SELECT relname, pg_relation_size(oid) FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
            IF size > 65536 THEN
                EXECUTE format('TRUNCATE public.%I', name);
            ELSIF size > 0 THEN
                EXECUTE format('DELETE FROM public.%I', name);
            END IF;
        END LOOP;
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'first_rows' LOOP
            EXECUTE format('INSERT INTO public.%I TABLE first_rows.%1$I', name);
        END LOOP;
        PERFORM setval(format('public.%I', sequencename)::regclass, 1, false)
            FROM pg_sequences WHERE schemaname = 'public';
    END $$";

pub(super) fn fresh_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("fleetwright_test_{}_{number}", std::process::id())
}

/// Gives a spare database this name, if there is one. Processes share them, so another one may take
/// the same at this moment.
pub(super) fn take_spare(server: &str, template: &Template, name: &str) -> bool {
    let pattern = format!("{SPARE}_{}_%", template.name);
    let taken = run(
        server,
        &format!(
            "DO $$
            DECLARE spare text;
            BEGIN
                FOR spare IN SELECT datname FROM pg_database WHERE datname LIKE '{pattern}' LOOP
                    BEGIN
                        EXECUTE format('ALTER DATABASE %I RENAME TO {name}', spare);
                        RETURN;
                    EXCEPTION WHEN invalid_catalog_name OR object_in_use THEN
                    END;
                END LOOP;
                RAISE 'no spare database';
            END $$"
        ),
    );
    if taken.is_err() {
        return false;
    }
    let restored = run(&address_of(server, name), RESTORE);
    if restored.is_err() {
        remove(server, name);
    }
    restored.is_ok()
}

/// Under a name that the store, which may still have connections and make new ones, does not know.
pub(super) fn give_back(server: &str, name: &str, template: &str) -> bool {
    let number = name.trim_start_matches("fleetwright_test_");
    let given = run(
        server,
        &format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}';
            ALTER DATABASE {name} RENAME TO {SPARE}_{template}_{number}"
        ),
    );
    given.is_ok()
}

pub(super) fn remove(server: &str, name: &str) {
    run(server, &format!("DROP DATABASE {name} WITH (FORCE)")).unwrap();
}

pub(super) fn copy(server: &str, template: &Template, name: &str) {
    let strategy = if template.is_large {
        "file_copy"
    } else {
        "wal_log"
    };
    let template = made(server, template);
    let create = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY {strategy}");
    run(server, &create).unwrap();
}

/// The name of the database that is the template. The first process that needs it makes it; others
/// wait for it.
fn made(server: &str, template: &Template) -> String {
    static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let name = format!("{TEMPLATE}_{}", template.name);
    let is_made = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_made().contains(&name) {
        ask_server(server, |client| make(client, server, template, &name));
        is_made().insert(name.clone());
    }
    name
}

fn make(client: &mut Client, server: &str, template: &Template, name: &str) {
    let locked = client.execute("SELECT pg_advisory_lock(hashtext($1))", &[&name]);
    locked.unwrap();
    let known = client.query("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]);
    if !known.unwrap().is_empty() {
        return;
    }
    // An unfinished template of another process has another name.
    let unfinished = format!("{name}_unfinished");
    let drop = format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)");
    client.batch_execute(&drop).unwrap();
    let create = format!("CREATE DATABASE {unfinished} TEMPLATE template0");
    client.batch_execute(&create).unwrap();
    let address = address_of(server, &unfinished);
    template.fill(&address);
    if !template.is_large {
        run(&address, KEEP_FIRST_ROWS).unwrap();
    }
    let rename = format!("ALTER DATABASE {unfinished} RENAME TO {name}");
    client.batch_execute(&rename).unwrap();
}

pub(super) fn address_of(server: &str, database: &str) -> String {
    let (address, options) = match server.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (server, String::new()),
    };
    let (host, _) = address.rsplit_once('/').unwrap();
    format!("{host}/{database}{options}")
}

/// Asks PostgreSQL, on a thread of its own, because the driver waits with a runtime of its own.
pub fn ask_server<T: Send>(url: &str, ask: impl FnOnce(&mut Client) -> T + Send) -> T {
    let asking = || ask(&mut Client::connect(url, NoTls).unwrap());
    std::thread::scope(|scope| scope.spawn(asking).join().unwrap())
}

pub(super) fn run(url: &str, sql: &str) -> Result<(), postgres::Error> {
    let running = || Client::connect(url, NoTls)?.batch_execute(sql);
    std::thread::scope(|scope| scope.spawn(running).join().unwrap())
}
