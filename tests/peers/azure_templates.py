"""The expressions of ARM templates, as far as templates of machines use them."""

import re

TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(\d+)|([A-Za-z_][\w.]*)|(.))")


class BadTemplate(Exception):
    pass


class Template:
    def __init__(self, template, parameters, group):
        self.template = template
        self.group = group
        declared = template.get("parameters", {})
        unknown = set(parameters) - set(declared)
        if unknown:
            raise BadTemplate(
                f"Deployment template validation failed: the template parameters "
                f"'{', '.join(sorted(unknown))}' in the parameters file are not valid"
            )
        self.parameters = {}
        for name, about in declared.items():
            if name in parameters:
                self.parameters[name] = parameters[name].get("value")
            elif "defaultValue" in about:
                self.parameters[name] = self.value(about["defaultValue"])
            else:
                raise BadTemplate(f"The value for the template parameter '{name}' is not provided")
        self.variables = template.get("variables", {})

    def resources(self):
        for resource in self.template.get("resources", []):
            if self.value(resource.get("condition", True)) in (True, "true"):
                yield {key: self.value(it) for key, it in resource.items() if key != "condition"}

    def value(self, found):
        if isinstance(found, dict):
            return {key: self.value(it) for key, it in found.items()}
        if isinstance(found, list):
            return [self.value(it) for it in found]
        if isinstance(found, str) and found.startswith("[") and not found.startswith("[["):
            tokens = [m.groups() for m in TOKEN.finditer(found[1:-1]) if m.group().strip()]
            result, rest = self.expression(tokens)
            if rest:
                raise BadTemplate(f"cannot read {found}")
            return result
        return found

    def expression(self, tokens):
        if not tokens:
            raise BadTemplate("an expression ends early")
        (text, number, name, _), rest = tokens[0], tokens[1:]
        if text is not None:
            return text[1:-1].replace("''", "'"), rest
        if number is not None:
            return int(number), rest
        if name is None or not rest or rest[0][3] != "(":
            raise BadTemplate(f"cannot read an expression at {tokens[0]}")
        arguments, rest = [], rest[1:]
        while rest and rest[0][3] != ")":
            argument, rest = self.expression(rest)
            arguments.append(argument)
            if rest and rest[0][3] == ",":
                rest = rest[1:]
        result, rest = self.call(name.lower(), arguments), rest[1:]
        while rest and rest[0][3] == ".":
            result, rest = result[rest[1][2]], rest[2:]
        return result, rest

    def call(self, name, arguments):
        if name == "parameters":
            return self.parameters[arguments[0]]
        if name == "variables":
            return self.value(self.variables[arguments[0]])
        if name == "concat":
            return "".join(map(str, arguments))
        if name == "format":
            return arguments[0].format(*arguments[1:])
        if name == "resourcegroup":
            return {"location": self.group["location"], "id": self.group["id"],
                    "name": self.group["name"]}
        if name == "resourceid":
            kinds, *names = arguments
            return f"{self.group['id']}/providers/{path_of(kinds, names)}"
        if name == "equals":
            return arguments[0] == arguments[1]
        raise BadTemplate(f"the template function '{name}' is not valid")


def path_of(kinds, names):
    namespace, *kinds = kinds.split("/")
    pairs = zip(kinds, names)
    return "/".join([namespace, *(part for pair in pairs for part in pair)])
