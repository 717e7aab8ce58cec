"""The calls about images that `google.py` plays."""

import base64
import re
import tarfile
import zlib

from google_compute import LABEL, NAME, Refused, filtered, invalid, listed, not_found, paged, stamp

SOURCE = re.compile(r"https://storage\.googleapis\.com/([^/]+)/(.+)")
DISK_UNIT = 1024**3
# Compressed bytes that are read at a time: of zeros, they make some MiB.
FED = 16 * 1024
# Content that is kept: the rest of a disk must be zeros.
KEPT = 16 * 1024**2


class Images:
    """Images by project and name, and the disks of archives that were read."""

    def __init__(self):
        self.images = {}
        self.read = {}

    def find(self, project, name):
        if (project, name) not in self.images:
            raise not_found(f"projects/{project}/global/images", name)
        return self.images[project, name]

    def disk(self, data):
        """The size of the disk in an archive, and its content without the zeros at its end."""
        key = hash(data)
        if key not in self.read:
            self.read[key] = disk_in(data)
        return self.read[key]


def pieces(data):
    """The uncompressed content. Most of it is zeros, so memory is moved as little as possible."""
    inflate = zlib.decompressobj(wbits=31)
    for at in range(0, len(data), FED):
        fed = data[at : at + FED]
        if inflate.eof:
            raise invalid("The tar archive has something after its end")
        yield inflate.decompress(fed)
    if not inflate.eof:
        raise invalid("The tar archive is not valid gzip: it ends early")
    if inflate.unused_data:
        raise invalid("The tar archive has something after its end")


def disk_in(data):
    kept, length = [], 0
    try:
        for piece in pieces(data):
            if length < KEPT:
                kept.append(piece)
            elif piece != bytes(len(piece)):
                raise invalid("the fake keeps no disk with so much content")
            length += len(piece)
    except zlib.error as error:
        raise invalid(f"The tar archive is not valid gzip: {error}") from error
    begin = b"".join(kept)
    header = tarfile.TarInfo.frombuf(begin[:512], "ascii", "strict")
    if header.name != "disk.raw" or not header.isreg():
        raise invalid(f"The tar archive has {header.name} and not disk.raw")
    if header.size % DISK_UNIT or header.size == 0:
        raise invalid(f"disk.raw has {header.size} bytes, which is not a multiple of 1 GB")
    if length < 512 + header.size + 1024:
        raise invalid("The tar archive is cut off")
    return header.size, begin[512:].rstrip(b"\0")


def insert(world, project, body, fault):
    name = body.get("name", "")
    if not NAME.fullmatch(name):
        raise invalid(f"Invalid value for field 'resource.name': '{name}'")
    for key, value in body.get("labels", {}).items():
        if not (re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) and LABEL.fullmatch(value)):
            raise invalid(f"Invalid value for field 'resource.labels': '{key}={value}'")
    images = world.images
    if (project, name) in images.images:
        path = f"projects/{project}/global/images/{name}"
        raise Refused(409, "alreadyExists", f"The resource '{path}' already exists")
    source = body.get("rawDisk", {}).get("source", "")
    match = SOURCE.fullmatch(source)
    if not match:
        raise invalid(f"Invalid value for field 'resource.rawDisk.source': '{source}'")
    size, content = images.disk(world.storage.find(match[1], match[2]))
    identifier = world.next_id()
    link = world.address(project, f"global/images/{name}")
    ready = None
    if "operation" not in fault:
        image = {
            **body,
            "kind": "compute#image",
            "id": identifier,
            "selfLink": link,
            "status": "PENDING",
            "diskSizeGb": str(size // DISK_UNIT),
            "creationTimestamp": stamp(),
            "labelFingerprint": "fake",
        }
        images.images[project, name] = image
        images.read[project, name] = content

        def ready():
            image["status"] = "READY"

    return operate(world, project, "insert", identifier, link, fault, ready)


def operate(world, project, kind, identifier, link, fault, effect):
    operation = world.operate(project, "global", kind, identifier, link, fault, effect)
    del operation["zone"]
    operation["selfLink"] = world.address(project, f"global/operations/{operation['name']}")
    return operation


def delete(world, project, name, fault):
    image = world.images.find(project, name)
    image["status"] = "DELETING"

    def goes():
        world.images.images.pop((project, name), None)

    return operate(world, project, "delete", image["id"], image["selfLink"], fault, goes)


def get(world, project, name):
    image = world.images.find(project, name)
    for operation, *_ in list(world.operations.values()):
        if operation["targetLink"] == image["selfLink"]:
            world.advance(world.operations[project, "global", operation["name"]])
    return world.images.find(project, name)


def list_images(world, project, query):
    own = [image for (its, _), image in sorted(world.images.images.items()) if its == project]
    page, after = paged(filtered(query.get("filter"), own), query)
    return listed("compute#imageList", page, after, world, project)


def check_boot_disks(world, project, instance):
    """A machine boots from an image that is ready. Those of other projects are not known here."""
    for disk in instance.get("disks", []):
        source = disk.get("initializeParams", {}).get("sourceImage", "")
        match = re.search(r"projects/([^/]+)/global/images/([^/]+)$", source)
        is_own = match is not None and match[1] == project
        if is_own and world.images.find(project, match[2])["status"] != "READY":
            raise Refused(400, "resourceNotReady", f"The resource '{source}' is not ready")


def content(world, name):
    """The disk of an image, as tests compare it."""
    key = next(key for key in world.images.images if key[1] == name)
    size = int(world.images.images[key]["diskSizeGb"]) * DISK_UNIT
    return {"size": size, "content": base64.b64encode(world.images.read[key]).decode()}


def calls(world, method, project, parts, query, body):
    """Returns the name of the call, and a function that makes it."""
    match (method, *parts):
        case ("POST", "images"):
            return "images.insert", lambda it: insert(world, project, body, it)
        case ("GET", "images"):
            return "images.list", lambda _: list_images(world, project, query)
        case ("GET", "images", name):
            return "images.get", lambda _: get(world, project, name)
        case ("DELETE", "images", name):
            return "images.delete", lambda it: delete(world, project, name, it)
        case ("GET", "operations", name):
            return "globalOperations.get", lambda _: world.ask(project, "global", name)
    raise not_found("path", "/".join(parts))
