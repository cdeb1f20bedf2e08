"""The first table of the repository's README, made of `comparison/results/fleet`: `make comparison-table`.

Nothing is put there as long as there are no results; `tests/test_comparison.py` holds both together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean

from cli.results.model import Result
from cli.results.store import list_results
from cli.results.summaries import weigh_together
from simulator.documents import read_json
from simulator.units import format_digits

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "comparison" / "results" / "fleet"
BEGIN, END = "<!-- comparison: made by `make comparison-table` -->", "<!-- comparison: end -->"
_PLACE = re.compile(r"\A# .*?\n\n.*?\n\n(?:.*?^## The comparison\n\n)?", re.DOTALL | re.MULTILINE)
"""The front page up to its heading for the table; of a page without one the heading and first paragraph."""


def read_inserts(result: Result) -> float | None:
    """Events per second, in batches, as fast as it takes them."""
    return result.best.median if result.best else None


def read_capacity(result: Result) -> float | None:
    """The most events per second within the limit."""
    return result.capacity.events_per_s if result.capacity else None


def read_questions(result: Result) -> float | None:
    """Milliseconds: the geometric mean of the questions' medians."""
    times = [one.median for one in result.query_summary if one.median > 0]
    return 1000 * take_mean(times) if times else None


def read_size(result: Result) -> float | None:
    """Bytes that an event takes, by growth."""
    return weigh_together(result.writers).bytes_per_event


def read_outage(result: Result) -> float | None:
    """Seconds without an acknowledgement after the fault."""
    gaps = [outage.gap_s for one in result.writers for outage in one.group.outages]
    return max(gaps, default=None)


def read_losses(result: Result) -> float | None:
    """Acknowledged events that were gone afterwards."""
    found = [one.group.lookup for one in result.writers if one.group.lookup]
    missing = [one.missing for one in found if one.missing is not None]
    return float(sum(missing)) if missing else None


COLUMNS: Mapping[str, tuple[str, Callable[[Result], float | None]]] = {
    "inserts/s": ("fill", read_inserts),
    "carries at p99 ≤ 100 ms, events/s": ("capacity", read_capacity),
    "ten questions, ms": ("questions", read_questions),
    "bytes/event": ("fill", read_size),
    "away after SIGKILL, s": ("kill", read_outage),
    "acknowledged and lost": ("kill", read_losses),
}
"""Heading -> the step that it is from, and how it is read."""


def take_mean(values: Sequence[float]) -> float:
    """The geometric one; of values with a zero the arithmetic one."""
    if min(values) <= 0:
        return fmean(values)
    return geometric_mean(values)


def make_table(folder: Path) -> str:
    """The table in Markdown, with the sentences that belong to it. Each cell: the mean of the repetitions,
    and their range."""
    plan = read_json(folder / "plan.json")
    found: dict[str, dict[str, list[float]]] = {}
    stored = {one.result.label: one.result for one in list_results(folder / "results")}
    for job in plan["jobs"]:
        cells = found.setdefault(job["candidate"], {})
        result = stored.get(job["name"])
        for heading, (step, read) in COLUMNS.items():
            if result is not None and f" {step}" in job["name"].removeprefix(job["candidate"]):
                value = read(result)
                if value is not None:
                    cells.setdefault(heading, []).append(value)
    rows = [
        [name, *(_show(cells.get(heading, [])) for heading in COLUMNS)]
        for name, cells in found.items()
    ]
    lines = [["candidate", *COLUMNS], ["---"] * (len(COLUMNS) + 1), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{_describe(list(stored.values()))}"


def _show(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, low, high = (_format(value) for value in (take_mean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low} to {high})"


def _format(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else format_digits(value)


def _describe(results: Sequence[Result]) -> str:
    client = results[0].describe("client")
    cpus, model = client.get("cpus"), client.get("cpu_model")
    repeats = max(int((re.findall(r" (\d+)$", one.label or "") or ["1"])[0]) for one in results)
    return (
        f"Means and ranges of {repeats} repetitions. Database and client shared the {cpus} CPUs of one"
        f" machine ({model}): on a server of its own a database does more, and who needs few CPUs looks"
        " better here than there. Ranges that overlap show no difference. Durability is as each comes,"
        " unless the name says `disk`: see [the conditions](comparison/README.md), with every result."
    )


def put_into(page: str, block: str | None) -> str:
    """The page with this block in its place; None: without it."""
    page = re.sub(rf"{re.escape(BEGIN)}.*?{re.escape(END)}\n\n", "", page, flags=re.DOTALL)
    if block is None:
        return page
    return _PLACE.sub(lambda found: f"{found[0]}{BEGIN}\n{block}\n{END}\n\n", page, count=1)


def complete_page(page: str, results: Path = RESULTS) -> str:
    """The front page as it should be by what results there are."""
    return put_into(page, make_table(results) if results.is_dir() else None)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(complete_page(readme.read_text()))
    sys.stderr.write(f"{readme}: {'with' if RESULTS.is_dir() else 'without'} results\n")
