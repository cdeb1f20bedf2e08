"""That commands on this machine notice each other on one database, whosever they are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cli.main import _status
from cli.run import exclusion
from cli.run.exclusion import Claim, claim_databases, hold_lock
from cli.system.errors import ConfigError

ONE, OTHER = (Claim("target", address, None) for address in ("one:1", "other:1"))

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be other users")
SOMEBODY, ANOTHER = 12_345, 12_346

kept = ExitStack()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as /tmp is, in a place that all users can reach."""
    folder = Path(f"/tmp/iotb-test-{os.getpid()}-{tmp_path.name}")
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(exclusion, "SHARED", (tmp_path / "none", folder))
    monkeypatch.setattr(exclusion, "OWN", tmp_path / "own")
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


@contextmanager
def another_process(work: Callable[[], str], user: int) -> Iterator[tuple[int, str]]:
    """A process of a user that does this; its number and what came of it. Then it is killed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgid(user)
            os.setuid(user)
            os.write(write, work().encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    try:
        yield child, os.read(read, 4096).decode()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)


def take() -> str:
    """Take the lock and keep it to the end of the process; what the refusal says."""
    try:
        kept.enter_context(hold_lock(ONE, f"user {os.getuid()}"))
    except ConfigError as error:
        return error.message
    return "taken"


def test_a_database_is_one_campaigns_at_a_time(shared: Path) -> None:
    first, second = "campaign /first", "campaign /second"
    with hold_lock(ONE, f"{first} of me"):
        with (
            pytest.raises(ConfigError, match="is using the database of target target") as refused,
            claim_databases([OTHER, ONE], second),
        ):
            pass
        assert refused.value.message.startswith(f"{first} of ")
        # What the refused one had by then is free again.
        with claim_databases([OTHER], second):
            pass
    with claim_databases([ONE, OTHER], second):
        assert len(list(shared.iterdir())) == 2
        assert all(file.read_text().startswith(second) for file in shared.iterdir())
    assert not list(shared.iterdir())


COMMANDS = (
    "insert",
    "query",
    "mixed",
    "capacity --limit p99=1s",
    "tune --over batch=1,10",
    "clients",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("shared")
def test_no_command_touches_a_database_that_somebody_else_holds(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is at the address: a command that went on would fail to connect."""
    (tmp_path / "config.yaml").write_text(
        "targets:\n  db: {module: postgres, executor: local, connection_string: host=one port=1}\n"
    )
    options = f"--target db --config {tmp_path}/config.yaml --output {tmp_path}/results".split()
    with hold_lock(Claim("night's", "one:1", None), "campaign /night of me@here"):
        assert _status([*command.split(), *options]) == 2
    output = capsys.readouterr()
    assert output.err.splitlines()[-1] == (
        "error: campaign /night of me@here is using the database of target db (one:1):"
        " wait for it to end, or use another database"
    )
    assert not output.out and not list((tmp_path / "results").iterdir())


@pytest.mark.usefixtures("shared")
def test_a_campaigns_own_jobs_may_use_what_it_holds() -> None:
    again = Claim("another name of it", "one:1", None)
    with claim_databases([ONE], "campaign /night"):
        for _ in range(2):
            with claim_databases([again, OTHER], "insert"):
                pass
        with pytest.raises(ConfigError), hold_lock(ONE, "somebody else"):
            pass


@as_root
def test_users_notice_each_other(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after one was killed: its file stays, as nobody else may remove it."""
    with another_process(take, SOMEBODY) as (_, outcome):
        assert outcome == "taken"
        with another_process(take, ANOTHER) as (_, refused):
            assert "is using" in refused and f"user {SOMEBODY}" in refused
    (file,) = shared.iterdir()
    assert file.stat().st_uid == SOMEBODY
    with another_process(take, ANOTHER) as (_, outcome):
        assert outcome == "taken"
        with another_process(take, SOMEBODY) as (_, refused):
            assert f"user {ANOTHER}" in refused
        with pytest.raises(ConfigError, match=f"user {ANOTHER}"), hold_lock(ONE, "root"):
            pass
    assert not capsys.readouterr().err


@pytest.mark.parametrize("trap", ["symlink", "hard link", "pipe"])
def test_what_somebody_has_put_there_is_not_written_to(
    shared: Path, tmp_path: Path, trap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shared / ONE.key
    precious = shared / "precious"
    precious.write_text("worth keeping")
    if trap == "symlink":
        file.symlink_to(precious)
    elif trap == "hard link":
        file.hardlink_to(precious)
    else:
        os.mkfifo(file)
    with hold_lock(ONE, "me"):
        pass
    assert "would not be noticed" in capsys.readouterr().err
    assert precious.read_text() == "worth keeping"


def test_what_another_user_has_written_is_shown_harmlessly(shared: Path) -> None:
    with (
        hold_lock(ONE, "evil\x1b[2Jname\n" + "x" * 9000),
        pytest.raises(ConfigError) as refused,
        hold_lock(ONE, "me"),
    ):
        pass
    assert "evil\\x1b[2Jname x" in refused.value.message
    assert len(refused.value.message) < 5000


def test_without_a_folder_for_all_the_users_own_is_taken(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared.chmod(0o777)  # where anybody could remove what is another's
    with (
        hold_lock(ONE, "me"),
        pytest.raises(ConfigError, match="is using"),
        hold_lock(ONE, "me, too"),
    ):
        pass
    assert "runs of other users on this machine would not be noticed" in capsys.readouterr().err
    assert not list(shared.iterdir())
