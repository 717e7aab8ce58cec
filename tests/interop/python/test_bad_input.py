"""After any input without credentials, the server still runs and responds to other clients."""

import time

import pytest
from fleet import assert_error_body, pool_definition, unique
from fleet_server import FleetServer
from raw_http import JSON, Connection, ask, request, signed

REGISTER = "/api/worker-manager/v1/worker/register"
PROVIDERS = "/api/worker-manager/v1/providers"
POOLS = "/api/worker-manager/v1/worker-pools"
CLIENTS = "/api/auth/v1/clients/"

MEGABYTE = 1 << 20
# Longest body of a caller without credentials.
OPEN_BODY = 64 * 1024
N_FITTING = 30_000
N_BRACKETS = 100_000
N_SLOW_CLIENTS = 50
N_PATIENT_CLIENTS = 20
ANSWER_SECONDS = 5


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with FleetServer(tmp_path_factory.mktemp("bad-input")) as server:
        yield server


@pytest.fixture(autouse=True)
def survives(target):
    yield
    assert target.is_alive()


def short(value):
    """The name of a case in the report."""
    return repr(value)[:30]


def register(target, body, headers=JSON):
    return ask(target, f"POST {REGISTER} HTTP/1.1", headers, body)


def assert_refused(answer, *statuses):
    """A refusal in the format that clients read."""
    assert answer is not None, "the connection was closed without an answer"
    assert answer.status in statuses, (answer.status, answer.body[:500])
    assert answer.headers["content-type"].startswith("application/json")
    assert_error_body(answer.json(), answer.status)


def assert_turned_away(answer):
    """Input that is not HTTP gets a 4xx or no response."""
    assert answer is None or 400 <= answer.status < 500, answer.status


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("nothing", b""),
        ("text that is no JSON", b"{'a': 1}"),
        ("JSON that ends early", b'{"a": [1, 2'),
        ("JSON with more behind it", b"{} {}"),
        ("a bare number", b"17"),
        ("a bare string", b'"worker"'),
        ("null", b"null"),
        ("an empty list", b"[]"),
        ("rather deep lists", b"[" * N_FITTING + b"]" * N_FITTING),
        ("lists without an end", b"[" * N_FITTING),
        ("a long number", b'{"a": ' + b"9" * N_FITTING + b"}"),
        ("deep lists", b"[" * N_BRACKETS + b"]" * N_BRACKETS),
        ("deep objects", b'{"a":' * N_BRACKETS + b"1" + b"}" * N_BRACKETS),
        ("brackets that never close", b"[" * N_BRACKETS),
        ("bytes that are no UTF-8", b'{"workerPoolId": "\xff\xfe"}'),
        ("a UTF-8 sequence that is cut", b'{"a": "\xe2\x82"}'),
        ("an encoded surrogate", b'{"a": "\xed\xa0\x80"}'),
        ("half a surrogate pair", rb'{"a": "\ud800"}'),
        ("UTF-16", '{"a": 1}'.encode("utf-16")),
        ("a byte order mark", b"\xef\xbb\xbf{}"),
        ("a raw NUL", b'{"a": "\x00"}'),
        ("an escaped NUL", rb'{"workerPoolId": "a/b\u0000"}'),
        ("a number too large to hold", b'{"a": 1e999999}'),
        ("a very long number", b'{"a": ' + b"9" * MEGABYTE + b"}"),
        ("a name that JavaScript minds", b'{"__proto__": {"a": 1}}'),
        ("one name a hundred thousand times", b"{" + b'"a":1,' * 99_999 + b'"a":1}'),
    ],
    ids=short,
)
def test_a_bad_body_is_refused_in_the_contracts_format(target, what, body):
    # Many small values take much memory.
    too_large = len(body) > OPEN_BODY or body.count(b"[") >= N_FITTING
    assert_refused(register(target, body), 413 if too_large else 400)


def test_twenty_megabytes_are_refused_before_they_are_all_read(target):
    body = b'{"a": "' + b"x" * (20 * MEGABYTE) + b'"}'
    assert_refused(register(target, body), 413)


