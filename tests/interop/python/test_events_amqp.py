"""Events on RabbitMQ, received by an independent client (pika) with its own queue."""

import json
import os
import sys

import pika
import pytest
import taskcluster
from fleet import Fleet, new_pool, new_worker, pool_definition, unique
from fleet_server import FleetServer, wait_until

SECONDS = 60
WORKER_EVENTS = "exchange/taskcluster-worker-manager/v1/"
QUEUE_EVENTS = "exchange/taskcluster-queue/v1/"
OUR_EVENTS = "exchange/fleetwright/v1/"


class Listener:
    """Receives the messages that are published to some exchanges."""

    def __init__(self, url, exchanges, key="#"):
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.queue = f"queue/fleetwright/{unique('interop')}"
        self.channel.queue_declare(self.queue, exclusive=True)
        for exchange in exchanges:
            self.channel.queue_bind(self.queue, exchange, routing_key=key)

    def until(self, is_last):
        """The messages up to one, in the order in which they came: exchange, properties, payload."""
        heard = []
        for method, properties, body in self.channel.consume(
            self.queue, auto_ack=True, inactivity_timeout=SECONDS
        ):
            assert method, f"after {SECONDS} s there were only {[name for name, _, _ in heard]}"
            message = (method.exchange, properties, json.loads(body))
            heard.append(message)
            if is_last(message):
                self.channel.cancel()
                return heard

    def close(self):
        self.connection.close()


@pytest.fixture(scope="module")
def broker():
    if "TEST_AMQP_URL" not in os.environ:
        pytest.skip("TEST_AMQP_URL names no RabbitMQ (scripts/with-rabbitmq sets it)")
    return os.environ["TEST_AMQP_URL"]


@pytest.fixture
def publishing(broker, tmp_path):
    """A server that publishes events, once its exchanges exist."""
    further = f"""
[providers.local]
kind = "local"
[events.amqp]
url = "{broker}"
"""
    with FleetServer(tmp_path, further=further) as server:
        wait_until(lambda: has_exchanges(broker), SECONDS, "the exchanges are declared")
        yield server


@pytest.fixture
def listen(broker):
    """Makes listeners, and closes their connections."""
    listeners = []

    def make(*exchanges, key="#"):
        listeners.append(Listener(broker, exchanges, key))
        return listeners[-1]

    yield make
    for listener in listeners:
        listener.close()


def has_exchanges(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker))
    try:
        # The last exchange that a server declares.
        connection.channel().exchange_declare(f"{OUR_EVENTS}worker-stopping", passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    finally:
        connection.close()
    return True


def names(heard):
    return [exchange.rsplit("/", 1)[-1] for exchange, _, _ in heard]


def test_a_worker_is_heard_to_come_to_run_and_to_go(publishing, listen):
    owner = Fleet(publishing.root_url, publishing.credentials)
    changes = ["worker-requested", "worker-running", "worker-stopped"]
    provisioner, worker_type = "interop", unique("local")
    key = f"primary.*.{provisioner}.{worker_type}.#"
    workers = listen(*(WORKER_EVENTS + change for change in changes), key=key)
    pool_id = f"{provisioner}/{worker_type}"
    idle = {"genericWorker": {"config": {"idleTimeoutSecs": 1}}}
    config = {
        "minCapacity": 0,
        "maxCapacity": 1,
        "launchConfigs": [{"workerConfig": idle}],
    }
    definition = pool_definition(provider="local", config=config)
    owner.worker_manager.createWorkerPool(pool_id, definition)
    create_task(owner, pool_id)
    heard = workers.until(lambda message: message[0].endswith("worker-stopped"))
    assert without_repeats(heard) == changes
    payloads = [payload for _, _, payload in heard]
    assert {payload["workerPoolId"] for payload in payloads} == {pool_id}
    assert len({payload["workerId"] for payload in payloads}) == 1
    for _, properties, _ in heard:
        assert properties.content_type == "application/json"
        assert properties.content_encoding == "utf-8"
        assert properties.delivery_mode == 2
        assert len(properties.message_id) == 22


def test_declared_workers_and_tasks_are_heard_too(publishing, listen):
    owner = Fleet(publishing.root_url, publishing.credentials)
    pool_id = new_pool(owner)
    route = unique("index.interop")
    provisioner, worker_type = pool_id.split("/")
    key = f"primary.static.{provisioner}.{worker_type}.#"
    exchanges = ["worker-running", "worker-removed", "worker-stopped"]
    workers = listen(
        *(WORKER_EVENTS + exchange for exchange in exchanges),
        f"{OUR_EVENTS}worker-stopping",
        key=key,
    )
    tasks = listen(f"{QUEUE_EVENTS}task-pending", key=f"route.{route}")

    worker = new_worker(owner, pool_id)
    owner.worker_manager.removeWorker(*worker)
    task_id = create_task(owner, pool_id, routes=[route])

    heard = workers.until(lambda message: message[0].endswith("worker-stopped"))
    expected = ["worker-running", "worker-removed", "worker-stopping", "worker-stopped"]
    assert without_repeats(heard) == expected
    [(_, _, pending)] = tasks.until(lambda _: True)
    assert pending["status"]["taskId"] == task_id
    assert pending["status"]["taskQueueId"] == pool_id


def test_what_happened_while_the_server_was_down_for_a_moment_is_heard_once_it_is_back(
    publishing, listen
):
    owner = Fleet(publishing.root_url, publishing.credentials)
    pools = listen(f"{WORKER_EVENTS}worker-pool-created")
    made = [new_pool(owner) for _ in range(20)]
    publishing.kill()
    publishing.start()
    made += [new_pool(owner) for _ in range(3)]
    heard = pools.until(lambda message: message[2]["workerPoolId"] == made[-1])
    seen = dict.fromkeys(payload["workerPoolId"] for _, _, payload in heard)
    assert [pool for pool in seen if pool.startswith("interop/")] == made


def create_task(owner, pool_id, routes=()):
    queue = taskcluster.Queue(dict(owner.auth.options, maxRetries=0))
    task_id = taskcluster.slugId()
    queue.createTask(
        task_id,
        {
            "taskQueueId": pool_id,
            "created": taskcluster.fromNowJSON("0 seconds"),
            "deadline": taskcluster.fromNowJSON("1 hour"),
            "routes": list(routes),
            "payload": {"command": [sys.executable, "-c", "print('done')"], "maxRunTime": 60},
            "metadata": {
                "name": "interop",
                "description": "A task of the interop tests.",
                "owner": "ops@example.com",
                "source": "https://example.com/",
            },
        },
    )
    return task_id


def without_repeats(heard):
    """The names of the received events, each once: a repetition has the same id."""
    seen = {(exchange, properties.message_id): None for exchange, properties, _ in heard}
    return [exchange.rsplit("/", 1)[-1] for exchange, _ in seen]
