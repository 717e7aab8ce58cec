"""The life of a worker of a static pool, through the official client."""

import json

import pytest
from fleet import (
    OTHER_SECRET,
    SECRET,
    Fleet,
    assert_refused,
    error_report,
    gather,
    new_pool,
    new_worker,
    parse_time,
    refusal,
    registration,
    reregistration,
    unique,
    worker_definition,
)


@pytest.fixture
def pool_id(owner):
    config = {"workerConfig": {"genericWorker": {"config": {"idleTimeoutSecs": 15}}}}
    return new_pool(owner, config=config)


@pytest.fixture
def worker(owner, pool_id):
    return new_worker(owner, pool_id)


@pytest.fixture
def registered(worker, passer_by):
    """The reply that a worker got when it proved itself."""
    return passer_by.worker_manager.registerWorker(registration(worker))


def as_worker(server, reply):
    return Fleet(server.root_url, reply["credentials"]).worker_manager


def test_a_registered_worker_gets_its_credentials_and_its_config(worker, registered):
    pool_id, group, worker_id = worker
    credentials = registered["credentials"]
    assert credentials["clientId"] == f"worker/static/{pool_id}/{group}/{worker_id}"
    scopes = json.loads(credentials["certificate"])["scopes"]
    assert f"queue:claim-work:{pool_id}" in scopes
    assert f"assume:worker-id:{group}/{worker_id}" in scopes
    assert registered["workerConfig"] == {"genericWorker": {"config": {"idleTimeoutSecs": 15}}}
    parse_time(registered["expires"])


def test_a_secret_reregisters_once_and_brings_the_next_one(server, worker, registered):
    fleet, secret = as_worker(server, registered), registered["secret"]
    renewed = fleet.reregisterWorker(reregistration(worker, secret))
    assert renewed["secret"] != secret

    fleet = as_worker(server, renewed)
    fleet.reregisterWorker(reregistration(worker, renewed["secret"]))

    failure = refusal(fleet.reregisterWorker, reregistration(worker, OTHER_SECRET))
    text = "Could not generate credentials for this secret"
    assert_refused(failure, 400, "InputError", "reregisterWorker", text)
    assert failure.body["requestInfo"]["payload"] == "(OMITTED)"
    assert OTHER_SECRET not in json.dumps(failure.body)


def test_a_worker_asks_whether_to_go_on(server, worker, registered):
    answer = as_worker(server, registered).shouldWorkerTerminate(*worker)
    assert answer == {"terminate": False, "reason": "none"}


def test_a_worker_may_speak_for_itself_only(server, owner, worker, registered):
    fleet, other = as_worker(server, registered), new_worker(owner, worker[0])
    failure = refusal(fleet.shouldWorkerTerminate, *other)
    text = "does not have sufficient scopes"
    assert_refused(failure, 403, "InsufficientScopes", "shouldWorkerTerminate", text)
    failure = refusal(fleet.reportWorkerError, worker[0], error_report(other))
    assert_refused(failure, 403, "InsufficientScopes", "reportWorkerError", text)


def test_a_reported_error_is_listed_and_counted(server, owner, worker, registered):
    pool_id, group, worker_id = worker
    reported = as_worker(server, registered).reportWorkerError(pool_id, error_report(worker))
    where = {"workerGroup": group, "workerId": worker_id}
    assert reported["extra"] == {"code": "disk-full", "free": 0, **where}

    listed = gather(owner.worker_manager.listWorkerPoolErrors, "workerPoolErrors", pool_id)
    assert listed == [reported]
    of_pool = owner.worker_manager.workerPoolErrorStats(query={"workerPoolId": pool_id})
    totals = of_pool["totals"]
    assert (of_pool["workerPoolId"], totals["total"]) == (pool_id, 1)
    assert (len(totals["daily"]), len(totals["hourly"])) == (7, 24)
    assert sum(totals["hourly"].values()) == 1
    assert totals["title"] == {"Disk is full": 1}
    assert totals["code"] == {"disk-full": 1}
    assert totals["launchConfig"] == {reported["launchConfigId"]: 1}

    of_all = owner.worker_manager.workerPoolErrorStats()
    assert of_all["workerPoolId"] == ""
    assert of_all["totals"]["workerPool"][pool_id] == 1


def test_errors_are_listed_newest_first_and_page_by_page(owner, worker):
    titles = ["first", "second", "third"]
    for title in titles:
        owner.worker_manager.reportWorkerError(worker[0], error_report(worker, title))
    listed = gather(owner.worker_manager.listWorkerPoolErrors, "workerPoolErrors", worker[0])
    assert sorted(error["title"] for error in listed) == titles
    times = [error["reported"] for error in listed]
    assert times == sorted(times, reverse=True)

    one = listed[1]["errorId"]
    found = owner.worker_manager.listWorkerPoolErrors(worker[0], query={"errorId": one})
    assert [error["errorId"] for error in found["workerPoolErrors"]] == [one]


