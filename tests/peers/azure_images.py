"""Images and versions of galleries, as `azure_state.py` keeps them."""

import base64
import re

IMAGE = "Microsoft.Compute/images"
VERSION = "Microsoft.Compute/galleries/images/versions"
NESTED = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/(?P<group>[^/]+)/providers/Microsoft\.Compute/galleries/"
    r"(?P<gallery>[^/]+)/images/(?P<image>[^/]+)/versions/(?P<name>[^/]+)", re.I)


def problem_of(made, storage, settings):
    """Code and message of the refusal of an image; `None`: it is made of a valid disk."""
    properties = made["properties"]
    profile = properties.get("storageProfile") or {}
    if made["type"] == IMAGE:
        disk = profile.get("osDisk") or {}
        if disk.get("osType") not in ("Linux", "Windows") or disk.get("osState") != "Generalized":
            return "InvalidParameter", "The value of parameter osDisk is invalid."
        if properties.get("hyperVGeneration") not in ("V1", "V2"):
            return "InvalidParameter", "The value of parameter hyperVGeneration is invalid."
        url = disk.get("blobUri", "")
    else:
        source = (profile.get("osDiskImage") or {}).get("source") or {}
        if "/storageAccounts/" not in source.get("storageAccountId", ""):
            return "InvalidParameter", "The value of parameter storageAccountId is invalid."
        match = NESTED.fullmatch(made["id"])
        if f"{match['gallery']}/{match['image']}" not in settings["galleries"]:
            return "ParentResourceNotFound", "The gallery image does not exist."
        if not re.fullmatch(r"\d{1,10}\.\d{1,10}\.\d{1,10}", made["name"]):
            return "InvalidParameter", "The name of the version is invalid."
        regions = [it["name"] for it in properties["publishingProfile"]["targetRegions"]]
        if made["location"] not in regions:
            return "InvalidParameter", "The location must be one of the target regions."
        url = source.get("uri", "")
    disk, problem = storage.disk(url)
    if problem:
        return "InvalidParameter", problem
    made["disk"] = base64.b64encode(disk.rstrip(b"\0")).decode()
    made["diskBytes"] = len(disk)
    return None


def boot_problem(vm, resources):
    """Why a machine cannot boot from the image that it names; `None`: it can. Images of groups
    that have nothing else here are not known here."""
    profile = vm["properties"].get("storageProfile") or {}
    id = (profile.get("imageReference") or {}).get("id", "")
    if "/providers/microsoft.compute/" not in id.lower():
        return None
    group = id.lower().split("/providers/")[0]
    found = resources.get(id.lower())
    if found is None and not any(other.startswith(f"{group}/") for other in resources):
        return None
    if found is None or found["properties"]["provisioningState"] != "Succeeded":
        return f"The image {id} does not exist, or is not ready."
    return None
