"""Reads a definition from YAML: errors name the file, line and key, and say what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from ..documents import DocumentError, Way, describe_problems, name_place, parse_yaml, read_yaml
from ..errors import OptionError
from .definition import Definition
from .recording.definition import RecordedDefinition
from .recording.store import Tell, tell_nobody

MOST_BYTES = 100_000
"""The largest size of a definition as JSON: the settings of all runs of a series go into one Kubernetes
Secret, which holds 1 MiB
(https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size)."""


class FindProblem(Protocol):
    """Why a workload can't have its own statements for a module, for queries or for its schema; None if it
    can."""

    def __call__(self, name: str, of_schema: bool = False) -> str | None: ...


def read_document(
    path: Path,
    taken: Collection[str] = (),
    find_problem: FindProblem | None = None,
    tell: Tell = tell_nobody,
) -> dict[str, Any]:
    """The definition in a file, in its JSON form. OptionError if anything is wrong with it, or if its name is
    `taken`. Without `find_problem`, modules are not consulted."""
    try:
        root, document = read_yaml(path)
    except FileNotFoundError as error:
        raise OptionError(f"{path} can't be read: {error.strerror}") from error
    except DocumentError as error:
        raise OptionError(error.at(path)) from error
    definition = check_document(
        root, document, str(path), find_problem=find_problem, base=path.parent, tell=tell
    )
    if definition["name"] in taken:
        problem = f"{definition['name']} is a built-in workload: use another name"
        raise OptionError(name_place(path, root, ["name"]) + problem)
    return definition


def parse_document(text: str, source: str) -> dict[str, Any]:
    """The definition in a text; `source` is its name in errors."""
    try:
        root, document = parse_yaml(text)
    except DocumentError as error:
        raise OptionError(error.at(source)) from error
    return check_document(root, document, source)


def parse_definition(text: str, source: str) -> Definition:
    """Like `parse_document`, but typed."""
    return Definition.read(parse_document(text, source))


def check_document(
    root: yaml.Node,
    document: Any,
    source: str,
    keys: Sequence[str] = (),
    find_problem: FindProblem | None = None,
    base: Path | None = None,
    tell: Tell = tell_nobody,
) -> dict[str, Any]:
    """A definition read from these nodes of `source`, below `keys`, in its JSON form. A recording, with a
    path relative to `base`, gets the name of its converted form. OptionError with everything that is wrong,
    and the lines."""
    if not isinstance(root, yaml.MappingNode) or not isinstance(document, Mapping):
        where = ": ".join([f"{source}:{root.start_mark.line + 1}", *filter(None, [".".join(keys)])])
        raise OptionError(f"{where}: a definition must be keys with values, at least `name:`")
    model = RecordedDefinition if "recorded" in document else Definition
    try:
        definition = model.read(document)
        if isinstance(definition, RecordedDefinition):
            recording = definition.open(base, tell)
            definition.check(recording)
            document["recorded"]["store"] = recording.name
    except ValidationError as error:
        raise OptionError(*describe_problems(error, model, root, source, keys)) from error
    own: list[tuple[Way, str]] = [
        (("queries", number, "statement", module), module)
        for number, query in enumerate(definition.queries)
        for module in query.statement
    ]
    own += [(("schema", module), module) for module in definition.statements]
    if problems := [
        name_place(source, root, way, keys) + problem
        for way, module in own
        if find_problem and (problem := find_problem(module, of_schema=way[0] == "schema"))
    ]:
        raise OptionError(*problems)
    octets = to_json(document)
    if len(octets) > MOST_BYTES:
        raise OptionError(
            f"{source}: a definition of {len(octets):,} bytes is too large, {MOST_BYTES:,} are the"
            " most: use `repeat` for similar columns"
        )
    content: dict[str, Any] = from_json(octets)
    return content
