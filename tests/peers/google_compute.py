"""The calls of Compute Engine that `google.py` plays."""

import hashlib
import json
import re
import time

LABEL = re.compile(r"[a-z0-9_-]{0,63}")
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
REGIONS = {"us-central1": "abcf", "us-east1": "bcd", "us-east4": "abc", "europe-west1": "bcd"}
TYPES = [
    *["e2-medium", "n2-standard-2", "n2-standard-4", "n2-standard-8", "n2-standard-16"],
    *["n2-highmem-4", "c3d-standard-4", "c4-standard-4", "t2a-standard-4"],
]
MAX_PAGE = 500


class Refused(Exception):
    """Becomes an error in Google's form."""

    def __init__(self, status, reason, message, retry_after=None):
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def body(self):
        entry = {"message": self.message, "domain": "global", "reason": self.reason}
        return {"error": {"code": self.status, "message": self.message, "errors": [entry]}}


def not_found(kind, name):
    return Refused(404, "notFound", f"The resource '{kind}/{name}' was not found")


def invalid(message):
    return Refused(400, "invalid", message)


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%S.000-00:00", time.gmtime())


def insert(world, project, zone, query, body, fault):
    check_zone(zone)
    request_id = query.get("requestId")
    if request_id is not None and not UUID.fullmatch(request_id):
        raise invalid(f"Invalid value for field 'requestId': '{request_id}'")
    if request_id in world.requests:
        content, operation = world.requests[request_id]
        if content != body:
            raise invalid("requestId was used with another content")
        return operation
    check_instance(project, zone, body)
    name = body["name"]
    if (project, zone, name) in world.instances:
        path = f"projects/{project}/zones/{zone}/instances/{name}"
        raise Refused(409, "alreadyExists", f"The resource '{path}' already exists")
    identifier = world.next_id()
    link = world.address(project, f"zones/{zone}/instances/{name}")
    if "operation" not in fault and not fault.get("hang"):
        instance = made(world, project, zone, identifier, link, body)
        world.instances[project, zone, name] = instance
        make_disks(world, project, zone, instance)

        def runs():
            if instance["status"] == "PROVISIONING":
                instance["status"] = "RUNNING"
    else:
        runs = None
    operation = world.operate(project, zone, "insert", identifier, link, fault, runs)
    if request_id is not None:
        operation["clientOperationId"] = request_id
        world.requests[request_id] = (body, operation)
    return operation


def check_zone(zone):
    region, _, letter = zone.rpartition("-")
    if not letter or letter not in REGIONS.get(region, ""):
        raise invalid(f"Invalid value for field 'zone': '{zone}'. Unknown zone.")


def check_instance(project, zone, body):
    name = body.get("name", "")
    if not NAME.fullmatch(name):
        raise invalid(f"Invalid value for field 'resource.name': '{name}'")
    kind = body.get("machineType", "")
    match = re.search(r"zones/([^/]+)/machineTypes/([^/]+)$", kind)
    if not match or match[1] != zone:
        raise invalid(f"Invalid value for field 'resource.machineType': '{kind}'")
    if match[2] not in TYPES:
        raise not_found(f"projects/{project}/zones/{zone}/machineTypes", match[2])
    if not body.get("disks") or not body.get("networkInterfaces"):
        raise Refused(400, "required", "At least one disk and one network interface are required")
    holders = [body] + [disk.get("initializeParams", {}) for disk in body["disks"]]
    for holder in holders:
        for key, value in holder.get("labels", {}).items():
            if not (LABEL.fullmatch(key) and LABEL.fullmatch(value)):
                raise invalid(f"Invalid value for field 'resource.labels': '{key}={value}'")


def made(world, project, zone, identifier, link, body):
    instance = json.loads(json.dumps(body))
    kind = body["machineType"].rsplit("/", 1)[1]
    instance.update(
        kind="compute#instance",
        id=identifier,
        zone=world.address(project, f"zones/{zone}"),
        machineType=world.address(project, f"zones/{zone}/machineTypes/{kind}"),
        selfLink=link,
        status="PROVISIONING",
        creationTimestamp=stamp(),
        labelFingerprint="fake",
    )
    scheduling = instance.setdefault("scheduling", {})
    scheduling.setdefault("provisioningModel", "STANDARD")
    scheduling["preemptible"] = scheduling["provisioningModel"] == "SPOT"
    return instance


