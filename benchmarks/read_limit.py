"""Readers against the thinnest client that can ask the same, on every system with a case.

    python -m benchmarks.read_limit [--quick] [SYSTEM…]

Without SYSTEM all whose variables say where a server is, and PostgreSQL, whose server comes with the Python
packages. For the variables see `insert_cases.SYSTEMS` and docs/contributing.md.

150,000 events of `machines` are stored (of a database that holds no texts but tags, without its texts), with
the indexes that queries go through. Ours is a reader's whole path: drawing parameters, encoding, sending,
receiving, recording. The thinnest client (`thin_readers`) sends requests that were made beforehand, with as
many in flight, and reads where their answers end: pgbench -M prepared, libpq's exec_prepared (QuestDB: of
binary answers), Python's http.client, or a raw socket, which knows no HTTP but where an answer ends. Each way
has processes of its own, as many as there are readers (pgbench a thread for each), which stay connected. They
take turns of some tenths of a second each, so that other work on the machine slows both, and begin
alternately. A line's ratio is that of the rates in these turns, with its 95 % interval. `everything` is one
answer with all 150,000 rows.

CPU is that of the readers' processes, without the server's, in µs: per question, and of `everything` per row.
It's the median over the turns, and its ratio that of the two CPUs in these turns. pgbench's has in it what
starting and connecting cost.

Goals, by the first way: a ratio >= 0.9 for `point` (PostgreSQL: >= 0.8 of pgbench), <= 100 µs of CPU for a
question of `point` (PostgreSQL and QuestDB 60; beside http.client <= 0.6 of its CPU instead, with one
reader), <= 0.3 µs for a row of `everything`. `--quick` takes a few turns of these two and is for any machine:
a ratio >= 0.6 and twice the CPU (beside http.client 0.75 of its). Where readers and server share the cores,
four readers are as fast as these cores let them be, whoever asks.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from cli.results.statistics import Ratio, estimate_ratio

from .read_cases import BLOCKING, CASES, EVENTS, EVERYTHING, SYSTEMS, Case, System
from .readers import Asked
from .support import conclude, run_systems, show
from .thin_readers import pgbench

OURS = "ours"
ROUNDS, QUICK_ROUNDS = 10, 3
TURN_S, QUICK_TURN_S = 0.5, 0.2
QUICK_GOAL, SLACK = 0.6, 2
CPU_GOAL, QUICK_CPU_GOAL = 0.6, 0.75
"""The most of http.client's CPU for a question."""
ROW_US = 0.3
_LEAST, _MOST = 200, 50_000
"""Questions in a turn, unless answers are long: what a turn takes at its begin and end, a reader's run takes
once."""
_ENDS_IN_S = 10.0
_START_IN_S = 0.02
"""From telling the processes of a turn to its start."""


class Turn(NamedTuple):
    """What all readers of a way did in a turn, together."""

    questions: int
    wall_s: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Questions per second."""
        return self.questions / self.wall_s

    @property
    def us(self) -> float:
        """CPU per question."""
        return self.cpu_s / self.questions * 1e6


class Crew:
    """The processes of a way, connected."""

    def __init__(self, way: str, system: str, dsn: str, case: Case) -> None:
        # On a busy machine each would take seconds to import what this one has.
        context = multiprocessing.get_context("fork")
        self._readers = case.readers
        self._pipes: list[Any] = []
        self._processes = []
        # pgbench has all readers in one.
        for number in range(1 if SYSTEMS[system].by(way) is pgbench else case.readers):
            ours, theirs = context.Pipe()
            arguments = [theirs, way, system, dsn, case, number]
            process = context.Process(target=_live, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            self._hear(pipe)

    def _hear(self, pipe: Any) -> Any:
        try:
            return pipe.recv()
        except EOFError as error:
            raise RuntimeError("a reader failed: see above") from error

    def take_turn(self, count: int) -> Turn:
        """Let each reader ask so many questions."""
        start_s = time.perf_counter() + _START_IN_S
        for pipe in self._pipes:
            pipe.send((count, start_s))
        answers = [self._hear(pipe) for pipe in self._pipes]
        ended_s = max(end_s for end_s, _, _ in answers)
        outcomes: list[Asked] = [outcome for _, _, outcome in answers]
        wall_s = ended_s - start_s if outcomes[0].wall_s is None else outcomes[0].wall_s
        cpu_s = sum(cpu if outcome.cpu_s is None else outcome.cpu_s for _, cpu, outcome in answers)
        return Turn(count * self._readers, wall_s, cpu_s)

    def close(self) -> None:
        """End them."""
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(None)
            pipe.close()
        for process in self._processes:
            process.join(_ENDS_IN_S)
            process.terminate()
            process.join()


def _live(pipe: Any, way: str, system: str, dsn: str, case: Case, number: int) -> None:
    """A process of a crew."""
    database = SYSTEMS[system]
    # What the server was asked by one way is answered sooner to the other: parameters follow from numbers.
    own = number if way == OURS else case.readers + number
    with database.by(way)(database.reader(dsn, case, own)) as prepare:
        pipe.send(None)
        # Its end of the pipe isn't the only one: those that were made later have it, too.
        while (message := pipe.recv()) is not None:
            count, start_s = message
            ask = prepare(count)
            time.sleep(max(0.0, start_s - time.perf_counter()))
            cpu_s = time.process_time()
            outcome = ask()
            ended_s = time.perf_counter()
            pipe.send((ended_s, time.process_time() - cpu_s, outcome))


@contextmanager
def open_crew(way: str, system: str, dsn: str, case: Case) -> Iterator[Crew]:
    """A way's processes."""
    crew = Crew(way, system, dsn, case)
    try:
        yield crew
    finally:
        crew.close()


