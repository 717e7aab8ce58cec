"""Google's own clients drive the fake of Google, so that it is what they expect."""

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path

import google.auth.exceptions
import google.auth.transport.requests
import googleapiclient
import pytest
from google.api_core import exceptions
from google.auth import crypt, jwt
from google.cloud import compute_v1
from google.oauth2 import credentials, id_token, service_account
from googleapiclient import discovery as api
from googleapiclient import errors
from googleapiclient.http import MediaInMemoryUpload

HERE = Path(__file__).parent
DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache/documents"
ZONE = "us-central1-a"
PROJECT = "project-1"
REQUEST = "6f1c2c5e-8a6b-4a9e-9d3e-0d3f3b1f9f11"


class Fake:
    def __init__(self, url):
        self.url = url
        info = self.read("account")
        self.credentials = service_account.Credentials.from_service_account_info(
            info, scopes=["https://www.googleapis.com/auth/cloud-platform"]
        )

    def read(self, path):
        with urllib.request.urlopen(f"{self.url}/_fake/{path}") as answer:
            return json.load(answer)

    def act(self, path, body=None):
        data = json.dumps(body or {}).encode()
        urllib.request.urlopen(f"{self.url}/_fake/{path}", data=data).close()

    def client(self, cls):
        if not self.credentials.valid:
            self.credentials.refresh(google.auth.transport.requests.Request())
        host = self.url.removeprefix("http://")
        transport = cls.get_transport_class("rest")
        token = credentials.Credentials(self.credentials.token)
        return cls(transport=transport(host=host, url_scheme="http", credentials=token))

    def storage(self):
        self.client(compute_v1.ImagesClient)  # Makes the token valid.
        token = credentials.Credentials(self.credentials.token)
        options = {"api_endpoint": f"{self.url}/storage/v1/"}
        document = (DOCUMENTS / "storage.v1.json").read_text()
        document = document.replace("https://storage.googleapis.com/", f"{self.url}/")
        return api.build_from_document(document, credentials=token, client_options=options)

    def finish_image(self, operation):
        operations = self.client(compute_v1.GlobalOperationsClient)
        for _ in range(10):
            found = operations.get(project=PROJECT, operation=operation.name)
            if found.status == compute_v1.Operation.Status.DONE:
                return found
        raise AssertionError(f"{operation.name} does not end")

    def finish(self, operation):
        """Asks about the operation until it has ended. The client's own way knows no other host."""
        operations = self.client(compute_v1.ZoneOperationsClient)
        for _ in range(10):
            found = operations.get(project=PROJECT, zone=ZONE, operation=operation.name)
            if found.status == compute_v1.Operation.Status.DONE:
                return found
        raise AssertionError(f"{operation.name} does not end")


@pytest.fixture
def fake():
    discovery = {"TEST_GOOGLE_DISCOVERY": str(DOCUMENTS / "compute.v1.json")}
    with subprocess.Popen(
        [sys.executable, "-B", HERE / "google.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **discovery},
    ) as process:
        url = process.stdout.readline().strip().removeprefix("ready at ")
        yield Fake(url)
        process.stdin.close()


@pytest.fixture
def instances(fake):
    return fake.client(compute_v1.InstancesClient)


def insert(instances, name, labels, **options):
    disk = compute_v1.AttachedDiskInitializeParams(source_image="global/images/i")
    instance = compute_v1.Instance(
        name=name,
        machine_type=f"zones/{ZONE}/machineTypes/e2-medium",
        labels=labels,
        disks=[compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=disk)],
        network_interfaces=[compute_v1.NetworkInterface(network="global/networks/default")],
        scheduling=compute_v1.Scheduling(provisioning_model="SPOT"),
    )
    request = compute_v1.InsertInstanceRequest(
        project=PROJECT, zone=ZONE, instance_resource=instance, **options
    )
    return instances.insert(request)


def names(listed):
    return [instance.name for instance in listed]


