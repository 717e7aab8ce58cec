"""A proxy between the servers under test and moto, a fake EC2. It injects failures.

It also adds behaviour that moto lacks: one client token is one launch, and a launch makes the
maximum number of machines instead of the minimum. It removes networks that moto does not have.
"""

import http.client
import os
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit
from xml.etree import ElementTree

import pytest

SECONDS = 60
QUIET_SECONDS = 1.5
PASSED_ON = ["Authorization", "Content-Type", "X-Amz-Date"]
NETWORK = ("SubnetId", "SecurityGroupId", "NetworkInterface")
SCOPE = "test/20260101/{}/ec2/aws4_request"  # The region and the service of the call.
SIGNED = f"AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host, Signature=0"
IMAGE = "ami-12c6146b"
GONE = {"shutting-down", "terminated"}
DEPLOYMENT, LAUNCH, POOL = "fleetwright:deployment", "fleetwright:launch", "WorkerPoolId"

# The failures of a call.
THROTTLED = (503, "RequestLimitExceeded")
NO_STOCK = (500, "InsufficientInstanceCapacity")
LOSE_ANSWER = "the answer is lost"
LOSE_CALL = "the call is lost"


class Ec2:
    """EC2 as the servers see it. `trouble` chooses the failure of each call, if any."""

    def __init__(self, target, regions):
        self.target, self.regions = target, regions
        self.trouble = lambda call: None
        self.troubles = Counter()
        self.calls = []
        self._launches = {}
        self._launching = threading.Lock()
        self._last_launch = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def settings(self):
        """The provider's section of a configuration."""
        regions = ", ".join(f'"{region}"' for region in self.regions)
        return f"""
[providers.ec2]
kind = "aws"
access_key_id = "test"
secret_access_key = "test"
endpoint = "{self.url}"
home_region = "{self.regions[0]}"
regions = [{regions}]
"""

    def is_quiet(self):
        """No launch is running, and none has begun for a moment."""
        is_busy = self._launching.locked()
        return not is_busy and time.monotonic() - self._last_launch > QUIET_SECONDS

    def n_calls(self, action):
        return sum(call["Action"] == action for call in list(self.calls))

    def machines(self, root_url):
        """The tags of this deployment's machines that have not ended, by id."""
        return {id: tags for id, state, tags in self._all(root_url) if state not in GONE}

    def all_machines(self, root_url):
        """The same with machines that have ended."""
        return {id: tags for id, _, tags in self._all(root_url)}

    def states(self, ids):
        """The states of these machines, by id. Others share this cloud."""
        return {id: state for id, state, _ in self._every() if id in ids}

    def taskcluster_makes(self, pool_id, provider_id, region, count):
        """Machines as Taskcluster's aws provider makes them. Returns their ids."""
        tags = {
            "CreatedBy": f"taskcluster-wm-{provider_id}",
            "ManagedBy": "taskcluster",
            "Name": pool_id,
            "Owner": "ops@example.com",
            "WorkerPoolId": pool_id,
        }
        form = {
            "Action": "RunInstances",
            "Version": "2016-11-15",
            "ImageId": IMAGE,
            "InstanceType": "m5.large",
            "MinCount": count,
            "MaxCount": count,
            "TagSpecification.1.ResourceType": "instance",
        }
        for number, (key, value) in enumerate(tags.items(), 1):
            form[f"TagSpecification.1.Tag.{number}.Key"] = key
            form[f"TagSpecification.1.Tag.{number}.Value"] = value
        headers = {"Authorization": SIGNED.format(region)}
        status, body = self._ask(urlencode(form), headers)
        assert status == 200, body
        ids = ElementTree.fromstring(body).iterfind(".//{*}instancesSet/{*}item/{*}instanceId")
        return [id.text for id in ids]

    def launch_config(self, region, launch_config_id=None):
        config = {
            "region": region,
            "launchConfig": {"ImageId": IMAGE, "InstanceType": "m5.large"},
            "workerConfig": {},
            "workerManager": {"capacityPerInstance": 1},
        }
        if launch_config_id:
            config["workerManager"]["launchConfigId"] = launch_config_id
        return config

    def _all(self, root_url):
        return (it for it in self._every() if it[2].get(DEPLOYMENT) == root_url)

    def _every(self):
        for region in self.regions:
            headers = {"Authorization": SIGNED.format(region)}
            form = {"Action": "DescribeInstances", "Version": "2016-11-15", "MaxResults": "1000"}
            status, body = self._ask(urlencode(form), headers)
            assert status == 200 and b"<nextToken>" not in body, body
            for instance in ElementTree.fromstring(body).iterfind(".//{*}instancesSet/{*}item"):
                items = instance.iterfind("{*}tagSet/{*}item")
                tags = {item.findtext("{*}key"): item.findtext("{*}value") for item in items}
                state = instance.findtext("{*}instanceState/{*}name")
                yield instance.findtext("{*}instanceId"), state, tags

    def _answer(self, form, headers):
        """The status and the body; `None`: close the connection without a response."""
        call = dict(parse_qsl(form))
        self.calls.append(call)
        trouble = self.trouble(call)
        self.troubles[trouble] += 1
        if trouble == LOSE_CALL:
            return None
        if trouble in (THROTTLED, NO_STOCK):
            status, code = trouble
            return status, error(code)
        is_launch = call["Action"] == "RunInstances"
        answer = self._launch(form, call, headers) if is_launch else self._ask(form, headers)
        return None if trouble == LOSE_ANSWER else answer

    def _launch(self, form, call, headers):
        token = call["ClientToken"]
        self._last_launch = time.monotonic()
        with self._launching:
            self._last_launch = time.monotonic()
            if token in self._launches:
                first, answer = self._launches[token]
                return answer if first == form else (400, error("IdempotentParameterMismatch"))
            sent = {key: value for key, value in call.items() if not key.startswith(NETWORK)}
            sent["MinCount"] = call["MaxCount"]
            answer = self._ask(urlencode(sent), headers)
            self._launches[token] = (form, answer)
            return answer

    def _ask(self, form, headers):
        connection = http.client.HTTPConnection(urlsplit(self.target).netloc, timeout=SECONDS)
        try:
            form_type = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/", form, {**form_type, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _handler(proxy):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = SECONDS

            def do_POST(self):
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                headers = {name: self.headers[name] for name in PASSED_ON if self.headers[name]}
                answer = proxy._answer(form, headers)
                if answer is None:
                    self.close_connection = True
                    return
                status, body = answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

            def handle(self):
                try:
                    super().handle()
                except ConnectionError:
                    pass  # The client was killed.

        return Handler


