//! Replies of `claimWork` that do not reach their worker: their claims are returned at once.

use std::net::SocketAddr;
use std::sync::Arc;

use domain::task::TaskDefinition;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::database::on_both;
use crate::queue_samples::{numbered, redefined, stored_task, task_id};
use crate::world::World;

/// The server on a socket.
struct Open {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Open {
    async fn of(world: &World) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = Arc::clone(&world.server).serve(listener, stop.clone());
        let serving = tokio::spawn(serving);
        Self {
            address,
            stop,
            serving,
        }
    }

    /// Asks for work over a connection that takes in as little as possible by itself.
    async fn ask_for_work(&self, world: &World, tasks: u32) -> TcpStream {
        let mut ask = world.asking_for_work("w", tasks);
        ask.host = "127.0.0.1".to_owned();
        ask.port = self.address.port();
        let signature = ask.signature(&world.root());
        let body = json!({"workerGroup": "g", "workerId": "w", "tasks": tasks}).to_string();
        let request = format!(
            "POST /api/queue/v1/claim-work/pp%2Fee HTTP/1.1\r\nhost: {}\r\nauthorization: {signature}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn close(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
    }
}

async fn until_pending(world: &World, number: u32) {
    const LIMIT: usize = 50_000;
    for _ in 0..LIMIT {
        if world.state(number).await == "pending" {
            return;
        }
    }
    panic!("{}", world.status(number).await);
}

on_both!(parallel a_worker_that_disconnects_during_the_reply_has_claimed_nothing, |world| {
    // More than the kernel keeps for somebody who does not read.
    const BYTES: usize = 8 * 1024 * 1024;
    let large = |it: &mut TaskDefinition| it.payload = json!({"blob": "x".repeat(BYTES)});
    let task = redefined(numbered(&stored_task(world), 1), large);
    let task = task.schedule(world.now()).unwrap().task;
    assert!(world.write(move |tx| store::tasks::insert(tx, &task, task.definition.created)).await);
    let open = Open::of(world).await;
    let mut stream = open.ask_for_work(world, 1).await;
    let mut beginning = [0; 12];
    stream.read_exact(&mut beginning).await.unwrap();
    assert_eq!(&beginning, b"HTTP/1.1 200");
    assert_eq!(world.state(1).await, "running");
    drop(stream);
    until_pending(world, 1).await;
    let status = world.status(1).await;
    assert_eq!(status["runs"][0]["reasonResolved"], "worker-shutdown");
    assert_eq!(status["runs"][1]["reasonCreated"], "retry");
    // It is not the task's fault.
    assert_eq!(status["retriesLeft"], 5);
    open.close().await;
});

on_both!(parallel a_worker_that_disconnects_after_the_reply_keeps_its_claim, |world| {
    world.created(1, json!({})).await;
    let open = Open::of(world).await;
    let mut stream = open.ask_for_work(world, 1).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(&task_id(1)), "{answer}");
    drop(stream);
    open.close().await;
    world.news().await;
    assert_eq!(world.state(1).await, "running");
});

on_both!(an_undelivered_claim_goes_to_the_next_worker, |world| {
    world.created(1, json!({})).await;
    world.created(2, json!({})).await;
    let unheard = world.asking_for_work("w", 2).open().await;
    assert_eq!(unheard.status(), 200);
    let next = tokio::spawn(world.asking_for_work("v", 2).send());
    world.until_waiting(1).await;
    world.events().await;
    drop(unheard);
    let claims = next.await.unwrap().expect(200);
    assert_eq!(claims["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(
        world.news().await,
        [
            "task-exception 1/0",
            "task-pending 1/1",
            "task-exception 2/0",
            "task-pending 2/1",
            "task-running 1/1",
            "task-running 2/1"
        ]
    );
});

on_both!(
    a_run_that_was_reclaimed_meanwhile_is_not_returned,
    |world| {
        world.created(1, json!({})).await;
        let unheard = world.asking_for_work("w", 1).open().await;
        // As if its credentials had reached it in another way.
        world.clock.advance_ms(1);
        world.about_task(1, "runs/0/reclaim").await.expect(200);
        drop(unheard);
        // The write that comes after it shows that it has been.
        world.created(2, json!({})).await;
        assert_eq!(world.claim("v", 2).await.len(), 1);
        assert_eq!(world.state(1).await, "running");
    }
);