def test_machines_are_made_listed_and_deleted(fake, instances):
    for name, pool in [("vm-a", "x"), ("vm-b", "y")]:
        fake.finish(insert(instances, name, {"pool": pool}))
    machine = instances.get(project=PROJECT, zone=ZONE, instance="vm-a")
    assert machine.status == "RUNNING"
    assert machine.scheduling.provisioning_model == "SPOT"
    by_id = instances.get(project=PROJECT, zone=ZONE, instance=str(machine.id))
    assert by_id.name == "vm-a"
    assert names(instances.list(project=PROJECT, zone=ZONE)) == ["vm-a", "vm-b"]
    assert names(instances.list(project=PROJECT, zone="europe-west1-b")) == []
    fake.finish(instances.delete(project=PROJECT, zone=ZONE, instance="vm-a"))
    with pytest.raises(exceptions.NotFound):
        instances.get(project=PROJECT, zone=ZONE, instance="vm-a")
    with pytest.raises(exceptions.NotFound):
        instances.delete(project=PROJECT, zone=ZONE, instance="vm-a")


def test_lists_have_filters_and_pages(fake, instances):
    for name, pool in [("vm-a", "x"), ("vm-b", "y"), ("vm-c", "x")]:
        insert(instances, name, {"pool": pool})
    request = compute_v1.ListInstancesRequest(
        project=PROJECT, zone=ZONE, filter="labels.pool=x", max_results=1
    )
    assert names(instances.list(request)) == ["vm-a", "vm-c"]
    request = compute_v1.AggregatedListInstancesRequest(
        project=PROJECT, filter='(labels.pool = "x") (status = "PROVISIONING")', max_results=1
    )
    scopes = [scope.instances for _, scope in instances.aggregated_list(request)]
    assert [name for listed in scopes for name in names(listed)] == ["vm-a", "vm-c"]
    fake.act("faults", [{"call": "instances.aggregatedList", "unreachable": ZONE}])
    scopes = dict(instances.aggregated_list(request))
    assert scopes[f"zones/{ZONE}"].warning.code == "UNREACHABLE"


def test_a_request_id_makes_one_machine(fake, instances):
    first = insert(instances, "vm-a", {}, request_id=REQUEST)
    again = insert(instances, "vm-a", {}, request_id=REQUEST)
    assert first.name == again.name
    with pytest.raises(exceptions.Conflict):
        insert(instances, "vm-a", {})
    with pytest.raises(exceptions.BadRequest):
        insert(instances, "vm-b", {}, request_id=REQUEST)


def test_operations_fail_later(fake, instances):
    fake.act("faults", [{"call": "instances.insert", "operation": "QUOTA_EXCEEDED"}])
    ended = fake.finish(insert(instances, "vm-a", {}))
    assert [error.code for error in ended.error.errors] == ["QUOTA_EXCEEDED"]
    with pytest.raises(exceptions.NotFound):
        instances.get(project=PROJECT, zone=ZONE, instance="vm-a")
    operations = fake.client(compute_v1.ZoneOperationsClient)
    with pytest.raises(exceptions.NotFound):
        operations.get(project=PROJECT, zone=ZONE, operation="operation-nothing")


def test_a_preempted_machine_has_an_operation(fake, instances):
    fake.finish(insert(instances, "vm-a", {}))
    machine = instances.get(project=PROJECT, zone=ZONE, instance="vm-a")
    fake.act(f"preempt/{machine.id}")
    assert instances.get(project=PROJECT, zone=ZONE, instance="vm-a").status == "TERMINATED"
    operations = fake.client(compute_v1.ZoneOperationsClient)
    request = compute_v1.ListZoneOperationsRequest(
        project=PROJECT,
        zone=ZONE,
        filter=f'(targetId = {machine.id}) (operationType = "compute.instances.preempted")',
    )
    assert len(list(operations.list(request))) == 1


def put(storage, name, content):
    media = MediaInMemoryUpload(content, "application/octet-stream")
    return storage.objects().insert(bucket="images", name=name, media_body=media).execute()


