"""How a campaign's file is read: with the size that was chosen, and with the lines of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simulator.documents import (
    DocumentError,
    Problem,
    describe_problems,
    merge_values,
    name_place,
    read_yaml,
)
from simulator.errors import OptionError

from ...system.errors import ConfigError
from ...system.installation import program
from .definition import COMMANDS, SIZES, Definition, Options, find_option_problems


def load_definition(path: Path, size: str | None = None) -> Definition:
    """Read a campaign's file, with what it says for this size; ConfigError with file, line and key if it
    can't be used."""
    try:
        root, document = read_yaml(path)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}; to make one: {program()} campaign --example > {path}"
        ) from None
    except DocumentError as error:
        raise ConfigError(error.at(path)) from error
    except OptionError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path}:1: a campaign needs the key `targets:`, and `steps:` or `requirements:`"
        )
    document, of_size = _choose_size(document, size, path)
    try:
        definition = Definition.model_validate(document)
    except ValidationError as error:
        told = describe_problems(error, Definition, root, path)
        # The whole, which isn't there, would have looked at these.
        told += [name_place(path, root, way) + text for way, text in _find_shared(document)]
        raise ConfigError(*told) from error
    definition._of_size, definition._source = of_size, (path, root)
    return definition


def _find_shared(document: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the options of all steps, if it is plain which commands these are."""
    options, steps = document.get("options"), document.get("steps")
    kinds = [
        next((kind for kind in COMMANDS if kind in step), None)
        for step in (steps if isinstance(steps, list) else ())
        if isinstance(step, str | dict)
    ]
    if isinstance(options, dict) and kinds and None not in kinds:
        commands = dict.fromkeys(COMMANDS[kind] for kind in kinds if kind is not None)
        yield from find_option_problems(options, commands, ("options",))


def _choose_size(
    document: Mapping[str, Any], size: str | None, path: Path
) -> tuple[Mapping[str, Any], dict[str, Options]]:
    """The document with what it says below `sizes` for this size over the rest: keys of the file, and options
    of steps by the steps' names. Without steps in the file these are left: steps follow."""
    rest = dict(document)
    sizes = rest.pop(SIZES, None) or {}
    if size is None:
        return rest, {}
    changes = sizes.get(size) if isinstance(sizes, dict) else None
    if not isinstance(changes, dict):
        names = ", ".join(map(str, sizes)) or "none"
        raise ConfigError(f"{path}: there is no size {size!r} below `{SIZES}` (there are: {names})")
    over = dict(changes.get("steps") or {})
    rest = merge_values(rest, {key: value for key, value in changes.items() if key != "steps"})
    if not rest.get("steps"):
        return rest, over
    steps = list(rest["steps"])
    for place, step in enumerate(steps):
        if isinstance(step, dict):
            kind = next((name for name in COMMANDS if name in step), "")
            if options := over.pop(step.get("label") or kind, None):
                steps[place] = {**step, kind: merge_values(step[kind] or {}, options)}
    rest["steps"] = steps
    if over:
        raise ConfigError(f"{path}: {SIZES}.{size}.steps: there is no step {', '.join(over)}")
    return rest, {}


def locate_key(path: Path, *way: str | int) -> str:
    """`file:line: requirements.devices: `, to begin the message of an error that is found after reading."""
    root, _ = read_yaml(path)
    return name_place(path, root, way)
