"""The vocabulary of these tests: a caller, the things it makes, and how it is refused."""

import datetime
import itertools
import re

import pytest
import taskcluster
from taskcluster.exceptions import TaskclusterAuthFailure, TaskclusterRestFailure

OWNER = "ops@example.com"
SECRET = "StaticSecret0StaticSecret1StaticSecret2abcde"
OTHER_SECRET = SECRET.swapcase()
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
COUNTS = [
    "currentCapacity",
    *("requestedCount", "runningCount", "stoppingCount", "stoppedCount"),
    *("requestedCapacity", "runningCapacity", "stoppingCapacity", "stoppedCapacity"),
]
MAX_PAGES = 1000

_numbers = itertools.count(1)


class Fleet:
    """The official client, as one caller uses it. Nothing is retried: a 5xx must be seen."""

    def __init__(self, root_url, credentials=None, authorized_scopes=None):
        self.root_url = root_url
        options = {"rootUrl": root_url, "maxRetries": 0}
        if credentials:
            options["credentials"] = dict(credentials)  # The client changes what it is given.
        if authorized_scopes is not None:
            options["authorizedScopes"] = authorized_scopes
        self.auth = taskcluster.Auth(options)
        self.worker_manager = taskcluster.WorkerManager(options)
        self.purge_cache = taskcluster.PurgeCache(options)
        self.secrets = taskcluster.Secrets(options)


def unique(word):
    """A name that no other test uses: the server is shared."""
    return f"{word}-{next(_numbers)}"


def in_an_hour():
    return taskcluster.fromNowJSON("1 hour")


def pool_definition(provider="static", config=None, **changes):
    return {
        "providerId": provider,
        "description": "A pool of the interop tests.",
        "owner": OWNER,
        "emailOnError": False,
        "config": config if config is not None else {},
        **changes,
    }


def launch_config(zone, **worker_manager):
    region = zone.rsplit("-", 1)[0]
    entry = {
        "region": region,
        "zone": zone,
        "machineType": f"zones/{zone}/machineTypes/n2-standard-4",
        "disks": [{"boot": True}],
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "scheduling": {"onHostMaintenance": "terminate"},
        "workerConfig": {"genericWorker": {"config": {"idleTimeoutSecs": 15}}},
    }
    return {**entry, "workerManager": worker_manager} if worker_manager else entry


def google_config(*launch_configs, **changes):
    # No capacity, so that the fleet does not start workers which the test did not ask for.
    return {
        "minCapacity": 0,
        "maxCapacity": 0,
        "launchConfigs": list(launch_configs),
        **changes,
    }


def new_pool(owner, **definition):
    pool_id = f"interop/{unique('pool')}"
    owner.worker_manager.createWorkerPool(pool_id, pool_definition(**definition))
    return pool_id


def worker_definition(secret=SECRET, **changes):
    return {
        "expires": in_an_hour(),
        "providerInfo": {"staticSecret": secret},
        **changes,
    }


def new_worker(owner, pool_id, group="rack-1"):
    """The names by which the API knows the worker: pool, group, id."""
    worker = (pool_id, group, unique("host"))
    owner.worker_manager.createWorker(*worker, worker_definition())
    return worker


def registration(worker, secret=SECRET, provider="static"):
    pool_id, group, worker_id = worker
    return {
        "workerPoolId": pool_id,
        "providerId": provider,
        "workerGroup": group,
        "workerId": worker_id,
        "workerIdentityProof": {"staticSecret": secret},
    }


def reregistration(worker, secret):
    pool_id, group, worker_id = worker
    return {
        "workerPoolId": pool_id,
        "workerGroup": group,
        "workerId": worker_id,
        "secret": secret,
    }


def error_report(worker, title="Disk is full"):
    _, group, worker_id = worker
    return {
        "kind": "worker-error",
        "title": title,
        "description": "There is no room for the checkout.",
        "extra": {"code": "disk-full", "free": 0},
        "workerGroup": group,
        "workerId": worker_id,
    }


def temporary(credentials, scopes, name=None, start="-1 minute", expiry="1 hour"):
    made = taskcluster.createTemporaryCredentials(
        credentials["clientId"],
        credentials["accessToken"],
        taskcluster.fromNow(start),
        taskcluster.fromNow(expiry),
        scopes,
        name=name,
    )
    return {name: _text(value) for name, value in made.items()}


def gather(call, key, *arguments, **query):
    """All items of a list, page by page, as clients do: an absent key ends it."""
    items, sizes, query = [], [], {"limit": "1", **query}
    names = dict(zip(_arguments_of(call), arguments, strict=True))
    for _ in range(MAX_PAGES):
        page = call(params=names, query=query)
        items += page[key]
        sizes.append(len(page[key]))
        if "continuationToken" not in page:
            assert all(size <= int(query["limit"]) for size in sizes), sizes
            return items
        query["continuationToken"] = page["continuationToken"]
    raise AssertionError(f"more than {MAX_PAGES} pages")


def refusal(call, *arguments, **keywords):
    """The failure with which a call ends."""
    with pytest.raises((TaskclusterRestFailure, TaskclusterAuthFailure)) as caught:
        call(*arguments, **keywords)
    return caught.value


def assert_refused(failure, status, code, method, text=""):
    assert (failure.status_code, failure.body.get("code")) == (status, code), failure.body
    assert_error_body(failure.body, status, method)
    assert text in failure.body["message"]


def assert_error_body(body, status, method=None):
    """The error format that every client knows."""
    assert set(body) == {"code", "message", "requestInfo"}, body
    about = body["requestInfo"]
    assert set(about) == {"method", "params", "payload", "time"}, about
    assert method is None or about["method"] == method
    assert re.fullmatch(TIME, about["time"])
    trailer = (
        "\n\n---\n\n"
        f"* method:     {about['method']}\n"
        f"* errorCode:  {body['code']}\n"
        f"* statusCode: {status}\n"
        f"* time:       {about['time']}"
    )
    assert body["message"].endswith(trailer), body["message"]


def parse_time(text):
    assert re.fullmatch(TIME, text), text
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _arguments_of(call):
    entry = type(call.__self__).funcinfo[call.__name__]
    return entry["args"]


def _text(value):
    return value.decode() if isinstance(value, bytes) else value
