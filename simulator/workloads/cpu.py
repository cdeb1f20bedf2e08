"""CPU metrics of hosts: the data model of the CrateDB ingest article, which took it from TSBS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field

from .base import SCATTERED, Workload, WorkloadOptions, device_ids, round_up_dealt
from .noise import random_word, random_words
from .queries import HOUR_MS as HOUR_MS  # noqa: PLC0414 - modules take it from here
from .queries import Aggregate, At, Every, Function, Query, Where, Window
from .schema import FIRST_TIMESTAMP_MS, Column, ColumnType, EventBlock, LazyColumns, Schema

INTERVAL_MS = 1000
METRICS = (
    "usage_user", "usage_system", "usage_idle", "usage_nice", "usage_iowait",
    "usage_irq", "usage_softirq", "usage_steal", "usage_guest", "usage_guest_nice",
)  # fmt: skip

# The hosts of the queries, as in TSBS: eight hosts for eight hours (cpu-max-all-8), all hosts for twelve
# (high-cpu-all). https://github.com/timescale/tsbs#time-series-benchmark-suite-tsbs
MAX_ALL_HOSTS = tuple(f"w00000d{host:06d}" for host in range(8))
"""Hosts of `cpu-max-all`: worker 0's first eight, or all if `device_spread` is smaller."""
MAX_ALL_UNTIL_MS = FIRST_TIMESTAMP_MS + 8 * HOUR_MS
HIGH_CPU_UNTIL_MS = FIRST_TIMESTAMP_MS + 12 * HOUR_MS
HIGH_CPU_ABOVE = 90

QUERIES = (
    Query(
        name="cpu-max-all",
        about="maximum of each of the ten metrics of eight hosts, per hour, for the first eight hours",
        devices=MAX_ALL_HOSTS,
        window=Window(span=8 * HOUR_MS, at=At.FIRST),
        compute=tuple(Aggregate(function=Function.MAX, column=name) for name in METRICS),
        per=(Every(every=HOUR_MS),),
    ),
    Query(
        name="high-cpu",
        about="the events of all hosts in the first twelve hours with usage_user above 90",
        window=Window(span=12 * HOUR_MS, at=At.FIRST),
        where=Where(column="usage_user", above=HIGH_CPU_ABOVE),
        events=("tags", "ts", *METRICS),
    ),
    Query(
        name="last-point",
        about="the newest event of each host",
        newest=True,
        events=("ts", *METRICS),
    ),
)

_REGIONS = ("us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-southeast-1", "sa-east-1")
_SYSTEMS = ("Debian12", "Debian13", "Ubuntu24.04LTS")
_TEAMS = ("BER", "HAM", "MUC", "ZRH")
_ENVIRONMENTS = ("production", "staging", "test")
# A 64-bit word gives five numbers of 12 bits; two words give the ten metrics.
_WORDS, _NUMBERS, _BITS = 2, 5, np.uint64(12)

# A host's attributes follow from its number, so neighbours differ, and so do workers.
_WORKERS_APART = 7919
_MOST_DEALT_BYTES = 1 << 24
"""The most memory for one worker's tags of events in turn."""
_ATTRIBUTES_PERIOD = 1800
"""After this many hosts the attributes repeat, except for the name."""


class CpuOptions(WorkloadOptions):
    """Options of the workload `cpu`."""

    extra_tags: int = Field(
        0, ge=0, le=1000, description="attributes added to each tags object (workload cpu)"
    )


