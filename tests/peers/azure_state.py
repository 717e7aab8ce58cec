"""The resources of the fake Azure, and the rules that Resource Manager keeps about them."""

import copy
import re
import uuid

from azure_images import IMAGE, NESTED, VERSION, boot_problem, problem_of
from azure_storage import Storage
from azure_templates import BadTemplate, Template

ID = re.compile(
    r"/subscriptions/(?P<sub>[^/]+)/resourceGroups/(?P<group>[^/]+)/providers/"
    r"(?P<type>Microsoft\.\w+/\w+)/(?P<name>[^/]+)(?P<rest>/.*)?", re.I)
OPERATION = re.compile(r"/operations/(?P<id>[\w-]+)$|/operationStatuses/(?P<id2>[\w-]+)$", re.I)
COMPUTE, NETWORK = "Microsoft.Compute", "Microsoft.Network"
VM, DISK = f"{COMPUTE}/virtualMachines", f"{COMPUTE}/disks"
NIC, IP = f"{NETWORK}/networkInterfaces", f"{NETWORK}/publicIPAddresses"
NET = f"{NETWORK}/virtualNetworks"
DEPLOYMENT = "Microsoft.Resources/deployments"
SPEC = "Microsoft.Resources/templateSpecs"
KINDS = [VM, DISK, IMAGE, VERSION, NIC, IP, NET, f"{NETWORK}/networkSecurityGroups", DEPLOYMENT,
         SPEC]
# Known to the fake alone.
HIDDEN = ("canceled", "createdTime", "disk", "diskBytes", "failure", "operation", "operations",
          "power")
NAMES = {kind.lower(): kind for kind in KINDS}


class ApiError(Exception):
    def __init__(self, status, code, message, headers=None, details=None):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers, self.details = headers or {}, details

    def body(self):
        error = {"code": self.code, "message": self.message}
        if self.details:
            error["details"] = self.details
        return {"error": error}


def not_found(id):
    return ApiError(404, "ResourceNotFound", f"The Resource '{id}' was not found.")