def test_twenty_megabytes_in_chunks_are_refused_too(target):
    head = request(target, f"POST {REGISTER} HTTP/1.1", {**JSON, "Transfer-Encoding": "chunked"})
    chunk = b"%x\r\n" % MEGABYTE + b"[" * MEGABYTE + b"\r\n"
    with Connection(target) as connection:
        connection.send(head + chunk * 20 + b"0\r\n\r\n")
        assert_refused(connection.receive(), 413)


def test_a_body_of_another_type_is_refused(target):
    assert_refused(register(target, b"a=1", {"Content-Type": "text/plain"}), 400)
    assert_refused(register(target, b"{}", {}), 400)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("colour=red", "colour is not supported!"),
        ("limit=ten", 'limit="ten" does not match expression'),
        ("limit=1&limit=2", "must be a string!"),
        ("continuationToken=", ""),
        ("continuationToken=%00", ""),
        ("continuationToken=%ff%fe", ""),
        ("continuationToken=" + "A" * 2000, ""),
        ("limit=-1", ""),
        ("limit=%2", ""),
        ("limit=999999999999999999999999", None),
        ("&&&", None),
        ("a" * 6000 + "=1", ""),
    ],
    ids=short,
)
def test_a_bad_query_is_refused_or_answered(target, query, text):
    path = f"{POOLS}?{query}"
    answer = ask(target, f"GET {path} HTTP/1.1", signed(target, "GET", path))
    if text is None:
        assert answer.status < 500
    else:
        assert_refused(answer, 400)
        assert text in answer.json()["message"]


@pytest.mark.parametrize(
    "pool_id",
    ["a%00%2Fb", "%00", "%ff%fe%2Fb", "a%2", "%", "a%2Fb%0d%0aX-Evil:%20yes", "..%2F..%2Fetc"],
)
def test_a_bad_path_is_refused(target, pool_id):
    path = f"/api/worker-manager/v1/worker-pool/{pool_id}"
    answer = ask(target, f"GET {path} HTTP/1.1")
    assert_refused(answer, 400, 401, 403)
    assert "x-evil" not in answer.headers


def test_a_nul_in_stored_text_is_kept_or_refused_but_never_an_error(owner, server):
    """On both databases, because one of them cannot store this character."""
    definition = pool_definition(description="a\0b", config={"workerConfig": {"\0": "\0"}})
    client = {"description": "\0", "expires": "3000-01-01T00:00:00.000Z", "scopes": []}
    calls = [
        (owner.worker_manager.createWorkerPool, f"interop/{unique('nul')}", definition),
        (owner.auth.createClient, f"interop/{unique('nul')}", client),
        (owner.auth.createRole, unique("nul"), {"description": "\0", "scopes": []}),
    ]
    for call, name, payload in calls:
        try:
            call(name, payload)
        except Exception as failure:
            assert failure.status_code == 400, failure
            assert_error_body(failure.body, 400)
    for path in [f"{CLIENTS}?prefix=%00", f"{CLIENTS}%00", "/api/auth/v1/roles/%00"]:
        answer = ask(server, f"GET {path} HTTP/1.1", signed(server, "GET", path))
        assert answer.status < 500, path


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Hawk a"), ("Authorization", "Hawk b")],
        [("Authorization", "Hawk " + 'id="a", ' * 200)],
        [("Authorization", 'Hawk id="a", ts="1", nonce="n", mac="\xff"')],
        [("Authorization", "Hawk")],
        [("Authorization", "")],
        [("Authorization", "x" * 10_000)],
    ],
    ids=short,
)
def test_bad_credentials_are_refused_in_the_contracts_format(target, headers):
    assert_refused(ask(target, f"GET {PROVIDERS} HTTP/1.1", headers), 401, 403)


