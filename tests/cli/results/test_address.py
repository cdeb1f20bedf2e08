"""Results at an address: kept here first, copied whole, read from there."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from click.testing import CliRunner

from cli.main import commands
from cli.results import address as address_module
from cli.results.address import MARK, Address
from cli.results.store import FILE_NAME, ResultFolder, list_results, read_result
from cli.system.errors import ConfigError, RunFailed

from .object_store import ObjectStore
from .test_store import NAME, STARTED, result

SECRET = "AbC/dEf+secret"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which the tool is run, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(address_module, "FETCHED", tmp_path / "cache")
    return tmp_path


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store to which the environment leads."""
    with ObjectStore() as store:
        for name, value in {
            "AWS_ENDPOINT_URL": store.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": SECRET,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield store


def keep(address: Address, started: datetime = STARTED) -> ResultFolder:
    """A folder with a result and a log, as a command leaves it before it copies."""
    folder = ResultFolder(address, started, "insert", "embedded")
    (folder.logs("run-1") / "worker.log").write_text("all well\n")
    folder.write(result(started_at=started.isoformat()), None)
    return folder


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, arguments)


@pytest.fixture(params=["s3", "file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """A new folder at each kind of address that can be had here."""
    if request.param == "s3":
        request.getfixturevalue("s3")
    urls = {
        "s3": "s3://bucket/team/nightly/",
        "file": (tmp_path / "elsewhere").as_uri(),
        "memory": f"memory://{uuid4().hex}",
    }
    return Address(urls[request.param])


def test_a_result_is_kept_here_and_copied_whole(address: Address, place: Path) -> None:
    folder = keep(address)
    assert folder.path == Path("results") / NAME
    assert folder.send() == f"{address.url.rstrip('/')}/{NAME}"
    folder.close()
    assert read_result(folder.path) == result()
    fetched = address.fetch()
    (stored,) = list_results(fetched)
    assert (stored.id, stored.result) == (NAME, result())
    files, root = address._open()
    assert files.cat_file(f"{root}/{NAME}/logs/run-1/worker.log") == b"all well\n"
    # A second one is fetched beside it.
    keep(address, datetime(2025, 1, 3, tzinfo=UTC)).send()
    assert len(list_results(address.fetch())) == 2


def test_what_is_gone_there_is_gone_here(place: Path) -> None:
    address = Address((place / "elsewhere").as_uri())
    keep(address).send()
    keep(address, datetime(2025, 1, 3, tzinfo=UTC)).send()
    assert len(list_results(address.fetch())) == 2
    rmtree(place / "elsewhere" / NAME)
    assert len(list_results(address.fetch())) == 1


def test_commands_read_results_from_an_address(address: Address, place: Path) -> None:
    keep(address).send()
    keep(address, datetime(2025, 1, 3, tzinfo=UTC)).send()
    there = ("--results", address.url)
    assert run("results", "list", *there).output.count("insert") >= 2
    assert "Inserts per second" in run("results", "show", NAME, *there).output
    compared = run("compare", NAME, "latest", *there)
    assert compared.exit_code == 0, compared.output
    assert run("report", "latest", *there).exit_code == 0
    assert (place / "report.html").stat().st_size > 1000


def test_credentials_come_from_the_environment(s3: ObjectStore) -> None:
    keep(Address("s3://bucket/team")).send()
    assert s3.signed and all("Credential=tester/" in header for header in s3.signed)
    assert SECRET not in str(s3.signed)
    assert f"/bucket/team/{MARK}" in s3.objects


@pytest.mark.parametrize(
    "url",
    [f"s3://key:{SECRET}@bucket/folder", f"s3://bucket/folder?secret={SECRET}", "s3://k:sec@b"],
)
@pytest.mark.parametrize("option", ["--output", "--results"])
def test_an_address_with_credentials_is_refused_and_never_repeated(url: str, option: str) -> None:
    words = ("insert", "--target", "embedded") if option == "--output" else ("results", "list")
    done = run(*words, option, url)
    assert done.exit_code == 2
    assert "the machine's identity" in done.output
    assert SECRET not in done.output and "sec@" not in done.output


def test_what_cannot_be_written_is_found_before_the_runs(s3: ObjectStore, place: Path) -> None:
    s3.refuse = MARK
    with pytest.raises(ConfigError, match=r"can't write results to s3://bucket/x \(--output\)"):
        keep(Address("s3://bucket/x"))
    assert not (place / "results").exists()


def test_a_copy_that_fails_loses_nothing(s3: ObjectStore) -> None:
    folder = keep(Address("s3://bucket/x"))
    s3.refuse = "worker.log"
    with pytest.raises(RunFailed, match=f"the result is in results/{NAME}, but") as raised:
        folder.send()
    assert raised.value.exit_code == 1
    assert SECRET not in str(raised.value)
    folder.close()
    assert read_result(folder.path) == result()
    # Nobody takes the half of it for a result.
    assert f"/bucket/x/{NAME}/{FILE_NAME}" not in s3.objects


def test_the_right_to_write_is_enough(s3: ObjectStore) -> None:
    s3.writes_only = True
    keep(Address("s3://bucket/x")).send()
    assert f"/bucket/x/{NAME}/{FILE_NAME}" in s3.objects


def test_a_result_that_is_there_is_not_overwritten(place: Path) -> None:
    address = Address((place / "elsewhere").as_uri())
    folder = keep(address)
    folder.send()
    with pytest.raises(RunFailed, match="under another name: there already is a result"):
        folder.send()


def test_nothing_is_copied_of_a_command_that_kept_nothing(place: Path) -> None:
    folder = ResultFolder(Address((place / "elsewhere").as_uri()), STARTED, "insert", "embedded")
    assert folder.send() is None
    assert [path.name for path in (place / "elsewhere").iterdir()] == [MARK]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nosuch://bucket/x", "fsspec doesn't know this kind of address"),
        ("simplecache::s3://bucket/x", "is a chain of addresses"),
        ("s3://a::s3://b", "is a chain of addresses"),
    ],
)
def test_other_addresses_are_refused(url: str, said: str) -> None:
    done = run("results", "list", "--results", url)
    assert done.exit_code == 2
    assert said in done.output


def test_an_address_without_results_is_named(address: Address) -> None:
    address.check_writable()
    done = run("results", "list", "--results", address.url)
    assert (done.exit_code, done.output) == (2, f"Error: there is no result at {address}\n")


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def without_fsspec(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("fsspec"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return really(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_fsspec)
    with pytest.raises(ConfigError, match=r"pip install .*\[remote\]"):
        Address("s3://bucket/x").check_writable()


def test_an_address_is_no_name_of_a_result() -> None:
    done = run("results", "show", "s3://bucket/x/latest")
    assert done.exit_code == 2
    assert "name its folder by --results" in done.output


def test_a_campaign_keeps_to_this_machine() -> None:
    done = run("campaign", "mine.yaml", "--output", "s3://bucket/x")
    assert done.exit_code == 2
    assert "a campaign resumes from its folder" in done.output


def test_a_file_is_lent_by_an_address_that_is_signed(s3: ObjectStore, place: Path) -> None:
    file = place / "pumps.tar.zst"
    file.write_bytes(b"packed")
    for _ in range(2):
        lent = Address("s3://bucket/team/").lend(file)
        with urlopen(lent) as answer:
            assert answer.read() == b"packed"
        file.write_bytes(b"what is there is not sent again")
    assert "X-Amz-Signature=" in lent and SECRET not in lent
    s3.refuse = "private"
    with pytest.raises(ConfigError, match="to s3://private: check"):
        Address("s3://private").lend(file)
    with pytest.raises(ConfigError, match="isn't an object store"):
        Address(place.as_uri()).lend(file)
