"""What is made from the code, and kept in the repository: `python -m docs.generate` writes the pages of
docs/reference/ anew, those of the manual in man/, and what the cells of examples/results.ipynb print.

What is declared in the code is typed nowhere else: options of commands (click), keys of files and options of
modules (pydantic), figures (`results/figures.py`), and the JSON Schema of `result.json`.
"""

from __future__ import annotations

import inspect
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, redirect_stdout
from functools import partial
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cli.commands.options import MeasuringCommand
from cli.commands.schema import KINDS, make_schema, read_docs, walk_models
from cli.commands.targets import cell, show_default
from cli.main import COMMANDS, commands
from cli.plan.target import TARGET_KEYS, Target
from cli.results.columns import READERS as READ_TABLE
from cli.results.columns import STEPS, Column
from cli.results.columns import WRITERS as INSERT_TABLE
from cli.results.entries import QUERY_TABLE, QueryFigure
from cli.results.figures import BOTH, FIGURES, TABLES, WRITERS
from cli.results.model import FORMAT, Result
from cli.run.campaign.definition import Definition as Campaign
from simulator import __version__
from simulator.errors import OptionError
from simulator.modules import load_module, module_names
from simulator.modules.base import AnyModule
from simulator.modules.capabilities import Capabilities, Client
from simulator.modules.options import Options
from simulator.workloads.definition import Definition as Workload
from simulator.workloads.queries import Shape
from simulator.workloads.recording.definition import RecordedDefinition

FOLDER = Path("docs/reference")
MANUAL = Path("man")
NOTEBOOK = Path("examples/results.ipynb")
_MADE = "Made from the code by `make docs`."


def make_result_schema() -> str:
    """The JSON Schema of `result.json`."""
    schema = Result.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"result.json, format {FORMAT}"
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def make_figures() -> str:
    """All figures, as tables, `results export` and limits have them."""
    rows = []
    for figure in FIGURES.values():
        group = (
            "both" if figure.roles == BOTH else "writers" if figure.roles == WRITERS else "readers"
        )
        also = [f"`--fail-if {figure.limit}`"] if figure.limit else []
        also += ["`compare`"] if figure.compared else []
        also += [f"*{title}*" for title, keys in TABLES.items() if figure.key in keys]
        key = f"`{figure.key}`" if figure.exported else f"(`{figure.key}`)"
        rows.append(
            [
                key,
                figure.heading,
                figure.unit,
                figure.about,
                figure.better or "",
                group,
                ", ".join(also),
            ]
        )
    tables: dict[str, Iterable[Column[Any] | QueryFigure]] = {
        "## Of each query, over all runs (times in ms)": QUERY_TABLE,
        "## Of inserts, by number of workers or level": INSERT_TABLE.values(),
        "## Of readers, by number of workers": READ_TABLE.values(),
        "## Of a capacity's steps": STEPS,
    }
    return _join(
        "# Figures",
        f"All figures, as `cli/results/figures.py` declares them. {_MADE} *Key*: the column of `results"
        " export`; in brackets what only tables show. What they mean: [method](../explanation/method.md).",
        _table(["key", "heading", "unit", "what it is", "better", "of", "also"], rows),
        *(
            part
            for title, columns in tables.items()
            for part in (
                title,
                _table(
                    ["heading", "what it is", "in a run"],
                    [
                        [column.heading, column.about, f"`{column.key}`" if column.key else ""]
                        for column in columns
                    ],
                ),
            )
        ),
    )


def make_options() -> str:
    """Every command with its arguments and options."""
    parts = ["# Commands and options", f"`iotbench` is `python run.py`, too. {_MADE}"]
    for name, command in _walk_commands(commands, ()):
        context = click.Context(command, info_name=f"iotbench {name}", max_content_width=100)
        usage = command.get_usage(context).removeprefix("Usage: ")
        records = [parameter.get_help_record(context) for parameter in command.params]
        groups = {"": list(filter(None, records))}
        if isinstance(command, MeasuringCommand):
            groups = command.list_groups(context)
        parts += [
            f"## {name}",
            inspect.cleandoc(command.help or ""),
            f"```\n{' '.join(usage.split())}\n```",
        ]
        for title, options in groups.items():
            rows = [[f"`{option}`", about] for option, about in options]
            parts += [title and f"**{title}**", _table(["option", "what it does"], rows)]
    return _join(*parts)


