"""The references and schemas that code generators read describe themselves correctly."""

import jsonschema
import pytest
import requests
from referencing import Registry
from referencing.jsonschema import DRAFT6

KINDS = {
    "api": "api-reference-v0.json",
    "exchanges": "exchanges-reference-v0.json",
    "logs": "logs-reference-v0.json",
    "metrics": "metrics-reference-v0.json",
}
DRAFT_06 = "http://json-schema.org/draft-06/schema"


@pytest.fixture(scope="module")
def documents(server):
    return Documents(server.root_url)


class Documents:
    """The documents that the server publishes, each fetched once."""

    def __init__(self, root_url):
        self.root_url = root_url
        self._fetched = {}
        self._registry = Registry(retrieve=lambda url: DRAFT6.create_resource(self.fetch(url)))

    def fetch(self, url):
        url = url.removesuffix("#")
        if url == DRAFT_06:
            return jsonschema.Draft6Validator.META_SCHEMA
        assert url.startswith(f"{self.root_url}/"), f"{url} is not absolute or not ours"
        if url not in self._fetched:
            answer = requests.get(url)
            assert answer.status_code == 200, url
            assert answer.headers["content-type"].startswith("application/json")
            self._fetched[url] = answer.json()
        return self._fetched[url]

    def validate(self, document):
        """Checks a document against the schema that it names."""
        schema = self.fetch(document["$schema"])
        jsonschema.Draft6Validator(schema, registry=self._registry).validate(document)

    def references(self):
        manifest = self.fetch(f"{self.root_url}/references/manifest.json")
        return {url: self.fetch(url) for url in manifest["references"]}


def test_the_manifest_is_well_formed_sorted_and_names_the_services(documents):
    manifest = dict(documents.fetch(f"{documents.root_url}/references/manifest.json"))
    assert manifest["$schema"] == f"{documents.root_url}/schemas/common/manifest-v3.json#"
    # The manifest's own schema leaves no room for the key that names it.
    jsonschema.Draft6Validator(documents.fetch(manifest.pop("$schema"))).validate(manifest)
    references = manifest["references"]
    assert references == sorted(references)
    for service in ["auth", "purge-cache", "worker-manager"]:
        assert f"{documents.root_url}/references/{service}/v1/api.json" in references


def test_every_reference_is_valid_under_its_metaschema(documents):
    references = documents.references()
    assert references
    for url, reference in references.items():
        kind = url.rsplit("/", 1)[1].removesuffix(".json")
        metaschema = f"{documents.root_url}/schemas/common/{KINDS[kind]}#"
        assert reference["$schema"] == metaschema
        documents.validate(reference)


def test_every_schema_that_a_reference_names_is_served_under_its_own_id(documents):
    named = set()
    for reference in documents.references().values():
        service = reference["serviceName"]
        for entry in reference.get("entries", []):
            for key in ["input", "output", "schema"]:
                if entry.get(key) not in (None, "blob"):
                    named.add(f"{documents.root_url}/schemas/{service}/{entry[key]}")
    assert named
    for url in named:
        schema = documents.fetch(url)
        assert schema["$id"] == url
        documents.validate(schema)
        jsonschema.Draft6Validator.check_schema(schema)


def test_the_references_have_the_routes_that_the_official_client_calls(documents, owner):
    for service, client in {"auth": owner.auth, "worker-manager": owner.worker_manager}.items():
        url = f"{documents.root_url}/references/{service}/v1/api.json"
        ours = {entry["name"]: entry for entry in documents.fetch(url)["entries"]}
        theirs = client.funcinfo
        for name in ours.keys() & theirs.keys():
            for key in ["method", "route", "args", "query", "input"]:
                assert ours[name].get(key, []) == theirs[name].get(key, []), (name, key)
        if service == "worker-manager":
            assert theirs.keys() <= ours.keys()


def test_the_collection_of_everything_has_relative_ids(documents):
    everything = documents.fetch(f"{documents.root_url}/references/references.json")
    names = [item["filename"] for item in everything]
    assert len(names) == len(set(names)) and names
    for item in everything:
        assert item["content"]["$schema"].startswith(("/schemas/", DRAFT_06)), item["filename"]


def test_monitoring_routes_answer_without_credentials(server):
    for service in ["auth", "purge-cache", "worker-manager"]:
        base = f"{server.root_url}/api/{service}/v1"
        ping = requests.get(f"{base}/ping").json()
        assert ping["alive"] is True and ping["uptime"] >= 0
        assert requests.get(f"{base}/__lbheartbeat__").json() == {}
        assert requests.get(f"{base}/__heartbeat__").json() == {}
        assert "version" in requests.get(f"{base}/__version__").json()
    assert requests.get(f"{server.root_url}/metrics").status_code == 200
    missing = requests.get(f"{server.root_url}/no/such/page")
    assert (missing.status_code, missing.json()) == (404, {"error": "Not found"})