class Cpu(Workload):
    """tags (JSON object of 10 host attributes), ts and ten INT32 metrics from 0 to 100.

    A device is a host, named in `tags.hostname`; its attributes follow from its name alone.
    `extra_tags` adds that many attributes to each object. A worker's events are 1 s apart.
    """

    name = "cpu"
    options_model = CpuOptions
    schema = Schema(
        table="cpu",
        columns=(
            Column("tags", ColumnType.JSON),
            Column("ts", ColumnType.TIMESTAMP_MS),
            *(Column(name, ColumnType.INT32) for name in METRICS),
        ),
        time="ts",
        device="tags",
        device_path="hostname",
        json_keys=10,
        key=("tags", "ts"),
    )
    queries: ClassVar[tuple[Query, ...]] = QUERIES
    high = ("usage_user", HIGH_CPU_ABOVE)
    event_interval_ms = INTERVAL_MS

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, **options)
        assert isinstance(self.options, CpuOptions)
        self.extra_tags = self.options.extra_tags
        self.schema = replace(self.schema, json_keys=self.schema.json_keys + self.extra_tags)

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        numbers = np.arange(first, first + count, dtype=np.int64)
        devices = self.dealt_devices(worker, first, count)
        words = random_words(self.seed, worker, first, count, _WORDS)
        make_tags = partial(self._tags, worker, numbers, devices)
        return self._make(worker, first, numbers - time_origin, devices, words.T, make_tags)

    def pick(self, worker: int, numbers: NDArray[np.int64]) -> EventBlock:
        if self.device_spread >= SCATTERED:
            return super().pick(worker, numbers)
        hosts = numbers % self.device_spread
        words = [random_word(self.seed, worker, _WORDS * numbers + word) for word in range(_WORDS)]
        documents = _documents(worker, self.device_spread, self.extra_tags)
        return self._make(
            worker,
            int(numbers[0]),
            numbers,
            self.devices(worker)[hosts],
            np.stack(words),
            lambda: documents[hosts],
        )

    def _make(
        self,
        worker: int,
        first: int,
        places: NDArray[np.int64],
        devices: NDArray[np.bytes_],
        words: NDArray[np.uint64],
        make_tags: Callable[[], NDArray[np.bytes_]],
    ) -> EventBlock:
        """Events at these places in time, from random words of shape (words of each, events)."""
        # The ten metrics are computed in place: fresh memory would cost more time than the arithmetic.
        words = np.array(words, order="C")
        metrics = np.empty((len(METRICS), words.shape[1]), dtype=np.uint32)
        for position in range(len(METRICS)):
            metric, (word, number) = metrics[position], divmod(position, _NUMBERS)
            if number:
                words[word] >>= _BITS
            metric[:] = words[word]  # the lower half
            metric &= np.uint32(0xFFF)
            metric *= np.uint32(101)
            metric >>= np.uint32(_BITS)
        is_apart = self.schema.is_apart("tags")
        columns: Mapping[str, NDArray[Any]] = {
            **({} if is_apart else {"tags": make_tags()}),
            "ts": self._times_ms(places),
            **dict(zip(METRICS, metrics.view(np.int32), strict=True)),
        }
        if is_apart:
            columns = LazyColumns(columns, {"tags": make_tags})
        return EventBlock(self.schema, worker, first, columns, devices)

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        devices = device_ids(workers, numbers % self.device_spread)
        return devices, self._times_ms(numbers)

    def _times_ms(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return FIRST_TIMESTAMP_MS + numbers * (INTERVAL_MS * self.clock_factor)

    def _tags(
        self, worker: int, numbers: NDArray[np.int64], devices: NDArray[np.bytes_]
    ) -> NDArray[np.bytes_]:
        """The tags of each event's host. A single host's document is stored once, for all rows."""
        if self.device_spread <= _ATTRIBUTES_PERIOD:
            documents = _documents(worker, self.device_spread, self.extra_tags)
            if len(documents) == 1:
                return np.broadcast_to(documents, numbers.shape)
            length = round_up_dealt(self.device_spread, len(numbers))
            if length * documents.itemsize > _MOST_DEALT_BYTES:
                return documents[numbers % self.device_spread]
            start = int(numbers[0]) % self.device_spread if len(numbers) else 0
            dealt = _dealt_documents(worker, self.device_spread, self.extra_tags, length)
            return dealt[start : start + len(numbers)]
        # Too many documents to keep: the name is written into one with the same attributes.
        texts, places = _nameless_documents(self.extra_tags)
        hosts = numbers % self.device_spread
        alike = (worker * _WORKERS_APART + hosts) % _ATTRIBUTES_PERIOD
        tags = texts[alike]
        octets = tags.view(np.uint8).reshape(len(tags), tags.itemsize)
        names = devices.view(np.uint8).reshape(len(devices), devices.itemsize)
        places = places[alike]
        for place in set(places[:_ATTRIBUTES_PERIOD].tolist()):
            rows = np.flatnonzero(places == place)
            octets[rows, place : place + names.shape[1]] = names[rows]
        return tags


@lru_cache(maxsize=4)
def _documents(worker: int, hosts: int, extra_tags: int) -> NDArray[np.bytes_]:
    """The tags of each of a worker's hosts, as JSON."""
    return np.array(
        [
            _document(f"w{worker:05d}d{host:06d}", worker * _WORKERS_APART + host, extra_tags)
            for host in range(hosts)
        ]
    )


@lru_cache(maxsize=2)
def _dealt_documents(worker: int, hosts: int, extra_tags: int, length: int) -> NDArray[np.bytes_]:
    """`length` tags: those of all hosts in turn. Blocks are slices of it: copying took as long as the
    metrics."""
    tags = np.resize(_documents(worker, hosts, extra_tags), length)
    tags.flags.writeable = False
    return tags


@lru_cache(maxsize=1)
def _nameless_documents(extra_tags: int) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
    """Tags without a name, by number modulo `_ATTRIBUTES_PERIOD`, and where the host's name belongs in
    each."""
    name = "w" + "?" * 12
    texts = [_document(name, number, extra_tags) for number in range(_ATTRIBUTES_PERIOD)]
    return np.array(texts), np.array([text.index(name.encode()) for text in texts])


def _document(name: str, number: int, extra_tags: int) -> bytes:
    """The tags of a host, as JSON."""
    region = _REGIONS[number % len(_REGIONS)]
    attributes = {
        "arch": ("x64", "arm64")[number % 2],
        "datacenter": region + "abc"[number // 6 % 3],
        "hostname": name,
        "os": _SYSTEMS[number // 2 % len(_SYSTEMS)],
        "rack": str(number % 100),
        "region": region,
        "service": str(number % 20),
        "service_environment": _ENVIRONMENTS[number // 3 % len(_ENVIRONMENTS)],
        "service_version": str(number // 20 % 2),
        "team": _TEAMS[number // 5 % len(_TEAMS)],
    }
    attributes |= {f"tag_{i:02d}": f"value_{(number + i) % 10}" for i in range(extra_tags)}
    return orjson.dumps(attributes)
