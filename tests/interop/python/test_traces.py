"""Traces reach a collector that others wrote: the lives of workers, and requests."""

import logging
import urllib.request
from http.server import HTTPServer

import oteltest.sink
import taskcluster
from fleet import Fleet, pool_definition
from fleet_server import FleetServer, wait_until
from google.protobuf.json_format import MessageToDict
from oteltest.sink.handler import RequestHandler
from workload import SECONDS, local_workers, task_definition

POOL = "test/traced"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Spans(RequestHandler):
    """All spans that arrived, as dictionaries, with the headers of their messages."""

    def __init__(self):
        self.spans, self.headers = [], []

    def handle_trace(self, request, headers):
        self.headers.append({name.lower(): value for name, value in headers.items()})
        for resource in request.resource_spans:
            service = MessageToDict(resource.resource)["attributes"]
            for scope in resource.scope_spans:
                self.spans += [{**read(span), "service": service} for span in scope.spans]

    def handle_metrics(self, request, headers):
        raise AssertionError("nobody sends metrics")

    def handle_logs(self, request, headers):
        raise AssertionError("nobody sends logs")

    def named(self, name):
        return [span for span in self.spans if span["name"] == name]


def read(span):
    plain = MessageToDict(span)
    values = {one["key"]: one["value"] for one in plain.get("attributes", [])}
    return {
        "name": span.name,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "took": span.end_time_unix_nano - span.start_time_unix_nano,
        "status": span.status.code,
        **values,
    }


class Loopback(HTTPServer):
    """The collector listens on all addresses of the machine. This one does not."""

    def __init__(self, address, handler):
        super().__init__(("127.0.0.1", address[1]), handler)


def test_a_worker_and_its_run_are_one_trace_and_requests_are_spans(tmp_path, monkeypatch):
    monkeypatch.setattr(oteltest.sink, "HTTPServer", Loopback)
    spans = Spans()
    sink = oteltest.sink.HttpSink(spans, logging.getLogger("sink"), port=0)
    sink.start()
    wait_until(lambda: sink.httpd, SECONDS, "the collector listens")
    port = sink.httpd.server_port
    secret = tmp_path / "authorization"
    secret.write_text("Bearer a-secret-of-the-collector")
    secret.chmod(0o600)
    settings = f"""
[traces]
endpoint = "http://127.0.0.1:{port}"
authorization_file = "{secret}"
"""
    try:
        with FleetServer(tmp_path, further=local_workers(1) + settings) as server:
            run_one(server, spans)
            ask_with_parent(server, spans)
    finally:
        sink.stop()
    assert spans.headers[0]["authorization"] == "Bearer a-secret-of-the-collector"


def run_one(server, spans):
    manager = Fleet(server.root_url, server.credentials).worker_manager
    options = {"rootUrl": server.root_url, "credentials": dict(server.credentials)}
    queue, task_id = taskcluster.Queue(options), taskcluster.slugId()
    config = {"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [{"workerConfig": {}}]}
    manager.createWorkerPool(POOL, pool_definition("local", config))
    queue.createTask(task_id, task_definition(POOL, {"command": "true"}))
    wait_until(lambda: spans.named("run"), SECONDS, "the span of the run arrives")
    [worker] = manager.listWorkersForWorkerPool(POOL)["workers"]
    manager.removeWorker(POOL, worker["workerGroup"], worker["workerId"])
    wait_until(lambda: spans.named("worker"), SECONDS, "the span of the worker arrives")
    [life], [run] = spans.named("worker"), spans.named("run")
    assert life["fleetwright.pool"] == {"stringValue": POOL} and not life["parent"]
    assert run["fleetwright.task"] == {"stringValue": task_id} and run["status"] == 1
    steps = [span for name in ("requested", "accepted", "registered") for span in spans.named(name)]
    assert len(steps) == 3, spans.spans
    for span in [run, *steps]:
        assert (span["trace"], span["parent"]) == (life["trace"], life["id"]), span
        assert span["took"] >= 0


def ask_with_parent(server, spans):
    ping = f"{server.root_url}/api/queue/v1/ping"
    with urllib.request.urlopen(urllib.request.Request(ping, headers={"traceparent": PARENT})):
        pass

    def traced():
        return [span for span in spans.spans if span["trace"] == PARENT.split("-")[1]]

    wait_until(traced, SECONDS, "the request is in the trace of its caller")
    [span] = traced()
    assert span["parent"] == PARENT.split("-")[2]
    assert span["http.response.status_code"] == {"intValue": "200"}
    assert {"key": "service.name", "value": {"stringValue": "fleetwright"}} in span["service"]
