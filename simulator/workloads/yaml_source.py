"""Reading a definition from YAML: errors say in which file and line, at which key, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from ..errors import OptionError, did_you_mean, one_line
from .definition import SIGNALS, ColumnDefinition, Definition, Devices, Late, Part

_PARTS: dict[str, type[Part]] = {
    "": Definition, "columns": ColumnDefinition, "devices": Devices, "late": Late, **SIGNALS,
}  # fmt: skip
"""What stands below a key, by the last word of the way there."""


def read_definition(path: Path) -> Definition:
    """The definition in a file; OptionError if there is anything wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} can't be read: {one_line(error)}") from error
    return parse_definition(text, str(path))


def parse_definition(text: str, source: str) -> Definition:
    """The definition that the text is; `source` is how errors call it."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or error
        raise OptionError(f"{source}:{line}: no valid YAML: {one_line(problem)}") from error
    if not isinstance(root, yaml.MappingNode):
        raise OptionError(f"{source}:1: a definition is keys with values, at least `name:`")
    _check_tree(root, source, [], set())
    try:
        return Definition.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        # A key that there isn't comes before one that is missing: it may be that one, misspelt.
        first = min(found, key=lambda each: each["type"] != "extra_forbidden")
        way = first["loc"]
        line, names = _place(root, way)
        where = f"{source}:{line}: " + (f"{'.'.join(names)}: " if names else "")
        raise OptionError(where + _describe(first["type"], way, first["msg"])) from error


def _describe(kind: str, way: Sequence[str | int], message: str) -> str:
    """What is wrong, in a sentence."""
    parts = [step for step in way if isinstance(step, str)]
    if kind == "extra_forbidden":
        part = _PARTS.get(parts[-2] if len(parts) > 1 else "")
        known = sorted(part.model_fields) if part else []
        listed = f" (known: {', '.join(known)})" if known else ""
        return f"unknown key{did_you_mean(parts[-1], known)}{listed}"
    if kind == "missing":
        return f"key `{parts[-1]}` is missing"
    if kind.startswith("union_tag"):
        return f"`kind` must be one of {', '.join(SIGNALS)}"
    if kind == "value_error":  # ours
        return message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _place(root: yaml.Node, way: Sequence[str | int]) -> tuple[int, list[str]]:
    """The line of what is `way` below the root, as far as there is something, and the keys to it.

    A column is called by its name. The steps that pydantic adds (a signal's kind) are no keys.
    """
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
            names[-1] += f"[{_name_of(node) or step}]"
    return line, names


def _name_of(node: yaml.Node) -> str | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "name" and isinstance(value, yaml.ScalarNode):
                return str(value.value)
    return None


def _check_tree(node: yaml.Node, source: str, above: list[yaml.Node], done: set[int]) -> None:
    """OptionError if a mapping has a key twice, of which YAML would take the last, or a part contains
    itself."""
    line = node.start_mark.line + 1
    if any(node is one for one in above):
        raise OptionError(f"{source}:{line}: this part contains itself: write out what is meant")
    if id(node) in done:
        return
    done.add(id(node))
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                line = key.start_mark.line + 1
                problem = "the key is there twice: remove one"
                raise OptionError(f"{source}:{line}: {key.value}: {problem}")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            parts.append(value)
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    for part in parts:
        _check_tree(part, source, [*above, node], done)
