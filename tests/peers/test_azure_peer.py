"""Azure's own packages drive the fake Azure, so that it answers as they expect.

Run by `./check all`, with the packages of requirements-azure.txt.
"""

import base64
import json
import pathlib
import ssl
import subprocess
import sys
import time
import urllib.request

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AccessToken, AccessTokenInfo
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient
from azure.mgmt.resource.resources import ResourceManagementClient
from azure.storage.blob import BlobClient, ContainerClient

FAKE = pathlib.Path(__file__).with_name("azure.py")
SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
LOCATION = "westus"
# Of storage: the version that the provider uses.
API = "2021-12-02"


class Azure:
    """A fake of its own, and clients of it."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, FAKE, "--tls"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.certificate = self.process.stdout.readline().split()[-1]
        self.url = self.process.stdout.readline().split()[-1]
        common = {
            "base_url": self.url,
            "credential_scopes": ["https://management.azure.com/.default"],
            "connection_verify": self.certificate,
            "retry_total": 0,
            "polling_interval": 0,
            "raw_response_hook": lambda it: self.seen.append(it.http_response),
        }
        self.seen = []
        self.resources = ResourceManagementClient(self, SUBSCRIPTION, **common)
        self.network = NetworkManagementClient(self, SUBSCRIPTION, **common)
        self.compute = ComputeManagementClient(self, SUBSCRIPTION, **common)
        self.deployments = DeploymentsMgmtClient(self, SUBSCRIPTION, **common)

    def call(self, path, data=None, headers=None):
        context = ssl.create_default_context(cafile=self.certificate)
        request = urllib.request.Request(self.url + path, data=data, headers=headers or {})
        with urllib.request.urlopen(request, context=context) as answer:
            return json.load(answer)

    def steer(self, name, body):
        return self.call(f"/_fake/{name}", json.dumps(body).encode())

    def get_token(self, *_, **__):
        form = b"grant_type=client_credentials&client_id=c&client_secret=hush&scope=x/.default"
        token = self.call("/tenant/oauth2/v2.0/token", form)["access_token"]
        return AccessToken(token, int(time.time()) + 3600)

    def get_token_info(self, *_, **__):
        return AccessTokenInfo(*self.get_token())

    def subnet(self):
        self.resources.resource_groups.create_or_update("rg", {"location": LOCATION})
        net = {"location": LOCATION, "properties": {
            "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [{"name": "s", "properties": {"addressPrefix": "10.0.0.0/24"}}]}}
        made = self.network.virtual_networks.begin_create_or_update("rg", "net", net).result()
        return made.subnets[0].id

    def machine(self, name, subnet, **change):
        address = {"location": LOCATION, "sku": {"name": "Standard"},
                   "properties": {"publicIPAllocationMethod": "Static"}}
        address = self.network.public_ip_addresses.begin_create_or_update(
            "rg", f"pip-{name}", address).result()
        card = {"location": LOCATION, "properties": {"ipConfigurations": [
            {"name": "c", "properties": {"subnet": {"id": subnet},
                                         "publicIPAddress": {"id": address.id}}}]}}
        card = self.network.network_interfaces.begin_create_or_update(
            "rg", f"nic-{name}", card).result()
        body = {"location": LOCATION, "tags": {"pool": "x"}, "properties": {
            "hardwareProfile": {"vmSize": "Standard_F2s_v2"},
            "storageProfile": {"imageReference": {"id": "/subscriptions/s/images/i"},
                               "osDisk": {"createOption": "FromImage", "name": f"disk-{name}"}},
            "osProfile": {"computerName": name, "adminUsername": "u", "adminPassword": "Pw0rd!x1"},
            "networkProfile": {"networkInterfaces": [{"id": card.id}]}, **change}}
        return self.compute.virtual_machines.begin_create_or_update("rg", name, body).result()


@pytest.fixture
def azure():
    fake = Azure()
    yield fake
    fake.process.stdin.close()
    fake.process.wait(timeout=60)


def test_a_machine_lives_and_ends_step_by_step(azure):
    machine = azure.machine("vm1", azure.subnet(), priority="Spot", evictionPolicy="Delete")
    assert (machine.provisioning_state, machine.priority) == ("Succeeded", "Spot")
    assert machine.vm_id and machine.os_profile.admin_password is None
    view = azure.compute.virtual_machines.instance_view("rg", "vm1")
    codes = [status.code for status in view.statuses]
    assert codes == ["ProvisioningState/succeeded", "PowerState/running"]
    again = azure.compute.virtual_machines.get("rg", "vm1", expand="instanceView")
    assert again.vm_id == machine.vm_id and again.instance_view.statuses
    listed = azure.compute.virtual_machines.list_all(status_only="true")
    assert [it.name for it in listed if it.instance_view.statuses] == ["vm1"]
    with pytest.raises(HttpResponseError) as refused:
        azure.network.network_interfaces.begin_delete("rg", "nic-vm1").result()
    assert refused.value.error.code == "NicInUse"
    azure.compute.virtual_machines.begin_delete("rg", "vm1", force_deletion=True).result()
    with pytest.raises(ResourceNotFoundError):
        azure.compute.virtual_machines.get("rg", "vm1")
    azure.compute.virtual_machines.begin_delete("rg", "vm1").result()
    assert azure.seen[-1].status_code == 204
    azure.network.network_interfaces.begin_delete("rg", "nic-vm1").result()
    azure.network.public_ip_addresses.begin_delete("rg", "pip-vm1").result()
    assert [disk.name for disk in azure.compute.disks.list_by_resource_group("rg")] == ["disk-vm1"]
    azure.compute.disks.begin_delete("rg", "disk-vm1").result()
    assert list(azure.network.network_interfaces.list("rg")) == []


def test_changes_go_on_after_their_answer(azure):
    azure.machine("vm1", azure.subnet())
    made = [it for it in azure.seen
            if it.request.method == "PUT" and "virtualMachines" in it.request.url]
    headers = {name.lower() for name in made[0].headers}
    assert made[0].status_code == 201
    assert {"azure-asyncoperation", "retry-after"} <= headers
    assert "x-ms-ratelimit-remaining-subscription-writes" in headers


def test_lists_have_pages_and_filters(azure):
    subnet = azure.subnet()
    azure.steer("settings", {"page": 1})
    for name in ("vm1", "vm2"):
        azure.machine(name, subnet)
    assert [it.name for it in azure.compute.virtual_machines.list_all()] == ["vm1", "vm2"]
    query = f"location eq '{LOCATION}' and resourceType eq 'Microsoft.Compute/virtualMachines'"
    more = "createdTime,provisioningState"
    found = list(azure.resources.resources.list(filter=query, expand=more))
    assert [(it.name, it.provisioning_state, it.tags) for it in found] == [
        ("vm1", "Succeeded", {"pool": "x"}), ("vm2", "Succeeded", {"pool": "x"})]
    assert found[0].created_time
    query = "tagName eq 'pool' and tagValue eq 'x'"
    found = list(azure.resources.resources.list_by_resource_group("rg", filter=query))
    assert [(it.name, it.tags) for it in found] == [("vm1", None), ("vm2", None)]


def test_refusals_have_their_codes(azure):
    subnet = azure.subnet()
    with pytest.raises(HttpResponseError) as refused:
        azure.machine("vm1", subnet, hardwareProfile={"vmSize": "Standard_Unavailable"})
    assert refused.value.error.code == "SkuNotAvailable"
    with pytest.raises(ResourceNotFoundError) as refused:
        azure.compute.virtual_machines.get("nosuch", "vm1")
    assert refused.value.error.code == "ResourceGroupNotFound"
    throttled = {"status": 429, "headers": {"Retry-After": "9"}, "path": "virtualMachines",
                 "body": {"error": {"code": "TooManyRequests", "message": "slow down"}}}
    azure.steer("faults", throttled)
    with pytest.raises(HttpResponseError) as refused:
        azure.compute.virtual_machines.get("rg", "vm1")
    assert (refused.value.status_code, refused.value.error.code) == (429, "TooManyRequests")
    failure = {"path": "virtualMachines", "method": "PUT", "operation": {
        "error": {"code": "AllocationFailed", "message": "none left"}}}
    azure.steer("faults", failure)
    with pytest.raises(HttpResponseError) as refused:
        azure.machine("vm2", subnet)
    assert refused.value.error.code == "AllocationFailed"


def test_only_one_of_two_may_make_a_machine(azure):
    azure.machine("vm1", azure.subnet())
    body = {"location": LOCATION, "properties": {}}
    with pytest.raises((HttpResponseError, ResourceExistsError)) as refused:
        azure.compute.virtual_machines.begin_create_or_update(
            "rg", "vm1", body, headers={"If-None-Match": "*"})
    assert refused.value.status_code == 412


def test_a_template_makes_a_machine(azure):
    subnet = azure.subnet()
    text = {"type": "string"}
    card = "[resourceId('Microsoft.Network/networkInterfaces', concat('nic-', parameters('name')))]"
    template = {
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/"
                   "deploymentTemplate.json#",
        "contentVersion": "1.0.0.0", "parameters": {"name": text, "subnet": text},
        "resources": [
            {"type": "Microsoft.Network/networkInterfaces", "apiVersion": "2024-05-01",
             "name": "[concat('nic-', parameters('name'))]", "location": LOCATION,
             "properties": {"ipConfigurations": [
                 {"name": "c", "properties": {"subnet": {"id": "[parameters('subnet')]"}}}]}},
            {"type": "Microsoft.Compute/virtualMachines", "apiVersion": "2024-07-01",
             "name": "[parameters('name')]", "location": "[resourceGroup().location]",
             "properties": {"networkProfile": {"networkInterfaces": [{"id": card}]}}}]}
    body = {"properties": {"mode": "Incremental", "template": template, "parameters": {
        "name": {"value": "vm9"}, "subnet": {"value": subnet}}}}
    done = azure.deployments.deployments.begin_create_or_update("rg", "d", body).result()
    assert done.properties.provisioning_state == "Succeeded"
    assert len(done.properties.output_resources) == 2
    assert azure.compute.virtual_machines.get("rg", "vm9").location == LOCATION
    del body["properties"]["parameters"]["subnet"]
    with pytest.raises(HttpResponseError) as refused:
        azure.deployments.deployments.begin_create_or_update("rg", "d2", body).result()
    assert refused.value.error.code == "InvalidTemplate"
    azure.deployments.deployments.begin_delete("rg", "d").result()


def vhd(azure, name, size=1024**2):
    """Sends an empty fixed disk as a page blob, by Azure's own client of blobs."""
    credential = StorageToken(azure)
    options = {"connection_verify": azure.certificate, "retry_total": 0, "api_version": API}
    url = f"{azure.url}/storage-1"
    blob = BlobClient(url, "images", name, credential=credential, **options)
    footer = bytearray(512)
    footer[0:8], footer[60:64] = b"conectix", (2).to_bytes(4)
    footer[48:56] = size.to_bytes(8)
    footer[64:68] = (~sum(footer) & 0xFFFFFFFF).to_bytes(4)
    blob.create_page_blob(size + 512)
    blob.upload_page(bytes(footer), size, 512, validate_content=True)
    return blob


