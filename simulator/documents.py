"""Reads YAML and JSON files, which may come from strangers, within limits on types, size, depth, expansion
and numbers: the results are plain values that are safe to walk through. Also makes texts from elsewhere safe
for a terminal, a figure or a page."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

import orjson
import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from .errors import did_you_mean, list_names

MOST_BYTES_YAML = 500_000
MOST_BYTES_JSON = 16_000_000
"""The largest size of a file. A result of 1,000 workers and 30 runs has some 9 MB."""
MOST_PARTS = 1_000_000
"""The most values and the most commas in a JSON document."""
MOST_KEYS = 10_000
"""The most keys of one part of a JSON document."""
MOST_DEPTH = 40
MOST_EXPANDED = 2_000_000
"""The most characters of a YAML document with its aliases written out; each part counts as `_PART` more."""
MOST_DIGITS = 100
"""The most characters of a number in YAML."""
LARGEST_NUMBER = 2**64
"""The largest magnitude of a number in JSON: seeds have up to 64 bits, and nothing else comes near."""

_PART = 20
_MOST_BYTES_EXPLAINED = 50_000
"""PyYAML's own parser, which explains errors better, needs 20 s for a megabyte."""


class DocumentError(ValueError):
    """A file or text can't be used. The message says why, without the file's name."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line
        """The line, counted from 1, if known."""

    def at(self, source: object) -> str:
        """The problem and its place."""
        return f"{source} {self}" if self.line is None else f"{source}:{self.line}: {self}"


def read_file(path: Path, most_bytes: int) -> bytes:
    """A regular file's contents. FileNotFoundError if there is none; DocumentError if it isn't a regular
    file, is too large, or can't be read."""
    try:
        # A pipe is neither waited for nor read.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DocumentError("is no regular file")
            content = file.read(most_bytes + 1)
    except (FileNotFoundError, DocumentError):
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DocumentError(f"can't be read: {why}") from error
    if len(content) > most_bytes:
        raise DocumentError(f"is larger than {most_bytes / 1e6:g} MB, the most that is read")
    return content


# --- JSON -----------------------------------------------------------------------------------------

_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS, _EXPONENT = re.compile(b"0" * 19), re.compile(rb"0e\+?0")
_BEFORE_NUMBERS = b"[:, \t\r\n"


def read_json(path: Path) -> Any:
    """The values of a JSON file. Raises FileNotFoundError or DocumentError."""
    return parse_json(read_file(path, MOST_BYTES_JSON))


def parse_json(content: bytes) -> Any:
    """The values of a JSON text, in which all numbers are finite. DocumentError if they can't be used."""
    if content.count(b",") > MOST_PARTS:
        raise DocumentError(f"has more than {MOST_PARTS:,} values")
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        try:
            content.decode()
        except UnicodeDecodeError:
            raise DocumentError("is not text") from error
        raise DocumentError(f"is not valid JSON: {error}") from error
    level = [document]
    for _ in range(MOST_DEPTH):
        if any(isinstance(whole, dict) and len(whole) > MOST_KEYS for whole in level):
            raise DocumentError(f"has a part with more than {MOST_KEYS:,} keys")
        level = [
            part
            for whole in level
            if isinstance(whole, dict | list)
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, dict | list)
        ]
        if not level:
            break
    else:
        raise DocumentError(f"is nested more than {MOST_DEPTH} levels deep")
    if _may_have_large_number(content):
        for number in iterate_scalars(document):
            if isinstance(number, int | float) and abs(number) > LARGEST_NUMBER:
                raise DocumentError(f"has the number {number:g}, which is too large")
    return document


def _may_have_large_number(content: bytes) -> bool:
    """Whether a number in a JSON text has too many digits before its point, or an exponent. This saves
    looking at each value, which takes as long as everything else."""
    shape = content.translate(_DIGITS)
    if any(
        shape[digits.start() - 1 : digits.start()] != b"."
        for digits in _MANY_DIGITS.finditer(shape)
    ):
        return True
    for exponent in _EXPONENT.finditer(shape):
        # If the number begins earlier than that, nothing is left, which is in every text.
        before = shape[max(0, exponent.start() - 40) : exponent.start()].rstrip(b"0.").rstrip(b"-")
        if before[-1:] in _BEFORE_NUMBERS:
            return True
    return False


