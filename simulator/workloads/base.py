"""What a workload is: a schema and a function from (seed, worker, event number) to events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from threading import get_ident
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from ..conditions import Condition, Written
from ..errors import OptionError
from .common_queries import describe_queries, name_queries
from .queries import Query
from .random_streams import multiply_high
from .schema import (
    DEVICES_APART,
    ID,
    EventBlock,
    Schema,
    Tags,
    join_blocks,
    number_devices,
)

MAX_DEVICES = DEVICES_APART
MAX_CLOCK_FACTOR = 10**7
CLOCK_FACTOR = "clock_factor"
"""The option of all workloads by which their clock is compressed."""

SHARING_WORKERS = "sharing_workers"
"""The option of a workload with devices in all that says how many workers share them."""

SCATTERED = 256
"""For fewer consecutive events than this, `pick` is faster by single events."""

_DEALT_STEP = 16_384
_DEVICE_ROWS = 10_000


class WorkloadOptions(Written):
    """Options of a workload: keys of a target and of `--extra-option`, as a module's are."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    device_spread: int = Field(
        1, ge=1, le=MAX_DEVICES, description="devices per worker; they get events in turn"
    )
    clock_factor: Annotated[int, Condition.WORKLOAD] = Field(
        1,
        ge=1,
        le=MAX_CLOCK_FACTOR,
        description="factor on the workload's time between a device's events, so that days pass"
        " in a run of a minute",
    )
    tags: Annotated[Tags, Condition.SCHEMA] = Field(
        Tags.ROW,
        description="where a device's name and tags are stored: row (with each event) or table"
        " (once per device in a separate table, if the database has joins)",
    )


