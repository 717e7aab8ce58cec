//! How often a transaction waits for PostgreSQL: a relay between both withholds answers that nobody
//! should wait for.

use std::sync::Arc;
use std::time::Duration;

use store::{Options, Store, pools};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::samples::{pool, pool_id};
use crate::world::{Database, on_both, read, write};

/// A test that hangs is wrong.
const LIMIT: Duration = Duration::from_secs(30);

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
}

impl Relay {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, asked) = watch::channel(Asked::Statement);
        let (sender, heard) = (Arc::new(sender), asked.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(relay_requests(from_client, to_server, Arc::clone(&sender)));
                tokio::spawn(relay_answers(from_server, to_client, heard.clone()));
            }
        });
        Self { address, asked }
    }

    async fn until(&mut self, asked: Asked) {
        let heard = self.asked.wait_for(|now| *now == asked);
        tokio::time::timeout(LIMIT, heard).await.unwrap().unwrap();
    }
}

async fn relay_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    asked: Arc<watch::Sender<Asked>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..length];
        let last = |text: &str| {
            bytes
                .windows(text.len())
                .rposition(|it| it == text.as_bytes())
        };
        // The last request decides. A statement is sent as a message that executes it.
        let requests = [
            (last("BEGIN"), Asked::Begin),
            (last("COMMIT"), Asked::End),
            (last("E\0\0\0\t\0"), Asked::Statement),
        ];
        let newest = requests
            .iter()
            .filter(|(place, _)| place.is_some())
            .max_by_key(|it| it.0);
        asked.send_replace(newest.map_or(Asked::Statement, |it| it.1));
        if to.write_all(bytes).await.is_err() {
            break;
        }
    }
}

async fn relay_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut asked: watch::Receiver<Asked>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let may_hand_on = asked.wait_for(|asked| *asked == Asked::Statement);
        if may_hand_on.await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}

/// A store with one connection, which goes through the relay.
async fn relayed(database: &Database) -> (Relay, Store) {
    let url = &database.options.url;
    let server = url
        .split(['@', '/'])
        .find(|part| part.starts_with("127.0.0.1:"));
    let server = server.unwrap().to_owned();
    let relay = Relay::to(server.clone()).await;
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
    let (mut relay, store) = relayed(&database).await;
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
