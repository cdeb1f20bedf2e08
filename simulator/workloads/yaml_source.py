"""Reading a definition from YAML: errors say in which file and line, at which key, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from ..documents import DocumentError, parse_yaml, read_yaml
from ..errors import OptionError, did_you_mean, list_names
from .definition import ColumnDefinition, Definition, Devices, Late, MisplacedError
from .queries import Aggregate, Every, Order, Query, Where, Window
from .signals import SIGNALS

_PARTS: dict[str, type[BaseModel]] = {
    "": Definition, "columns": ColumnDefinition, "devices": Devices, "late": Late, **SIGNALS,
    "queries": Query, "window": Window, "where": Where, "compute": Aggregate, "order": Order,
    "Every": Every,
}  # fmt: skip
"""What stands below a key, by the last word of the way there."""

MOST_BYTES = 100_000
"""The most that a definition may take as JSON: the settings of all runs of a series go into one Kubernetes
Secret, which holds 1 MiB
(https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size)."""


class FindProblem(Protocol):
    """Why a workload can't have statements of its own for a module, for queries or for its schema; None if it
    can."""

    def __call__(self, name: str, of_schema: bool = False) -> str | None: ...


def read_document(
    path: Path, taken: Collection[str] = (), find_problem: FindProblem | None = None
) -> dict[str, Any]:
    """The definition in a file, as it is in JSON; OptionError if there is anything wrong with it, or if
    its name is `taken`. Without `find_problem`, modules are not looked at."""
    try:
        root, document = read_yaml(path)
    except FileNotFoundError as error:
        raise OptionError(f"{path} can't be read: {error.strerror}") from error
    except DocumentError as error:
        raise OptionError(error.at(path)) from error
    definition = check_document(root, document, str(path), find_problem=find_problem)
    if definition["name"] in taken:
        line, _ = find_place(root, ["name"])
        problem = f"{definition['name']} is a workload of this tool: take another name"
        raise OptionError(f"{path}:{line}: name: {problem}")
    return definition


def parse_document(text: str, source: str) -> dict[str, Any]:
    """The definition that the text is; `source` is how errors call it."""
    try:
        root, document = parse_yaml(text)
    except DocumentError as error:
        raise OptionError(error.at(source)) from error
    return check_document(root, document, source)


def parse_definition(text: str, source: str) -> Definition:
    """As `parse_document`, typed."""
    return Definition.read(parse_document(text, source))


def check_document(
    root: yaml.Node,
    document: Any,
    source: str,
    keys: Sequence[str] = (),
    find_problem: FindProblem | None = None,
) -> dict[str, Any]:
    """A definition that was read from these nodes of `source`, below `keys`, as it is in JSON. OptionError,
    which names the line, if there is anything wrong with it."""
    if not isinstance(root, yaml.MappingNode) or not isinstance(document, Mapping):
        where = ": ".join([f"{source}:{root.start_mark.line + 1}", *filter(None, [".".join(keys)])])
        raise OptionError(f"{where}: a definition must be keys with values, at least `name:`")
    try:
        definition = Definition.read(document)
    except ValidationError as error:
        # A key that there isn't comes before one that is missing: it may be that one, misspelt. Of a value
        # that may be one of several things, what it isn't at all comes last.
        weights = {"extra_forbidden": 0, "literal_error": 2, "string_type": 2}
        problems = error.errors(include_url=False, include_input=False)
        first = min(problems, key=lambda problem: weights.get(problem["type"], 1))
        way, cause = tuple(first["loc"]), first.get("ctx", {}).get("error")
        if isinstance(cause, MisplacedError):
            way += cause.way
        where = _name_place(root, way, source, keys)
        raise OptionError(where + _describe(first["type"], way, first["msg"])) from error
    for number, query in enumerate(definition.queries):
        for module in query.statement:
            if find_problem and (problem := find_problem(module)):
                where = _name_place(root, ("queries", number, "statement", module), source, keys)
                raise OptionError(where + problem)
    for module in definition.statements:
        if find_problem and (problem := find_problem(module, of_schema=True)):
            raise OptionError(_name_place(root, ("schema", module), source, keys) + problem)
    octets = to_json(document)
    if len(octets) > MOST_BYTES:
        raise OptionError(
            f"{source}: a definition of {len(octets):,} bytes is too large, {MOST_BYTES:,} are the"
            " most: use `repeat` for similar columns"
        )
    content: dict[str, Any] = from_json(octets)
    return content


def _name_place(root: yaml.Node, way: Sequence[str | int], source: str, keys: Sequence[str]) -> str:
    """File, line and key, for the start of an error message."""
    line, names = find_place(root, way)
    where = ".".join([*keys, *names])
    return f"{source}:{line}: " + (f"{where}: " if where else "")


def _describe(kind: str, way: Sequence[str | int], message: str) -> str:
    """What is wrong, in a sentence."""
    parts = [step for step in way if isinstance(step, str)]
    if kind == "extra_forbidden":
        part = _PARTS.get(parts[-2] if len(parts) > 1 else "")
        # A word of Python can't be a field's name, but its alias.
        fields = part.model_fields.items() if part else ()
        keys = sorted(field.alias or name for name, field in fields)
        listed = f" (known: {list_names(keys)})" if keys else ""
        return f"unknown key{did_you_mean(parts[-1], keys)}{listed}"
    if kind == "missing":
        return f"key `{parts[-1]}` is missing"
    if kind.startswith("union_tag"):
        return f"`kind` must be one of {', '.join(SIGNALS)}"
    if kind == "value_error":  # ours
        return message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def find_place(root: yaml.Node, way: Sequence[str | int]) -> tuple[int, list[str]]:
    """The line of what is `way` below the root, as far as there is something, and the keys to it. A column is
    called by its name. The steps that pydantic adds (a signal's kind) are no keys."""
    node, line, names = root, root.start_mark.line + 1, []
    for step in way:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == step:
                    node, line = value, key.start_mark.line + 1
                    names.append(str(step))
                    break
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line = node.start_mark.line + 1
            pairs = node.value if isinstance(node, yaml.MappingNode) else ()
            own = [
                value.value
                for key, value in pairs
                if key.value == "name" and isinstance(value, yaml.ScalarNode)
            ]
            names[-1] += f"[{(own and own[0]) or step}]"
    return line, names
