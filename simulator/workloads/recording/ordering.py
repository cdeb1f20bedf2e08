"""What is known about a recording only at its end: the order of its events, duplicates, lateness, and a
random number for each device. Everything is mapped from files, some at a time: a recording may be larger than
memory."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import OptionError
from .settings import Duplicates, Recorded, SendingOrder, read_span
from .store import (
    BELOW,
    DEVICE,
    DEVICES,
    DTYPES,
    DUE,
    TIME,
    Header,
    RecordedColumn,
    SourceFile,
    chunks,
)

_FIXED_BYTES = 1 << 26
"""Texts are stored in equal widths if that takes no more than this, or than twice their own lengths."""
_SORTED_AT_ONCE = 1 << 24
_SAMPLED = 1 << 20
_GAP = 10
"""How many times the usual interval a gap has at least."""


def finish(
    folder: Path,
    settings: Recorded,
    columns: Sequence[RecordedColumn],
    texts: Sequence[Mapping[str, int] | None],
    tags: Mapping[int, NDArray[np.int32]],
    devices: Sequence[str],
    rows: int,
    files: Sequence[SourceFile],
    names: tuple[str, str],
    skipped: Mapping[str, str],
) -> Header:
    """Put the converted columns into order, and write the files that go with them. Returns what the header
    says. `tags`: index of a column -> the text of each device. `names`: of time and device."""
    cut, coinciding = count_cut(folder)
    (folder / BELOW).unlink()
    chosen = _choose_rows(folder, settings, rows)
    if chosen is not None:
        rows = len(chosen)
        if not rows:
            raise OptionError("recorded.span: the recording has no events in it")
        for name, dtype in _list_files(columns):
            _rearrange(folder / name, dtype, chosen)
    numbers = _number_devices(folder, devices)
    for place, column in enumerate(columns):
        if column.tag:
            ordered = np.empty(len(numbers), dtype=np.int32)
            known = tags[place][: len(devices)]
            there = numbers >= 0
            ordered = np.empty(int(there.sum()), dtype=np.int32)
            ordered[numbers[there]] = known[there]
            (folder / str(place)).write_bytes(ordered.tobytes())
        if not column.missing:
            (folder / f"{place}.missing").unlink()
        if (found := texts[place]) is not None:
            _write_texts(folder, str(place), list(found))
    used = [name for name, number in zip(devices, numbers.tolist(), strict=True) if number >= 0]
    used_numbers = numbers[numbers >= 0]
    in_order = [used[place] for place in np.argsort(used_numbers).tolist()]
    _write_texts(folder, DEVICES, in_order)
    times = np.memmap(folder / TIME, dtype=np.int64, mode="r")
    return Header(
        rows=rows,
        devices=len(in_order),
        time=names[0],
        device=names[1],
        columns=tuple(columns),
        files=tuple(files),
        order=settings.order,
        skipped=skipped,
        first_ms=min(int(times[part].min()) for part in chunks(rows)),
        last_ms=max(int(times[part].max()) for part in chunks(rows)),
        cut=cut,
        coinciding=coinciding,
        **_measure_lateness(folder, times),
        **_measure_intervals(folder, times),
    )


def _list_files(columns: Sequence[RecordedColumn]) -> list[tuple[str, Any]]:
    """The files with one value for each event."""
    listed: list[tuple[str, Any]] = [(TIME, np.int64), (DEVICE, np.int32)]
    for place, column in enumerate(columns):
        listed += [(str(place), DTYPES[column.type]), (f"{place}.missing", np.bool_)]
    return listed


def _choose_rows(folder: Path, settings: Recorded, rows: int) -> NDArray[np.int64] | None:
    """The rows to use, in order; None: all, as they are."""
    times = np.memmap(folder / TIME, dtype=np.int64, mode="r")
    chosen: NDArray[np.int64] | None = None
    if settings.span is not None:
        first = min(int(times[part].min()) for part in chunks(rows))
        start, end = read_span(settings.span, first)
        chosen = np.concatenate(
            [
                part.start + np.flatnonzero((times[part] >= start) & (times[part] < end))
                for part in chunks(rows)
            ]
        )
    if settings.order is SendingOrder.TIME:
        order = np.arange(rows) if chosen is None else chosen
        own = times[order]
        if np.any(own[1:] < own[:-1]):
            chosen = order[np.argsort(own, kind="stable")]
    if settings.duplicates is Duplicates.DROP:
        order = np.arange(rows) if chosen is None else chosen
        twice = find_duplicates(folder, order)
        if len(twice):
            gone = np.zeros(rows, dtype=np.bool_)
            gone[twice] = True
            chosen = order[~gone[order]]
    return chosen


def find_duplicates(
    folder: Path, rows: NDArray[np.int64] | None = None, below: NDArray[np.int32] | None = None
) -> NDArray[np.int64]:
    """The rows whose device has an earlier one (in the order of `rows`) at the same time. `below`: how many
    ns each time is after its millisecond."""
    times = np.memmap(folder / TIME, dtype=np.int64, mode="r")
    devices = np.memmap(folder / DEVICE, dtype=np.int32, mode="r")
    keys: list[NDArray[Any]] = [devices, times] if below is None else [devices, times, below]
    count = len(times) if rows is None else len(rows)
    found = []
    parts = -(-count // _SORTED_AT_ONCE)
    for part in range(parts):
        if parts == 1 and rows is None:
            own: NDArray[np.int64] = np.arange(count)
        elif rows is None:
            own = np.concatenate(
                [s.start + np.flatnonzero(devices[s] % parts == part) for s in chunks(count)]
            )
        else:
            own = rows[devices[rows] % parts == part]
        order = np.lexsort([key[own] for key in reversed(keys)])
        ordered = own[order]
        same = np.logical_and.reduce([np.diff(key[ordered]) == 0 for key in keys])
        found.append(ordered[1:][same])
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def count_cut(folder: Path) -> tuple[int, int]:
    """How many times have fractions of a millisecond, and how many events would coincide with another of
    their device without them."""
    if not (folder / BELOW).stat().st_size:
        return 0, 0
    below = np.memmap(folder / BELOW, dtype=np.int32, mode="r")
    cut = sum(int(np.count_nonzero(below[part])) for part in chunks(len(below)))
    return cut, len(find_duplicates(folder)) - len(find_duplicates(folder, below=below))


def _rearrange(file: Path, dtype: Any, rows: NDArray[np.int64]) -> None:
    """Make a file contain these rows, in this order."""
    if not file.stat().st_size:
        return
    values = np.memmap(file, dtype=dtype, mode="r")
    part = file.with_suffix(file.suffix + ".new")
    with part.open("wb") as out:
        for some in chunks(len(rows)):
            out.write(values[rows[some]].tobytes())
    part.replace(file)


def _number_devices(folder: Path, names: Sequence[str]) -> NDArray[np.int64]:
    """The number of each device: random, but the same for the same names; -1: it has no events. The devices'
    file gets these numbers."""
    devices = np.memmap(folder / DEVICE, dtype=np.int32, mode="r+")
    used = np.zeros(len(names), dtype=np.bool_)
    for part in chunks(len(devices)):
        used[devices[part]] = True
    keys = [
        (zlib.crc32(name.encode()), name, place) for place, name in enumerate(names) if used[place]
    ]
    numbers = np.full(len(names), -1, dtype=np.int64)
    for number, (_, _, place) in enumerate(sorted(keys)):
        numbers[place] = number
    for part in chunks(len(devices)):
        devices[part] = numbers[devices[part]]
    devices.flush()
    return numbers


def _write_texts(folder: Path, name: str, texts: Sequence[str]) -> None:
    octets = [text.encode() for text in texts]
    lengths = np.array([len(text) for text in octets], dtype=np.int64)
    ends = np.cumsum(lengths)
    (folder / f"{name}.ends").write_bytes(ends.astype(np.int64).tobytes())
    width, total = max(1, int(lengths.max(initial=1))), int(lengths.sum())
    if width * len(octets) <= max(_FIXED_BYTES, 2 * total):
        with (folder / f"{name}.texts").open("wb") as file:
            for some in chunks(len(octets), 1 << 16):
                file.write(np.array(octets[some], dtype=f"S{width}").tobytes())
        return
    with (folder / f"{name}.octets").open("wb") as file:
        file.writelines(octets)


def _measure_lateness(folder: Path, times: NDArray[np.int64]) -> dict[str, int]:
    """Counts events after others with a later time. If there are any, also writes when each event was
    sent."""
    newest, late, latest, disorder = int(times[0]), 0, 0, 0
    file = folder / DUE
    with file.open("wb") as out:
        for part in chunks(len(times)):
            own = np.asarray(times[part])
            due = np.maximum(np.maximum.accumulate(own), newest)
            newest = int(due[-1])
            out.write(due.tobytes())
            behind = np.flatnonzero(own < due)
            late += len(behind)
            latest = max(latest, int((due - own).max()))
    if not late:
        file.unlink()
        return {}
    all_due = np.memmap(file, dtype=np.int64, mode="r")
    for part in chunks(len(times)):
        own = np.asarray(times[part])
        behind = np.flatnonzero(own < all_due[part])
        first_later = np.searchsorted(all_due, own[behind], side="right")
        disorder = max(disorder, int((part.start + behind - first_later).max(initial=0)))
    return {"late": late, "latest_ms": latest, "disorder": disorder}


def _measure_intervals(folder: Path, times: NDArray[np.int64]) -> dict[str, Any]:
    devices = np.memmap(folder / DEVICE, dtype=np.int32, mode="r")
    own, whose = np.asarray(times[:_SAMPLED]), np.asarray(devices[:_SAMPLED])
    order = np.lexsort((own, whose))
    apart = np.diff(own[order])[np.diff(whose[order]) == 0]
    apart = apart[apart > 0]
    interval = float(np.median(apart)) if len(apart) else 1000.0
    return {
        "interval_ms": interval,
        "gaps": int(np.count_nonzero(apart > _GAP * interval)),
        "duplicates": len(find_duplicates(folder)),
    }