def test_objects_are_sent_composed_listed_and_deleted(fake):
    storage = fake.storage()
    made = put(storage, "a/1", b"one")
    assert made["md5Hash"] == base64.b64encode(hashlib.md5(b"one").digest()).decode()
    put(storage, "a/2", b"two")
    body = {"sourceObjects": [{"name": "a/1"}, {"name": "a/2"}], "destination": {}}
    request = storage.objects().compose(
        destinationBucket="images", destinationObject="b/all", body=body
    )
    assert request.execute()["size"] == "6"
    listed = storage.objects().list(bucket="images", prefix="a/").execute()
    assert [item["name"] for item in listed["items"]] == ["a/1", "a/2"]
    listed = storage.objects().list(bucket="images", delimiter="/", maxResults=1).execute()
    assert listed["prefixes"] == ["a/"] and listed["nextPageToken"]
    storage.objects().delete(bucket="images", object="b/all").execute()
    with pytest.raises(errors.HttpError) as refused:
        storage.objects().get(bucket="images", object="b/all").execute()
    assert refused.value.status_code == 404


def archive(size=1024**3):
    """A disk of zeros as Google takes it."""
    header = tarfile.TarInfo("disk.raw")
    header.size = size
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(0, size, 1024**2):
            file.write(bytes(min(size, 1024**2)))
        file.write(bytes(1024))
    return packed.getvalue()


def test_images_are_made_of_archives_listed_and_deleted(fake):
    put(fake.storage(), "disk.tar.gz", archive())
    put(fake.storage(), "small.tar.gz", archive(1024))
    images = fake.client(compute_v1.ImagesClient)

    def image(name, source="disk"):
        link = f"https://storage.googleapis.com/images/{source}.tar.gz"
        disk = compute_v1.RawDisk(source=link, container_type="TAR")
        feature = compute_v1.GuestOsFeature(type_="GVNIC")
        resource = compute_v1.Image(
            name=name, raw_disk=disk, labels={"a": name}, family="ci", guest_os_features=[feature]
        )
        return images.insert(project=PROJECT, image_resource=resource)

    operation = image("debian")
    assert images.get(project=PROJECT, image="debian").status == "PENDING"
    assert not fake.finish_image(operation).error.errors
    assert images.get(project=PROJECT, image="debian").status == "READY"
    with pytest.raises(exceptions.Conflict):
        image("debian")
    with pytest.raises(exceptions.BadRequest):
        image("small", "small")
    fake.finish_image(image("fedora"))
    request = compute_v1.ListImagesRequest(project=PROJECT, max_results=1)
    assert names(images.list(request)) == ["debian", "fedora"]
    request.filter = "labels.a = debian"
    assert names(images.list(request)) == ["debian"]
    fake.act("faults", [{"call": "images.insert", "operation": "QUOTA_EXCEEDED"}])
    ended = fake.finish_image(image("third"))
    assert [error.code for error in ended.error.errors] == ["QUOTA_EXCEEDED"]
    fake.finish_image(images.delete(project=PROJECT, image="debian"))
    with pytest.raises(exceptions.NotFound):
        images.get(project=PROJECT, image="debian")


def test_zones_are_listed(fake):
    zones = fake.client(compute_v1.ZonesClient)
    assert ZONE in [zone.name for zone in zones.list(project=PROJECT)]


def test_tokens_are_for_the_key_and_can_be_revoked(fake, instances):
    fake.act("revoke")
    with pytest.raises(google.auth.exceptions.RefreshError):
        instances.get(project=PROJECT, zone=ZONE, instance="vm-a")
    fake.act("rotate-account")
    with pytest.raises(google.auth.exceptions.RefreshError):
        fake.credentials.refresh(google.auth.transport.requests.Request())


def test_identity_tokens_are_verified_by_the_certificates(fake, tmp_path):
    key = fake.read("signing-key")
    signer = crypt.RSASigner.from_string(key["private_key"], key_id=key["kid"])
    now = int(time.time())
    claims = {"aud": "https://fleet.example", "sub": "1", "iat": now, "exp": now + 60}
    token = jwt.encode(signer, claims)
    request = google.auth.transport.requests.Request()
    verified = id_token.verify_token(
        token, request, "https://fleet.example", certs_url=f"{fake.url}/certs"
    )
    assert verified["sub"] == "1"
