#!/usr/bin/env python3
"""Plays Google for tests: Compute Engine, IAM, tokens and certificates, on loopback.

    tests/peers/google.py [--port PORT]

Prints `ready at URL`. Keeps everything in memory, and ends when its standard input ends. Only the
standard library is used; keys and signatures are made by the program `openssl`. If
TEST_GOOGLE_DISCOVERY names Google's description of Compute Engine, requests and answers that do not
fit to it are refused.

Besides Google's API:

    GET  /_fake/account             the key file of a service account that may call it
    GET  /_fake/identity/ID?audience=URL   an identity token of this machine
    GET  /_fake/signing-key         {"kid", "private_key"}: signs identity tokens
    POST /_fake/rotate              makes another signing key
    POST /_fake/faults              [{"call", "times", ...}]: see Faults
    GET  /_fake/machines/NAME/computeMetadata/v1/...   what this machine reads at its own server
    POST /_fake/notice/ID           tells a machine that it will be taken away
    POST /_fake/no-faults           ends all failures
    POST /_fake/preempt/ID          takes a spot machine away
    POST /_fake/status/ID/STATUS    sets the state of a machine
    POST /_fake/revoke              refuses all tokens that were given so far
    POST /_fake/rotate-account      makes another key of the account, and revokes
    POST /_fake/forget-requests     forgets the request ids
    POST /_fake/settle              lets time pass: operations go on
    GET  /_fake/instances           all machines
    POST /_fake/console/<id>        what the machine wrote to its console: {"text": …}
    GET  /_fake/disks               the names of all disks
    POST /_fake/disk-time           {"time"}: when disks are made and detached from now on
    GET  /_fake/image/NAME          size and content of this image's disk
    GET  /_fake/objects             the names of all objects
    GET  /_fake/calls               all calls so far: [{"call", "path", "query", "body"}]
"""

import argparse
import base64
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import google_images
from discovery import Discovery
from google_compute import Refused, compute, not_found, preempt, stamp
from google_metadata import Text, metadata
from google_storage import Storage, storage

AUDIENCE = "https://oauth2.googleapis.com/token"
# An operation ends when it was asked about this many times.
POLLS = 2


class Dropped(Exception):
    """Closes the connection without an answer."""


class Key:
    """An RSA key with a self-signed certificate."""

    def __init__(self, folder):
        self.kid = uuid.uuid4().hex
        self.path = Path(folder) / f"{self.kid}.key"
        certificate = Path(folder) / f"{self.kid}.pem"
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=fake",
            "-keyout", str(self.path), "-out", str(certificate),
        )
        self.private = self.path.read_text()
        self.certificate = certificate.read_text()
        self.public = Path(folder) / f"{self.kid}.pub"
        openssl("rsa", "-in", str(self.path), "-pubout", "-out", str(self.public))

    def verifies(self, message, signature, folder):
        path = Path(folder) / f"{uuid.uuid4().hex}.signature"
        path.write_bytes(signature)
        command = ["dgst", "-sha256", "-verify", str(self.public), "-signature", str(path)]
        try:
            openssl(*command, stdin=message)
        except subprocess.CalledProcessError:
            return False
        return True


def openssl(*arguments, stdin=None):
    done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=True)
    return done.stdout