def make_keys() -> str:
    """The keys of workloads, campaigns and targets."""
    own = read_docs(Target)
    target = [[f"`{key}`", own.get(key, "")] for key in TARGET_KEYS]
    return _join(
        "# Keys of files",
        f"What the files of this tool may contain. {_MADE}",
        "## Target",
        "Below `targets` in `config.yaml`. All other keys of a target are options of its module: see"
        " [modules](modules.md).",
        _table(["key", "what it is"], target),
        *_describe_tree("Workload", Workload),
        *_describe_tree("Recording", RecordedDefinition),
        *_describe_tree("Campaign", Campaign),
    )


def make_modules() -> str:
    """What each module can do, and its options."""
    parts = [
        "# Modules",
        (
            f"What each database's module can do, and its options. {_MADE} What is peculiar about each"
            " database: [databases](databases.md). `iotbench targets TARGET` prints the options of one"
            " target."
        ),
        "## Options of every module",
        _table_options(Options.model_fields),
    ]
    for name in module_names():
        try:
            module = load_module(name)
        except OptionError:
            continue  # of a package that isn't installed
        if not module.__module__.startswith("simulator."):
            continue
        own = {
            key: field
            for key, field in module.options_model.model_fields.items()
            if key not in Options.model_fields
        }
        parts += [f"## {name}", _table(["what", "support"], _list_capabilities(module))]
        parts += [_table_options(own)]
    return _join(*parts)


def _write_schema(kind: str) -> str:
    return json.dumps(make_schema(kind), indent=1, ensure_ascii=False) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "options.md": make_options,
    "keys.md": make_keys,
    "modules.md": make_modules,
    "figures.md": make_figures,
    "result.schema.json": make_result_schema,
    **{f"{kind}.schema.json": partial(_write_schema, kind) for kind in KINDS},
}


def _list_capabilities(module: type[AnyModule]) -> list[list[str]]:
    can = module.CAPABILITIES
    official = module.CLIENTS.get("official")
    oldest = (f"{product} {version}" for product, version in module.OLDEST.items())
    return [
        ["oldest version", ", ".join(oldest) or "any"],
        ["insert modes", cell(can.insert_modes)],
        ["requests in flight", cell(can.in_flight) if can.in_flight else "missing"],
        ["keys", cell(can.primary_keys)],
        ["multiple tables", str(can.multiple_tables)],
        ["tags in a table of their own", str(can.tags_table)],
        ["indexes", str(can.indices)],
        ["queries", cell(can.queries) if can.queries else "unsupported"],
        ["queries with", ", ".join(shape for shape in Shape if shape in can.shapes) or "none"],
        ["percentiles", _describe_percentiles(can)],
        ["statements of your own", can.statements or "unsupported"],
        ["tables of your own", can.own_schema.language or f"unsupported: {can.own_schema.reason}"],
        ["retention", can.ageing.way or f"unsupported: {can.ageing.reason}"],
        ["official client", _describe_official(official) if official else "none"],
    ]


def _describe_percentiles(can: Capabilities) -> str:
    if Shape.PERCENTILE not in can.shapes:
        return "missing"
    alone = "" if Shape.PERCENTILE_OF_ALL in can.shapes else ", of one device a row"
    return f"{can.percentiles}{alone}"


def _describe_official(client: Client) -> str:
    ways = "; ".join(f"{mode}: {way}" for mode, way in client.ways.items())
    return f"{', '.join(client.packages)} ({ways})" + (", asks, too" if client.asker else "")


def _table_options(fields: Mapping[str, FieldInfo]) -> str:
    rows = [
        [
            f"`{key}`",
            f"`{default}`" if (default := show_default(field)) else "",
            field.description or "",
        ]
        for key, field in fields.items()
    ]
    return _table(["option", "default", "what it is"], rows)


