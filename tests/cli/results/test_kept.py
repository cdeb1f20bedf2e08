"""A folder with results as one file: what is in it, what reads it, and what a stranger may put into one."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from cli.main import commands
from cli.results import kept
from cli.results.aspects import compare_campaigns
from cli.results.kept import is_kept, pack, unpack
from cli.results.manifest import MANIFEST
from cli.results.publication import check_publication
from cli.results.sources import find_sources
from cli.results.store import open_results
from cli.system.errors import ConfigError

from ..made import inserts
from ..publishing.published import SPEEDS, keep_campaign, make_results
from .test_publication import keep, make


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "UNPACKED", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return keep_campaign(tmp_path / "night", make_results())


def run(*words: object) -> Done:
    return CliRunner().invoke(commands, list(map(str, words)), catch_exceptions=False)


def write_archive(file: Path, entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(file, "w:xz") as archive:
        for entry, content in entries:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file


def test_the_file_holds_all_but_logs_and_is_the_same_each_time(folder: Path) -> None:
    (folder / "notes.yaml").write_text("alpha: It is new.\n")
    inner = next((folder / "results").iterdir())
    (inner / "logs").mkdir()
    (inner / "logs" / "worker-0.log").write_text("began")
    (folder / ".lock").touch()
    file = folder.with_name("night.tar.xz")
    pack(folder, file)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    unpacked = unpack(file)
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    logs = f"results/{inner.name}/logs/worker-0.log"
    assert held == (names - {logs, ".lock"}) | {MANIFEST}
    assert unpacked.name == "night"
    first = file.read_bytes()
    (inner / "result.json").touch()
    pack(folder, file)
    assert file.read_bytes() == first


def test_every_command_reads_the_file_as_the_folder(folder: Path, tmp_path: Path) -> None:
    file = folder.with_name("night.tar.xz")
    pack(folder, file)
    assert [len(find_sources([path]).done) for path in (file, folder)] == [18, 18]
    assert len(open_results([str(file)], tmp_path)) == 18
    shown = run("results", "show", file)
    assert shown.exit_code == 0 and shown.output.count("alpha") >= 3
    listed = run("results", "list", "--results", file)
    assert listed.exit_code == 0 and listed.output.count("\n") >= 18
    exported = run("results", "export", file)
    assert exported.exit_code == 0 and exported.output.startswith("result_id,")
    site = run("publish", file, "--output", tmp_path / "site")
    assert site.exit_code == 0 and (tmp_path / "site" / "index.html").is_file()


def test_no_file_of_what_may_not_be_published(tmp_path: Path) -> None:
    result = make(inserts({1: [100.0, 101.0, 102.0]}))
    keep(tmp_path / "good", result)
    done = run("results", "pack", tmp_path / "good")
    file = tmp_path / "good.tar.xz"
    assert done.exit_code == 0 and is_kept(file)
    assert check_publication(file).problems == []
    result.complete = False
    keep(tmp_path / "bad", result)
    done = run("results", "pack", tmp_path / "bad")
    assert done.exit_code == 1 and "problem: incomplete" in done.output
    assert not (tmp_path / "bad.tar.xz").exists()


def test_a_file_that_was_changed_is_found_out(tmp_path: Path) -> None:
    keep(tmp_path / "good", make(inserts({1: [100.0, 101.0, 102.0]})))
    (tmp_path / "good" / "campaign.log").write_text("it began")
    (tmp_path / "good" / "gone.txt").write_text("here")
    pack(tmp_path / "good", file := tmp_path / "good.tar.xz")
    changed = unpack(file)
    entries = [
        (tarfile.TarInfo(path.relative_to(changed).as_posix()), path.read_bytes())
        for path in sorted(changed.rglob("*"))
        if path.is_file() and path.name not in ("gone.txt", "campaign.log")
    ]
    entries += [(tarfile.TarInfo("campaign.log"), b"it began later"), (tarfile.TarInfo("x"), b"")]
    other = write_archive(tmp_path / "other.tar.xz", entries)
    assert check_publication(other).problems == [
        f"gone.txt is in {MANIFEST}, but missing",
        f"x is not in {MANIFEST}",
        f"campaign.log was changed since {MANIFEST} was written",
    ]


def make_link(name: str) -> tarfile.TarInfo:
    link = tarfile.TarInfo(name)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return link


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda file: file.write_bytes(b"no archive"), "is damaged"),
        (lambda file: write_archive(file, [(tarfile.TarInfo("../out"), b"")]), "holds '../out'"),
        (lambda file: write_archive(file, [(tarfile.TarInfo("/out"), b"")]), "holds '/out'"),
        (lambda file: write_archive(file, [(make_link("link"), b"")]), "holds 'link'"),
        (lambda file: write_archive(file, [(tarfile.TarInfo("a"), bytes(2_000_000))]), "more than"),
    ],
)
def test_a_strangers_file_writes_nothing_else(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], object],
    problem: str,
) -> None:
    monkeypatch.setattr(kept, "_MOST_BYTES", 1 << 20)
    file = tmp_path / "stranger.tar.xz"
    write(file)
    before = set(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=problem):
        unpack(file)
    assert set(tmp_path.iterdir()) - before <= {cache}
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_what_changed_between_two_campaigns(tmp_path: Path) -> None:
    slower = {name: [speed / 2 for speed in own] for name, own in SPEEDS.items() if name != "gamma"}
    folders = [
        keep_campaign(tmp_path / name, make_results(speeds, {}))
        for name, speeds in (("before", SPEEDS), ("after", slower))
    ]
    changes = compare_campaigns(*(find_sources([folder]) for folder in folders))
    inserts_of = {
        change.candidate: change for change in changes if change.own.aspect.key == "inserts"
    }
    assert list(inserts_of) == ["alpha", "beta"]
    for change in inserts_of.values():
        assert change.speed is not None and change.speed.value == pytest.approx(0.5, rel=0.01)
        assert change.verdict == "worse"
    done = run("compare", *folders)
    assert done.exit_code == 0 and "only in one of the campaigns: gamma" in done.output
    assert "before" in done.output and "0.50" in done.output


def test_campaigns_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    folders = [
        keep_campaign(tmp_path / name, make_results({name: (1.0, 2.0)}, {})) for name in ("a", "b")
    ]
    with pytest.raises(ConfigError, match="no candidate with a figure"):
        compare_campaigns(*(find_sources([folder]) for folder in folders))
