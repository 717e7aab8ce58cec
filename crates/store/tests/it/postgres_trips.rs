//! How often a transaction waits for PostgreSQL: a relay between both withholds answers that nobody
//! should wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use store::{Options, Store, outbox, pools};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::samples::{event, pool, pool_id};
use crate::world::{Database, on_both, read, write};

/// A test that hangs is wrong.
const LIMIT: Duration = Duration::from_secs(120);

/// The last request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// To begin a transaction. The relay withholds the answer until the first statement arrives.
    Begin,
    /// Something whose answer the relay hands on.
    Statement,
    /// To end a read. The relay withholds the answer until there is another request.
    End,
}

struct Relay {
    address: String,
    asked: watch::Receiver<Asked>,
    /// How often the server has said that it is ready for the next request.
    n_answers: Arc<AtomicUsize>,
}

impl Relay {
    async fn to(server: String, withholds: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, asked) = watch::channel(Asked::Statement);
        let (sender, heard) = (Arc::new(sender), asked.clone());
        let n_answers = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n_answers);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let sender = withholds.then(|| Arc::clone(&sender));
                tokio::spawn(relay_requests(from_client, to_server, sender));
                let (heard, counter) = (heard.clone(), Arc::clone(&counter));
                tokio::spawn(relay_answers(from_server, to_client, heard, counter));
            }
        });
        Self {
            address,
            asked,
            n_answers,
        }
    }

    async fn until(&mut self, asked: Asked) {
        let heard = self.asked.wait_for(|now| *now == asked);
        tokio::time::timeout(LIMIT, heard).await.unwrap().unwrap();
    }
}

/// Beginnings and ends of transactions are prepared statements with names of their own.
#[derive(Default)]
struct Commands(Vec<(Vec<u8>, Asked)>);

impl Commands {
    /// Learns the names that these bytes give.
    fn learn(&mut self, bytes: &[u8]) {
        for (text, asked) in [("\0BEGIN", Asked::Begin), ("\0COMMIT", Asked::End)] {
            for place in places(bytes, text.as_bytes()) {
                // The byte before the name is part of a length.
                let start = bytes[..place].iter().rposition(|byte| *byte == b's');
                let name = [b"\0", &bytes[start.unwrap()..place], b"\0"].concat();
                self.0.push((name, asked));
            }
        }
    }

    /// The last request decides.
    fn newest(&self, bytes: &[u8]) -> Asked {
        // A message that binds parameters has its type, its length, and no name of a portal.
        let bound = places(bytes, b"\0").filter(|place| {
            let head = place.checked_sub(5).map(|head| bytes[head]);
            head == Some(b'B') && bytes.len() > place + 1
        });
        let newest = bound.last().map(|place| {
            let command = self
                .0
                .iter()
                .find(|(name, _)| bytes[place..].starts_with(name));
            command.map_or(Asked::Statement, |(_, asked)| *asked)
        });
        newest.unwrap_or(Asked::Statement)
    }
}

fn places<'a>(bytes: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let windows = bytes.windows(part.len()).enumerate();
    windows
        .filter(move |(_, it)| *it == part)
        .map(|(place, _)| place)
}

async fn relay_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    asked: Option<Arc<watch::Sender<Asked>>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    let mut commands = Commands::default();
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..length];
        commands.learn(bytes);
        if let Some(asked) = &asked {
            asked.send_replace(commands.newest(bytes));
        }
        if to.write_all(bytes).await.is_err() {
            break;
        }
    }
}

async fn relay_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut asked: watch::Receiver<Asked>,
    n_answers: Arc<AtomicUsize>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let n_ready = places(&buffer[..length], b"Z\0\0\0\x05").count();
        n_answers.fetch_add(n_ready, Ordering::SeqCst);
        let may_hand_on = asked.wait_for(|asked| *asked == Asked::Statement);
        if may_hand_on.await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}