def iterate_scalars(document: Any) -> Iterator[Any]:
    """All values without parts, but not the keys."""
    if isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            yield from iterate_scalars(part)
    else:
        yield document


# --- YAML -----------------------------------------------------------------------------------------


class _PlainValues(yaml.constructor.SafeConstructor):
    """Makes only JSON's types, with finite numbers; other tags are errors."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The same, but raises `ConstructorError` instead of whatever Python raises for a damaged scalar."""
        numeric = node.tag in _NUMERIC
        if numeric and isinstance(node, yaml.ScalarNode) and len(node.value) > MOST_DIGITS:
            problem = f"a number of {len(node.value):,} characters is too long"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, OverflowError) as error:
            problem = f"{node.value!r} is no {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error
        if numeric and isinstance(value, float) and not math.isfinite(value):
            problem = f"{node.value} is no finite number"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return value


_TWO_READINGS = re.compile(r"[-+]?0[0-9_]+")
"""YAML 1.1 reads this as octal, YAML 1.2 doesn't: https://yaml.org/spec/1.2.2/ext/changes/"""
_FILE_MODES = (("defaultMode",), ("mode",))
"""Keys of Kubernetes' volumes whose values are usually written in octal."""
_TAG = "tag:yaml.org,2002:"
_NUMERIC = (f"{_TAG}int", f"{_TAG}float")
_PlainValues.yaml_constructors = {
    tag: make
    for tag, make in yaml.constructor.SafeConstructor.yaml_constructors.items()
    if tag is None
    or tag.removeprefix(_TAG) in {"null", "bool", "int", "float", "str", "seq", "map"}
}


class _Loader(_PlainValues, yaml.SafeLoader):
    """PyYAML's own parser. Dates and times of day remain texts, as in JSON."""