def make_disks(world, project, zone, instance):
    """Makes the disks of a machine that are new."""
    for number, attached in enumerate(instance["disks"]):
        if attached.get("type", "PERSISTENT") != "PERSISTENT" or "source" in attached:
            continue
        given = attached.get("initializeParams", {})
        name = given.get("diskName") or instance["name"] + (f"-{number}" if number else "")
        link = world.address(project, f"zones/{zone}/disks/{name}")
        attached["source"] = link
        world.disks[project, zone, name] = {
            "kind": "compute#disk",
            "id": world.next_id(),
            "name": name,
            "zone": world.address(project, f"zones/{zone}"),
            "status": "READY",
            "sizeGb": "10",
            "selfLink": link,
            "labels": given.get("labels", {}),
            "users": [instance["selfLink"]],
            "creationTimestamp": world.disk_time or stamp(),
        }


def forget(world, key):
    """A machine has ended, and with it those of its disks that are to end with it."""
    instance = world.instances.pop(key, None)
    for attached in (instance or {}).get("disks", []):
        for disk_key, disk in list(world.disks.items()):
            if disk["selfLink"] != attached.get("source"):
                continue
            if attached.get("autoDelete"):
                del world.disks[disk_key]
            else:
                disk["users"] = []
                disk["lastDetachTimestamp"] = world.disk_time or stamp()


def disks(world, project, zone, query):
    here = [it for (its, at, _), it in sorted(world.disks.items()) if (its, at) == (project, zone)]
    page, after = paged(filtered(query.get("filter"), here), query)
    return listed("compute#diskList", page, after, world, project)


def delete_disk(world, project, zone, name, fault):
    disk = world.disks.get((project, zone, name))
    if disk is None:
        raise not_found(f"projects/{project}/zones/{zone}/disks", name)
    if disk["users"]:
        text = f"The disk resource '{name}' is already being used by '{disk['users'][0]}'"
        raise Refused(400, "resourceInUseByAnotherResource", text)
    goes = lambda: world.disks.pop((project, zone, name), None)  # noqa: E731
    return world.operate(project, zone, "delete", disk["id"], disk["selfLink"], fault, goes)


def console(world, project, zone, name, port):
    """The last MB that a machine wrote to a serial port. Positions count bytes since its start."""
    instance = world.find(project, zone, name)
    text = world.consoles.get(instance["id"], "") if port == "1" else ""
    start = max(len(text) - 1_048_576, 0)
    return {
        "kind": "compute#serialPortOutput",
        "selfLink": f"{instance['selfLink']}/serialPort",
        "contents": text[start:],
        "start": str(start),
        "next": str(len(text)),
    }


def delete(world, project, zone, name, fault):
    instance = world.find(project, zone, name)
    instance["status"] = "STOPPING"
    key = (project, zone, instance["name"])

    def goes():
        forget(world, key)

    identifier, link = instance["id"], instance["selfLink"]
    return world.operate(project, zone, "delete", identifier, link, fault, goes)


def aggregated(world, project, query, fault):
    matching = filtered(query.get("filter"), own(world, project))
    matching = [it for it in matching if zone_of(it) != fault.get("unreachable")]
    page, after = paged(matching, query)
    items = {}
    for zone in all_zones():
        here = [it for it in page if zone_of(it) == zone]
        scope = {"instances": here} if here else {"warning": no_results(zone)}
        items[f"zones/{zone}"] = scope
    lost = fault.get("unreachable")
    if lost:
        warning = {"code": "UNREACHABLE", "message": f"zones/{lost} is unreachable", "data": []}
        items[f"zones/{lost}"] = {"warning": warning}
    return listed("compute#instanceAggregatedList", items, after, world, project)


