"""Tables of the workloads: all of them, or one with its columns, types, bytes, queries and some events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from textwrap import indent, shorten
from typing import Any

from tabulate import tabulate

from simulator.contract import Load
from simulator.modules import module_names
from simulator.modules.base import AnyModule, Capabilities, Encoding, Job, Support
from simulator.modules.options import parse_payload_options
from simulator.units import format_count, format_in_unit, join_words
from simulator.workloads import load_workload, workload_names
from simulator.workloads.base import Workload
from simulator.workloads.replay import Replayed
from simulator.workloads.schema import Column, ColumnType, EventBlock, Schema, Tags

from ..plan.config import Config
from ..plan.workloads import choose_workload
from ..results.model import SentStatements
from ..system.installation import load_each, load_installed
from ..system.output import terminal_width
from .tables import Table

EVENTS = 2
"""How many events of a workload are shown."""
BATCH = 1000
"""Events in the requests whose bytes are counted."""
_WIDEST = 26
_MOST_COLUMNS = 30


def list_workloads(config: Config | None) -> str:
    """A line for each workload; ConfigError if one of the config file's is wrong."""
    own = config.workload_names if config else []
    rows = []
    kinds = load_each(workload_names(), load_workload)
    kinds |= {name: choose_workload(name, config).kind for name in own}
    for name, kind in kinds.items():
        schema = kind.schema
        about = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        rows.append([name, str(len(schema.columns)), str(schema.metrics), about])
    headers = ["Workload", "Columns", "Metrics", "What it is"]
    return _table(headers, rows, ["left", "right", "right", "left"])


def describe_workload(workload: Workload, types: bool = False) -> str:
    """A workload's columns with its first events, and its queries; or the `types` of its columns in all
    databases, and the bytes per event in requests."""
    schema = workload.schema
    if types:
        return _describe_types(workload)
    described = {query.name: query.about for query in schema.descriptions}
    queries = _table(
        ["Query", "Asks for"],
        [[name, described.get(name, "")] for name in schema.queries],
        ["left", "left"],
    )
    parts = {
        f"Workload {workload.name}, table {schema.table}": _tabulate_columns(
            workload.block(0, 0, BATCH)
        ),
        **({"Recording": _describe_recording(workload)} if isinstance(workload, Replayed) else {}),
        "Queries": queries if schema.queries else "none",
    }
    return "\n\n".join(f"{title}\n{text}" for title, text in parts.items())


def _describe_recording(workload: Replayed) -> str:
    """Facts about a recording, and what was left out."""
    header = workload.recording.header
    begin, end = (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
        for ms in (header.first_ms, header.last_ms)
    )
    alike = f", by which {header.coinciding:,} coincide" if header.coinciding else ""
    duplicates = f"{header.duplicates:,} events that repeat a device and time"
    rows = [
        ["events", f"{header.rows:,} of {format_count(header.devices, 'device')}"],
        ["times", f"{begin} to {end}"],
        [
            "interval",
            f"{format_in_unit(header.interval_ms / 1000)} between a device's events (median)",
        ],
        ["gaps", f"{header.gaps:,} are over ten times the median"],
        ["late", f"{header.late:,} events, by up to {format_in_unit(header.latest_ms / 1000)}"],
        ["duplicates", duplicates if header.duplicates else "none"],
        *([["cut", f"{header.cut:,} times to the millisecond{alike}"]] if header.cut else []),
        *([f"without {name}", why] for name, why in header.skipped.items()),
    ]
    return tabulate(rows, tablefmt="plain", disable_numparse=True)


def _describe_types(workload: Workload) -> str:
    schema = workload.schema
    installed, left_out = load_installed(module_names())
    modules = [module for module in installed if module.ENCODINGS]
    used = [kind for kind in ColumnType if any(column.type is kind for column in schema.columns)]
    rows = []
    for other in modules:
        can = other.CAPABILITIES
        rows.append([other.name, *(_type_name(can, kind) for kind in used)])
    parts = {
        "Types": _table(["Module", *map(str, used)], rows, ["left"] * (len(used) + 1)),
        f"Bytes per event, in requests of {BATCH:,}": _tabulate_bytes(workload, modules),
    }
    text = "\n\n".join(f"{title}\n{text}" for title, text in parts.items())
    return f"{text}\n\n{left_out}" if left_out else text


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    left = [name for name, side in zip(headers, align, strict=True) if side == "left"]
    return Table(headers, rows, left).text(width=terminal_width())


