"""What is checked before anything is started."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from cli.plan.disturbances import parse_disturbance
from cli.plan.request import Request
from cli.plan.requests import ClientsRequest, InsertRequest, QueryRequest, TuneRequest
from cli.run.embedded import EmbeddedPostgres
from cli.run.experiments.clients import ClientsExperiment
from cli.run.experiments.session import Session, open_session
from cli.run.experiments.tuning import TuneExperiment
from cli.run.faults import FaultInjector
from cli.system.errors import ConfigError, RunFailed
from cli.system.processes import Interrupts
from simulator.contract import (
    GroupResult,
    Phase,
    Report,
    Role,
    RunResult,
    SkippedFault,
    Status,
)
from simulator.modules import load_module, module_names

from ....helpers import eventually, insert_run, make_report
from .running import make_context


def request_for(place: Path, keys: str) -> InsertRequest:
    """For a target of module postgres with these keys."""
    file = place / "config.yaml"
    file.write_text(f"targets:\n  x:\n    module: postgres\n    executor: local\n{keys}")
    return InsertRequest(target="x", config_file=file, output=place)


@pytest.mark.parametrize(
    "keys",
    [
        "    connection_string: host=db password=e\n",
        "    connection_string: host=db\n    password: e\n",
    ],
)
def test_a_short_secret_is_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str
) -> None:
    """It can't be told from any other word in a message, so it isn't starred out everywhere."""
    open_session(request_for(tmp_path, keys))
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("warning: target x has a password or token of fewer than 8 ")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("password", ["password=geheim-4711", ""])
def test_a_long_one_or_none_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    open_session(request_for(tmp_path, f"    connection_string: host=db {password}\n"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "secret", ["", "    kubernetes: {existingSecret: s}\n    executor: kubernetes\n"]
)
@pytest.mark.parametrize(
    ("misspelt", "meant"), [("connection_strin", "connection_string"), ("executr", "executor")]
)
def test_a_misspelt_key_is_named_before_the_one_that_is_missing_for_it(
    tmp_path: Path, misspelt: str, meant: str, secret: str
) -> None:
    request = request_for(tmp_path, f"    {misspelt}: host=db\n")
    if secret:
        text = request.config_file.read_text().replace("    executor: local\n", secret)
        request.config_file.write_text(text)
    with pytest.raises(ConfigError, match=f"'{misspelt}'; did you mean {meant}\\?") as wrong:
        open_session(request)
    assert f"targets.x.{misspelt}: " in wrong.value.message


def test_a_misspelt_extra_option_is_named_before_the_one_that_is_missing_for_it(
    tmp_path: Path,
) -> None:
    request = request_for(tmp_path, "").model_copy(
        update={"extra_options": ("connection_strin=host=db",)}
    )
    with pytest.raises(ConfigError, match=r"--extra-option: .* did you mean connection_string"):
        open_session(request)


def test_a_secrets_keys_are_mapped_to_options_that_there_are(tmp_path: Path) -> None:
    keys = "    executor: kubernetes\n    kubernetes:\n      existingSecret: s\n"
    request = request_for(tmp_path, "")

    def open_with(mapped: str) -> Session:
        text = f"targets:\n  x:\n    module: cassandra\n{keys}      secretKeys: {{{mapped}}}\n"
        request.config_file.write_text(text)
        return open_session(request)

    session = open_with("contact_points: hosts, username: user, password: pw")
    assert session.complete_values().keys() == {"contact_points", "username", "password"}
    with pytest.raises(ConfigError, match=r"secretKeys.pasword: .* did you mean password\?"):
        open_with("pasword: pw")


@pytest.mark.parametrize("module", module_names())
def test_clients_and_tune_take_a_target_whose_options_are_all_in_a_secret(
    tmp_path: Path, module: str
) -> None:
    """As `insert` does, which needs to know none of them."""
    file = tmp_path / "config.yaml"
    file.write_text(
        f"targets:\n  x:\n    module: {module}\n    kubernetes: {{existingSecret: s}}\n"
    )
    request = Request(target="x", config_file=file, output=tmp_path)
    wish = TuneRequest(target="x", batch=100, duration_s=1, over=("batch=10,100",))
    tuning = TuneExperiment(wish, open_session(request))
    tuning.check()
    assert tuning.session.options is None
    inserting = ClientsRequest(target="x", batch=100, duration_s=1, runs=2)
    offered = load_module(module).official_clients().values()
    if any(client.ways for client in offered):
        assert len(ClientsExperiment(inserting, open_session(request)).lengths) >= 4
    elif offered:
        with pytest.raises(
            ConfigError, match=r"no official client that inserts: .* with --queries"
        ):
            ClientsExperiment(inserting, open_session(request)).check()
    if any(client.asker for client in offered):
        asking = ClientsRequest(target="x", batch=100, duration_s=1, runs=2, queries={})
        assert len(ClientsExperiment(asking, open_session(request)).lengths) >= 5


@pytest.mark.parametrize(
    ("module", "asked", "in_effect"),
    [
        ({}, None, {"in_flight": 1, "max_in_flight": 1}),
        ({}, 8, {"in_flight": 8, "max_in_flight": 8}),
        ({"max_in_flight": 8}, None, {"in_flight": 8, "max_in_flight": 8}),
    ],
)
def test_a_result_keeps_the_requests_in_flight_that_were_in_effect(
    tmp_path: Path, module: dict[str, int], asked: int | None, in_effect: dict[str, int]
) -> None:
    """By whichever name they were asked for."""
    file = tmp_path / "config.yaml"
    keys = "".join(f"    {name}: {value}\n" for name, value in module.items())
    file.write_text(f"targets:\n  x:\n    module: blackhole\n    executor: local\n{keys}")
    session = open_session(Request(target="x", config_file=file, output=tmp_path))
    options = session.result_options({"in_flight": asked, "batch": 7})
    assert options["batch"] == 7
    assert options["in_flight"] == in_effect["in_flight"]
    assert options["module"]["max_in_flight"] == in_effect["max_in_flight"]
    # A query has none.
    assert "in_flight" not in session.result_options({"batch": 7})


@pytest.mark.parametrize(
    ("key", "asked", "kept"),
    [
        ("    disturbances: [2s kill-server, 500ms run true]\n", [], ["2s kill-server", "0.5s run true"]),
        ("    disturbances: [2s kill-server]\n", ["1m run true"], ["60s run true"]),
        ("", [], None),
    ],
)  # fmt: skip
def test_a_result_keeps_what_was_to_be_done_to_the_database(
    tmp_path: Path, key: str, asked: list[str], kept: list[str] | None
) -> None:
    """What was done, and what wasn't, is in its runs."""
    request = request_for(
        tmp_path, f"    start_server: postgresql\n    data_dir: {tmp_path}\n{key}"
    )
    session = open_session(request.model_copy(update={"disturb": tuple(asked)}), disturbed=True)
    assert session.result_options({}).get("disturbances") == kept