@dataclass
class Line:
    """A case beside a thinnest client, and what each way did in its turns."""

    case: Case
    beside: str
    turns: dict[str, list[Turn]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ratio(self) -> Ratio:
        """Our rate ÷ the thinnest client's."""
        ours, thin = ([turn.rate for turn in self.turns[way]] for way in (OURS, self.beside))
        return estimate_ratio(ours, thin)

    def rate(self, way: str) -> float:
        """Questions per second."""
        return median(turn.rate for turn in self.turns[way])

    def us(self, way: str) -> float:
        """CPU per question."""
        return median(turn.us for turn in self.turns[way])

    @property
    def cpu_ratio(self) -> Ratio:
        """Our CPU ÷ the thinnest client's."""
        ours, thin = ([turn.us for turn in self.turns[way]] for way in (OURS, self.beside))
        return estimate_ratio(ours, thin)

    @property
    def row_us(self) -> float | None:
        """Our CPU per row of long answers; None for others."""
        return self.us(OURS) / EVENTS if self.case.is_long else None


def measure_line(system: str, dsn: str, line: Line, quick: bool) -> None:
    """Take all turns, which begin alternately."""
    turn_s, rounds = (QUICK_TURN_S, QUICK_ROUNDS) if quick else (TURN_S, ROUNDS)
    case = line.case
    with (
        open_crew(OURS, system, dsn, case) as ours,
        open_crew(line.beside, system, dsn, case) as thin,
    ):
        crews = {OURS: ours, line.beside: thin}
        # The first turns say how many questions fit into one, and warm all up.
        first = case.in_flight * (1 if case.is_long else 3)
        rates = [crew.take_turn(first).rate for crew in crews.values()]
        rates = [
            crew.take_turn(_count(rate * turn_s / 2, case)).rate
            for crew, rate in zip(crews.values(), rates, strict=True)
        ]
        count = _count(max(rates) * turn_s, case)
        for number in range(rounds):
            for way, crew in list(crews.items())[:: 1 if number % 2 else -1]:
                line.turns[way].append(crew.take_turn(count))


def _count(all_questions: float, case: Case) -> int:
    """Questions of each reader: a multiple of those in flight."""
    least = 0 if case.is_long else _LEAST / case.readers
    each = min(max(all_questions / case.readers, least), _MOST)
    return max(1, round(each / case.in_flight)) * case.in_flight


HEADERS = (
    "Query", "Beside", "Readers", "In flight", "Ours/s", "Thinnest/s", "Ratio", "95% interval", "CPU µs",
    "Thinnest's", "Ratio", "µs/row",
)  # fmt: skip


def list_cells(line: Line) -> list[str]:
    """The cells under `HEADERS`."""
    case, ratio = line.case, line.ratio
    interval = "-" if ratio.interval is None else "{:.2f} to {:.2f}".format(*ratio.interval)
    return [
        case.query,
        line.beside,
        str(case.readers),
        str(case.in_flight),
        *(f"{line.rate(way):,.0f}" for way in (OURS, line.beside)),
        f"{ratio.value:.2f}",
        interval,
        *(f"{line.us(way):,.1f}" for way in (OURS, line.beside)),
        f"{line.cpu_ratio.value:.2f}",
        "-" if line.row_us is None else f"{line.row_us:.3f}",
    ]


def judge(name: str, system: System, lines: Sequence[Line], quick: bool) -> int:
    """Hold the lines that have goals against them, and print the last line; the exit status."""
    goal, slack = (QUICK_GOAL, SLACK) if quick else (system.goal, 1)
    first = next(iter(system.thinnest))
    points = [line for line in lines if line.case.query == "point" and line.beside == first]
    ratio = min(point.ratio.value for point in points)
    us = points[0].us(OURS)
    row_us = max(line.row_us for line in lines if line.row_us is not None)
    if system.goal_us is None:
        cpu, most = points[0].cpu_ratio.value, QUICK_CPU_GOAL if quick else CPU_GOAL
        cost = f"{us:.1f} µs of CPU for a question, {cpu:.2f} of its"
    else:
        cpu, most = us, slack * system.goal_us
        cost = f"{us:.1f} µs of CPU for a question"
    met = ratio >= goal and cpu <= most and row_us <= slack * ROW_US
    return conclude(
        f"read_limit {name}: point {ratio:.2f} of {first} (goal >= {goal:g}), {cost} (goal <= {most:g}),"
        f" {row_us:.2f} µs for a row of a long answer (goal <= {slack * ROW_US:g})",
        met,
    )


def measure(name: str, quick: bool) -> int:
    """Measure all lines of a system; 0 if its goals are met."""
    system = SYSTEMS[name]
    if missing := system.missing:
        return conclude(f"{name}: no server: set {', '.join(missing)}", met=False)
    lines = [
        Line(case, beside)
        for case in CASES
        for beside in system.thinnest
        if beside not in BLOCKING or case.in_flight == 1
    ]
    if quick:
        lines = [line for line in lines if line.case.query in ("point", EVERYTHING)]
    with system.server.server() as dsn, system.stored(dsn):
        for line in lines:
            measure_line(name, dsn, line, quick)
    show(HEADERS, list(map(list_cells, lines)), texts=2)
    return judge(name, system, lines, quick)


def main() -> int:
    """Measure the systems; 0 if all goals are met."""
    return run_systems(__doc__, SYSTEMS, measure)


if __name__ == "__main__":
    sys.exit(main())
