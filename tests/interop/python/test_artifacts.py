"""Artifacts and logs, uploaded and fetched like the official clients do it."""

import base64
import gzip
import json
from urllib.parse import urljoin

import mohawk
import pytest
import requests
import slugid
import taskcluster
import taskcluster.download
from fleet import in_an_hour, unique
from taskcluster.exceptions import TaskclusterRestFailure

SECONDS = 30


class Run:
    """A task's only run, claimed by a worker that is this test."""

    def __init__(self, server):
        self.root_url = server.root_url
        self.owner = self._queue(server.credentials)
        self.queue_id = f"interop/{unique('files')}"
        self.task_id = slugid.nice()
        self.owner.createTask(self.task_id, self._definition())
        workers = {"workerGroup": "rack-1", "workerId": unique("host"), "tasks": 1}
        (claim,) = self.owner.claimWork(self.queue_id, workers)["tasks"]
        self.credentials = claim["credentials"]
        self.worker = self._queue(self.credentials)

    def _queue(self, credentials):
        options = {"rootUrl": self.root_url, "credentials": dict(credentials), "maxRetries": 0}
        return taskcluster.Queue(options)

    def _definition(self):
        return {
            "taskQueueId": self.queue_id,
            "created": taskcluster.fromNowJSON("0 seconds"),
            "deadline": in_an_hour(),
            "payload": {},
            "metadata": {
                "name": "leaves files",
                "description": "For the interop tests.",
                "owner": "ops@example.com",
                "source": "https://example.com/",
            },
        }

    def create(self, name, **artifact):
        artifact.setdefault("expires", in_an_hour())
        return self.worker.createArtifact(self.task_id, "0", name, artifact)

    def upload(self, name, content, content_type="text/plain", headers=()):
        made = self.create(name, storageType="s3", contentType=content_type)
        headers = {"content-type": content_type, **dict(headers)}
        reply = requests.put(made["putUrl"], data=content, headers=headers, timeout=SECONDS)
        assert reply.status_code == 200, reply.text

    def fetch(self, name):
        """As a browser would: by a signed URL, over redirects."""
        url = self.owner.buildSignedUrl("getArtifact", self.task_id, "0", name)
        return requests.get(url, timeout=SECONDS)

    def log(self, method, query, body=None):
        """The endpoints of the log are ours, so the official client does not know them."""
        url = f"{self.root_url}/api/fleetwright/v1/task/{self.task_id}/runs/0/log{query}"
        certificate = json.loads(self.credentials["certificate"])
        ext = base64.b64encode(json.dumps({"certificate": certificate}).encode()).decode()
        sender = mohawk.Sender(
            {
                "id": self.credentials["clientId"],
                "key": self.credentials["accessToken"],
                "algorithm": "sha256",
            },
            url,
            method,
            ext=ext,
            always_hash_content=False,
        )
        headers = {"authorization": sender.request_header}
        if body is not None:
            headers["content-type"] = "application/octet-stream"
        return requests.request(
            method, url, data=body, headers=headers, timeout=SECONDS, stream=True
        )


@pytest.fixture
def run(own_server):
    return Run(own_server)


def test_a_file_makes_the_round_trip(run):
    content = b"\x00\xff" * 3_000_000
    run.upload("public/large.bin", content, "application/octet-stream")
    fetched = run.fetch("public/large.bin")
    assert fetched.status_code == 200
    assert fetched.content == content
    assert fetched.headers["content-type"] == "application/octet-stream"
    (listed,) = run.owner.listLatestArtifacts(run.task_id)["artifacts"]
    assert listed["contentLength"] == len(content)


def test_the_official_download_finds_it(run):
    name = "private/a b/c+d?e.txt"
    run.upload(name, b"small")
    content, content_type = taskcluster.download.downloadArtifactToBuf(
        taskId=run.task_id, name=name, queueService=run.owner
    )
    assert (bytes(content), content_type) == (b"small", "text/plain")


def test_a_packed_file_arrives_unpacked(run):
    packed = gzip.compress(b"many words " * 1_000)
    run.upload("public/log.txt", packed, headers={"content-encoding": "gzip"})
    assert run.fetch("public/log.txt").content == b"many words " * 1_000


