"""The page blobs that `azure.py` plays, and the disks in them."""

import base64
import hashlib
import re
import struct
from xml.sax.saxutils import escape

ACCOUNT = "/storage-1"
CONTAINERS = ["images"]
AUDIENCE = "https://storage.azure.com"
SECTOR = 512
MIB = 1024**2
MAX_WRITE = 4 * MIB
VERSION = re.compile(r"20\d\d-\d\d-\d\d")


class StorageError(Exception):
    def __init__(self, status, code, message=""):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Blob:
    def __init__(self, size):
        self.size = size
        self.pieces = {}  # Content by offset: what is not written is zero.
        self.sequence = 0

    def content(self):
        data = bytearray(self.size)
        for offset, piece in self.pieces.items():
            data[offset : offset + len(piece)] = piece
        return bytes(data)


class Storage:
    def __init__(self):
        self.blobs = {}
        self.page = 5000

    def handle(self, method, path, query, headers, body):
        """Returns the status, headers and text of the answer."""
        if not VERSION.fullmatch(headers.get("x-ms-version", "")) or "x-ms-date" not in headers:
            raise StorageError(400, "MissingRequiredHeader", "x-ms-version or x-ms-date")
        container, _, name = path.removeprefix(f"{ACCOUNT}/").partition("/")
        if container not in CONTAINERS:
            raise StorageError(404, "ContainerNotFound", "The container does not exist.")
        comp = query.get("comp")
        if not name:
            if method == "GET" and comp == "list" and query.get("restype") == "container":
                return 200, {"Content-Type": "application/xml"}, self.list(query)
            raise StorageError(400, "UnsupportedHttpVerb")
        match method, comp:
            case "PUT", None:
                return self.put(name, headers)
            case "PUT", "page":
                return self.write(name, headers, body)
            case "PUT", "properties":
                return self.set_sequence(name, headers)
            case "HEAD", None:
                blob = self.find(name)
                shown = {"Content-Length": blob.size, "x-ms-blob-type": "PageBlob",
                         "x-ms-blob-sequence-number": blob.sequence}
                return 200, shown, ""
            case "DELETE", None:
                self.find(name)
                del self.blobs[name]
                return 202, {}, ""
        raise StorageError(400, "UnsupportedHttpVerb")

    def find(self, name):
        if name not in self.blobs:
            raise StorageError(404, "BlobNotFound", "The specified blob does not exist.")
        return self.blobs[name]

    def put(self, name, headers):
        if headers.get("x-ms-blob-type") != "PageBlob":
            raise StorageError(400, "InvalidHeaderValue", "x-ms-blob-type")
        size = int(headers["x-ms-blob-content-length"])
        if size % SECTOR or size == 0:
            raise StorageError(400, "InvalidHeaderValue", "x-ms-blob-content-length")
        if headers.get("if-none-match") == "*" and name in self.blobs:
            raise StorageError(409, "BlobAlreadyExists", "The specified blob already exists.")
        self.blobs[name] = Blob(size)
        return 201, {}, ""

    def write(self, name, headers, body):
        blob = self.find(name)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("x-ms-range", ""))
        if headers.get("x-ms-page-write") != "update" or not match:
            raise StorageError(400, "InvalidHeaderValue", "x-ms-page-write or x-ms-range")
        first, end = int(match[1]), int(match[2]) + 1
        if first % SECTOR or end % SECTOR or end > blob.size or first >= end:
            raise StorageError(416, "InvalidPageRange", f"{first}-{end} of {blob.size}")
        if end - first != len(body) or len(body) > MAX_WRITE:
            raise StorageError(413, "RequestBodyTooLarge", f"{len(body)} bytes")
        digest = headers.get("content-md5")
        if digest and base64.b64decode(digest) != hashlib.md5(body).digest():
            raise StorageError(400, "Md5Mismatch", "The MD5 value is not that of the body.")
        blob.pieces[first] = body
        return 201, {}, ""

    def set_sequence(self, name, headers):
        blob, number = self.find(name), int(headers["x-ms-blob-sequence-number"])
        if headers.get("x-ms-sequence-number-action") != "max":
            raise StorageError(400, "InvalidHeaderValue", "x-ms-sequence-number-action")
        blob.sequence = max(blob.sequence, number)
        return 200, {}, ""

    def list(self, query):
        prefix, after = query.get("prefix", ""), query.get("marker", "")
        names = [name for name in sorted(self.blobs) if name.startswith(prefix) and name > after]
        page = names[: self.page]
        shown = "".join(f"<Blob><Name>{escape(name)}</Name><Properties/></Blob>" for name in page)
        marker = escape(page[-1]) if len(names) > len(page) else ""
        return (
            '\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults>'
            f"<Prefix>{escape(prefix)}</Prefix><Blobs>{shown}</Blobs>"
            f"<NextMarker>{marker}</NextMarker></EnumerationResults>"
        )

    def disk(self, url):
        """The disk in the blob with this address, without the footer; or why it is none."""
        found = re.search(rf"{ACCOUNT}/({'|'.join(CONTAINERS)})/(.+)$", url)
        if not found or found[2] not in self.blobs:
            return None, f"The source blob {url} does not exist."
        content = self.blobs[found[2]].content()
        disk, footer = content[:-SECTOR], content[-SECTOR:]
        if len(disk) % MIB or not disk:
            return None, f"The VHD has {len(disk)} bytes, which are not MiB."
        cookie, checksum = footer[:8], struct.unpack(">I", footer[64:68])[0]
        summed = ~(sum(footer) - sum(footer[64:68])) & 0xFFFFFFFF
        if cookie != b"conectix" or checksum != summed:
            return None, "The blob has no valid footer of a VHD."
        size, kind = struct.unpack(">Q", footer[48:56])[0], struct.unpack(">I", footer[60:64])[0]
        if kind != 2 or size != len(disk):
            return None, f"The VHD is of kind {kind} and has {size} bytes."
        return disk, None


def error_xml(error):
    return (
        f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{error.code}</Code>'
        f"<Message>{escape(error.message)}</Message></Error>"
    )
