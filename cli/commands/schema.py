"""`run.py schema`: the JSON schema of a kind of file, with which editors check and complete it."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
from pydantic import BaseModel

from simulator.documents import list_models

from .options import debug_option

KINDS = ("config", "workload", "campaign")
Schema = dict[str, Any]
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
"""A variable, which may replace any value in a config file."""


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@debug_option
def schema(kind: str, debug: bool) -> None:
    """Print the JSON schema (draft 2020-12) of a kind of file, with which editors check and complete it. An
    editor with the YAML language server uses it for files whose first line names it, as in `#
    yaml-language-server: $schema=campaign.schema.json`.
    """  # fmt: skip
    from ..system.output import print_text

    print_text(json.dumps(make_schema(kind), indent=1, ensure_ascii=False))


def make_schema(kind: str) -> Schema:
    """The schema of files of this kind."""
    makers: Mapping[str, Callable[[], Schema]] = {
        "config": _make_config, "workload": _make_workload, "campaign": _make_campaign,
    }  # fmt: skip
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | makers[kind]() | {"title": f"A {kind} file of iotbench"}


def _make_workload() -> Schema:
    from simulator.workloads.definition import Definition
    from simulator.workloads.recording.definition import RecordedDefinition

    made, recorded = describe_model(Definition), describe_model(RecordedDefinition)
    devices = made["properties"]["devices"]
    made["properties"]["devices"] = _allow(devices, {"type": ["integer", "string"]})
    parts = made.pop("$defs") | recorded.pop("$defs")
    return {"if": {"required": ["recorded"]}, "then": recorded, "else": made, "$defs": parts}


def _make_campaign() -> Schema:
    from ..plan.requests import REQUESTS
    from ..run.campaign.definition import COMMANDS, OWN, Definition

    made = describe_model(Definition)
    fields, defs = made["properties"], made["$defs"]
    of_any: Schema = {}
    for command, request in REQUESTS.items():
        properties = {
            key: _allow(own, {"type": "null"})
            for key, own in describe_model(request)["properties"].items()
            if key not in OWN
        }
        spelled = {
            key.replace("-", "_"): {"$ref": f"#/$defs/{command}/properties/{key}"}
            for key in properties
        }
        of_any = spelled | {key: spelled[key.replace("-", "_")] for key in properties} | of_any
        defs[command] = _make_part(spelled | properties)
    options = {"$ref": "#/$defs/options"}
    defs["options"] = _make_part(of_any)
    for kind, command in COMMANDS.items():
        defs["Step"]["properties"][kind] = {"$ref": f"#/$defs/{command}"}
    defs["Target"]["properties"] |= of_any
    defs["Target"]["additionalProperties"] = False
    fields["options"] = options
    fields["variants"] = {"type": "object", "additionalProperties": options}
    fields["steps"]["items"] = _allow({"$ref": "#/$defs/Step"}, {"enum": list(COMMANDS)})
    for part in (fields, defs["Target"]["properties"]):
        part["install"] = _allow(part["install"], {"type": "boolean"})
        part["nodes"] = _allow(part["nodes"], {"type": "integer"})
    return made


def _make_config() -> Schema:
    from simulator.modules import load_module, module_names
    from simulator.workloads import load_options_model, workload_names

    from ..plan.config import chart_keys
    from ..plan.planning import QUERIES
    from ..plan.target import PRICES, STARTABLE_SERVERS, TARGET_KEYS, ExecutorName, Target
    from ..system.installation import load_each

    kinds: dict[str, Schema] = {
        "executor": {"enum": list(ExecutorName)},
        "start_server": {"enum": list(STARTABLE_SERVERS)},
        "cost_per_hour": {"type": ["number", "string"]},
        "price": _make_part({key: {"type": ["number", "string"]} for key in PRICES}),
        "database_pids": {"type": ["integer", "string", "array"]},
        "disturbances": {"type": "array", "items": {"type": "string"}},
        "kubernetes": _make_part({key: {} for key in chart_keys()}),
    }
    docs = read_docs(Target)
    properties: Schema = {QUERIES: {"type": ["string", "array"]}}
    for model in load_each(workload_names(), load_options_model).values():
        properties |= describe_model(model)["properties"]
    properties |= {
        key: _allow(kinds.get(key, {"type": "string"}), _VARIABLE) | {"description": docs[key]}
        for key in TARGET_KEYS
    }
    modules = load_each(module_names(), load_module)
    defs: Schema = {}
    for name, module in modules.items():
        own = describe_model(module.options_model, f"{name}.")
        defs |= own.pop("$defs", {})
        defs[name] = {
            "properties": {
                key: _allow(
                    field, {"type": "string"} if field.get("type") == "array" else _VARIABLE
                )
                for key, field in own["properties"].items()
            }
        }
    target = {
        "type": "object",
        "required": ["module"],
        "properties": properties,
        "allOf": [_choose_by_module({"const": name}, {"$ref": f"#/$defs/{name}"}) for name in modules]
        + [_choose_by_module({"not": {"enum": list(modules)}}, {"additionalProperties": True})],
        "unevaluatedProperties": False,
    }  # fmt: skip
    workload = _make_workload()
    defs |= workload.pop("$defs")
    for kind in (workload["then"], workload["else"]):
        kind["required"].remove("name")
    return {
        "type": "object",
        "required": ["targets"],
        "additionalProperties": False,
        "properties": {
            "targets": {"type": "object", "additionalProperties": target, "minProperties": 1},
            "namespace": {"type": "string", "description": "Where runs take place in Kubernetes."},
            "kubernetes": kinds["kubernetes"] | {"description": "The chart's values for all targets."},
            "workloads": {
                "description": "Workloads: a name, and a definition or its file.",
                "additionalProperties": _allow(workload, {"type": "string"}),
            },
        },
        "$defs": defs,
    }  # fmt: skip


def _choose_by_module(module: Schema, then: Schema) -> Schema:
    condition = {"properties": {"module": module}, "required": ["module"]}
    return {"if": condition, "then": then}


def _make_part(properties: Schema) -> Schema:
    """A mapping with only these keys, or null."""
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _allow(own: Schema, more: Schema) -> Schema:
    """A schema that also allows an alternative."""
    about: Schema = {key: own[key] for key in ("description", "default") if key in own}
    kept = {key: value for key, value in own.items() if key not in about}
    return {"anyOf": [kept, more], **about}


def describe_model(model: type[BaseModel], prefix: str = "") -> Schema:
    """The schema of a model's part of a file, with its docstrings as descriptions: numbers, times and choices
    may be texts or variables. `prefix`: of the names of its parts."""
    made = model.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    parts = {part.__name__: part for part in walk_models(model)}
    for name, own in [(model.__name__, made), *made.get("$defs", {}).items()]:
        part = parts.get(name)
        fields = part.model_fields if part else {}
        texts = read_docs(part) if part else {}
        docs = {field.alias or key: texts[key] for key, field in fields.items() if key in texts}
        for key, field in own.get("properties", {}).items():
            field.pop("title", None)
            if key in docs:
                field.setdefault("description", docs[key])
    if "$defs" in made:
        made["$defs"] = {f"{prefix}{name}": own for name, own in made["$defs"].items()}
    loose: Schema = _loosen(made)
    return loose


def _loosen(node: Any) -> Any:
    if isinstance(node, list):
        return [_loosen(part) for part in node]
    if not isinstance(node, dict):
        return node
    loose = {
        key: value if key in ("default", "enum", "const") else _loosen(value)
        for key, value in node.items()
    }
    if loose.get("type") in ("number", "integer", "boolean"):
        loose["type"] = [loose["type"], "string"]
    return loose


def walk_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and the models of its fields."""
    yield model
    for field in model.model_fields.values():
        for part in list_models(field.annotation):
            if part is not model:
                yield from walk_models(part)


def read_docs(kind: type) -> dict[str, str]:
    """Attribute -> the docstring below it, for a class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith(("cli", "simulator")):
            continue
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs
