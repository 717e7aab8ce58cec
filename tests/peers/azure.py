#!/usr/bin/env python3
"""Plays Azure: Resource Manager, its tokens, and the metadata service of machines.

    tests/peers/azure.py [--port PORT] [--tls]

Prints `ready at URL`. Everything is kept in memory, and changes go on for some polls, as at Azure.
Tests steer it by `/_fake/…`: faults, the state of machines, documents, and the log of requests.
`/_fake/machines/NAME/metadata/…` is what the machine of this name reads at its own service.
"""

import argparse
import base64
import http.server
import json
import pathlib
import re
import ssl
import sys
import tempfile
import threading
import urllib.parse
import uuid

from azure_pki import Authority, server_certificate
from azure_state import COMPUTE, ApiError, State
from azure_storage import ACCOUNT, AUDIENCE, StorageError, error_xml

TOKEN_SECONDS = 3600


class Fake:
    """The state, the faults and the log of one server."""

    def __init__(self):
        self.lock = threading.RLock()
        self.url = ""
        self.state = State()
        self.faults = []
        self.requests = []
        self.tokens = {}  # The audience of each.
        self.secrets = {"hush"}
        self.remaining = {"reads": 11999, "writes": 1199, "deletes": 14999, "PutVM3Min": 239}
        self.authority = None
        self.events = []

    def announce(self, machine, kind):
        """Announces an event that ends, restarts or freezes a machine."""
        self.events.append({
            "EventId": str(uuid.uuid4()), "EventType": kind, "ResourceType": "VirtualMachine",
            "Resources": [machine], "EventStatus": "Scheduled", "EventSource": "Platform",
            "NotBefore": "Mon, 21 Sep 2026 00:00:30 GMT",
        })

    def pki(self):
        if self.authority is None:
            self.authority = Authority()
        return self.authority

    def new_token(self, audience):
        token = uuid.uuid4().hex
        self.tokens[token] = audience
        return token

    def take_fault(self, method, path, query):
        text = f"{path}?{query}"
        for fault in self.faults:
            matches = re.search(fault.get("path", ""), text, re.I)
            if not matches or fault.get("method", method) != method:
                continue
            if fault.get("skip", 0) > 0:
                fault["skip"] -= 1
                continue
            fault["times"] = fault.get("times", 1) - 1
            if fault["times"] <= 0:
                self.faults.remove(fault)
            return fault
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve()

    do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_GET

    def serve(self):
        size = int(self.headers.get("content-length") or 0)
        self.body = self.rfile.read(size)
        parts = urllib.parse.urlsplit(self.path)
        path, query = urllib.parse.unquote(parts.path), urllib.parse.unquote_plus(parts.query)
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        with self.fake.lock:
            try:
                answer = self.route(path, query)
            except StorageError as error:
                answer = (error.status, error_xml(error), {"x-ms-error-code": error.code})
            except ApiError as error:
                answer = (error.status, error.body(), error.headers)
            except RuntimeError as error:
                answer = (500, {"error": {"code": "FakeFailed", "message": str(error)}}, {})
        if answer is not None:
            self.reply(*answer)

    def route(self, path, query):
        machine = re.fullmatch(r"/_fake/machines/([^/]+)(/metadata/.+)", path)
        if machine:
            return self.metadata(machine[2], machine[1])
        if path.startswith("/_fake/"):
            return self.steer(path.removeprefix("/_fake/"))
        entry = {"method": self.command, "path": path, "query": query}
        self.fake.requests.append(entry)
        fault = self.fake.take_fault(self.command, path, query)
        if fault and "status" in fault:
            body = fault.get("body") or {"error": {"code": "Faulty", "message": "as ordered"}}
            return fault["status"], body, fault.get("headers", {})
        if fault and fault.get("drop") == "before":
            return self.drop()
        answer = self.answer(path, fault or {})
        if fault and fault.get("drop") == "after":
            return self.drop()
        if fault and "headers" in fault:
            answer[2].update(fault["headers"])
        return answer

    def drop(self):
        self.close_connection = True
        self.connection.close()

    def answer(self, path, fault):
        if path.endswith("/oauth2/v2.0/token") and self.command == "POST":
            return self.token()
        if path.startswith("/metadata/"):
            return self.metadata(path)
        if path.startswith(f"{ACCOUNT}/"):
            self.authorize(AUDIENCE)
            status, headers, text = self.fake.state.storage.handle(
                self.command, path, self.query, self.headers, self.body)
            return status, text, headers
        self.authorize()
        if not re.fullmatch(r"\d{4}-\d\d-\d\d(-preview)?", self.query.get("api-version", "")):
            raise ApiError(400, "MissingApiVersionParameter", "api-version is missing")
        kind = {"GET": "reads", "HEAD": "reads", "DELETE": "deletes"}.get(self.command, "writes")
        self.spend(kind)
        if self.puts_machine(path):
            self.spend("PutVM3Min")
        body = json.loads(self.body) if self.body else None
        state = self.fake.state
        try:
            status, found, headers = state.handle(
                self.command, path, self.query, body, fault, self.headers, self.fake.url
            )
        except ApiError as error:
            status, found, headers = error.status, error.body(), error.headers
        left = str(self.fake.remaining[kind])
        headers[f"x-ms-ratelimit-remaining-subscription-{kind}"] = left
        if self.puts_machine(path):
            left = self.fake.remaining["PutVM3Min"]
            headers["x-ms-ratelimit-remaining-resource"] = f"{COMPUTE}/PutVM3Min;{left}"
        return status, found, headers

    def puts_machine(self, path):
        return self.command == "PUT" and re.search(r"/virtualMachines/[^/]+$", path, re.I)

    def spend(self, kind):
        """Calls are limited, and later calls are to be made later."""
        if self.fake.remaining[kind] <= 0:
            raise ApiError(429, "TooManyRequests", f"too many {kind}", {"Retry-After": 60})
        self.fake.remaining[kind] -= 1

    def token(self):
        form = dict(urllib.parse.parse_qsl(self.body.decode()))
        refused = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid secret"}
        if form.get("grant_type") != "client_credentials" or not form.get("client_id"):
            return 400, {"error": "invalid_request", "error_description": "AADSTS900144"}, {}
        if not form.get("scope", "").endswith("/.default"):
            return 400, {"error": "invalid_scope", "error_description": "AADSTS70011"}, {}
        if "client_assertion" in form:
            if not self.is_assertion(form["client_assertion"], form["client_id"]):
                return 401, refused, {}
        elif form.get("client_secret") not in self.fake.secrets:
            return 401, refused, {}
        return 200, self.token_body(TOKEN_SECONDS, form["scope"].removesuffix("/.default")), {}

    def is_assertion(self, text, client_id):
        head, claims, _ = (part + "=" * (-len(part) % 4) for part in text.split("."))
        head = json.loads(base64.urlsafe_b64decode(head))
        claims = json.loads(base64.urlsafe_b64decode(claims))
        named = head.get("x5t#S256") or head.get("x5t")
        return bool(named) and claims.get("iss") == claims.get("sub") == client_id

    def token_body(self, seconds, audience):
        token = self.fake.new_token(audience)
        return {"token_type": "Bearer", "expires_in": seconds, "access_token": token}

    def metadata(self, path, name=None):
        if self.headers.get("metadata") != "true":
            return 400, {"error": "Bad request. Required metadata header not specified"}, {}
        if path == "/metadata/identity/oauth2/token":
            body = self.token_body(TOKEN_SECONDS, self.query.get("resource", ""))
            return 200, {**body, "expires_in": str(TOKEN_SECONDS)}, {}
        state = self.fake.state
        if path == "/metadata/instance":
            return 200, {"compute": described(state.machine(name))}, {}
        if path == "/metadata/scheduledevents":
            events = [it for it in self.fake.events if name in it["Resources"]]
            return 200, {"DocumentIncarnation": len(events), "Events": events}, {}
        if path == "/metadata/attested/document":
            vm = state.machine(name or self.query["vm"])
            signature = self.fake.pki().document(vm["properties"]["vmId"])
            return 200, {"encoding": "pkcs7", "signature": signature}, {}
        return 404, {"error": "not found"}, {}

    def authorize(self, audience=None):
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        known = self.fake.tokens.get(token)
        is_storage = audience is not None
        if known is None or (known == AUDIENCE) != is_storage:
            if is_storage:
                raise StorageError(401, "InvalidAuthenticationInfo", "The token is invalid.")
            raise ApiError(401, "InvalidAuthenticationToken", "The access token is invalid.",
                           {"WWW-Authenticate": "Bearer"})

    def steer(self, name):
        """What only tests ask for."""
        fake, body = self.fake, json.loads(self.body) if self.body else {}
        if name == "faults":
            fake.faults.extend(body if isinstance(body, list) else [body])
        elif name == "advance":
            fake.state.advance()
        elif name == "revoke":
            fake.tokens.clear()
            fake.secrets = set(body.get("secrets", fake.secrets))
        elif name == "machine":
            fake.state.steer_machine(body)
        elif name == "event":
            fake.announce(body["machine"], body["type"])
        elif name == "group":
            fake.state.add_group(body["name"], body["location"], body.get("subscription", "s-1"))
        elif name == "put":
            fake.state.put_directly(body)
        elif name == "settings":
            fake.remaining.update(body.pop("remaining", {}))
            fake.state.settings.update(body)
        elif name == "requests":
            taken, fake.requests = fake.requests, []
            return 200, taken, {}
        elif name == "resources":
            return 200, sorted(fake.state.resources), {}
        elif name == "resource":
            return 200, fake.state.resources.get(body["id"].lower()), {}
        elif name == "blobs":
            kept = fake.state.storage
            kept.page = body.get("page", kept.page)
            return 200, sorted(kept.blobs), {}
        elif name == "document":
            return 200, {"document": fake.pki().document(**body)}, {}
        elif name == "authority":
            pki = fake.pki()
            certificates = {one: pki.pem(one) for one in ("root", "issuer")}
            der = base64.b64encode(pki.der("issuer")).decode()
            return 200, {**certificates, "issuer-der": der}, {}
        else:
            raise ApiError(404, "NotFound", name)
        return 200, {}, {}

    def reply(self, status, body, headers):
        text = b"" if body is None else json.dumps(body).encode()
        if isinstance(body, str):
            text = body.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        if text and "Content-Type" not in headers:
            self.send_header("Content-Type", "application/json; charset=utf-8")
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(text)))
        self.send_header("x-ms-request-id", str(uuid.uuid4()))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


def described(vm):
    """What a machine is told about itself."""
    properties, tags = vm["properties"], vm.get("tags", {})
    return {
        "name": vm["name"], "vmId": properties["vmId"], "location": vm["location"],
        "vmSize": (properties.get("hardwareProfile") or {}).get("vmSize", ""),
        # Azure shows no custom data here.
        "customData": "", "tags": ";".join(f"{name}:{value}" for name, value in tags.items()),
        "tagsList": [{"name": name, "value": value} for name, value in tags.items()],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", action="store_true", help="by a certificate that is printed too")
    arguments = parser.parse_args()
    fake = Fake()
    handler = type("FakeHandler", (Handler,), {"fake": fake})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", arguments.port), handler)
    server.daemon_threads = True
    port = server.server_address[1]
    fake.url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="fake-azure.") as folder:
        if arguments.tls:
            certificate, key = server_certificate(folder)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            fake.url = f"https://localhost:{port}"
            print(f"certificate {pathlib.Path(certificate)}", flush=True)
        print(f"ready at {fake.url}", flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()  # Ends with its starter.


if __name__ == "__main__":
    main()