@pytest.fixture
def ec2():
    """Makes EC2 proxies, and closes them."""
    if "TEST_EC2_URL" not in os.environ:
        pytest.skip("TEST_EC2_URL names no server that plays EC2 (scripts/with-moto sets it)")
    made = []

    def make(*regions):
        made.append(Ec2(os.environ["TEST_EC2_URL"], regions))
        return made[-1]

    yield make
    for one in made:
        one.close()


def sometimes(rng):
    """Each failure once at the first calls that make or end machines, then at one call in four."""
    kinds = {
        "RunInstances": [NO_STOCK, THROTTLED, LOSE_ANSWER],
        "TerminateInstances": [THROTTLED, LOSE_CALL, LOSE_ANSWER],
    }
    first = {action: rng.sample(some, len(some)) for action, some in kinds.items()}
    one_at_a_time = threading.Lock()

    def trouble(call):
        action = call["Action"]
        with one_at_a_time:
            if first.get(action):
                return first[action].pop()
            some = kinds.get(action, [THROTTLED, LOSE_CALL, LOSE_ANSWER])
            return rng.choice([*some, *[None] * 9])

    return trouble


def error(code):
    text = f"<Code>{code}</Code><Message>made up</Message>"
    return f"<Response><Errors><Error>{text}</Error></Errors></Response>".encode()