# Ten times as fast, if PyYAML has it: the other took a fifth of a command's time before its run began.
class _FastLoader(_PlainValues, yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """The same with libyaml's parser, if PyYAML has it."""


_Loader.yaml_implicit_resolvers = _FastLoader.yaml_implicit_resolvers = {
    first: [
        (
            tag,
            re.compile("(?!.*:)" + pattern.pattern, pattern.flags) if tag in _NUMERIC else pattern,
        )
        for tag, pattern in resolvers
        if tag != f"{_TAG}timestamp"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path) -> tuple[yaml.Node, Any]:
    """A YAML file as nodes, which know their lines, and as plain values. FileNotFoundError or
    DocumentError."""
    content = read_file(path, MOST_BYTES_YAML)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DocumentError("is not text in UTF-8: save it in that encoding", line) from error
    return parse_yaml(text)


def parse_yaml(text: str) -> tuple[yaml.Node, Any]:
    """The same for a text. DocumentError if it can't be used."""
    try:
        return _load(text, _FastLoader)
    except yaml.YAMLError as error:
        explained = error
        if len(text) <= _MOST_BYTES_EXPLAINED:
            try:
                _load(text, _Loader)
            except yaml.YAMLError as better:
                explained = better
        mark = getattr(explained, "problem_mark", None)
        problem = " ".join(str(getattr(explained, "problem", None) or explained).split())
        if r"'\t'" in problem:
            problem += ": indent by spaces"
        line = mark.line + 1 if mark else 1
        raise DocumentError(f"not valid YAML: {problem}", line) from error


def _load(text: str, kind: type[yaml.SafeLoader]) -> tuple[yaml.Node, Any]:
    _check_events(text, kind)
    loader = kind(text)
    try:
        root = loader.get_single_node()
        if root is None:
            empty = yaml.Mark("", 0, 0, 0, "", 0)
            return yaml.ScalarNode(f"{_TAG}null", "", empty, empty), None
        _check_nodes(root, (), set())
        return root, loader.construct_document(root)
    finally:
        loader.dispose()


def _check_nodes(node: yaml.Node, way: tuple[str, ...], checked: set[int]) -> None:
    """DocumentError if a mapping has a key twice, of which YAML would take the last, or if a number has two
    readings and isn't the mode of a file in a pod."""
    if id(node) in checked:  # an alias
        return
    checked.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for part in node.value:
            _check_nodes(part, way, checked)
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            place = (*way, str(key.value))
            if place in seen:
                line = key.start_mark.line + 1
                raise DocumentError(f"{'.'.join(place)}: duplicate key: remove one", line)
            seen.add(place)
            _check_nodes(value, place, checked)
    elif (
        node.tag in _NUMERIC and way[-1:] not in _FILE_MODES and _TWO_READINGS.fullmatch(node.value)
    ):
        problem = f"{node.value} is octal to some: write {int(node.value)}, or put it in quotes"
        raise DocumentError(f"not valid YAML: {problem}", node.start_mark.line + 1)


def _check_events(text: str, kind: type[yaml.SafeLoader]) -> None:
    """DocumentError if parts are nested too deep, contain themselves, or are too many once every alias is
    expanded. Nothing is built for this."""
    sizes: dict[str, int] = {}
    open_parts: list[tuple[str | None, int]] = []
    """Anchor of each open part, and the size of everything before it."""
    size = 0
    for event in yaml.parse(text, Loader=kind):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_parts.append((event.anchor, size))
            size += _PART
            if len(open_parts) > MOST_DEPTH:
                raise DocumentError(f"parts are nested more than {MOST_DEPTH} levels deep", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_parts.pop()
            if anchor is not None:
                sizes[anchor] = size - before
        elif isinstance(event, yaml.ScalarEvent):
            own = _PART + len(event.value)
            size += own
            if event.anchor is not None:
                sizes[event.anchor] = own
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_parts):
                raise DocumentError("this part contains itself: write out what is meant", line)
            size += sizes.get(event.anchor or "", 0)
        if size > MOST_EXPANDED:
            raise DocumentError("there are too many parts, or aliases of too large ones", line)


# --- what is wrong with a document ------------------------------------------------------------------

Way: TypeAlias = Sequence[str | int]
"""The keys and list positions that lead to a part of a document."""
Problem: TypeAlias = tuple[Way, str]
"""The place, and what is wrong there."""


def refuse(problems: Iterable[Problem], others: Iterable[ErrorDetails] = ()) -> None:
    """Raise a ValidationError of all these problems, if there are any: for a model's validator that finds
    several. `problems`: each with its place, from the model down. `others`: those that pydantic has found."""
    told = [*((tuple(way), "value_error", text) for way, text in problems)]
    told += [(each["loc"], each["type"], each["msg"]) for each in others]
    if told:
        raise ValidationError.from_exception_data("", [
            InitErrorDetails(
                type=PydanticCustomError(kind, "{text}", {"text": text}), loc=way, input=None
            )
            for way, kind, text in told
        ])  # fmt: skip


def find_place(root: yaml.Node, way: Way) -> tuple[int, list[str]]:
    """The line of the part at `way` below the root, or of its nearest existing parent, and the keys to it.
    Items of a list are called by their names. Steps that pydantic adds (a signal's kind) are not keys."""
    node, line, names = root, root.start_mark.line + 1, []
    for step in way:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(step):
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


def name_place(source: object, root: yaml.Node, way: Way, keys: Sequence[str] = ()) -> str:
    """`file:line: key: `, to begin a message. `keys`: those above the root."""
    line, names = find_place(root, way)
    where = ".".join([*keys, *names])
    return f"{source}:{line}: " + (f"{where}: " if where else "")


_UNLIKELY = ("literal_error", "string_type", "too_short")
"""Errors of a value that is one of several alternatives, if this alternative isn't meant at all; or of a
list, if it has too few right items."""


def describe_problems(
    error: ValidationError,
    model: type[BaseModel],
    root: yaml.Node,
    source: object,
    keys: Sequence[str] = (),
) -> list[str]:
    """Everything that is wrong with the document below a root that doesn't fit a model, in the order of
    lines: `file:line: key: problem`. `keys`: those above the root."""
    best: dict[tuple[str, object], tuple[int, int, str]] = {}
    details = error.errors(include_url=False, include_input=False)
    unknown = {each["loc"]: each["type"] == "extra_forbidden" for each in details}
    for each in details:
        way, kind = each["loc"], each["type"]
        if kind == "missing" and any(
            unknown[other]
            and other[:-1] == way[:-1]
            and did_you_mean(str(other[-1]), [str(way[-1])])
            for other in unknown
        ):
            continue  # it is there, misspelt
        line, names = find_place(root, way)
        text = name_place(source, root, way, keys) + _describe(each, model)
        # Of several alternatives for a value, report the errors of the likeliest.
        place = ".".join(names), way[-1] if kind == "missing" else None
        weight = 0 if kind == "extra_forbidden" else 2 if kind in _UNLIKELY else 1
        if place not in best or weight < best[place][0]:
            best[place] = weight, line, text
    likely = [
        (line, text)
        for (above, _), (weight, line, text) in best.items()
        if weight < 2 or not any(below.startswith((f"{above}.", f"{above}[")) for below, _ in best)
    ]
    return [text for _, text in sorted(likely, key=lambda found: found[0])]


def _describe(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """What is wrong, in one sentence."""
    way, kind, message = problem["loc"], problem["type"], problem["msg"]
    if kind == "extra_forbidden":
        parts = _find_parts(model, way[:-1])
        fields = [pair for part in parts for pair in part.model_fields.items()]
        names = list(dict.fromkeys(field.alias or name for name, field in fields))
        return f"unknown key{did_you_mean(str(way[-1]), names)} (known: {list_names(names)})"
    if kind == "missing":
        return f"key `{way[-1]}` is missing"
    if kind.startswith("union_tag"):
        parts = _find_parts(model, way)
        tags = [str(tag) for part in parts for tag in _list_choices(part.model_fields["kind"])]
        return f"`kind` must be one of {', '.join(tags)}"
    if "[key]" in way and isinstance(way[-2], int):  # which true and false are
        return (
            "a key isn't text to YAML, as on, yes and what a comma splits off: put quotes around it"
        )
    if "[key]" in way:
        return f"{way[-2]!r} isn't a name: put quotes around text with a comma within {{}}"
    if kind == "value_error":  # ours
        return message.removeprefix("Value error, ")
    message = _REMEDIES.get(kind, message).replace(" after validation", "")
    return message[:1].lower() + message[1:]


_KEYS, _LIST = "needs keys with values below it", "must be a list, as in [a, b]"
_REMEDIES = {
    "dict_type": _KEYS, "model_type": _KEYS, "model_attributes_type": _KEYS,
    "list_type": _LIST, "tuple_type": _LIST,
}  # fmt: skip
"""Our words for errors that pydantic words in Python's terms, by kind."""


def _find_parts(model: type[BaseModel], way: Way) -> list[type[BaseModel]]:
    """The models that can be at this place below the model."""
    parts = [model]
    for step in way:
        fields = [
            (part, name, field) for part in parts for name, field in part.model_fields.items()
        ]
        of_kind = [part for part, _, field in fields if _list_choices(field) == [step]]
        below = [field for _, name, field in fields if step in (name, field.alias)]
        if of_kind or below:
            parts = of_kind or [part for field in below for part in list_models(field.annotation)]
    return parts


def _list_choices(field: FieldInfo) -> list[object]:
    return list(get_args(field.annotation))


def list_models(annotation: object) -> list[type[BaseModel]]:
    """The models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in list_models(part)]


# --- both -----------------------------------------------------------------------------------------


def merge_values(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` merged over `below`, key by key, as helm merges values."""
    result = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge_values(result[key], value)
        else:
            result[key] = value
    return result