class StorageToken:
    """A token for blobs."""

    def __init__(self, azure):
        self.azure = azure

    def get_token(self, *scopes, **_):
        form = f"grant_type=client_credentials&client_id=c&client_secret=hush&scope={scopes[0]}"
        token = self.azure.call("/tenant/oauth2/v2.0/token", form.encode())["access_token"]
        return AccessToken(token, int(time.time()) + 3600)


def test_blobs_are_written_listed_and_deleted(azure):
    blob = vhd(azure, "a/b.vhd")
    blob.set_sequence_number("max", 7)
    blob.set_sequence_number("max", 3)
    found = blob.get_blob_properties()
    assert (found.size, found.page_blob_sequence_number) == (1024**2 + 512, 7)
    with pytest.raises(ResourceExistsError):
        blob.create_page_blob(512, match_condition=MatchConditions.IfMissing)
    vhd(azure, "a/c.vhd")
    azure.steer("blobs", {"page": 1})
    url = f"{azure.url}/storage-1"
    container = ContainerClient(url, "images", credential=StorageToken(azure),
                                connection_verify=azure.certificate, api_version=API)
    assert list(container.list_blob_names(name_starts_with="a/")) == ["a/b.vhd", "a/c.vhd"]
    blob.delete_blob()
    with pytest.raises(ResourceNotFoundError):
        blob.get_blob_properties()