def decode(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def encode(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Faults:
    """Failures of the next calls, by a pattern of the call's name, like `instances.insert`.

    {"call": pattern, "times": n, "status": s, "reason": r, "message": m}   refuses
    {"call": pattern, "drop": "before" | "after"}      closes the connection
    {"call": pattern, "operation": code, "message": m} the operation fails with this code
    {"call": pattern, "hang": true}                    the operation never ends
    {"call": pattern, "unreachable": zone}             a list lacks this zone
    {"call": pattern, "damage": true}                  an object arrives with another byte
    {"call": pattern, "skip": n, ...}                  lets n calls pass before
    """

    def __init__(self):
        self.waiting = []

    def add(self, faults):
        self.waiting.extend({"times": 1, **fault} for fault in faults)

    def take(self, call):
        for fault in self.waiting:
            if fault["times"] > 0 and fnmatch.fnmatch(call, fault["call"]):
                if fault.get("skip", 0) > 0:
                    fault["skip"] -= 1
                    continue
                fault["times"] -= 1
                return fault
        return {}


class World:
    """The state of the cloud."""

    def __init__(self, folder):
        self.lock = threading.RLock()
        self.folder = folder
        self.account = Key(folder)
        self.signing = [Key(folder)]
        self.faults = Faults()
        self.calls = []
        self.tokens = set()
        self.instances = {}  # By project, zone and name.
        self.consoles = {}  # What machines wrote, by their id.
        self.disks = {}  # By project, zone and name.
        self.disk_time = None  # When disks were made, if not now.
        self.operations = {}  # By project, zone and name.
        self.requests = {}  # By request id: the content and the operation.
        self.notices = set()  # The ids of machines that will be taken away.
        self.images = google_images.Images()
        self.storage = Storage()
        self.number = 4_000_000_000_000_000_000
        self.root = ""

    def next_id(self):
        self.number += 1
        return str(self.number)

    def address(self, project, rest):
        return f"{self.root}/compute/v1/projects/{project}/{rest}"

    def find(self, project, zone, name):
        for (its_project, its_zone, its_name), instance in self.instances.items():
            if (its_project, its_zone) == (project, zone) and name in (its_name, instance["id"]):
                return instance
        raise not_found(f"projects/{project}/zones/{zone}/instances", name)

    def operate(self, project, zone, kind, target_id, target, fault, effect=None):
        """Makes an operation. Its effect comes when it ends."""
        identifier = self.next_id()
        name = f"operation-{identifier}"
        operation = {
            "kind": "compute#operation",
            "id": identifier,
            "name": name,
            "zone": self.address(project, f"zones/{zone}"),
            "operationType": kind,
            "targetId": target_id,
            "targetLink": target,
            "status": "RUNNING",
            "progress": 0,
            "user": "fake@project.iam.gserviceaccount.com",
            "insertTime": stamp(),
            "startTime": stamp(),
            "selfLink": self.address(project, f"zones/{zone}/operations/{name}"),
        }
        self.operations[project, zone, name] = [operation, 0, fault, effect]
        return operation

    def ask(self, project, zone, name):
        entry = self.operations.get((project, zone, name))
        if entry is None:
            raise not_found(f"projects/{project}/zones/{zone}/operations", name)
        self.advance(entry)
        return entry[0]

    def advance(self, entry):
        operation, asked, fault, effect = entry
        entry[1] = asked + 1
        if operation["status"] == "DONE" or fault.get("hang") or entry[1] < POLLS:
            return
        operation.update(status="DONE", progress=100, endTime=stamp())
        if "operation" in fault:
            error = {"code": fault["operation"], "message": fault.get("message", "made up")}
            operation["error"] = {"errors": [error]}
            operation["httpErrorStatusCode"] = 400
            operation["httpErrorMessage"] = "BAD REQUEST"
        elif effect is not None:
            effect()

    def settle(self):
        """Lets time pass: all operations go on."""
        for entry in list(self.operations.values()):
            self.advance(entry)


# --- accounts, tokens, certificates ---


def service_account(name):
    email = "workers@project-1.iam.gserviceaccount.com"
    if name not in (email, "1234567890"):
        raise Refused(404, "NOT_FOUND", f"Unknown service account: {name}")
    return {
        "name": f"projects/project-1/serviceAccounts/{email}",
        "projectId": "project-1",
        "uniqueId": "1234567890",
        "email": email,
    }


def grant(world, form):
    if form.get("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange":
        if form.get("subject_token") != "subject":
            raise BadGrant("invalid_grant", "the subject token is not valid")
        return new_token(world)
    if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
        raise BadGrant("unsupported_grant_type", "another grant is wanted")
    try:
        signed, signature = form["assertion"].rsplit(".", 1)
        claims = json.loads(decode(signed.split(".")[1]))
        signature = decode(signature)
    except (KeyError, ValueError, IndexError):
        raise BadGrant("invalid_grant", "the assertion is not a token") from None
    if not world.account.verifies(signed.encode(), signature, world.folder):
        raise BadGrant("invalid_grant", "Invalid JWT Signature.")
    if claims.get("aud") != AUDIENCE or claims.get("exp", 0) - claims.get("iat", 0) > 3600:
        raise BadGrant("invalid_grant", "Invalid JWT: wrong audience or life")
    return new_token(world)


class BadGrant(Exception):
    pass


def new_token(world):
    token = f"ya29.{uuid.uuid4().hex}"
    world.tokens.add(token)
    return {"access_token": token, "expires_in": 3599, "token_type": "Bearer"}


def identity(world, identifier, audience):
    """The token that the metadata server would give to a machine."""
    instance = next(it for it in world.instances.values() if it["id"] == identifier)
    key, now = world.signing[-1], int(time.time())
    claims = {
        "iss": "https://accounts.google.com",
        "aud": audience,
        "sub": "1234567890",
        "iat": now,
        "exp": now + 3600,
        "google": {
            "compute_engine": {
                "project_id": "project-1",
                "instance_id": identifier,
                "instance_name": instance["name"],
                "zone": instance["zone"].rsplit("/", 1)[1],
            }
        },
    }
    header = {"alg": "RS256", "kid": key.kid, "typ": "JWT"}
    signed = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    signature = openssl("dgst", "-sha256", "-sign", str(key.path), stdin=signed.encode())
    return f"{signed}.{encode(signature)}"


def account_file(world):
    return {
        "type": "service_account",
        "project_id": "project-1",
        "private_key_id": world.account.kid,
        "private_key": world.account.private,
        "client_email": "fleet@project-1.iam.gserviceaccount.com",
        "token_uri": f"{world.root}/token",
    }


# --- the server ---


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world = None
    discovery = None
    storage_discovery = None

    def log_message(self, *_):
        pass

    def serve(self):
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            status, headers, body = self.answer(parts, query, content)
        except Refused as refused:
            status, headers, body = refused.status, {}, refused.body()
            if refused.retry_after:
                headers["retry-after"] = str(refused.retry_after)
        except BadGrant as bad:
            error, description = bad.args
            status, headers = 400, {}
            body = {"error": error, "error_description": description}
        except Dropped:
            self.close_connection = True
            return
        is_text = isinstance(body, Text)
        text = "" if body is None else body if is_text else json.dumps(body)
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", "text/plain" if is_text else "application/json")
        self.send_header("content-length", str(len(data)))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = serve

    def answer(self, parts, query, content):
        world = self.world
        if parts == ["token"]:
            fault = world.faults.take("token")
            if fault:
                raise Refused(fault["status"], fault.get("reason", "made_up"), "made up")
            form = {key: values[-1] for key, values in parse_qs(content.decode()).items()}
            return 200, {}, grant(world, form)
        is_data = parts[0] == "upload"
        body = json.loads(content) if content and not is_data else None
        with world.lock:
            if parts[0] == "_fake":
                return 200, {}, self.fake(parts[1:], query, body)
            if parts == ["certs"]:
                fault = world.faults.take("certs")
                if fault:
                    raise Refused(fault["status"], "backendError", "made up")
                kept = {"cache-control": "public, max-age=3600, must-revalidate"}
                return 200, kept, {key.kid: key.certificate for key in world.signing}
            if parts[0] == "computeMetadata":
                if self.headers.get("metadata-flavor") != "Google":
                    raise Refused(403, "forbidden", "Missing Metadata-Flavor:Google header.")
                return 200, {}, new_token(world)
            return 200, {}, self.api(parts, query, body, content)

    def api(self, parts, query, body, content):
        world, discovery = self.world, self.discovery
        match parts:
            case ["compute", "v1", "projects", project, "global", *rest]:
                call, make = google_images.calls(world, self.command, project, rest, query, body)
            case ["storage", *_] | ["upload", *_]:
                call, make = storage(world, self.command, parts, query, body, content)
                discovery = self.storage_discovery
            case ["compute", "v1", "projects", *rest] if rest:
                call, make = compute(world, self.command, rest, query, body)
            case ["v1", "projects", _, "serviceAccounts", name]:
                call, make = "serviceAccounts.get", lambda _: service_account(name)
            case _:
                raise not_found("path", "/".join(parts))
        entry = {"call": call, "path": "/".join(parts), "query": query, "body": body}
        world.calls.append(entry)
        scheme, _, token = (self.headers.get("authorization") or "").partition(" ")
        if scheme != "Bearer" or token not in world.tokens:
            raise Refused(401, "authError", "Invalid Credentials")
        fault = world.faults.take(call)
        if fault.get("drop") == "before":
            raise Dropped
        if "status" in fault:
            message = fault.get("message", "made up")
            reason = fault.get("reason", "backendError")
            raise Refused(fault["status"], reason, message, fault.get("retryAfter"))
        if discovery and call in discovery.methods:
            self.refuse_if_any(discovery.check_request(call, query, body))
        if call == "instances.insert":
            google_images.check_boot_disks(world, parts[3], body)
        answer = make(fault)
        if discovery and call in discovery.methods and answer is not None:
            self.refuse_if_any(discovery.check_answer(call, answer))
        if fault.get("drop") == "after":
            raise Dropped
        return answer

    def refuse_if_any(self, problems):
        if problems:
            raise Refused(400, "invalid", "; ".join(problems))

    def fake(self, parts, query, body):
        world = self.world
        match parts:
            case ["account"]:
                return account_file(world)
            case ["identity", identifier]:
                return {"token": identity(world, identifier, query["audience"])}
            case ["machines", name, "computeMetadata", *rest]:
                flavor = self.headers.get("metadata-flavor")
                return metadata(world, name, rest, query, flavor, identity)
            case ["notice", identifier]:
                world.notices.add(identifier)
            case ["console", identifier]:
                world.consoles[identifier] = body["text"]
            case ["instances"]:
                return list(world.instances.values())
            case ["disks"]:
                return sorted(disk["name"] for disk in world.disks.values())
            case ["disk-time"]:
                world.disk_time = body["time"]
            case ["image", name]:
                return google_images.content(world, name)
            case ["objects"]:
                return [name for _, name in sorted(world.storage.objects)]
            case ["signing-key"]:
                return {"kid": world.signing[-1].kid, "private_key": world.signing[-1].private}
            case ["rotate"]:
                world.signing = [*world.signing[-1:], Key(world.folder)]
            case ["rotate-account"]:
                world.account = Key(world.folder)
                world.tokens.clear()
            case ["faults"]:
                world.faults.add(body)
            case ["no-faults"]:
                world.faults.waiting.clear()
            case ["forget-requests"]:
                world.requests.clear()
            case ["revoke"]:
                world.tokens.clear()
            case ["settle"]:
                world.settle()
            case ["calls"]:
                return world.calls
            case ["preempt", identifier]:
                preempt(world, identifier)
            case ["status", identifier, status]:
                for instance in world.instances.values():
                    if instance["id"] == identifier:
                        instance["status"] = status
            case _:
                raise not_found("path", "/".join(parts))
        return {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)
        Handler.world = world
        if os.environ.get("TEST_GOOGLE_DISCOVERY"):
            document = Path(os.environ["TEST_GOOGLE_DISCOVERY"])
            Handler.discovery = Discovery(document)
            Handler.storage_discovery = Discovery(document.with_name("storage.v1.json"))
        server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
        server.daemon_threads = True
        world.root = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"ready at {world.root}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
