"""The workload of a command: built in, from the config file, or from its own file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.contract import DataSet, Timestamps
from simulator.errors import OptionError, did_you_mean
from simulator.modules import find_own_problem
from simulator.modules.options import parse_options
from simulator.workloads import RECORDED, load_workload, workload_names
from simulator.workloads.base import Workload, WorkloadOptions
from simulator.workloads.numbering import WithHistory, add_history
from simulator.workloads.recording import Recorded, Recording, find_recording
from simulator.workloads.recording.sources import is_address, names_recording

from ..system.errors import ConfigError
from ..system.installation import CONFIG_FILE
from ..system.output import follow_work, note
from .config import Config, load_config

FLAG = "--workload-option"
_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class ChosenWorkload:
    """A workload and its origin."""

    kind: type[Workload]
    definition: dict[str, Any] | None = None
    """Its definition as JSON, unless it is built in."""
    file: str | None = None
    """The file as named by the user."""


def choose_workload(name: str, config: Config | None) -> ChosenWorkload:
    """The workload that `--workload` names; ConfigError with its place if there is none or it is wrong."""
    if config is not None and name in config.workload_names:
        with follow_work() as tell:
            definition = config.workload_definition(name, tell)
        return ChosenWorkload(load_workload(name, definition), definition)
    try:
        if name in workload_names():
            return ChosenWorkload(load_workload(name))
        if name.endswith(_ENDINGS) or (Path(name).is_file() and not names_recording(name)):
            return _read_file(name)
        if names_recording(name) or is_address(name) or Path(name).is_dir():
            return _read_recording(name)
    except OptionError as error:
        raise ConfigError(f"--workload: {error}") from error
    names = [*workload_names(), *(config.workload_names if config else ())]
    raise ConfigError(
        f"--workload: there is no workload {name!r}{did_you_mean(name, names)} (known:"
        f" {', '.join(names)}; or name a recording, such as a .csv, or a file that ends in .yaml)"
    )


def _read_file(name: str) -> ChosenWorkload:
    from simulator.workloads.yaml_source import read_document

    file = Path(name).expanduser()
    try:
        with follow_work() as tell:
            definition = read_document(file, workload_names(), find_own_problem, tell)
    except OptionError as error:
        problems = list(error.problems)
        if not name.endswith(_ENDINGS):
            endings = ".parquet, .csv or .jsonl, also with .gz or .zst"
            problems.append(f"if it is a recording, give it a name that ends in {endings}")
        raise ConfigError(*problems) from error
    return ChosenWorkload(load_workload(definition["name"], definition), definition, name)


def _read_recording(name: str) -> ChosenWorkload:
    """The workload of a recording without a definition, where everything must be detected."""
    from simulator.workloads.recording.definition import RecordedDefinition

    stem = re.split(r"[.*?\[]", Path(name).name)[0].lower()
    own = re.sub(r"[^a-z0-9]+", "_", stem).strip("_")[:40] or "recording"
    if not own[0].isalpha() or own in (*workload_names(), "id", "time"):
        own = f"recording_{own}"
    with follow_work() as tell:
        recording = RecordedDefinition(name=own, recorded=Recorded(file=name)).open(tell=tell)
    definition = {
        "name": own,
        "about": f"recorded in {name}",
        "recorded": {"file": name, "store": recording.name},
    }
    return ChosenWorkload(load_workload(own, definition), definition, name)


def choose_recording(name: str) -> tuple[str, Recording]:
    """The recording at a file, a folder, an address or in a definition, and the name of its workload.
    ConfigError if it isn't one."""
    chosen = choose_workload(name, None)
    recorded = (chosen.definition or {}).get(RECORDED)
    if recorded is None:
        raise ConfigError(
            f"{name} isn't a recording: name a file such as a .parquet, .csv or .jsonl"
        )
    return chosen.kind.name, find_recording(recorded["store"])


def find_config(file: Path) -> Config | None:
    """The config file, for commands that don't need one: None if none is named or here."""
    if file == Path(CONFIG_FILE) and not file.exists():
        return None
    return load_config(file)