def test_workers_are_listed_by_pool_by_group_and_page_by_page(owner, pool_id):
    made = {new_worker(owner, pool_id, group) for group in ["rack-1", "rack-1", "rack-2"]}

    def listed(call, *arguments, **query):
        workers = gather(call, "workers", *arguments, **query)
        names = [(w["workerPoolId"], w["workerGroup"], w["workerId"]) for w in workers]
        assert len(names) == len(set(names))
        return set(names)

    fleet = owner.worker_manager
    assert listed(fleet.listWorkersForWorkerPool, pool_id) == made
    assert listed(fleet.listWorkersForWorkerPool, pool_id, state="running") == made
    assert listed(fleet.listWorkersForWorkerPool, pool_id, state="stopped") == set()
    in_rack = {worker for worker in made if worker[1] == "rack-2"}
    assert listed(fleet.listWorkersForWorkerGroup, pool_id, "rack-2") == in_rack


def test_a_worker_counts_with_its_capacity(owner, pool_id):
    worker = (pool_id, "rack-1", unique("host"))
    created = owner.worker_manager.createWorker(*worker, worker_definition(capacity=3))
    assert (created["state"], created["capacity"]) == ("running", 3)
    pool = owner.worker_manager.workerPool(pool_id)
    assert (pool["currentCapacity"], pool["runningCount"], pool["runningCapacity"]) == (3, 1, 3)
    stats = owner.worker_manager.workerPoolStats(pool_id)["launchConfigStats"]
    assert [entry["runningCapacity"] for entry in stats] == [3]


def test_an_update_replaces_the_secret(owner, passer_by, worker):
    definition = worker_definition(OTHER_SECRET, capacity=2)
    assert owner.worker_manager.updateWorker(*worker, definition)["capacity"] == 2
    failure = refusal(passer_by.worker_manager.registerWorker, registration(worker))
    assert_refused(failure, 400, "InputError", "registerWorker")
    assert SECRET not in json.dumps(failure.body)
    passer_by.worker_manager.registerWorker(registration(worker, OTHER_SECRET))


def test_a_removed_worker_is_stopped_and_its_id_is_used_up(server, owner, worker, registered):
    as_worker(server, registered).removeWorker(*worker)
    assert owner.worker_manager.worker(*worker)["state"] == "stopped"
    owner.worker_manager.removeWorker(*worker)

    anonymous = Fleet(server.root_url).worker_manager
    failure = refusal(anonymous.registerWorker, registration(worker))
    assert_refused(failure, 400, "InputError", "registerWorker")
    failure = refusal(owner.worker_manager.createWorker, *worker, worker_definition())
    assert_refused(failure, 409, "RequestConflict", "createWorker")


def test_a_worker_that_does_not_exist_is_not_found(owner, pool_id):
    for method in ["worker", "removeWorker", "shouldWorkerTerminate"]:
        failure = refusal(getattr(owner.worker_manager, method), pool_id, "rack-1", "nobody")
        assert_refused(failure, 404, "ResourceNotFound", method, "Worker not found")


def test_a_stranger_cannot_register(passer_by, pool_id):
    stranger = (pool_id, "rack-1", "stranger")
    failure = refusal(passer_by.worker_manager.registerWorker, registration(stranger))
    assert failure.status_code in (400, 404)
    assert failure.body["requestInfo"]["payload"] == "(OMITTED)"


def test_a_worker_cannot_be_made_already_expired(owner, pool_id):
    definition = worker_definition(expires="2020-01-01T00:00:00.000Z")
    call = owner.worker_manager.createWorker
    failure = refusal(call, pool_id, "rack-1", "late", definition)
    text = "worker.expires must be in the future"
    assert_refused(failure, 400, "InputError", "createWorker", text)
    assert failure.body["requestInfo"]["payload"]["providerInfo"]["staticSecret"] == "(OMITTED)"


def test_the_metadata_lists_answer_for_a_pool_whose_workers_never_claimed(owner, worker):
    provisioner, worker_type = worker[0].split("/")
    assert gather(owner.worker_manager.listWorkers, "workers", provisioner, worker_type) == []
    failure = refusal(owner.worker_manager.getWorker, provisioner, worker_type, *worker[1:])
    assert_refused(failure, 404, "ResourceNotFound", "getWorker")
