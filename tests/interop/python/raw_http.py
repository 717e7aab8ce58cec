"""HTTP requests that ordinary clients cannot send."""

import http.client
import io
import json
import socket

import mohawk

SECONDS = 20
N_BYTES_SENT_AT_ONCE = 1 << 16
JSON = {"Content-Type": "application/json"}


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class Reader(io.BufferedReader):
    """Stays open between responses, since it may have read a part of the next one."""

    def close(self):
        pass


class Connection:
    """One connection to a server, written to byte by byte."""

    def __init__(self, server):
        self._server = server
        self._socket = socket.create_connection((server.address, server.port), SECONDS)
        self._reader = Reader(socket.SocketIO(self._socket, "r"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def send(self, data):
        """Returns whether all bytes were sent: a server may refuse early and close."""
        try:
            for start in range(0, len(data), N_BYTES_SENT_AT_ONCE):
                self._socket.sendall(data[start : start + N_BYTES_SENT_AT_ONCE])
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def awaits_the_body(self):
        """Returns whether `Expect: 100-continue` is answered with 100: the server reads on."""
        status, blank = self._reader.readline(), self._reader.readline()
        return status.startswith(b"HTTP/1.1 100 ") and blank == b"\r\n"

    def receive(self, method="GET"):
        """The next answer, or None when the server closed the connection without one."""
        response = http.client.HTTPResponse(self, method=method)
        try:
            response.begin()
            return Answer(response)
        except (ConnectionError, http.client.BadStatusLine):
            return None

    def makefile(self, _mode):
        """The method of a socket that the response reader calls."""
        return self._reader


def ask(server, head, headers=(), body=b"", length=None):
    """Sends `head` (a request line) as it is, and returns the answer or None."""
    with Connection(server) as connection:
        connection.send(request(server, head, headers, body, length))
        return connection.receive(head.split(" ")[0])


def request(server, head, headers=(), body=b"", length=None):
    pairs = [("Host", f"{server.address}:{server.port}"), *pairs_of(headers)]
    if body or length is not None:
        pairs.append(("Content-Length", str(len(body) if length is None else length)))
    lines = [head, *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def signed(server, method, path, body=b"", content_type=""):
    """The header with which the owner signs a request, without a payload hash."""
    sender = mohawk.Sender(
        {
            "id": server.credentials["clientId"],
            "key": server.credentials["accessToken"],
            "algorithm": "sha256",
        },
        f"{server.root_url}{path}",
        method,
        content=body,
        content_type=content_type,
        always_hash_content=bool(body),
    )
    return {"Authorization": sender.request_header}


def pairs_of(headers):
    return headers.items() if isinstance(headers, dict) else headers
