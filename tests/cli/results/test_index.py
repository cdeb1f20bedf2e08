"""The index of a folder with results: each result is read once, and a list is the same as without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import commands
from cli.results import index, store
from cli.results.index import FEWEST, list_entries
from cli.results.store import FILE_NAME, open_result, open_results
from simulator.documents import read_file

from ..made import inserts

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path(".cache", "iot-database-benchmark", "results")
MANY = FEWEST + 10


@dataclass
class Kept:
    """A folder with results, the user's home, and what was read since somebody asked."""

    home: Path
    reads: list[str]

    @property
    def folder(self) -> Path:
        return self.home / "results"

    @property
    def file(self) -> Path:
        """The index."""
        (path,) = (self.home / CACHE).glob("*.json")
        return path

    def add(self, number: int, label: str = "usual") -> Path:
        """Add a result; returns its file."""
        at = f"2025-01-{1 + number // 24:02}T{number % 24:02}:00:00+00:00"
        result = inserts({1: [1000.0 + number]}, started_at=at, label=label)
        file = self.folder / f"{number:03}-insert-alpha" / FILE_NAME
        file.parent.mkdir(parents=True)
        file.write_text(result.model_dump_json())
        return file

    def add_many(self, number: int = MANY) -> None:
        for each in range(number):
            self.add(each)

    def show(self, *options: str) -> list[str]:
        """The lines of a list, without that of the headings."""
        arguments = ["results", *options, "--results", str(self.folder)]
        shown = CliRunner().invoke(commands, arguments, catch_exceptions=False)
        assert shown.exit_code == 0, shown.output
        return shown.stdout.splitlines()[1:]

    def take_reads(self) -> list[str]:
        """IDs of the results that were read since the last time."""
        taken = sorted(self.reads)
        self.reads.clear()
        return taken

    def start_list(self, bound: str = "") -> subprocess.Popen[str]:
        """A list by a process of its own, which a shell has bound before."""
        command = [sys.executable, str(ROOT / "run.py"), "results", "--results", str(self.folder)]
        return subprocess.Popen(
            ["/bin/sh", "-c", f'{bound}\nexec "$@"', "sh", *command],
            env=os.environ | {"HOME": str(self.home)},
            cwd=self.home,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    results = Kept(tmp_path, [])

    def read(path: Path, most_bytes: int) -> bytes:
        results.reads.append(path.parent.name)
        return read_file(path, most_bytes)

    monkeypatch.setattr(store, "read_file", read)
    monkeypatch.setattr(index, "OWN", tmp_path / CACHE)
    return results


def test_each_result_is_read_once(kept: Kept) -> None:
    kept.add_many(300)
    first = kept.show()
    assert len(first) == len(kept.take_reads()) == 300
    assert first[7].split()[:2] == ["007-insert-alpha", "2025-01-01"]
    assert "1,007 inserts/s with 1 worker" in first[7]
    assert kept.show() == first
    assert kept.show("--last", "2", "--target", "alpha") == first[-2:]
    assert kept.take_reads() == []


def test_a_result_is_opened_without_reading_the_others(kept: Kept) -> None:
    kept.add_many()
    kept.add(90, "mine")
    kept.add(91, "mine")
    kept.add(89)
    kept.show()
    kept.take_reads()
    for name in ("latest", "mine"):
        assert open_result(name, kept.folder).id == "091-insert-alpha"
        assert kept.take_reads() == ["091-insert-alpha"]
    # What came since the last list isn't overlooked.
    kept.add(95, "mine")
    assert open_result("mine", kept.folder).id == "095-insert-alpha"
    assert set(kept.take_reads()) == {"095-insert-alpha"}


def test_latest_of_a_folder_that_was_never_listed(kept: Kept) -> None:
    kept.add_many()
    assert open_result("latest", kept.folder).id == f"{MANY - 1:03}-insert-alpha"
    kept.take_reads()
    assert open_result("latest", kept.folder).id == f"{MANY - 1:03}-insert-alpha"
    assert kept.take_reads() == [f"{MANY - 1:03}-insert-alpha"]
    # A list shows more than is needed to find the newest.
    assert f"{1000 + MANY - 1:,} inserts/s" in kept.show()[-1]


def test_many_results_are_found_by_looking_once(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.add_many()
    looked = []

    def count_look(folder: Path, missing_ok: bool = False) -> dict[str, os.stat_result]:
        looked.append(folder)
        return list_entries(folder, missing_ok)

    monkeypatch.setattr(store, "list_entries", count_look)
    names = ["003", "017-insert", "042-insert-alpha"]
    results = open_results(names, kept.folder)
    assert [result.id[:3] for result in results] == ["003", "017", "042"]
    assert looked == [kept.folder]


def test_what_changed_is_read_anew(kept: Kept) -> None:
    kept.add_many()
    before = kept.show()
    kept.take_reads()
    kept.add(80)
    (kept.folder / "003-insert-alpha" / FILE_NAME).unlink()
    # As long as it was, and of the same time.
    changed = kept.folder / "005-insert-alpha" / FILE_NAME
    was = changed.stat()
    changed.write_text(changed.read_text().replace('"label":"usual"', '"label":"other"'))
    os.utime(changed, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert changed.stat().st_size == was.st_size
    after = kept.show()
    assert kept.take_reads() == ["005-insert-alpha", "080-insert-alpha"]
    assert len(after) == MANY
    assert "other" in after[4] and after[4] == before[5].replace("usual", "other")
    assert not any(line.startswith("003") for line in after)
    assert len(json.loads(kept.file.read_text())) == MANY


def test_what_can_not_be_read_is_named_each_time(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.add_many()
    (kept.folder / "005-insert-alpha" / FILE_NAME).write_text("{")
    for reads in (MANY, 1):
        assert len(kept.show()) == MANY - 1
        assert len(kept.take_reads()) == reads
    (kept.folder / "004-insert-alpha" / FILE_NAME).write_text("{")
    shown = CliRunner().invoke(commands, ["results", "--results", str(kept.folder)])
    assert [line.split(" is ")[0] for line in shown.stderr.splitlines()] == [
        f"skipped: {kept.folder / name / FILE_NAME}"
        for name in ("004-insert-alpha", "005-insert-alpha")
    ]


def test_few_results_need_no_index(kept: Kept) -> None:
    kept.add_many(FEWEST - 1)
    assert len(kept.show()) == FEWEST - 1
    assert not (kept.home / CACHE).exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"[1, 2]",
        lambda content: content[: len(content) // 2],
        lambda content: content[:4096] + bytes(len(content) - 4096),
    ],
    ids=["empty", "another file", "half", "zeros"],
)
def test_a_broken_index_is_replaced(kept: Kept, damage: Callable[[bytes], bytes]) -> None:
    kept.add_many()
    before = kept.show()
    kept.take_reads()
    kept.file.write_bytes(damage(kept.file.read_bytes()))
    assert kept.show() == before
    assert len(kept.take_reads()) == MANY
    assert kept.show() == before
    assert kept.take_reads() == []


def test_lines_that_are_none_are_read_anew(kept: Kept) -> None:
    kept.add_many()
    before = kept.show()
    lines = json.loads(kept.file.read_text())
    lines["001-insert-alpha"][1] = "{"
    lines["002-insert-alpha"][1] = {"what": 1}
    lines["003-insert-alpha"] = 5
    kept.file.write_text(json.dumps(lines))
    kept.take_reads()
    assert kept.show() == before
    assert kept.take_reads() == [f"00{number}-insert-alpha" for number in (1, 2, 3)]


def test_without_a_place_for_an_index_results_are_read(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.add_many()
    (kept.home / ".cache").write_text("in the way")
    for place in (kept.home / CACHE, Path("~nobody-of-that-name", "results")):
        monkeypatch.setattr(index, "OWN", place)
        for _ in range(2):
            assert len(kept.show()) == MANY
            assert len(kept.take_reads()) == MANY


def test_a_folder_that_is_only_read_stays_as_it_is(kept: Kept) -> None:
    kept.add_many()
    names = sorted(path.name for path in kept.folder.iterdir())
    kept.folder.chmod(0o555)
    try:
        before = kept.show()
        kept.take_reads()
        assert kept.show() == before
        assert kept.take_reads() == []
    finally:
        kept.folder.chmod(0o755)
    assert sorted(path.name for path in kept.folder.iterdir()) == names


def test_another_version_of_the_tool_reads_anew(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.add_many()
    kept.show()
    kept.take_reads()
    for name in ("cli", "simulator"):
        (kept.home / "code" / name).mkdir(parents=True)
        (kept.home / "code" / name / "part.py").write_text("")
    monkeypatch.setattr(index, "PACKAGES", kept.home / "code")
    for reads in (MANY, 0):
        kept.show()
        assert len(kept.take_reads()) == reads
    os.utime(kept.home / "code" / "cli", (2_000_000_000, 2_000_000_000))
    kept.show()
    assert len(kept.take_reads()) == MANY


def test_two_commands_at_once_and_a_full_disk(kept: Kept) -> None:
    kept.add_many()
    with kept.start_list() as first, kept.start_list() as second:
        answers = [process.communicate() for process in (first, second)]
    assert answers[0] == answers[1]
    shown, errors = answers[0]
    assert len(shown.splitlines()) == 1 + MANY and errors == ""
    assert kept.show() == shown.splitlines()[1:]
    assert kept.take_reads() == []
    # No room for the index, of which a part is written: some 60 kB.
    kept.file.unlink()
    with kept.start_list("ulimit -f 32") as bounded:
        assert bounded.communicate() == answers[0]
    assert kept.show() == shown.splitlines()[1:]
    assert len(kept.take_reads()) == MANY
    assert all((path / FILE_NAME).exists() for path in kept.folder.iterdir())
