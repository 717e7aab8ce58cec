"""Secrets, through the official client."""

from fleet import (
    Fleet,
    assert_refused,
    gather,
    in_an_hour,
    new_pool,
    new_worker,
    refusal,
    registration,
    temporary,
    unique,
)


def test_a_secret_is_written_replaced_read_listed_and_removed(owner):
    name = f"project/{unique('a secret')}/with: odd name"
    for value in ({"token": "one"}, {"token": {"deep": ["two", 2, None]}}):
        written = {"secret": value, "expires": in_an_hour()}
        assert owner.secrets.set(name, written) == {}
        read = owner.secrets.get(name)
        assert read["secret"] == value
        # The server keeps milliseconds.
        assert read["expires"][:23] == written["expires"][:23]
    assert name in gather(owner.secrets.list, "secrets")
    for _ in range(2):
        assert owner.secrets.remove(name) == {}
    failure = refusal(owner.secrets.get, name)
    assert_refused(failure, 404, "ResourceNotFound", "get", "Secret not found")


def test_a_worker_reads_the_secret_of_its_pool_and_no_other(server, owner):
    pool, other = new_pool(owner), new_pool(owner)
    for of_pool in (pool, other):
        value = {"config": {"pool": of_pool}, "files": []}
        written = {"secret": value, "expires": in_an_hour()}
        owner.secrets.set(f"worker-pool:{of_pool}", written)
    anonymous = Fleet(server.root_url)
    worker = new_worker(owner, pool)
    registered = anonymous.worker_manager.registerWorker(registration(worker))
    itself = Fleet(server.root_url, registered["credentials"])
    read = itself.secrets.get(f"worker-pool:{pool}")
    assert read["secret"]["config"] == {"pool": pool}
    failure = refusal(itself.secrets.get, f"worker-pool:{other}")
    assert_refused(failure, 403, "InsufficientScopes", "get")
    # worker-runner asks for the secret of the worker type too, and goes on without it.
    failure = refusal(itself.secrets.get, f"worker-type:{pool}")
    assert failure.status_code in (403, 404)


def test_scopes_name_the_secrets_that_a_caller_may_use(server, owner):
    reader = temporary(server.credentials, ["secrets:get:interop/mine/*"])
    reader = Fleet(server.root_url, reader).secrets
    written = {"secret": {}, "expires": in_an_hour()}
    owner.secrets.set("interop/mine/a", written)
    assert reader.get("interop/mine/a")["secret"] == {}
    for known in ("interop/other", "interop/mine/a"):
        failure = refusal(reader.set, known, written)
        assert_refused(failure, 403, "InsufficientScopes", "set")
        failure = refusal(reader.remove, known)
        assert_refused(failure, 403, "InsufficientScopes", "remove")
    assert_refused(refusal(reader.list), 403, "InsufficientScopes", "list")
