"""Wrong usage and configuration: nothing is started, the exit status is 2, and the text helps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from .tool import Tool

BLACKHOLE = ("insert", "-t", "blackhole", "-w", "1", "-r", "1")
QUICK_S = 60.0
"""Nothing is started, so it takes a moment; the rest is for a busy machine."""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("inser", "-t", "blackhole"),
            ["'inser'", "did you mean insert?", "query, mixed, capacity, tune"],
        ),
        (("insert", "-t", "embeded"), ["'embeded'", "did you mean embedded?", "blackhole"]),
        (("query", "-t", "zzz"), ["'zzz'", "it has: embedded, blackhole"]),
        ((*BLACKHOLE, "--wokers", "1"), ["'--wokers'", "--workers"]),
        ((*BLACKHOLE, "more"), ["more", "insert --help"]),
        ((*BLACKHOLE, "--extra-option", "dlay_ms=1"), ["did you mean delay_ms?", "known:"]),
        (
            ("insert", "-t", "embedded", "--extra-option", "use_values_list=true"),
            ["did you mean use_values_lists?", "known:", "connection_string"],
        ),
        ((*BLACKHOLE, "--extra-option", "delay_ms"), ["--extra-option", "key=value"]),
        ((*BLACKHOLE, "--extra-option", "delay_ms=soon"), ["delay_ms", "number"]),
        ((*BLACKHOLE, "--extra-option", "encoder=postgers"), ["did you mean postgres?"]),
        (
            ("insert", "-t", "influxdb", "--timestamps", "restart"),
            ["--timestamps restart", "module influxdb stores one per device and time"],
        ),
        ((*BLACKHOLE, "-w", "0"), ["--workers", "1,4,8"]),
        ((*BLACKHOLE, "-w", "-1"), ["--workers", "1,4,8"]),
        ((*BLACKHOLE, "-w", "a"), ["--workers", "1,4,8"]),
        ((*BLACKHOLE, "-w", "1,,4"), ["--workers", "1,4,8"]),
        ((*BLACKHOLE, "-w", "1,1,2"), ["--workers", "names 1 more than once", "--runs"]),
        ((*BLACKHOLE, "-w", "100001"), ["--workers", "100000"]),
        ((*BLACKHOLE, "-r", "0"), ["--runs"]),
        ((*BLACKHOLE, "--num-inserts", "-5"), ["--num-inserts"]),
        ((*BLACKHOLE, "--batch", "-1"), ["--batch"]),
        ((*BLACKHOLE, "--prefill", "-1"), ["--prefill"]),
        ((*BLACKHOLE, "--steps", "-1"), ["--steps"]),
        ((*BLACKHOLE, "--timeout", "-1"), ["--timeout"]),
        ((*BLACKHOLE, "--seed", "-1"), ["--seed"]),
        (("query", "-t", "embedded", "-w", "0"), ["--workers"]),
        (("query", "-t", "embedded", "-w", "100001"), ["--workers", "100000"]),
        (("query", "-t", "embedded", "-r", "0"), ["--runs"]),
        ((*BLACKHOLE, "--steps", "2", "-w", "1,2"), ["--steps", "one worker count"]),
        ((*BLACKHOLE, "--steps", "2", "-r", "2"), ["--steps", "--runs 1"]),
        ((*BLACKHOLE, "--steps", "2", "--prefill", "10"), ["--steps", "--prefill"]),
        ((*BLACKHOLE, "--primary-key", "id"), ["--primary-key", "client"]),
        ((*BLACKHOLE, "--workload", "wind"), ["--workload", "temperature"]),
        (
            ("insert", "-t", "embedded", "--extra-option", "insert_mode=copy"),
            ["insert_mode=copy", "--batch"],
        ),
        (
            ("insert", "-t", "embedded", "--batch", "9", "--extra-option", "insert_mode=single"),
            ["insert_mode=single", "--batch"],
        ),
        (
            ("insert", "-t", "embedded", "--extra-option", "connection_string=host=x"),
            ["connection_string", "embedded"],
        ),
        (
            ("insert", "-t", "embedded", "--workload", "cpu", "--timestamps", "restart"),
            ["--timestamps restart", "cpu"],
        ),
        (
            ("query", "-t", "embedded", "--extra-option", "queries=count-event"),
            ["did you mean count-events?", "known:"],
        ),
        (("query", "-t", "blackhole"), ["stores nothing to query"]),
        (("insert", "-t", "embedded", "--executor", "kubernetes"), ["--executor local"]),
        ((*BLACKHOLE, "-c", "nowhere.yaml"), ["nowhere.yaml", "-c"]),
        ((*BLACKHOLE, "-c", "."), ["config file", "directory"]),
        ((*BLACKHOLE, "--json", "nowhere/result.json"), ["--json", "nowhere"]),
        (("ceiling", "--module", "postgers"), ["--module", "did you mean postgres?"]),
        (("targets", "-c", "nowhere.yaml"), ["nowhere.yaml", "-c"]),
        (("targets", "influx"), ["no target 'influx'", "did you mean influxdb?"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage(tool: Tool, arguments: Sequence[str], words: Sequence[str]) -> None:
    done = tool.run_here(*arguments)
    error = done.error(2)
    assert [word for word in words if word not in error] == [], error
    assert done.out == ""
    assert done.seconds < QUICK_S
    assert tool.folders() == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("inser", "-t", "blackhole"), "did you mean insert?"),
        (("insert", "-t", "embeded"), "did you mean embedded?"),
        ((*BLACKHOLE, "--extra-option", "dlay_ms=1"), "did you mean delay_ms?"),
    ],
    ids=["by click", "in the config file", "for the module"],
)
def test_wrong_usage_as_a_program(tool: Tool, arguments: Sequence[str], word: str) -> None:
    """Likewise, wherever it is found."""
    done = tool.run(*arguments)
    assert word in done.error(2)
    assert done.out == ""
    assert done.seconds < QUICK_S
    assert tool.folders() == []


def target(*lines: str) -> str:
    """A config file with the target `blackhole`, which begins in line 3."""
    return "\n    ".join(["targets:\n  blackhole:", *lines, "executor: local"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["config.yaml", "empty", "targets"]),
        ("# nothing\n", ["config.yaml", "empty", "targets"]),
        ("- 1\n", ["config.yaml:1", "targets"]),
        ("namespace: x\n", ["config.yaml:1", "targets"]),
        ("targets:\n", ["config.yaml:1", "targets"]),
        ("targets:\n  a: {module: blackhole\n  b: 1\n", ["config.yaml:3", "YAML"]),
        ("targets:\n\tblackhole: 1\n", ["config.yaml:2", "YAML"]),
        ("tagets:\n  a: 1\n", ["config.yaml:1", "tagets", "targets"]),
        ("targets:\n  blackhole:\n", ["config.yaml:2", "targets.blackhole", "module"]),
        (target(), ["config.yaml:2", "module"]),
        (target("module: blackhloe"), ["config.yaml:3", "did you mean blackhole?", "it has:"]),
        (
            target("module: blackhol"),
            ["config.yaml:3", "targets.blackhole.module", "did you mean blackhole?"],
        ),
        (
            "targets:\n  blackhole: {module: blackhole, executor: remote}\n",
            ["config.yaml:2", "targets.blackhole.executor", "'remote'", "local"],
        ),
        (target("module: postgres"), ["config.yaml:2", "connection_string"]),
        (
            target("module: postgres", "connection_string: host=${E2E_UNSET}"),
            ["config.yaml:4", "targets.blackhole.connection_string", "E2E_UNSET", ":-default"],
        ),
        (
            target("module: postgres", "connection_string: host=x pasword=${E2E_PASSWORD}"),
            ["config.yaml:4", "connection_string", "libpq"],
        ),
        (
            target("module: postgres", "connection_string: host=x", "conection_string: x"),
            ["config.yaml:5", "'conection_string'", "did you mean connection_string?"],
        ),
        (
            target("module: blackhole", "max_in_flight: many"),
            ["config.yaml:4", "max_in_flight", "integer"],
        ),
        (target("module: blackhole", "module: postgres"), ["config.yaml:4", "duplicate key"]),
        (
            target("module: postgres", "start_server: mysql"),
            ["config.yaml:4", "start_server", "postgresql"],
        ),
        (target("module: postgres", "start_server: postgresql"), ["config.yaml:2", "data_dir"]),
    ],
)
def test_wrong_config(tool: Tool, content: str, words: Sequence[str]) -> None:
    tool.config.write_text(content)
    done = tool.run_here(*BLACKHOLE)
    error = done.error(2)
    assert [word for word in words if word not in error] == [], error
    assert done.out == ""
    assert tool.folders() == []


def test_config_that_is_no_text(tool: Tool) -> None:
    tool.config.write_bytes(b"targets:\n  \xff\xfe: 1\n")
    error = tool.run_here(*BLACKHOLE).error(2)
    assert "config.yaml" in error


def test_results_folder_that_cannot_be_made(tool: Tool) -> None:
    in_the_way = tool.place / "file"
    in_the_way.write_text("not a folder")
    for output in (in_the_way, in_the_way / "below", "/proc/results"):
        error = tool.run_here(*BLACKHOLE, "--output", output).error(2)
        assert str(output) in error
        assert "--output" in error
    assert in_the_way.read_text() == "not a folder"


@pytest.mark.parametrize("command", ["insert", "query"])
def test_kubernetes_without_helm(tool: Tool, command: str) -> None:
    done = tool.run_here(command, "-t", "postgresql", env={"PATH": str(tool.place)})
    error = done.error(2)
    assert "helm is not installed" in error
    assert "--executor local" in error
    assert done.seconds < QUICK_S
    assert tool.folders() == []
