"""The metadata services of machines on moto, which has none: user data, and signed documents."""

import base64
import json
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

from ec2 import SIGNED

TOKEN = "token"


class Ec2Metadata:
    """What `NAME/latest/…` answers is what the machine NAME reads at its own service."""

    def __init__(self, ec2):
        self.ec2 = ec2
        self._folder = tempfile.TemporaryDirectory()
        self._key = str(Path(self._folder.name) / "key.pem")
        openssl("genrsa", "-out", self._key, "2048")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._folder.cleanup()

    def settings(self):
        """For the section of the provider: who signs the documents."""
        key = openssl("rsa", "-in", self._key, "-pubout").decode()
        return f'identity_keys = [{{ key = """{key}""" }}]\n'

    def url(self, machine):
        return f"http://127.0.0.1:{self._server.server_port}/{machine}"

    def answer(self, machine, path):
        """None: there is no such thing."""
        match path.removeprefix("latest/"):
            case "api/token":
                return TOKEN
            case "user-data":
                return base64.b64decode(self._attribute(machine, "userData")).decode()
            case "dynamic/instance-identity/document":
                return self.document(machine)
            case "dynamic/instance-identity/signature":
                signature = openssl("dgst", "-sha256", "-sign", self._key, stdin=self.document(machine))
                return base64.b64encode(signature).decode()
        return None

    def document(self, machine):
        region, instance, owner = self._described(machine)
        text = {
            "accountId": owner,
            "architecture": instance.findtext("{*}architecture"),
            "availabilityZone": instance.findtext("{*}placement/{*}availabilityZone"),
            "imageId": instance.findtext("{*}imageId"),
            "instanceId": machine,
            "instanceType": instance.findtext("{*}instanceType"),
            "privateIp": instance.findtext("{*}privateIpAddress"),
            "region": region,
        }
        return json.dumps(text)

    def _described(self, machine):
        for region in self.ec2.regions:
            answer = self._ask(region, "DescribeInstances", MaxResults="1000")
            for reservation in answer.iterfind("{*}reservationSet/{*}item"):
                for instance in reservation.iterfind("{*}instancesSet/{*}item"):
                    if instance.findtext("{*}instanceId") == machine:
                        return region, instance, reservation.findtext("{*}ownerId")
        raise KeyError(machine)

    def _attribute(self, machine, name):
        region, _, _ = self._described(machine)
        answer = self._ask(region, "DescribeInstanceAttribute", InstanceId=machine, Attribute=name)
        return answer.findtext(".//{*}value")

    def _ask(self, region, action, **more):
        form = {"Action": action, "Version": "2016-11-15", **more}
        headers = {"Authorization": SIGNED.format(region)}
        status, body = self.ec2._ask(urlencode(form), headers)
        assert status == 200, body
        return ElementTree.fromstring(body)

    def _handler(service):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                _, machine, path = self.path.split("/", 2)
                text = service.answer(machine, path)
                self.send_response(404 if text is None else 200)
                self.send_header("Content-Length", str(len(text or "")))
                self.end_headers()
                self.wfile.write((text or "").encode())

            do_PUT = do_GET

            def log_message(self, *_):
                pass

        return Handler


def openssl(*arguments, stdin=None):
    text = None if stdin is None else stdin.encode()
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, check=True)
    return done.stdout