def test_an_error_is_told_as_one(run):
    run.create(
        "public/gone", storageType="error", reason="file-missing-on-worker", message="not there"
    )
    fetched = run.fetch("public/gone")
    assert fetched.status_code == 424
    assert fetched.json() == {"reason": "file-missing-on-worker", "message": "not there"}
    with pytest.raises(taskcluster.exceptions.TaskclusterArtifactError, match="not there"):
        taskcluster.download.downloadArtifactToBuf(
            taskId=run.task_id, name="public/gone", queueService=run.owner
        )


def test_the_object_service_is_declined_in_words(run):
    with pytest.raises(TaskclusterRestFailure, match="use the storage type `s3`"):
        run.create("public/a", storageType="object", contentType="text/plain")


def test_a_log_is_followed_while_it_is_written(run):
    assert run.log("PUT", "?offset=0", b"first line\n").json()["length"] == 11
    url = run.owner.buildSignedUrl("getArtifact", run.task_id, "0", "public/logs/live.log")
    with requests.get(url, timeout=SECONDS, stream=True) as reply:
        lines = reply.iter_lines(chunk_size=1)
        assert next(lines) == b"first line"
        run.log("PUT", "?offset=11", b"second line\n")
        assert next(lines) == b"second line"
        run.log("PUT", "?offset=23&finished=true", b"")
        assert list(lines) == []
    run.worker.reportCompleted(run.task_id, "0")
    assert run.fetch("public/logs/live_backing.log").text == "first line\nsecond line\n"


def test_a_download_goes_on_where_it_stopped(run):
    content = bytes(range(256)) * 10_000
    run.upload("public/large.bin", content, "application/octet-stream")
    whole = run.fetch("public/large.bin")
    headers = {"range": f"bytes={len(content) // 2}-", "if-range": whole.headers["etag"]}
    rest = requests.get(whole.url, headers=headers, timeout=SECONDS)
    assert rest.status_code == 206
    assert rest.content == content[len(content) // 2 :]
    known = {"if-none-match": whole.headers["etag"]}
    assert requests.get(whole.url, headers=known, timeout=SECONDS).status_code == 304


def test_a_client_without_gzip_gets_the_file_unpacked(run):
    words = b"many words " * 1_000
    packed = gzip.compress(words)
    run.upload("public/log.txt", packed, headers={"content-encoding": "gzip"})
    url = run.fetch("public/log.txt").url
    plain = requests.get(url, headers={"accept-encoding": "identity"}, timeout=SECONDS)
    assert "content-encoding" not in plain.headers
    assert plain.content == words


def test_a_report_of_several_files_shows_at_its_own_origin(run):
    everybody = taskcluster.Auth(
        {
            "rootUrl": run.root_url,
            "credentials": run.owner.options["credentials"],
            "maxRetries": 0,
        }
    )
    scopes = {"description": "", "scopes": ["queue:get-artifact:public/*"]}
    everybody.updateRole("anonymous", scopes)
    run.upload("public/report/index.html", b"<link href=a.css>", "text/html")
    run.upload("public/report/a.css", b"p {}", "text/css")
    run.upload("private/a.css", b"secret", "text/css")
    page = run.fetch("public/report/index.html")
    assert not page.url.startswith(run.root_url)
    assert page.content == b"<link href=a.css>"
    assert "default-src" not in page.headers["content-security-policy"]
    style = requests.get(urljoin(page.url, "a.css"), timeout=SECONDS)
    assert (style.status_code, style.content) == (200, b"p {}")
    private = requests.get(urljoin(page.url, "../../private/a.css"), timeout=SECONDS)
    assert private.status_code == 403
    assert run.fetch("private/a.css").url.startswith(run.root_url)


def test_an_absent_service_is_named(run):
    hooks = taskcluster.Hooks(
        {"rootUrl": run.root_url, "credentials": run.owner.options["credentials"], "maxRetries": 0}
    )
    with pytest.raises(TaskclusterRestFailure, match="does not serve `hooks.listHookGroups`"):
        hooks.listHookGroups()