def no_results(zone):
    message = f"There are no results for scope 'zones/{zone}' on this page."
    data = [{"key": "scope", "value": f"zones/{zone}"}]
    return {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": data}


def listed(kind, items, after, world, project):
    answer = {"kind": kind, "id": f"projects/{project}/list", "items": items}
    answer["selfLink"] = world.address(project, "list")
    if after:
        answer["nextPageToken"] = after
    return answer


def own(world, project):
    return [it for (its, _, _), it in sorted(world.instances.items()) if its == project]


def zone_of(instance):
    return instance["zone"].rsplit("/", 1)[1]


def all_zones():
    return [f"{region}-{letter}" for region, letters in REGIONS.items() for letter in letters]


def filtered(text, items):
    """Conditions `field = value`, each in parentheses or alone, which must all be met."""
    conditions = re.findall(r'([\w.-]+)\s*=\s*(?:"([^"]*)"|([^\s()]+))', text or "")
    if text and not conditions:
        raise invalid(f"Invalid value for field 'filter': '{text}'")

    def meets(item):
        for field, quoted, bare in conditions:
            value = item
            for part in field.split(".", 1):
                value = value.get(part) if isinstance(value, dict) else None
            if str(value) != (quoted or bare):
                return False
        return True

    return [item for item in items if meets(item)]


def paged(items, query):
    size = int(query.get("maxResults", MAX_PAGE))
    if not 0 <= size <= MAX_PAGE:
        raise invalid(f"Invalid value for field 'maxResults': '{size}'")
    begin = int(query.get("pageToken", 0))
    after = str(begin + size) if begin + size < len(items) else None
    return items[begin : begin + size], after


def zones(world, project, query):
    def zone(name):
        region = name.rpartition("-")[0]
        return {
            "kind": "compute#zone",
            "id": str(int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)),
            "name": name,
            "status": "UP",
            "region": world.address(project, f"regions/{region}"),
            "selfLink": world.address(project, f"zones/{name}"),
        }

    page, after = paged([zone(name) for name in all_zones()], query)
    return listed("compute#zoneList", page, after, world, project)


def operations(world, project, zone, query):
    entries = world.operations.items()
    here = [entry[0] for (its, place, _), entry in entries if (its, place) == (project, zone)]
    page, after = paged(filtered(query.get("filter"), here), query)
    return listed("compute#operationList", page, after, world, project)


def compute(world, method, parts, query, body):
    """Returns the name of the call, and a function that makes it."""
    project, rest = parts[0], parts[1:]
    match (method, *rest):
        case ("GET", "aggregated", "instances"):
            return "instances.aggregatedList", lambda it: aggregated(world, project, query, it)
        case ("GET", "zones"):
            return "zones.list", lambda _: zones(world, project, query)
        case ("POST", "zones", zone, "instances"):
            make = lambda it: insert(world, project, zone, query, body, it)  # noqa: E731
            return "instances.insert", make
        case ("GET", "zones", zone, "instances"):
            def instances(_):
                here = [it for it in own(world, project) if zone_of(it) == zone]
                page, after = paged(filtered(query.get("filter"), here), query)
                return listed("compute#instanceList", page, after, world, project)

            return "instances.list", instances
        case ("GET", "zones", zone, "instances", name):
            return "instances.get", lambda _: world.find(project, zone, name)
        case ("GET", "zones", zone, "instances", name, "serialPort"):
            port = query.get("port", "1")
            make = lambda _: console(world, project, zone, name, port)  # noqa: E731
            return "instances.getSerialPortOutput", make
        case ("DELETE", "zones", zone, "instances", name):
            return "instances.delete", lambda it: delete(world, project, zone, name, it)
        case ("GET", "zones", zone, "disks"):
            return "disks.list", lambda _: disks(world, project, zone, query)
        case ("DELETE", "zones", zone, "disks", name):
            return "disks.delete", lambda it: delete_disk(world, project, zone, name, it)
        case ("GET", "zones", zone, "operations"):
            return "zoneOperations.list", lambda _: operations(world, project, zone, query)
        case ("GET", "zones", zone, "operations", name):
            return "zoneOperations.get", lambda _: world.ask(project, zone, name)
        case ("POST", "zones", zone, "operations", name, "wait"):
            return "zoneOperations.wait", lambda _: world.ask(project, zone, name)
    raise not_found("path", "/".join(parts))


def preempt(world, identifier):
    for (project, zone, name), instance in list(world.instances.items()):
        if instance["id"] != identifier:
            continue
        link, kind = instance["selfLink"], "compute.instances.preempted"
        operation = world.operate(project, zone, kind, identifier, link, {})
        operation.update(status="DONE", progress=100, endTime=stamp())
        if instance["scheduling"].get("instanceTerminationAction") == "DELETE":
            forget(world, (project, zone, name))
        else:
            instance["status"] = "TERMINATED"
