"""The metadata server of a machine, as `google.py` plays it for each of its machines."""

from google_compute import Refused, not_found, zone_of

NUMBER = "123456789012"


class Text(str):
    """An answer that is not JSON."""


def metadata(world, name, parts, query, flavor, identity):
    """What the machine of this name or id reads below `/computeMetadata/v1/`."""
    if flavor != "Google":
        raise Refused(403, "forbidden", "Missing Metadata-Flavor:Google header.")
    named = [it for it in world.instances.values() if name in (it["name"], it["id"])]
    if not named or parts[:2] != ["v1", "instance"]:
        raise not_found("path", "/".join(parts))
    [machine] = named
    match parts[2:]:
        case ["id"]:
            return Text(machine["id"])
        case ["name"]:
            return Text(machine["name"])
        case ["zone"]:
            return Text(f"projects/{NUMBER}/zones/{zone_of(machine)}")
        case ["attributes", key]:
            for item in machine.get("metadata", {}).get("items", []):
                if item["key"] == key:
                    return Text(item["value"])
        case ["service-accounts", "default", "identity"]:
            if query.get("format") != "full":
                raise Refused(400, "invalid", "only the full form names the machine")
            return Text(identity(world, machine["id"], query["audience"]))
        case ["preempted"]:
            return Text("TRUE" if machine["id"] in world.notices else "FALSE")
    raise not_found("path", "/".join(parts))