/// A store with one connection, which goes through the relay.
async fn relayed(database: &Database, withholds: bool) -> (Relay, Store) {
    let url = &database.options.url;
    let server = url
        .split(['@', '/'])
        .find(|part| part.starts_with("127.0.0.1:"));
    let server = server.unwrap().to_owned();
    let relay = Relay::to(server.clone(), withholds).await;
    let options = Options {
        url: url.replace(&server, &relay.address),
        connections: 1,
    };
    (relay, Store::open(&options).unwrap())
}

#[tokio::test]
async fn a_read_of_one_statement_waits_for_one_answer() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let direct = database.migrated().await;
    write(&direct, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
    let (mut relay, store) = relayed(&database, true).await;
    for _ in 0..5 {
        let get = store.read("test_read", |tx| pools::get(tx, &pool_id("a/b")));
        let found = tokio::time::timeout(LIMIT, get).await;
        assert!(
            found
                .expect("it waits for another answer")
                .unwrap()
                .is_some()
        );
        // The end was sent all the same: no transaction stays open.
        relay.until(Asked::End).await;
    }
}

#[tokio::test]
async fn statements_that_are_sent_together_are_answered_together() {
    let Some(database) = Database::postgres() else {
        return;
    };
    database.migrated().await;
    let (relay, store) = relayed(&database, false).await;
    for round in 0..3 {
        store.take_counts();
        let n_before = relay.n_answers.load(Ordering::SeqCst);
        write(&store, move |tx| {
            let names = (0..10).map(|number| format!("e{round}{number}"));
            names
                .into_iter()
                .try_for_each(|name| outbox::push(tx, &event(&name, "a/b")))?;
            outbox::depth(tx)
        })
        .await;
        let n_answers = relay.n_answers.load(Ordering::SeqCst) - n_before;
        let counts = store.take_counts();
        assert_eq!(counts.all_statements(), 11);
        // The first round prepares its statements.
        if round > 0 {
            assert_eq!((n_answers as u64, counts.trips()), (2, 2));
        }
    }
}

/// The server listens on a socket of the file system, too, beside its control program.
#[tokio::test]
async fn transactions_through_a_socket_of_the_file_system_are_as_on_any_other() {
    let (Some(database), Ok(control)) = (Database::postgres(), std::env::var("TEST_PG_CONTROL"))
    else {
        return;
    };
    let folder = control.trim_end_matches("/control").replace('/', "%2F");
    let url = database.options.url.replace("127.0.0.1", &folder);
    assert_ne!(url, database.options.url);
    let options = Options {
        url,
        ..database.options.clone()
    };
    let store = Store::open(&options).unwrap();
    store.migrate(1).await.unwrap();
    for number in 0..3 {
        let name = format!("e{number}");
        write(&store, move |tx| outbox::push(tx, &event(&name, "a/b"))).await;
    }
    assert_eq!(read(&store, outbox::depth).await, 3);
}

on_both!(each_read_sees_what_was_committed_before_it, |database| {
    let direct = database.migrated().await;
    let one = Store::open(&Options {
        connections: 1,
        ..database.options.clone()
    });
    let one = one.unwrap();
    for count in 1..=20 {
        let id = format!("a/p{count:02}");
        write(&direct, move |tx| pools::insert(tx, &pool(&id, "one"))).await;
        assert_eq!(
            read(&one, |tx| pools::list(tx, None, 100)).await.len(),
            count
        );
    }
});

on_both!(transactions_without_statements_do_nothing, |database| {
    let store = database.migrated().await;
    for _ in 0..3 {
        read(&store, |_| Ok(())).await;
        write(&store, |_| Ok(())).await;
        let refused = store.write("test_write", |_| Err::<(), _>(store::StoreError::Closed));
        assert!(refused.await.is_err());
        assert!(read(&store, |tx| pools::list(tx, None, 1)).await.is_empty());
    }
});