class State:
    def __init__(self):
        self.groups = {}
        self.resources = {}
        self.operations = {}
        self.storage = Storage()
        self.settings = {"polls": 1, "galleries": ["ci/debian"],
                         "page": 1000, "retry_after": 0,
                         "locations": ["eastus", "westus"], "created": "2026-09-21T00:00:00.1234567Z"}

    # --- requests ---

    def handle(self, method, path, query, body, fault, headers, url):
        self.url, self.fault, self.request_headers = url, fault, headers
        operation = OPERATION.search(path)
        if operation and method == "GET":
            return self.poll(operation["id"] or operation["id2"])
        one = NESTED.fullmatch(path) or ID.fullmatch(path)
        if one:
            return self.on_resource(method, path, one, query, body)
        group = re.fullmatch(r"/subscriptions/[^/]+/resourcegroups/([^/]+)", path, re.I)
        if group:
            return self.on_group(method, path, group[1], body)
        return self.on_list(method, path, query)

    def on_group(self, method, path, name, body):
        key = name.lower()
        if method == "PUT":
            status = 200 if key in self.groups else 201
            found = {"id": path, "name": name, "type": "Microsoft.Resources/resourceGroups",
                     "location": body["location"], "tags": body.get("tags", {}),
                     "properties": {"provisioningState": "Succeeded"}}
            self.groups[key] = found
            return status, found, {}
        found = self.group(name)
        if method == "HEAD":
            return 204, None, {}
        if method == "DELETE":
            inside = f"/resourcegroups/{key}/"

            def remove():
                self.groups.pop(key, None)
                for id in [id for id in self.resources if inside in id]:
                    del self.resources[id]

            return 202, None, self.begin("Microsoft.Resources", remove, location_only=True)
        return 200, found, {}

    def group(self, name):
        found = self.groups.get(name.lower())
        if found is None:
            text = f"Resource group '{name}' could not be found."
            raise ApiError(404, "ResourceGroupNotFound", text)
        return found

    def on_list(self, method, path, query):
        if method != "GET":
            raise ApiError(405, "MethodNotAllowed", path)
        parts = path.strip("/").split("/")
        if parts[2:] == ["locations"]:
            named = [{"name": name} for name in self.settings["locations"]]
            return 200, {"value": named}, {}
        kind, within = None, ""
        group = re.search(r"/resourcegroups/([^/]+)/", path, re.I)
        if group:
            self.group(group[1])
            within = f"/resourcegroups/{group[1].lower()}/"
        provider = re.search(r"/providers/(Microsoft\.\w+/\w+)$", path, re.I)
        if provider:
            kind = self.kind(provider[1])
        elif parts[-1] != "resources":
            raise ApiError(404, "NotFound", f"no such list: {path}")
        found = [one for id, one in sorted(self.resources.items())
                 if within in id and self.is_listed(one, kind, query)]
        start, size = int(query.get("$skiptoken", 0)), self.settings["page"]
        page = [self.listed(one, kind, query) for one in found[start:start + size]]
        answer = {"value": page}
        if start + size < len(found):
            rest = "".join(f"&{key}={value}" for key, value in query.items() if key != "$skiptoken")
            next_link = f"{self.url}{path}?$skiptoken={start + size}{rest}"
            answer["nextLink"] = next_link.replace(" ", "%20")
        return 200, answer, {}

    def is_listed(self, one, kind, query):
        if kind:
            return one["type"] == kind
        if one["type"] in (DEPLOYMENT, SPEC):
            return False
        text = query.get("$filter", "")
        for key, value in re.findall(r"(location|resourceType|name) eq '([^']*)'", text):
            have = one["type"] if key == "resourceType" else one[key]
            if have.lower() != value.lower():
                return False
        tag = re.search(r"tagName eq '([^']*)' and tagValue eq '([^']*)'", text)
        if tag and one.get("tags", {}).get(tag[1]) != tag[2]:
            return False
        part = re.search(r"substringof\('([^']*)', ?name\)", text)
        return not part or part[1].lower() in one["name"].lower()

    def listed(self, one, kind, query):
        if kind:
            if kind == VM and query.get("statusOnly") == "true":
                view = {"instanceView": self.instance_view(one)}
                return {"id": one["id"], "name": one["name"], "location": one["location"],
                        "properties": view}
            return self.shown(one)
        short = {key: one[key] for key in ("id", "name", "type", "location")}
        if "tagName" not in query.get("$filter", ""):
            short["tags"] = one.get("tags", {})
        if "createdTime" in query.get("$expand", ""):
            short["createdTime"] = one.get("createdTime", self.settings["created"])
        if "provisioningState" in query.get("$expand", ""):
            short["provisioningState"] = one["properties"]["provisioningState"]
        return short

    # --- operations that go on ---

    def begin(self, namespace, effect, location_only=False, failure=None):
        id = str(uuid.uuid4())
        order = self.fault.get("operation", {})
        polls = 10**9 if order.get("never") else self.settings["polls"]
        self.operations[id] = {"polls": polls, "effect": effect, "status": "InProgress",
                               "error": order.get("error"), "failure": failure}
        url = (f"{self.url}/subscriptions/s/providers/{namespace}/locations/eastus/operations/{id}"
               f"?api-version=2024-01-01")
        headers = {"Location": url}
        if not location_only:
            headers["Azure-AsyncOperation"] = url
        headers["Retry-After"] = self.settings["retry_after"]
        if polls == 0:
            self.finish(self.operations[id])
        return headers

    def poll(self, id):
        found = self.operations.get(id)
        if found is None:
            raise ApiError(404, "OperationNotFound", f"operation {id} is unknown")
        if found["status"] == "InProgress":
            if found["polls"] > 0:
                found["polls"] -= 1
                answer = {"status": "InProgress", "name": id}
                return 202, answer, {"Retry-After": self.settings["retry_after"]}
            self.finish(found)
        answer = {"status": found["status"], "name": id}
        if found["error"]:
            answer["error"] = found["error"]
        return 200, answer, {}

    def finish(self, operation):
        if operation["error"]:
            operation["status"] = "Failed"
            if operation["failure"]:
                operation["failure"](operation["error"])
        else:
            operation["status"] = "Succeeded"
            operation["effect"]()

    def advance(self):
        for operation in list(self.operations.values()):
            if operation["status"] == "InProgress" and operation["polls"] < 10**8:
                self.finish(operation)

    # --- single resources ---

    def kind(self, text):
        if text.lower() not in NAMES:
            raise ApiError(404, "InvalidResourceType", f"The resource type {text} is unknown")
        return NAMES[text.lower()]

    def on_resource(self, method, path, match, query, body):
        self.group(match["group"])
        if match.re is NESTED:
            kind, rest, own = VERSION, "", path
        else:
            kind, rest = self.kind(match["type"]), (match["rest"] or "").lower()
            own = path[:match.start("rest")] if match["rest"] else path
        if kind == SPEC:
            own, rest = path, ""
        if method == "PUT" and not rest:
            return self.put(own, kind, match, body)
        found = self.resources.get(own.lower())
        if method == "DELETE" and not rest:
            return (204, None, {}) if found is None else self.delete(own, found)
        if found is None:
            code = "DeploymentNotFound" if kind == DEPLOYMENT else "ResourceNotFound"
            raise ApiError(404, code, f"The Resource '{own}' was not found.")
        if method in ("GET", "HEAD"):
            return self.get(found, kind, rest, query)
        if method == "PATCH" and rest == "/providers/microsoft.resources/tags/default":
            if body["operation"] != "Merge":
                raise ApiError(400, "InvalidTagsOperation", body["operation"])
            tags = found.setdefault("tags", {})
            tags.update(body["properties"]["tags"])
            return 200, {"id": path, "properties": {"tags": tags}}, {}
        if kind == DEPLOYMENT and rest == "/cancel":
            found["properties"]["provisioningState"] = "Canceled"
            found["canceled"] = True
            return 204, None, {}
        raise ApiError(405, "MethodNotAllowed", path)

    def get(self, found, kind, rest, query):
        if kind == VM and rest == "/instanceview":
            return 200, self.instance_view(found), {}
        if kind == DEPLOYMENT and rest == "/operations":
            return 200, {"value": found["operations"]}, {}
        if kind == NET and rest.startswith("/subnets/"):
            for subnet in found["properties"].get("subnets", []):
                if subnet["name"].lower() == rest.split("/")[2]:
                    return 200, subnet, {}
            raise not_found(found["id"] + rest)
        if rest:
            raise not_found(found["id"] + rest)
        if kind in (IMAGE, VERSION) and "operation" in found:
            self.poll(found["operation"])  # Time passes for those who look at the image, too.
        shown = self.shown(found)
        if kind == VM and query.get("$expand") == "instanceView":
            shown["properties"]["instanceView"] = self.instance_view(found)
        return 200, shown, {}

    def shown(self, found):
        shown = copy.deepcopy(found)
        for key in HIDDEN:
            shown.pop(key, None)
        (shown["properties"].get("osProfile") or {}).pop("adminPassword", None)
        return shown

    def put(self, id, kind, match, body):
        before = self.resources.get(id.lower())
        if before and self.request_headers.get("if-none-match") == "*":
            raise ApiError(412, "PreconditionFailed", f"{id} exists")
        if kind == DEPLOYMENT:
            return self.deploy(id, match, body)
        made = self.make(id, kind, match["name"], body, before)
        if kind in (SPEC, NET):
            made["properties"]["provisioningState"] = "Succeeded"
            return (200 if before else 201), self.shown(made), {}

        def succeed():
            made["properties"]["provisioningState"] = "Succeeded"

        def fail(error):
            made["properties"]["provisioningState"] = "Failed"
            made["failure"] = error

        headers = self.begin(kind.split("/")[0], succeed, failure=fail)
        made["operation"] = next(reversed(self.operations))
        return (200 if before else 201), self.shown(made), headers

    def make(self, id, kind, name, body, before=None):
        if kind != SPEC and "location" not in body:
            raise ApiError(400, "LocationRequired", "The location property is required")
        made = copy.deepcopy(body)
        made.update({"id": id, "name": name, "type": kind})
        made["createdTime"] = (before or {}).get("createdTime") or self.settings["created"]
        made["location"] = made.get("location", "").lower().replace(" ", "")
        properties = made.setdefault("properties", {})
        properties["provisioningState"] = "Creating" if kind == VM else "Updating"
        if kind == IP:
            properties["ipConfiguration"] = before and before["properties"].get("ipConfiguration")
        if kind == NIC:
            self.attach_interface(made, before)
        if kind == VM:
            self.attach_machine(made, before)
        if kind in (IMAGE, VERSION):
            problem = problem_of(made, self.storage, self.settings)
            if problem:
                status = 404 if problem[0] == "ParentResourceNotFound" else 400
                raise ApiError(status, *problem)
        if kind == NET:
            for subnet in properties.get("subnets", []):
                subnet["id"] = f"{id}/subnets/{subnet['name']}"
        self.resources[id.lower()] = made
        return made

    def attach_interface(self, made, before):
        made["properties"]["virtualMachine"] = before and before["properties"].get("virtualMachine")
        for configuration in made["properties"].get("ipConfigurations", []):
            own = configuration["properties"]
            subnet = (own.get("subnet") or {}).get("id", "")
            net, _, name = subnet.partition("/subnets/")
            found = self.resources.get(net.lower())
            names = [it["name"] for it in found["properties"]["subnets"]] if found else []
            if name not in names:
                raise ApiError(400, "InvalidResourceReference", f"{subnet} was not found")
            address = own.get("publicIPAddress")
            if address:
                found = self.resources.get(address["id"].lower())
                if found is None or found["properties"]["provisioningState"] != "Succeeded":
                    raise ApiError(400, "ReferencedResourceNotProvisioned", address["id"])
                found["properties"]["ipConfiguration"] = {"id": made["id"]}

    def attach_machine(self, made, before):
        properties = made["properties"]
        if (properties.get("hardwareProfile") or {}).get("vmSize") == "Standard_Unavailable":
            raise ApiError(409, "SkuNotAvailable", "The requested size is not available")
        problem = boot_problem(made, self.resources)
        if problem:
            raise ApiError(404, "ImageNotFound", problem)
        if before:
            old, new = before["properties"].get("osProfile"), properties.get("osProfile")
            if old != new:
                raise ApiError(409, "PropertyChangeNotAllowed",
                               "Changing property 'osProfile' is not allowed.")
        properties["vmId"] = before["properties"]["vmId"] if before else str(uuid.uuid4())
        made["power"] = "running"
        for interface in (properties.get("networkProfile") or {}).get("networkInterfaces", []):
            found = self.resources.get(interface["id"].lower())
            if found is None:
                raise ApiError(400, "InvalidResourceReference", interface["id"])
            if found["properties"]["provisioningState"] != "Succeeded":
                raise ApiError(400, "ReferencedResourceNotProvisioned", interface["id"])
            user = found["properties"].get("virtualMachine")
            if user and user["id"].lower() != made["id"].lower():
                raise ApiError(400, "NicInUse", f"{interface['id']} is in use")
            found["properties"]["virtualMachine"] = {"id": made["id"]}
        storage = properties.get("storageProfile") or {}
        disks = [storage.get("osDisk") or {}, *storage.get("dataDisks", [])]
        for number, disk in enumerate(disks):
            name = disk.setdefault("name", f"{made['name']}_disk{number}")
            base = made["id"].rsplit("/providers/", 1)[0]
            id = f"{base}/providers/{DISK}/{name}"
            disk.setdefault("managedDisk", {})["id"] = id
            self.resources[id.lower()] = {
                "id": id, "name": name, "type": DISK, "location": made["location"],
                "managedBy": made["id"], "tags": {},
                "properties": {"provisioningState": "Succeeded", "diskState": "Attached"}}

    def delete(self, id, found):
        kind, properties = found["type"], found["properties"]
        if kind == NIC and properties.get("virtualMachine"):
            raise ApiError(400, "NicInUse", f"{id} is used by {properties['virtualMachine']['id']}")
        if kind == IP and properties.get("ipConfiguration"):
            raise ApiError(400, "PublicIPAddressCannotBeDeleted", f"{id} is still allocated")
        if kind == DISK and found.get("managedBy"):
            raise ApiError(409, "OperationNotAllowed", f"Disk is attached to {found['managedBy']}")
        if kind == NET and any(it["type"] == NIC and f"{id}/subnets/" in str(it["properties"])
                               for it in self.resources.values()):
            raise ApiError(400, "InUseSubnetCannotBeDeleted", f"a subnet of {id} is in use")
        if kind == DEPLOYMENT and properties["provisioningState"] in ("Running", "Accepted"):
            raise ApiError(409, "DeploymentActive", "Unable to edit or replace deployment")
        if kind != DEPLOYMENT:
            properties["provisioningState"] = "Deleting"
        location_only = kind in (DEPLOYMENT, DISK)
        headers = self.begin(kind.split("/")[0], lambda: self.remove(id), location_only)
        return 202, None, headers

    def remove(self, id):
        found = self.resources.pop(id.lower(), None)
        if found is None:
            return
        properties = found["properties"]
        for configuration in properties.get("ipConfigurations", []):
            address = configuration["properties"].get("publicIPAddress") or {}
            if (address.get("properties") or {}).get("deleteOption") == "Delete":
                self.resources.pop(address["id"].lower(), None)
        for address in [it for it in self.resources.values() if it["type"] == IP]:
            user = address["properties"].get("ipConfiguration")
            if user and user["id"].lower() == id.lower():
                address["properties"]["ipConfiguration"] = None
        if found["type"] != VM:
            return
        for interface in (properties.get("networkProfile") or {}).get("networkInterfaces", []):
            nic = self.resources.get(interface["id"].lower())
            if nic:
                nic["properties"]["virtualMachine"] = None
                if (interface.get("properties") or {}).get("deleteOption") == "Delete":
                    self.remove(interface["id"])
        storage = properties.get("storageProfile") or {}
        for disk in [storage.get("osDisk") or {}, *storage.get("dataDisks", [])]:
            kept = self.resources.get(disk["managedDisk"]["id"].lower())
            if kept:
                kept["managedBy"] = None
                if disk.get("deleteOption") == "Delete":
                    self.remove(kept["id"])

    def instance_view(self, vm):
        state = vm["properties"]["provisioningState"]
        code = {"Creating": "ProvisioningState/creating", "Failed": "ProvisioningState/failed/",
                "Deleting": "ProvisioningState/deleting"}.get(state, "ProvisioningState/succeeded")
        failure = vm.get("failure") or {}
        if state == "Failed":
            code += failure.get("code", "Unknown")
        first = {"code": code, "level": "Info", "message": failure.get("message", "")}
        statuses = [first]
        if vm.get("power"):
            statuses.append({"code": f"PowerState/{vm['power']}", "level": "Info"})
        return {"statuses": statuses}

    # --- deployments ---

    def deploy(self, id, match, body):
        group, properties = self.groups[match["group"].lower()], body["properties"]
        template = properties.get("template")
        link = (properties.get("templateLink") or {}).get("id")
        if link:
            spec = self.resources.get(link.lower())
            if spec is None:
                raise ApiError(400, "InvalidTemplateSpec", f"{link} was not found")
            template = spec["properties"]["mainTemplate"]
        try:
            parsed = Template(template, properties.get("parameters", {}), group)
            wanted = list(parsed.resources())
        except BadTemplate as error:
            raise ApiError(400, "InvalidTemplate", str(error)) from error
        shown = {key: it for key, it in properties.items() if key != "template"}
        for parameter in (shown.get("parameters") or {}).values():
            parameter.setdefault("type", "String")
        (shown.get("parameters") or {}).pop("adminPassword", None)
        found = {"id": id, "name": match["name"], "type": DEPLOYMENT, "location": "",
                 "tags": body.get("tags", {}), "operations": [],
                 "properties": {**shown, "provisioningState": "Accepted", "outputResources": [],
                                "timestamp": self.settings["created"]}}
        self.resources[id.lower()] = found

        def run():
            found["properties"]["provisioningState"] = "Succeeded"
            if not found.get("canceled"):
                self.make_all(found, group, wanted)

        def fail(error):
            found["properties"]["provisioningState"] = "Failed"
            found["properties"]["error"] = error
            found["operations"].append(failed_operation(error))

        headers = self.begin("Microsoft.Resources", run, failure=fail)
        return 201, self.shown(found), headers

    def make_all(self, deployment, group, wanted):
        for resource in wanted:
            kind = self.kind(resource["type"])
            id = f"{group['id']}/providers/{kind}/{resource['name']}"
            body = {key: resource[key] for key in resource
                    if key not in ("type", "apiVersion", "name", "dependsOn")}
            try:
                made = self.make(id, kind, resource["name"], body)
            except ApiError as error:
                deployment["properties"]["provisioningState"] = "Failed"
                deployment["operations"].append(failed_operation(error.body()["error"]))
                return
            made["properties"]["provisioningState"] = "Succeeded"
            deployment["properties"]["outputResources"].append({"id": id})

    # --- what only tests do ---

    def machine(self, name):
        for one in self.resources.values():
            if one["type"] == VM and one["name"] == name:
                return one
        raise not_found(name)

    def steer_machine(self, order):
        vm = self.machine(order["name"])
        if order.get("evict"):
            self.remove(vm["id"])
        if "power" in order:
            vm["power"] = order["power"]
        if "failure" in order:
            vm["properties"]["provisioningState"] = "Failed"
            vm["failure"] = order["failure"]

    def add_group(self, name, location, subscription):
        path = f"/subscriptions/{subscription}/resourceGroups/{name}"
        self.on_group("PUT", path, name, {"location": location})

    def put_directly(self, order):
        """Makes a resource without an operation."""
        kind, group = self.kind(order["type"]), self.group(order["group"])
        id = f"{group['id']}/providers/{kind}/{order['name']}"
        made = self.make(id, kind, order["name"].split("/")[-1], order["body"])
        made["properties"]["provisioningState"] = "Succeeded"


def failed_operation(error):
    status = {"code": "Conflict", "error": error}
    properties = {"provisioningState": "Failed", "statusMessage": status, "statusCode": "Conflict"}
    return {"id": str(uuid.uuid4()), "properties": properties}