def test_a_query_is_not_disturbed(tmp_path: Path) -> None:
    keys = "    connection_string: host=db\n    disturbances: [2s run true]\n"
    request = request_for(tmp_path, keys)
    assert "disturbances" in open_session(request, request.disturbed).result_options({})
    asking = QueryRequest(target="x", config_file=request.config_file)
    assert "disturbances" not in open_session(asking, asking.disturbed).result_options({})


def test_a_server_of_the_tool_needs_no_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody read what it wrote, at which it would have stopped, and nobody saw that it was ready."""
    server = EmbeddedPostgres(str(tmp_path), cast("Any", None))
    server.log.mkdir()
    errors = BytesIO(b"LOG:  database system is ready to accept connections\n")
    server._copy_log(errors)
    assert server._ready.is_set() and not errors.read()
    said = capsys.readouterr().err
    assert said == f"warning: {server.log} can't be written: Is a directory\n"


def test_a_server_of_the_tool_that_ended_by_itself_is_named_with_the_failure(
    tmp_path: Path,
) -> None:
    """Its clients only know that it is gone; that the disk is full stands in its log."""
    nothing = cast("Any", None)
    server = EmbeddedPostgres(str(tmp_path), nothing)
    server.log.write_text(
        '2026 [1] FATAL:  could not write to file "wal": No space left on device\n'
        "2026 [2] LOG:  database system is shut down\n"
    )
    server._process = subprocess.Popen(["true"])
    server._process.wait()

    class Failing:
        def run(self, *_: object) -> Report:
            raise RunFailed("can't connect")

    keys = "    connection_string: host=db\n"
    session = open_session(request_for(tmp_path, keys))
    running = make_context(session, "insert", nothing, server)
    with pytest.raises(RunFailed) as failed:
        running.run(cast("Any", Failing()), nothing, lambda _: None)
    assert failed.value.message == (
        'can\'t connect; the embedded PostgreSQL has ended: could not write to file "wal":'
        f" No space left on device (log: {server.log})"
    )


LATE = SkippedFault(due_s=60.0, action="60s kill-server", reason="the run never began")


def _disturb(folder: Path, run: Callable[[], RunResult]) -> Report:
    """A run of a target with a disturbance that comes too late."""
    session = open_session(request_for(folder, "    connection_string: host=db\n"))
    session.disturbances = [parse_disturbance("60s kill-server")]

    class Database:
        def run(self, *_: object) -> Report:
            return make_report(run())

    nothing = cast("Any", None)
    context = make_context(session, "insert", nothing)
    return context.run(cast("Any", Database()), nothing, lambda _: None)


def test_a_run_without_figures_keeps_what_was_not_done_to_the_database(tmp_path: Path) -> None:
    def fail() -> RunResult:
        raise RunFailed("can't connect")

    with pytest.raises(RunFailed) as failed:
        _disturb(tmp_path, fail)
    assert (failed.value.marks, failed.value.undone) == ([], [LATE])


@pytest.mark.parametrize("alone", [True, False])
def test_what_was_not_done_to_the_database_is_kept_in_the_run(tmp_path: Path, alone: bool) -> None:
    """With writers, or with readers alone."""
    readers = GroupResult(role=Role.READ, workers=1)
    run = RunResult(groups=[readers]) if alone else insert_run()
    assert _disturb(tmp_path, lambda: run).run.undone == [LATE]


def test_values_of_the_environment_are_shown_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In what is stored and printed; what a command says is starred out."""
    monkeypatch.setenv("HOST", "db.internal")
    monkeypatch.setenv("CREDENTIAL", "s3cret-token")
    monkeypatch.setenv("BATCHES", "7")
    keys = (
        '    connection_string: "host=${HOST} user=me password=${CREDENTIAL}"\n'
        '    max_retries: "${BATCHES}"\n'
        '    disturbances: ["0s run echo ${CREDENTIAL}; exit 1"]\n'
    )
    session = open_session(request_for(tmp_path, keys), disturbed=True)
    options = session.result_options({})
    assert options["disturbances"] == ["0s run echo ${CREDENTIAL}; exit 1"]
    assert "host=${HOST}" in options["module"]["connection_string"]
    assert options["module"]["max_retries"] == 7
    with FaultInjector(session.disturbances, {}, Interrupts()) as injector:
        injector.follow(Status(phase=Phase.RUN, age_s=1.0, elapsed_s=0.0))
        eventually(lambda: injector.marks, "mark")
    shown = f"{options} {injector.marks}"
    assert "echo ${CREDENTIAL}" in shown
    assert "ended with status 1; output: ***" in shown
    assert "s3cret" not in shown
    assert "internal" not in shown


def test_no_value_of_the_environment_is_shown_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIAL", "s3cret-token")
    with pytest.raises(ConfigError) as refused:
        open_session(
            request_for(tmp_path, "    disturbances: ['1s rum ${CREDENTIAL}']\n"), disturbed=True
        )
    assert "1s rum ${CREDENTIAL}" in refused.value.message
    assert "s3cret" not in refused.value.message