def parse_pairs(flag: str, pairs: Sequence[str]) -> dict[str, Any]:
    """The values of a repeated option `flag` of the form key=value."""
    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{flag} {pair!r}: write it as key=value")
        values[key.strip()] = value
    return values


def read_options(
    kind: type[Workload],
    values: Mapping[str, Any],
    pairs: Sequence[str],
    where: Callable[[str], str] = str,
) -> WorkloadOptions:
    """The workload's options: `pairs` from the command line override `values`, which are from `where`."""
    chosen = parse_pairs(FLAG, pairs)
    try:
        return parse_options(
            kind.options_model,
            {**values, **chosen},
            lambda key: FLAG if key in chosen else where(key),
        )
    except OptionError as error:
        raise ConfigError(*error.problems) from error


def make_workload(name: str, config: Config | None, pairs: Sequence[str], seed: int) -> Workload:
    """A workload with these options, to look at its events here."""
    kind = choose_workload(name, config).kind
    options = begin(kind, read_options(kind, {}, pairs))
    try:
        return kind(seed, **options.model_dump())
    except OptionError as error:
        raise ConfigError(f"{FLAG}: {error}") from error


def complete_data(
    data: DataSet, chosen: ChosenWorkload, options: WorkloadOptions, existing: bool
) -> DataSet:
    """The data set with a workload; one that begins now gets the current time for its first event.

    ConfigError for `existing` events of such a workload: the user must say when they began.
    """
    kind = chosen.kind
    if kind.begins_now(options):
        if existing:
            raise ConfigError(
                f"workload {kind.name} begins when it is inserted: give the time that the insert printed"
                f" and stored in its result, as in {FLAG} epoch=2026-01-31T12:00:00Z"
            )
        span_s, every_s = data.prefill_span_s or 0.0, data.prefill_every_s
        options = begin(kind, options, span_s // every_s * every_s if every_s else span_s)
        epoch = options.model_dump()["epoch"]
        note(f"events begin at {epoch}: query them with {FLAG} epoch={epoch}")
    return data.model_copy(
        update={
            "workload": kind.name,
            "workload_options": options.model_dump(mode="json"),
            "definition": chosen.definition,
            "workload_file": chosen.file,
        }
    )


def check_history(data: DataSet) -> None:
    """ConfigError, with a remedy, if the data set's history is wrong or conflicts with the rest."""
    span_s, every_s = data.prefill_span_s, data.prefill_every_s
    if span_s is None and every_s is None:
        return
    if span_s is None:
        raise ConfigError(
            "--prefill-every (how often each device has an event) goes with --prefill-span (how long a"
            " history is), as in --prefill-span 30d --prefill-every 10m"
        )
    if data.timestamps is Timestamps.RESTART:
        raise ConfigError(
            "--timestamps restart would put the measured data into the history of --prefill-span: leave one"
            " of them out"
        )
    try:
        count_history(data, 1)
    except OptionError as error:
        raise ConfigError(str(error)) from error


def count_history(data: DataSet, workers: int) -> int:
    """The number of events in the data set's history, for the devices of this many workers. OptionError if it
    is impossible."""
    kind = load_workload(data.workload, data.definition)
    workload = add_history(kind(data.seed, **data.workload_options), data)
    assert isinstance(workload, WithHistory)
    return sum(map(workload.count_history, range(workers)))


def make_workload_of(data: DataSet) -> Workload:
    """The workload of a data set, with its options; OptionError if they don't fit."""
    kind = load_workload(data.workload, data.definition)
    options = parse_options(kind.options_model, data.workload_options, str)
    return kind(data.seed, **options.model_dump())


def begin(kind: type[Workload], options: WorkloadOptions, before_s: float = 0.0) -> WorkloadOptions:
    """The options with the current second for a workload that begins now, or this long before it."""
    if not kind.begins_now(options):
        return options
    return kind.begin_at(options, int(time.time() - before_s) * 1000)
