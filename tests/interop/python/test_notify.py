"""Owners are notified of errors: by mail through an independent mail server, and by webhook."""

import email
import email.policy
import hashlib
import hmac
import http.server
import json
import ssl
import subprocess
import threading
import time

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from fleet import Fleet, error_report, new_pool, pool_definition, unique
from fleet_server import FleetServer, binary, free_port, wait_until

PASSWORD = "a-password-for-the-mail-server"
SECRET = "a-secret-for-the-webhook"
OWNER = "owner@example.com"
# Errors are collected for a second and sent every two, on a machine that may be busy.
TOLD_SECONDS = 30


class Letters:
    """The mails that the mail server delivered."""

    def __init__(self):
        self.all = []
        self.refused = set()

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address in self.refused:
            return "550 nobody of that name"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.all.append((envelope.rcpt_tos, message, session.ssl is not None))
        return "250 OK"

    def about(self, pool_id):
        return [message for _, message, _ in self.all if f" {pool_id}:" in message["Subject"]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost that only the server under test trusts."""
    folder = tmp_path_factory.mktemp("certificate")
    key, file = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(file), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
        ],
        check=True,
        capture_output=True,
    )
    return key, file


@pytest.fixture(scope="module")
def mail_server(certificate):
    """Accepts mail after STARTTLS and a login, like most mail servers."""
    key, file = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key)

    def authenticate(server, session, envelope, mechanism, login):
        is_good = (login.login, login.password) == (b"fleet", PASSWORD.encode())
        return AuthResult(success=is_good)

    letters = Letters()
    letters.port = free_port("127.0.0.1")
    controller = Controller(
        letters,
        hostname="127.0.0.1",
        port=letters.port,
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=authenticate,
    )
    controller.start()
    yield letters
    controller.stop()


@pytest.fixture(scope="module")
def webhook():
    """Keeps the requests that it gets."""
    posted = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.headers, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.posted = posted
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def telling(tmp_path_factory, certificate, mail_server, webhook):
    """A server that sends notices."""
    folder = tmp_path_factory.mktemp("telling")
    password = folder / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    server = FleetServer(folder)
    config = folder / "config.toml"
    config.write_text(
        config.read_text()
        + f"""
[notify]
gather_seconds = 1
[notify.email]
smtp = "smtp://fleet@localhost:{mail_server.port}"
password_file = "{password}"
from = "The fleet <fleet@example.com>"
[[notify.webhook]]
url = "http://127.0.0.1:{webhook.server_port}/hook"
secret = "{SECRET}"
pools = ["interop/*"]
"""
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate[1]))
        with server:
            yield server


@pytest.fixture(scope="module")
def boss(telling):
    return Fleet(telling.root_url, telling.credentials)


def pool_of(boss, owner, wants_mail=True):
    pool_id = f"interop/{unique('pool')}"
    definition = pool_definition(owner=owner, emailOnError=wants_mail)
    boss.worker_manager.createWorkerPool(pool_id, definition)
    return pool_id


def report(boss, pool_id, worker_id, **changes):
    body = {**error_report((pool_id, "rack-1", worker_id)), **changes}
    return boss.worker_manager.reportWorkerError(pool_id, body)


def test_a_hundred_machines_with_one_trouble_are_one_mail(boss, mail_server):
    pool_id = pool_of(boss, OWNER)
    quiet = pool_of(boss, OWNER, wants_mail=False)
    report(boss, quiet, "host-0")
    errors = [
        report(boss, pool_id, f"host-{number}", description=f"host-{number}: {number} bytes left")
        for number in range(100)
    ]
    wait_until(lambda: mail_server.about(pool_id), TOLD_SECONDS, "there is a mail")
    recipients, mail, is_encrypted = next(
        letter for letter in mail_server.all if letter[1] in mail_server.about(pool_id)
    )
    assert is_encrypted
    assert recipients == [OWNER]
    assert mail["Subject"] == f"[fleetwright] {pool_id}: Disk is full"
    assert mail["From"] == "The fleet <fleet@example.com>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["X-Fleetwright-Pool"] == pool_id
    text = mail.get_content()
    assert f"fleetwright pool update {pool_id} --email-on-error false" in text
    assert any(error["errorId"] in text for error in errors)
    # A second notice would have arrived before the notice of another pool.
    other = pool_of(boss, OWNER)
    report(boss, other, "host-1")
    wait_until(lambda: mail_server.about(other), TOLD_SECONDS, "there is the other mail")
    assert len(mail_server.about(pool_id)) == 1
    assert not mail_server.about(quiet)


def test_what_a_worker_says_stays_in_the_text(boss, mail_server):
    owner = f"{unique('owner')}@example.com"
    pool_id = pool_of(boss, owner)
    title = "größer\r\nBcc: eve@example.com\r\n\r\n."
    report(boss, pool_id, "host-1", title=title, description=f"ü\n.\n{title}")
    wait_until(lambda: mail_server.about(pool_id), TOLD_SECONDS, "there is a mail")
    [mail] = mail_server.about(pool_id)
    assert mail["Subject"] == f"[fleetwright] {pool_id}: größer Bcc: eve@example.com ."
    assert mail["Bcc"] is None
    assert "    ü\n    .\n    größer" in mail.get_content().replace("\r\n", "\n")


def test_a_webhook_can_tell_who_sent_it(boss, webhook):
    pool_id = new_pool(boss)
    error = report(boss, pool_id, "host-1", extra={"code": "disk-full", "token": "secret"})

    def about_the_pool():
        found = [(headers, json.loads(body), body) for headers, body in webhook.posted]
        return [one for one in found if one[1]["workerPoolId"] == pool_id]

    wait_until(about_the_pool, TOLD_SECONDS, "the webhook is called")
    [(headers, notice, body)] = about_the_pool()
    parts = dict(part.split("=", 1) for part in headers["Fleetwright-Signature"].split(","))
    signed = parts["t"].encode() + b"." + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(parts["v1"], expected)
    assert abs(time.time() - int(parts["t"])) < 60
    assert headers["Fleetwright-Notice"] == notice["noticeId"]
    assert (notice["version"], notice["kind"]) == (1, "worker-pool-errors")
    assert notice["cause"]["code"] == "disk-full"
    assert (notice["count"], notice["sample"]["errorId"]) == (1, error["errorId"])
    assert notice["sample"]["extra"]["token"] == "(removed)"


def test_a_restart_does_not_tell_it_again(boss, telling, mail_server):
    pool_id = pool_of(boss, OWNER)
    report(boss, pool_id, "host-1")
    telling.kill()
    telling.start()
    wait_until(lambda: mail_server.about(pool_id), TOLD_SECONDS, "there is a mail")
    telling.kill()
    telling.start()
    report(boss, pool_id, "host-2")
    # Of another owner: a notice that was being sent at the kill waits for its lease.
    other = pool_of(boss, f"other-{OWNER}")
    report(boss, other, "host-1")
    wait_until(lambda: mail_server.about(other), TOLD_SECONDS, "there is the other mail")
    assert len(mail_server.about(pool_id)) == 1


def test_the_doctor_logs_in_to_the_mail_server(telling, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    config = str(telling.folder / "config.toml")
    command = [binary(), "doctor", "--config", config]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "the mail server at localhost:" in said.stdout, said
    assert " answers" in said.stdout, said.stdout
    assert PASSWORD not in said.stdout + said.stderr
    # Without trust in the certificate, the doctor refuses the connection.
    monkeypatch.delenv("SSL_CERT_FILE")
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "is not usable" in said.stdout, said.stdout


def test_nothing_secret_is_in_the_log(telling):
    log = telling.log.read_text(errors="replace")
    assert PASSWORD not in log
    assert SECRET not in log