def test_images_are_made_of_blobs(azure):
    azure.resources.resource_groups.create_or_update("rg", {"location": LOCATION})
    blob = vhd(azure, "disk.vhd")
    disk = {"osType": "Linux", "osState": "Generalized", "blobUri": blob.url}
    body = {"location": LOCATION, "tags": {"a": "b"}, "properties": {
        "hyperVGeneration": "V2", "storageProfile": {"osDisk": disk}}}
    made = azure.compute.images.begin_create_or_update("rg", "debian", body).result()
    assert (made.provisioning_state, made.tags) == ("Succeeded", {"a": "b"})
    listed = azure.compute.images.list_by_resource_group("rg")
    assert [image.name for image in listed] == ["debian"]
    disk["blobUri"] = blob.url + "x"
    with pytest.raises(HttpResponseError) as refused:
        azure.compute.images.begin_create_or_update("rg", "other", body).result()
    assert refused.value.error.code == "InvalidParameter"
    azure.compute.images.begin_delete("rg", "debian").result()
    with pytest.raises(ResourceNotFoundError):
        azure.compute.images.get("rg", "debian")


def test_versions_of_a_gallery_are_made_of_blobs(azure):
    azure.resources.resource_groups.create_or_update("rg", {"location": LOCATION})
    blob = vhd(azure, "disk.vhd")
    account = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/a"
    body = {"location": LOCATION, "tags": {"a": "b"}, "properties": {
        "publishingProfile": {"targetRegions": [{"name": LOCATION}]},
        "storageProfile": {"osDiskImage": {"source": {
            "uri": blob.url, "storageAccountId": account}}}}}
    versions = azure.compute.gallery_image_versions
    made = versions.begin_create_or_update("rg", "ci", "debian", "0.1.2", body).result()
    assert made.provisioning_state == "Succeeded"
    query = "resourceType eq 'Microsoft.Compute/galleries/images/versions'"
    found = list(azure.resources.resources.list(filter=query, expand="provisioningState"))
    assert [(it.id, it.tags) for it in found] == [(made.id, {"a": "b"})]
    with pytest.raises(ResourceNotFoundError):
        versions.begin_create_or_update("rg", "ci", "unknown", "0.1.2", body).result()
    versions.begin_delete("rg", "ci", "debian", "0.1.2").result()
    with pytest.raises(ResourceNotFoundError):
        versions.get("rg", "ci", "debian", "0.1.2")


def test_documents_are_verified_by_openssl(azure, tmp_path):
    machine = azure.machine("vm1", azure.subnet())
    document = azure.call("/metadata/attested/document?vm=vm1", headers={"Metadata": "true"})
    authority = azure.steer("authority", {})
    (tmp_path / "known").write_text(authority["root"] + authority["issuer"])
    (tmp_path / "document").write_bytes(base64.b64decode(document["signature"]))
    verified = subprocess.run(
        ["openssl", "cms", "-verify", "-inform", "DER", "-in", tmp_path / "document", "-CAfile",
         tmp_path / "known", "-purpose", "any"],
        capture_output=True, check=True)
    assert json.loads(verified.stdout)["vmId"] == machine.vm_id
