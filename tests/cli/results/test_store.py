"""Results: written whole, read back the same, summarised over what is valid."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cli.results.model import Result
from cli.results.store import (
    FILE_NAME,
    ResultFolder,
    UnreadableResult,
    list_results,
    open_result,
    read_result,
)
from cli.system.errors import EXIT_FAILED, EXIT_USAGE, ConfigError, RunFailed

from ...helpers import insert_run

STORED = Path(__file__).parents[1] / "stored"
STARTED = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
NAME = "20250102T030405Z-insert-embedded"


def result(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "command": "insert", "target": "embedded", "module": "postgres", "executor": "local",
        "started_at": STARTED.isoformat(), "options": {"workers": [4]}, "environment": {},
        "runs": [insert_run()],
    }  # fmt: skip
    return Result(**(values | changes))


def folder(output: Path) -> ResultFolder:
    return ResultFolder(output, STARTED, "insert", "embedded")


# --- writing and reading --------------------------------------------------------------------------


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    result_folder = folder(tmp_path / "new" / "results")
    assert result_folder.path == tmp_path / "new" / "results" / NAME
    file = result_folder.write(result(), None)
    assert file == result_folder.path / FILE_NAME
    assert read_result(result_folder.path) == read_result(file) == result()
    result_folder.close()
    assert sorted(path.name for path in result_folder.path.iterdir()) == ["logs", "result.json"]


@pytest.mark.parametrize(
    ("target", "name"), [("team/pg", "team-pg"), ("../x y", "..-x-y"), ("ü" * 300, "ü" * 60)]
)
def test_a_target_of_any_name_has_a_folder(tmp_path: Path, target: str, name: str) -> None:
    path = ResultFolder(tmp_path, STARTED, "insert", target).path
    assert path == tmp_path / f"20250102T030405Z-insert-{name}"


def test_the_format_is_the_documented_one(tmp_path: Path) -> None:
    written = json.loads(folder(tmp_path).write(result(), None).read_text())
    assert written["format"] == 2
    assert set(written) >= {
        "format", "command", "target", "module", "executor", "started_at", "options",
        "environment", "runs", "baseline", "insert_summary", "query_summary",
    }  # fmt: skip
    (run,) = written["runs"]
    assert set(run) >= {"run", "fill_level", "machines", "resources", "phases_s", "groups"}
    assert set(run["groups"][0]) >= {
        "role", "workers", "invalid_reasons", "count", "window_s", "rate_per_s",
        "rate_per_s_mean_duration", "overlap", "latency_ms", "histogram", "client", "retries", "errors",
        "verification", "timeline", "per_worker", "queries",
    }  # fmt: skip
    assert set(written["insert_summary"][0]) >= {
        "workers", "runs", "min", "max", "avg", "median", "ci95", "cv", "stable",
    }  # fmt: skip


def test_a_copy_is_the_same(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_text("what was there before")
    file = folder(tmp_path / "results").write(result(), copy)
    assert copy.read_text() == file.read_text()


def test_what_can_be_written_is_kept_where_it_can(tmp_path: Path) -> None:
    """Of a result and its copy, one may be on a disk that is full."""
    result_folder, copy = folder(tmp_path / "results"), tmp_path / "copy.json"
    file = result_folder.path / FILE_NAME
    file.mkdir()
    with pytest.raises(RunFailed) as failure:
        result_folder.write(result(), copy)
    problem, kept = str(failure.value).splitlines()
    assert str(file) in problem
    assert kept == f"The result is in {copy}"
    assert read_result(copy) == result()

    file.rmdir()
    copy.unlink()
    copy.mkdir()
    with pytest.raises(RunFailed, match=f"copy.json.*\nThe result is in {file}"):
        result_folder.write(result(), copy)
    assert read_result(file) == result()


def test_a_copy_to_a_device_does_not_replace_it(tmp_path: Path) -> None:
    folder(tmp_path).write(result(), Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_a_failed_write_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result_folder = folder(tmp_path / "results")
    file = result_folder.write(result(), None)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cli.system.output.os.fsync", full)
    with pytest.raises(
        RunFailed, match=r"can't write .*: No space left on device; make room, or .* another disk"
    ) as failed:
        result_folder.write(result(target="another"), None)
    assert failed.value.exit_code == EXIT_FAILED
    assert read_result(file) == result()
    assert sorted(path.name for path in result_folder.path.iterdir()) == ["logs", "result.json"]


def test_a_copy_that_can_not_be_written_does_not_cost_the_result(tmp_path: Path) -> None:
    result_folder = folder(tmp_path)
    with pytest.raises(RunFailed, match=r"can't write .*nowhere.*No such file or directory"):
        result_folder.write(result(), tmp_path / "nowhere" / "copy.json")
    assert read_result(result_folder.path) == result()


# --- what can't be read ---------------------------------------------------------------------------


def changed(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A stored result with something in it changed."""
    file = folder(tmp_path).write(result(), None)
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    return file


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d.update(format=3), "format 3, made by a newer version of this tool, "),
        (
            lambda d: d.update(format=7, environment={"tool": {"version": "3.1"}}),
            r"format 7, made by a newer version of this tool \(version 3.1\), .*update the tool",
        ),
        (lambda d: d.update(format=0), "format 0, which this tool doesn.t read"),
        (lambda d: d.update(format="2"), "format '2', which this tool doesn't read"),
        (lambda d: d.pop("format"), "has no `format`"),
        (lambda d: d.pop("target"), "damaged: target: field required"),
        (lambda d: d["runs"][0].pop("groups"), "damaged: runs.0.groups: field required"),
        (lambda d: d["runs"][0].update(rate=1), "runs.0.rate is not a field of format 2"),
        (
            lambda d: d["runs"][0]["groups"][0].update(workers="many"),
            "runs.0.groups.0.workers: input should be a valid int",
        ),
        (lambda d: d.update(command="query"), "damaged"),
        (lambda d: d.update(cost_per_hour=0), "cost_per_hour: input should be greater than 0"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_refused_with_the_reason(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    file = changed(tmp_path, change)
    with pytest.raises(UnreadableResult, match=reason) as refused:
        read_result(file)
    assert refused.value.exit_code == EXIT_USAGE
    assert str(file) in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged or not a result"),
        (b'{"format": 2, "comm', "damaged or not a result: .*line 1"),
        (b"[1, 2]", "has no `format`"),
        (b"\xff\xfe\x00", "not text"),
        (b"[" * 100_000, "damaged or not a result"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(content)
    with pytest.raises(UnreadableResult, match=reason):
        read_result(file)


def test_options_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    file = changed(tmp_path, lambda document: document["options"].update(steps="many"))
    with pytest.raises(UnreadableResult, match=r"is damaged: options.*steps"):
        read_result(file)


def test_an_option_that_a_result_lacks_is_not_at_its_default() -> None:
    settings = result(options={"workers": [4], "batch": 0}).settings
    assert settings.load.model_fields_set == {"batch"}
    assert settings.data.model_fields_set == set()
    assert settings.runs is None


# --- which one is meant ---------------------------------------------------------------------------


def stored(output: Path, hour: int, target: str = "embedded") -> Path:
    started = STARTED.replace(hour=hour)
    result_folder = ResultFolder(output, started, "insert", target)
    return result_folder.write(result(target=target, started_at=started.isoformat()), None).parent


def test_a_result_is_named_by_id_folder_or_file(tmp_path: Path) -> None:
    path = stored(tmp_path, 3)
    for name in (path.name, str(path), str(path / FILE_NAME), path.name[:12]):
        stored_result = open_result(name, tmp_path)
        assert (stored_result.id, stored_result.file, stored_result.result) == (
            NAME,
            path / FILE_NAME,
            result(),
        )


def test_a_file_elsewhere_is_known_by_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "mine.json"
    folder(tmp_path / "results").write(result(), copy)
    assert open_result(str(copy), tmp_path / "nowhere").id == "mine"


def test_an_id_is_found_though_a_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path / "results", 3)
    (tmp_path / path.name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert open_result(path.name, Path("results")).file == Path("results", path.name, FILE_NAME)


def test_an_ambiguous_beginning_is_refused(tmp_path: Path) -> None:
    for hour in (3, 4):
        stored(tmp_path, hour)
    with pytest.raises(ConfigError, match=r"2 results begin with 2025.*give more of the ID"):
        open_result("2025", tmp_path)
    assert open_result("20250102T04", tmp_path).id == NAME.replace("T03", "T04")


def test_a_whole_id_that_begins_another_is_meant_itself(tmp_path: Path) -> None:
    for _ in range(2):
        stored(tmp_path, 3)
    assert open_result(NAME, tmp_path).id == NAME
    assert open_result(f"{NAME}-2", tmp_path).id == f"{NAME}-2"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (NAME.replace("embedded", "embeded"), f"there is no result .*did you mean {NAME}"),
        ("zzz", "there is no result 'zzz' in"),
        ("", "name of a result is empty"),
    ],
)
def test_names_that_mean_nothing(tmp_path: Path, name: str, reason: str) -> None:
    stored(tmp_path, 3)
    with pytest.raises(ConfigError, match=reason):
        open_result(name, tmp_path)


def test_a_folder_without_a_result(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a folder without a result\.json"):
        open_result(str(tmp_path), tmp_path)


def test_all_stored_results_oldest_first(tmp_path: Path) -> None:
    for hour, target in ((5, "a"), (3, "b"), (4, "c")):
        stored(tmp_path, hour, target)
    assert [stored_result.result.target for stored_result in list_results(tmp_path)] == [
        "b",
        "c",
        "a",
    ]


def test_a_damaged_result_is_named_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = stored(tmp_path, 3)
    (bad / FILE_NAME).write_text("{")
    good = stored(tmp_path, 4)
    # Logs that were kept of a failure are no result, and nothing is wrong with that.
    (tmp_path / "20250101T000000Z-insert-x" / "logs").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("not a folder")
    assert [stored_result.id for stored_result in list_results(tmp_path)] == [good.name]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"skipped: {bad / FILE_NAME} is damaged")


def test_no_folder_of_results(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*--results"):
        list_results(tmp_path / "none")


# --- the folder -----------------------------------------------------------------------------------


def test_two_commands_in_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    names = [folder(tmp_path).path.name for _ in range(3)]
    assert names == [NAME, f"{NAME}-2", f"{NAME}-3"]


def test_logs_have_a_folder_for_each_run(tmp_path: Path) -> None:
    result_folder = folder(tmp_path)
    for run in ("first", "second"):
        (result_folder.logs(run) / "worker-0.log").write_text(run)
    logs = sorted(
        str(path.relative_to(result_folder.path)) for path in result_folder.path.rglob("*.log")
    )
    assert logs == ["logs/first/worker-0.log", "logs/second/worker-0.log"]


def test_a_folder_with_nothing_worth_keeping_vanishes(tmp_path: Path) -> None:
    result_folder = folder(tmp_path)
    result_folder.logs("run")
    result_folder.close()
    assert list(tmp_path.iterdir()) == []


def test_the_logs_of_a_failure_are_kept(tmp_path: Path) -> None:
    result_folder = folder(tmp_path)
    result_folder.keep_logs()
    result_folder.close()
    assert result_folder.path.is_dir()


@pytest.mark.parametrize("obstacle", ["file", "file below"])
def test_an_output_that_can_not_be_written_is_found_at_once(tmp_path: Path, obstacle: str) -> None:
    """Before the runs, and not after them. (Permissions would not stop root.)"""
    (tmp_path / "results").write_text("in the way")
    output = tmp_path / "results" if obstacle == "file" else tmp_path / "results" / "below"
    message = r"can't write results to .* \(--output\): .*; name another place"
    with pytest.raises(ConfigError, match=message) as refused:
        folder(output)
    assert refused.value.exit_code == EXIT_USAGE


def test_a_full_disk_is_not_to_be_made_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError, match="No space left on device; make room"):
        folder(tmp_path)


def keep(output: Path, hour: int, label: str | None) -> str:
    """Store a result; returns its ID."""
    started = datetime(2025, 1, 2, hour, tzinfo=UTC)
    result_folder = ResultFolder(output, started, "insert", "embedded")
    result_folder.write(result(started_at=started.isoformat(), label=label), None)
    return result_folder.path.name


def test_labels_and_latest_name_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = (
        keep(tmp_path, hour, label) for hour, label in enumerate(["a", "a", "b c"])
    )
    assert open_result("latest", tmp_path).id == third
    assert open_result("b c", tmp_path).id == third
    assert capsys.readouterr().err == ""
    assert open_result("a", tmp_path).id == second
    assert f"2 results have the label a: using the newest, {second}" in capsys.readouterr().err
    assert open_result(first, tmp_path).id == first
    with pytest.raises(ConfigError, match="no result 'c'"):
        open_result("c", tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="run something first"):
        open_result("latest", tmp_path / "none")


@pytest.mark.parametrize(("place", "entry"), [("runs", []), ("timeline", []), ("timeline", [1])])
def test_a_million_wrong_entries_are_one_problem(tmp_path: Path, place: str, entry: Any) -> None:
    """Each was kept, with all that is known of it: 3 kB."""

    def change(document: dict[str, Any]) -> None:
        part = document if place in document else document["runs"][0]["groups"][0]
        part[place] = [entry] * 10_000

    with pytest.raises(UnreadableResult) as refused:
        read_result(changed(tmp_path, change))
    assert isinstance(refused.value.__cause__, ValidationError)
    assert refused.value.__cause__.error_count() < 1_000
