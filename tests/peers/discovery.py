"""Compares messages with a discovery document, in which Google describes an API."""

import json
import re
from pathlib import Path

FORMATS = {"uint64": r"\d{1,20}", "int64": r"-?\d{1,19}", "fixed64": r"\d+"}
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


class Discovery:
    def __init__(self, path):
        self.document = json.loads(Path(path).read_text())
        self.schemas = self.document["schemas"]
        self.methods = dict(self._methods(self.document, ""))

    def _methods(self, node, prefix):
        for name, resource in node.get("resources", {}).items():
            for method, description in resource.get("methods", {}).items():
                yield f"{name}.{method}", description

    def check_request(self, call, query, body):
        """The problems of a request, as texts."""
        method = self.methods[call]
        problems = []
        known = {**self.document["parameters"], **method.get("parameters", {})}
        for name, value in query.items():
            if name not in known or known[name].get("location") != "query":
                problems.append(f"{name}: {call} has no such parameter")
            elif not self._fits_text(value, known[name]):
                problems.append(f"{name}: {value!r} does not fit")
        if body is not None and "request" not in method:
            problems.append(f"{call} takes no content")
        elif body is not None:
            problems += self.check(body, method["request"], "$")
        return problems

    def check_answer(self, call, body):
        return self.check(body, self.methods[call]["response"], "$")

    def _fits_text(self, value, schema):
        kind = schema.get("type")
        if kind == "integer":
            return value.isdigit()
        if kind == "boolean":
            return value in ("true", "false")
        return "pattern" not in schema or re.fullmatch(schema["pattern"], value)

    def check(self, value, schema, at):
        schema = self.schemas[schema["$ref"]] if "$ref" in schema else schema
        kind = schema.get("type", "any")
        if kind == "any":
            return []
        is_wrong = not isinstance(value, TYPES[kind])
        if is_wrong or (kind in ("integer", "number") and isinstance(value, bool)):
            return [f"{at}: is not of type {kind}"]
        if kind == "object":
            return self._check_members(value, schema, at)
        if kind == "array":
            items = enumerate(value)
            return [it for n, one in items for it in self.check(one, schema["items"], f"{at}[{n}]")]
        if kind == "string":
            return self._check_text(value, schema, at)
        return []

    def _check_members(self, value, schema, at):
        problems = []
        for name, member in value.items():
            known = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if known is None:
                problems.append(f"{at}.{name}: unknown field")
            else:
                problems += self.check(member, known, f"{at}.{name}")
        return problems

    def _check_text(self, value, schema, at):
        problems = []
        form = FORMATS.get(schema.get("format"))
        if form and not re.fullmatch(form, value):
            problems.append(f"{at}: {value!r} is not {schema['format']}")
        if "enum" in schema and value not in schema["enum"]:
            problems.append(f"{at}: {value!r} is not one of the permitted values")
        return problems