@pytest.mark.parametrize(
    ("what", "headers"),
    [
        ("two hosts", [("Host", "a"), ("Host", "b")]),
        ("two types", [("Content-Type", "text/plain"), ("Content-Type", "application/json")]),
        ("a megabyte in one header", [("X-Long", "a" * MEGABYTE)]),
        ("ten thousand headers", [(f"X-{number}", "a") for number in range(10_000)]),
        ("a header that is no text", [("X-Bytes", "\xff\xfe")]),
        ("a name with a blank", [("X Y", "a")]),
        ("a folded header", [("X-Folded", "a\r\n b")]),
        ("lengths that disagree", [("Content-Length", "0"), ("Content-Length", "5")]),
        ("a length below zero", [("Content-Length", "-1")]),
        ("a length beyond reason", [("Content-Length", "9" * 30)]),
        ("length and chunks", [("Content-Length", "5"), ("Transfer-Encoding", "chunked")]),
        ("an unknown coding", [("Transfer-Encoding", "gzip")]),
        ("an upgrade", [("Connection", "Upgrade"), ("Upgrade", "websocket")]),
        ("an expectation", [("Expect", "the-unexpected")]),
        ("a forged port", [("X-Forwarded-Port", "99999999"), ("X-Forwarded-Proto", "\t")]),
    ],
    ids=short,
)
def test_bad_headers_do_no_harm(target, what, headers):
    with Connection(target) as connection:
        connection.send(request(target, f"GET {PROVIDERS} HTTP/1.1", headers))
        if what != "length and chunks":
            assert_turned_away(connection.receive())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 10_000,
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
    ids=short,
)
def test_garbage_is_turned_away(target, garbage):
    with Connection(target) as connection:
        connection.send(garbage + b"\r\n\r\n")
        assert_turned_away(connection.receive())


def test_a_good_request_with_garbage_behind_it_is_answered(target):
    with Connection(target) as connection:
        connection.send(request(target, "GET /live HTTP/1.1") + b"\x01\x02garbage\r\n\r\n")
        assert connection.receive().status == 200
        assert_turned_away(connection.receive())


def test_pipelined_requests_are_answered_in_their_order(target):
    wanted = [("/live", 200), ("/no/such/page", 404), ("/live", 200)]
    with Connection(target) as connection:
        connection.send(b"".join(request(target, f"GET {path} HTTP/1.1") for path, _ in wanted))
        assert [connection.receive().status for _ in wanted] == [status for _, status in wanted]


def test_an_old_client_is_served(target):
    with Connection(target) as connection:
        connection.send(b"GET /live HTTP/1.0\r\n\r\n")
        assert connection.receive().status == 200


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PATCH", "BREW", "get", "OPTIONS"])
def test_other_methods_are_refused_or_answered(target, method):
    answer = ask(target, f"{method} {PROVIDERS} HTTP/1.1")
    assert answer is None or answer.status < 500


def test_slow_clients_do_not_keep_others_waiting(target):
    half_a_head = f"GET {PROVIDERS} HTTP/1.1\r\nHost: a\r\nX-Slow: ".encode()
    half_a_body = request(target, f"POST {REGISTER} HTTP/1.1", JSON, b'{"a"', length=1000)
    slow = [Connection(target) for _ in range(N_SLOW_CLIENTS)]
    try:
        for number, connection in enumerate(slow):
            assert connection.send(half_a_body if number % 2 else half_a_head)
        for _ in range(N_PATIENT_CLIENTS):
            started = time.monotonic()
            assert ask(target, "GET /live HTTP/1.1").status == 200
            assert ask(target, f"GET {PROVIDERS} HTTP/1.1").status == 403
            assert time.monotonic() - started < ANSWER_SECONDS
    finally:
        for connection in slow:
            connection.__exit__()


def test_clients_that_hang_up_in_the_middle_do_no_harm(target):
    for n_bytes in [1, 10, 60, 120, 180]:
        whole = request(target, f"POST {REGISTER} HTTP/1.1", JSON, b"{" + b" " * 500 + b"}")
        with Connection(target) as connection:
            connection.send(whole[:n_bytes])
    assert_refused(register(target, b"{}"), 400)
