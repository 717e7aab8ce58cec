"""Makes what the dictionaries name, and signs each request as the owner once it is complete."""

import os
from urllib.parse import quote

import mohawk
import requests
import schemathesis

ROOT_URL = os.environ["TASKCLUSTER_ROOT_URL"]
IN_FUTURE = "3000-01-01T00:00:00.000Z"
SECRET = "StaticSecret0StaticSecret1StaticSecret2abcde"


class Hawk(requests.auth.AuthBase):
    def __init__(self):
        self._credentials = {
            "id": os.environ["TASKCLUSTER_CLIENT_ID"],
            "key": os.environ["TASKCLUSTER_ACCESS_TOKEN"],
            "algorithm": "sha256",
        }

    def __call__(self, request):
        # Without a payload hash: the content type that it would cover is made up too.
        sender = mohawk.Sender(
            self._credentials, request.url, request.method, always_hash_content=False
        )
        request.headers["Authorization"] = sender.request_header
        return request


def make(service, *path, **definition):
    route = "/".join(quote(part, safe="") for part in path)
    url = f"{ROOT_URL}/api/{service}/v1/{route}"
    requests.put(url, json=definition, auth=Hawk()).raise_for_status()


def make_what_the_dictionaries_name():
    make(
        "worker-manager",
        "worker-pool",
        "interop/described",
        providerId="static",
        description="",
        owner="ops@example.com",
        emailOnError=False,
        config={},
    )
    make(
        "worker-manager",
        "workers",
        "interop/described",
        "rack-1",
        "host-1",
        expires=IN_FUTURE,
        providerInfo={"staticSecret": SECRET},
    )
    make("auth", "clients", "interop/described", description="", expires=IN_FUTURE)
    make("auth", "roles", "interop-described", description="", scopes=["a:b"])


make_what_the_dictionaries_name()
schemathesis.auth.set_from_requests(Hawk())