def _tabulate_columns(block: EventBlock) -> str:
    shown = block.schema.columns[:_MOST_COLUMNS]
    rows = [
        [column.name, str(column.type), _role(block.schema, column), *_values(block, column)]
        for column in shown
    ]
    headers = ["Column", "Type", "What", *(f"Event {number}" for number in range(EVENTS))]
    text = _table(headers, rows, ["left"] * len(headers))
    more = len(block.schema.columns) - len(shown)
    return text + (f"\nand {more} columns more" if more else "")


def _role(schema: Schema, column: Column) -> str:
    role = "may be missing" if column.nullable else ""
    if column.name == schema.time:
        role = "time"
    elif column.name == schema.device:
        role = f"device, by {schema.device_path}" if schema.device_path else "device"
    elif column.tag:
        role = "tag"
    return f"{role}, in {schema.tags_table}" if schema.is_apart(column.name) else role


def _values(block: EventBlock, column: Column) -> Iterator[str]:
    missing = block.missing.get(column.name)
    for row, value in enumerate(block.columns[column.name][:EVENTS].tolist()):
        if missing is not None and missing[row]:
            yield "-"
        elif isinstance(value, bytes):
            yield shorten(value.decode(), _WIDEST, placeholder="…") or '""'
        elif isinstance(value, float) and column.decimals is not None:
            yield f"{value:.{column.decimals}f}"
        else:
            yield str(value).lower() if isinstance(value, bool) else str(value)


def _type_name(can: Capabilities, kind: ColumnType) -> str:
    if kind in can.tag_types:
        return f"{can.tag_types[kind]} (tags only)"
    types = can.column_types
    if kind not in types:
        return "missing"
    return types[kind] if isinstance(types, Mapping) else "yes"


def _tabulate_bytes(workload: Workload, modules: Sequence[type[AnyModule]]) -> str:
    options, schema = workload.options.model_dump(), workload.schema
    blocks = {
        tags: type(workload)(workload.seed, **(options | {"tags": tags})).block(0, 0, BATCH)
        for tags in Tags
    }
    columns = blocks[Tags.ROW].columns
    own = sum(columns[column.name].dtype.itemsize for column in schema.columns)
    rows = [["as generated", "", f"{own:,}", ""]]
    for module in modules:
        can = module.CAPABILITIES
        if can.workload(blocks[Tags.ROW].schema) is not Support.FULL:
            continue
        possible = [tags for tags in Tags if tags is Tags.ROW or can.tags_table is Support.FULL]
        for encoding in module.ENCODINGS:
            if encoding.batched:
                octets = [_count_bytes(module, encoding, blocks[tags]) for tags in possible]
                rows.append([module.name, encoding.label, *octets, "-"][:4])
    headers = ["Module", "Mode", *(f"tags={tags}" for tags in Tags)]
    apart = [column.name for column in blocks[Tags.TABLE].schema.tags_row[1:]]
    table = _table(headers, rows, ["left", "left", "right", "right"])
    verb = "is" if len(apart) == 1 else "are"
    return (
        f"{table}\nwith tags=table, {join_words(apart)} {verb} stored once per device,"
        f" in table {schema.tags_table}"
    )


def _count_bytes(module: type[AnyModule], encoding: Encoding, block: EventBlock) -> str:
    options = parse_payload_options(module.options_model, encoding.options)
    encoder = module.encoder(options, Job(block.schema, Load(batch=BATCH)))
    octets = sum(count_bytes(payload.data) for payload in encoder.encode(block))
    return f"{octets / len(block):,.0f}"


def count_bytes(data: Any) -> int:
    """The bytes of a payload's data: of its body, or of all its parts."""
    if isinstance(data, bytes | bytearray | memoryview):
        return memoryview(data).nbytes
    if hasattr(data, "body"):
        return count_bytes(data.body)
    if isinstance(data, Collection) and not isinstance(data, str):
        return sum(map(count_bytes, data))
    return 0


# --- statements --------------------------------------------------------------------------------------


def describe_statements(sent: Sequence[SentStatements], heading: str | None = None) -> str:
    """The statements, each with its title; `heading`: the title of the first, the schema."""
    titles = [part.title for part in sent]
    if heading is not None:
        titles[0] = f"{heading}, the workload's own schema" if sent[0].own else heading
    return "\n\n".join(
        "\n".join([title, *(indent(line, "  ") for line in part.lines)])
        for title, part in zip(titles, sent, strict=True)
    )