def _walk_commands(
    group: click.Group, above: tuple[str, ...]
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in COMMANDS if group is commands else group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join([*above, name]), command
        if isinstance(command, click.Group):
            yield from _walk_commands(command, (*above, name))


def _describe_tree(title: str, root: type[BaseModel]) -> Iterator[str]:
    """A heading and a table for a model and for each that its fields are made of."""
    models = list(dict.fromkeys(walk_models(root)))
    links = {model.__name__: f"{title}-{model.__name__}".lower() for model in models}
    for model in models:
        yield f"## {title}" if model is root else f"### {title}: {model.__name__}"
        yield inspect.cleandoc(model.__doc__ or "")
        docs = read_docs(model)
        schema = model.model_json_schema(ref_template="{model}")
        rows = []
        for key, field in model.model_fields.items():
            # `from` can't be a field's name, but its alias.
            name = field.alias or key
            own = schema["properties"][name]
            kind = _name_kind(own, schema.get("$defs", {}), links)
            about = field.description or docs.get(key, "Always this." if "const" in own else "")
            rows.append([f"`{name}`", kind, _show_default(field), about])
        yield _table(["key", "kind", "default", "what it is"], rows)


def _show_default(field: FieldInfo) -> str:
    """The default as it would be written; nothing if it is empty."""
    if field.is_required():
        return "required"
    default = show_default(field)
    is_part = isinstance(field.default, BaseModel)
    return "" if is_part or default in ("", "()", "{}") else f"`{default}`"


def _name_kind(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], links: Mapping[str, str]
) -> str:
    """What a key's value is, by its JSON Schema. `definitions`: what that names; `links`: model -> anchor."""
    if "$ref" in schema:
        name = schema["$ref"]
        return (
            f"[{name}](#{links[name]})"
            if name in links
            else _name_kind(definitions[name], definitions, links)
        )
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = [_name_kind(variant, definitions, links) for variant in schema[several]]
            return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "array":
            return f"list of {_name_kind(schema.get('items', {}), definitions, links)}"
        case "object":
            rest = schema.get("additionalProperties")
            return (
                f"mapping to {_name_kind(rest, definitions, links)}"
                if isinstance(rest, dict)
                else "mapping"
            )
        case None:
            return "any"
        case kind:
            return _KINDS.get(kind, str(kind))


_KINDS = {"string": "text", "integer": "whole number", "boolean": "true or false"}
"""Types of JSON Schema, in words."""


def make_licences() -> str:
    """The packages that the images contain, with the licences that they state."""
    names = re.findall(r"^([\w.-]+)==", Path("requirements.txt").read_text("utf-8"), re.MULTILINE)
    rows = []
    for name in sorted(names, key=str.lower):
        about = metadata(name).json
        of_classifiers = [
            text.rpartition(" :: ")[2]
            for text in about.get("classifier", ())
            if text.startswith("License :: OSI")
        ]
        stated = (
            about.get("license_expression") or ", ".join(of_classifiers) or about.get("license")
        )
        rows.append([name, str(stated or "in its files")])
    return _join(
        "# Licences",
        f"This project: [Apache License 2.0](../../LICENSE). {_MADE} Its images contain Python (PSF),"
        " that of the command line helm (Apache 2.0), and these packages with the licences they state:",
        _table(["Package", "Licence"], rows),
    )


def _table(headers: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; nothing if it has no row."""
    if not rows:
        return ""
    lines = [headers, ["---"] * len(headers), *rows]
    cells = [
        [re.sub(r"\s+", " ", str(cell)).replace("|", "\\|") for cell in line] for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def make_man_pages() -> dict[str, str]:
    """A page of the manual for each command, by its file's name: `iotbench-results-show.1`."""
    from click_man.core import generate_man_page

    pages = {}
    for name, command in [("", commands), *_walk_commands(commands, ())]:
        title = " ".join(["iotbench", *name.split()])
        context = click.Context(command, info_name=title)
        pages[f"{title.replace(' ', '-')}.1"] = generate_man_page(context, __version__, date="2026")
    return pages


def make_notebook() -> str:
    """The notebook, with what its cells print, one after another, in its folder."""
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    with chdir(NOTEBOOK.parent):
        for cell in document["cells"]:
            if cell["cell_type"] == "code":
                printed = io.StringIO()
                with redirect_stdout(printed):
                    exec("".join(cell["source"]), names)  # noqa: S102 - it is ours
                lines = printed.getvalue().splitlines(keepends=True)
                stream = {"name": "stdout", "output_type": "stream", "text": lines}
                cell["outputs"] = [stream] if lines else []
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for page, make in PAGES.items():
        (FOLDER / page).write_text(make(), encoding="utf-8")
    (FOLDER / "licences.md").write_text(make_licences(), encoding="utf-8")
    MANUAL.mkdir(exist_ok=True)
    for page, text in make_man_pages().items():
        (MANUAL / page).write_text(text, encoding="utf-8")
    NOTEBOOK.write_text(make_notebook(), encoding="utf-8")
