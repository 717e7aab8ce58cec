"""The calls of Cloud Storage that `google.py` plays."""

import base64
import hashlib

from google_compute import Refused, invalid

BUCKETS = ["images", "few-images"]
MAX_PAGE = 1000
COMPOSED_AT_ONCE = 32


class Storage:
    """Objects by bucket and name. Lists of the bucket `few-images` have short pages."""

    def __init__(self):
        self.objects = {}

    def find(self, bucket, name):
        if (bucket, name) not in self.objects:
            raise Refused(404, "notFound", f"No such object: {bucket}/{name}")
        return self.objects[bucket, name]

    def insert(self, bucket, query, content, fault):
        name = query.get("name", "")
        if not name or len(name.encode()) > 1024:
            raise invalid(f"Invalid object name: '{name}'")
        if query.get("uploadType") != "media":
            raise invalid("only simple uploads are played")
        if fault.get("damage"):
            content = content[:-1] + b"?"
        self.objects[bucket, name] = content
        return self.described(bucket, name)

    def compose(self, bucket, name, body):
        sources = [source["name"] for source in body.get("sourceObjects", [])]
        if not 1 <= len(sources) <= COMPOSED_AT_ONCE:
            raise invalid(f"The number of source components provided ({len(sources)}) is wrong")
        content = b"".join(self.find(bucket, source) for source in sources)
        self.objects[bucket, name] = content
        described = self.described(bucket, name)
        del described["md5Hash"]
        return {**described, "componentCount": len(sources)}

    def delete(self, bucket, name):
        self.find(bucket, name)
        del self.objects[bucket, name]
        return None

    def described(self, bucket, name):
        content = self.find(bucket, name)
        digest = base64.b64encode(hashlib.md5(content).digest()).decode()
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": bucket,
            "size": str(len(content)),
            "md5Hash": digest,
            "storageClass": "STANDARD",
        }

    def list(self, bucket, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        entries = []
        for its, name in sorted(self.objects):
            if its != bucket or not name.startswith(prefix):
                continue
            inner, found, _ = name[len(prefix) :].partition(delimiter or "\0")
            entry = (prefix + inner + found, True) if found else (name, False)
            if entry not in entries:
                entries.append(entry)
        most = 2 if bucket == "few-images" else MAX_PAGE
        size = min(int(query.get("maxResults", most)), most)
        begin = int(query.get("pageToken", 0))
        page = entries[begin : begin + size]
        items = [self.described(bucket, name) for name, is_folder in page if not is_folder]
        answer = {"kind": "storage#objects"}
        if items:
            answer["items"] = items
        folders = [name for name, is_folder in page if is_folder]
        if folders:
            answer["prefixes"] = folders
        if begin + size < len(entries):
            answer["nextPageToken"] = str(begin + size)
        return answer


def storage(world, method, parts, query, body, content):
    """Returns the name of the call, and a function that makes it."""
    kept = world.storage
    match (method, *parts):
        case ("POST", "upload", "storage", "v1", "b", bucket, "o"):
            call, make = "objects.insert", lambda it: kept.insert(bucket, query, content, it)
        case ("GET", "storage", "v1", "b", bucket, "o"):
            call, make = "objects.list", lambda _: kept.list(bucket, query)
        case ("GET", "storage", "v1", "b", bucket, "o", name):
            call, make = "objects.get", lambda _: kept.described(bucket, name)
        case ("DELETE", "storage", "v1", "b", bucket, "o", name):
            call, make = "objects.delete", lambda _: kept.delete(bucket, name)
        case ("POST", "storage", "v1", "b", bucket, "o", name, "compose"):
            call, make = "objects.compose", lambda _: kept.compose(bucket, name, body)
        case _:
            raise Refused(404, "notFound", "/".join(parts))

    def checked(fault):
        if bucket not in BUCKETS:
            raise Refused(404, "notFound", "The specified bucket does not exist.")
        return make(fault)

    return call, checked