class Workload(ABC):
    """Generates events: event i of worker w depends on (seed, w, i) alone.

    So the same event comes out in any process and any block size, and a run can be repeated,
    continued and checked. The option `device_spread` is the number of devices per worker; event i
    belongs to device i modulo `device_spread`.
    """

    name: ClassVar[str]
    options_model: ClassVar[type[WorkloadOptions]] = WorkloadOptions
    schema: Schema
    """An instance's own. The class has the one that goes with the default options."""
    queries: ClassVar[tuple[Query, ...]] = ()
    """What is asked of it beside the queries that all workloads have. The schema gets their names."""
    high: ClassVar[tuple[str, float] | None] = None
    """A field and a value that few of its values exceed: what conditions of queries ask for."""
    event_interval_ms: ClassVar[float] = 1000
    """The mean time from one event of a worker to the next, if its devices take turns."""
    disorder: int = 4096
    """How many events of a worker may lie between two that aren't in the order of time, at most."""

    def __init_subclass__(cls) -> None:
        """Raises OptionError if a query can't be asked of the workload's events."""
        super().__init_subclass__()
        if "block" in cls.__dict__ and "locate" not in cls.__dict__:
            # What a base class knows of events holds for blocks as the base class makes them.
            cls.locate = Workload.locate  # type: ignore[method-assign]
        if "schema" not in cls.__dict__:
            return
        schema = cls.schema
        for query in cls.queries:
            schema.check_query(query)
        names = name_queries(cls.queries) or schema.queries
        described = describe_queries(cls.queries, schema, cls.event_interval_ms, cls.high)
        cls.schema = replace(schema, queries=names, descriptions=described)

    def __init__(self, seed: int = 0, **options: Any) -> None:
        """Raises ValueError (pydantic's, if it is about the options) if one is out of range."""
        if not 0 <= seed < 2**64:
            raise ValueError("seed must be from 0 to 2**64 - 1")
        self.seed = seed
        self.options = self.options_model.model_validate(options)
        self.device_spread = self.options.device_spread
        self.clock_factor = self.options.clock_factor
        schema = type(self).schema
        interval_ms = self.device_interval_ms
        self.schema = replace(
            schema,
            devices_per_worker=self.device_spread,
            descriptions=describe_queries(self.queries, schema, interval_ms, self.high),
            tags=self.options.tags,
        )
        if self.options.tags is Tags.TABLE and any(column.name == ID for column in schema.columns):
            raise OptionError(
                f"workload {self.name} has a column {ID}, which tags=table makes: rename it"
            )

    def remake(self, **changes: Any) -> Workload:
        """The same workload with some other options."""
        return type(self)(self.seed, **self.options.model_dump() | changes)

    @classmethod
    def begins_now(cls, options: WorkloadOptions) -> bool:
        """Whether its first event is to have the time of the command that inserts it."""
        return False

    @classmethod
    def begin_at(cls, options: WorkloadOptions, now_ms: int) -> WorkloadOptions:
        """The options, with this time for the beginning of a workload that begins now."""
        return options

    @property
    def late_share(self) -> float:
        """Share of the events that are to come late."""
        return 0.0

    def find_late_share(self, worker: int, first: int, count: int) -> float:
        """Share of these events of a worker that are sent late: behind others of a later time."""
        return 0.0

    @property
    def device_interval_ms(self) -> float:
        """The mean time from one event of a device to the next."""
        return self.event_interval_ms * self.clock_factor * self.device_spread

    @abstractmethod
    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        """Events [first, first + count) of a worker. Event `time_origin` gets the first timestamp."""

    def pick(self, worker: int, numbers: NDArray[np.int64]) -> EventBlock:
        """Single events of a worker, one at least, by numbers that rise: those of `block`, but none is late.
        Consecutive numbers are made at once here. A class that has another way for scattered ones overrides
        this."""
        runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
        return join_blocks([self.block(worker, int(run[0]), len(run)) for run in runs])

    def order_until(self, tick: int) -> None:  # noqa: B027 - without late events there is nothing to do
        """Let late events begin with this tick of the devices: older ones are asked for by `pick` alone."""

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        """Device and time (ms) of single events, one at least: number `numbers[i]` of worker `workers[i]`, as
        `block` makes it. A class that overrides it knows them without making everything else."""
        blocks = [
            self.block(worker, number, 1)
            for worker, number in zip(workers.tolist(), numbers.tolist(), strict=True)
        ]
        times = np.concatenate([block.columns[self.schema.time] for block in blocks])
        return np.concatenate([block.devices for block in blocks]), times

    @property
    def instants_are_distinct(self) -> bool:
        """Whether no device has two events of one time."""
        return set(self.schema.key) <= {self.schema.device, self.schema.time}

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        """Ids of the worker's devices, all of one width, each with the worker's number in it."""
        return _device_ids(worker, self.device_spread)

    def device_count(self, worker: int) -> int:
        """How many devices the worker has."""
        return self.device_spread

    def device_rows(self, worker: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        """The columns of `Schema.tags_row` of all of the worker's devices, some thousand at a time.

        OptionError if the devices are not named as those of this class.
        """
        count = self.device_count(worker)
        for first in range(0, count, _DEVICE_ROWS):
            columns = self._describe_devices(worker, first, min(_DEVICE_ROWS, count - first))
            names = self.devices(worker)[first : first + _DEVICE_ROWS]
            ids = number_devices(names)
            owner, numbers = int(ids[0]) // DEVICES_APART, ids % DEVICES_APART
            if not np.array_equal(device_ids(owner, numbers), names):
                raise OptionError(
                    f"workload {self.name} has device names unlike w00007d000042: use tags=row"
                )
            yield {ID: ids, **columns}

    def _describe_devices(self, worker: int, first: int, count: int) -> Mapping[str, NDArray[Any]]:
        """Name and tags of devices [first, first + count) of a worker. This is right if events are dealt
        to devices in turn."""
        block = self.block(worker, first, count)
        return {column.name: block.columns[column.name] for column in self.schema.tags_row[1:]}

    def dealt_devices(self, worker: int, first: int, count: int) -> NDArray[np.bytes_]:
        """The device id of each event of [first, first + count): a view, not to be written to."""
        start = first % self.device_spread
        length = round_up_dealt(self.device_spread, count)
        return _dealt_device_ids(worker, self.device_spread, length)[start : start + count]


def device_ids(workers: int | NDArray[np.int64], devices: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """The id of each device, by number: w00007d000042. `workers`: the worker of all devices, or of each."""
    text = np.empty((len(devices), 13), dtype=np.uint8)
    text[:, 0], text[:, 6] = b"wd"
    digits = _three_digits()
    text[:, 1:3] = digits[np.floor_divide(workers, 1000), 1:]
    text[:, 3:6] = digits[np.remainder(workers, 1000)]
    thousands = devices // 1000
    text[:, 7:10] = digits[thousands]
    text[:, 10:] = digits[devices - 1000 * thousands]
    return text.view("S13").reshape(len(devices))


@cache
def _three_digits() -> NDArray[np.uint8]:
    """The digits of each number below 1000: shape (1000, 3)."""
    text = b"".join(b"%03d" % number for number in range(1000))
    return np.frombuffer(text, dtype=np.uint8).reshape(1000, 3)


def round_up_dealt(spread: int, count: int) -> int:
    """How many of what is dealt in turn are kept for blocks of so many events: rounded up, so that blocks of
    different lengths share one cached array."""
    return spread + -(-count // _DEALT_STEP) * _DEALT_STEP


@lru_cache(maxsize=4)
def _device_ids(worker: int, count: int) -> NDArray[np.bytes_]:
    return device_ids(worker, np.arange(count, dtype=np.int64))


@lru_cache(maxsize=4)
def _dealt_device_ids(worker: int, spread: int, length: int) -> NDArray[np.bytes_]:
    """`length` ids: all of them in turn, over and over.

    Blocks are slices of it: looking up each event's id would cost as much CPU as everything else
    in generating events.
    """
    ids = np.resize(_device_ids(worker, spread), length)
    ids.flags.writeable = False
    return ids


# Random numbers of each event, without those of the events before it.


def random_words(seed: int, worker: int, first: int, count: int, words: int) -> NDArray[np.uint64]:
    """`words` random 64-bit numbers for each event of [first, first + count): shape (count, words).

    Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) is a
    function of key and counter, so any event's numbers are computed without those before it. Its
    raw output is covered by numpy's stream compatibility promise.
    """
    skipped_blocks, skipped_words = divmod(first * words, 4)
    raw = _stream(seed, worker, get_ident()).words(skipped_blocks, skipped_words + count * words)
    return raw[skipped_words:].reshape(count, words)


def random_word(
    seed: int, workers: int | NDArray[np.int64], numbers: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The random numbers of single events, as `random_words` has them with one for each event. `workers`: the
    worker of all events, or of each.

    Moving numpy's generator to each would take microseconds, so the rounds are made here.
    """
    blocks, places = np.divmod(numbers, 4)
    # Of the four words of a counter, the first and third are multiplied, and make the others.
    multiplied = np.zeros((2, len(numbers)), dtype=np.uint64)
    multiplied[0] = blocks + 1  # numpy's counter of the first block is 1
    others = np.zeros_like(multiplied)
    keys = np.empty_like(multiplied)
    keys[0], keys[1] = seed, workers
    for _ in range(_ROUNDS):
        upper = multiply_high(multiplied, _FACTORS)
        lower = multiplied * _FACTORS
        multiplied = upper[::-1] ^ others ^ keys
        others = lower[::-1]
        keys += _KEY_STEPS
    words = np.stack([multiplied[0], others[0], multiplied[1], others[1]])
    return words[places, np.arange(len(numbers))]


_ROUNDS = 10
_FACTORS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], dtype=np.uint64)
_KEY_STEPS = np.array([[0x9E3779B97F4A7C15], [0xBB67AE8584CAA73B]], dtype=np.uint64)


class _Stream:
    """A generator that is moved to the place from which numbers are wanted.

    Making a new one takes as long as generating a thousand events, since numpy asks the system for a
    seed even if it's given a key.
    """

    def __init__(self, seed: int, worker: int) -> None:
        self._generator = np.random.Philox(key=np.array([seed, worker], dtype=np.uint64))
        self._block = 0

    def words(self, block: int, count: int) -> NDArray[np.uint64]:
        """`count` numbers, beginning with those of a block of four."""
        self._generator.advance(block - self._block)
        words: NDArray[np.uint64] = self._generator.random_raw(count)
        self._block = block + -(-count // 4)
        return words


@lru_cache(maxsize=16)
def _stream(seed: int, worker: int, _thread: int) -> _Stream:
    return _Stream(seed, worker)
