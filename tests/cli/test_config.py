"""config.yaml: what is accepted, and errors that name file, line, key and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.plan.config import load_config
from cli.plan.target import ExecutorName, Price
from cli.system.errors import EXIT_USAGE, ConfigError
from simulator.modules import load_module, module_names
from simulator.modules.options import parse_options

ROOT = Path(__file__).resolve().parents[2]

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a config file."""

    def write_file(text: str) -> Path:
        file = tmp_path / "config.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


def error_of(file: Path, target: str | None = None) -> str:
    """What is said about a wrong file or target, without the file's path."""

    def use() -> None:
        config = load_config(file)
        if target is not None:
            config.target(target)

    with pytest.raises(ConfigError) as wrong:
        use()
    assert wrong.value.exit_code == EXIT_USAGE
    return wrong.value.message.replace(str(file), "FILE")


PUBLISHED = """
targets:
  some_sql:
    module: postgres
    connection_string: "host=sql.default port=5432 dbname=postgres user=postgres password=postgres"
  other_sql:
    module: postgres
    connection_string: "host=other.default port=5433 dbname=postgres options='-c a=on -c b=on'"
    install_extensions: pgcrypto
  wide_column:
    module: cassandra
    contact_points: "wide-service"
    keyspace: "benchmark"
    replication_factor: 3
    consistency_level: "LOCAL_QUORUM"
    max_sync_calls: 120
    device_spread: 1
namespace: default
"""


def test_a_file_of_the_published_tools_shape_is_accepted(write: Write) -> None:
    """Users of the published tool bring such a file."""
    config = load_config(write(PUBLISHED))
    assert config.target_names == ["some_sql", "other_sql", "wide_column"]
    assert config.namespace == "default"
    target = config.target("wide_column")
    assert (target.name, target.module) == ("wide_column", "cassandra")
    assert target.executor is ExecutorName.KUBERNETES
    assert target.options == {
        "contact_points": "wide-service", "keyspace": "benchmark", "replication_factor": 3,
        "consistency_level": "LOCAL_QUORUM", "max_sync_calls": 120, "device_spread": 1,
    }  # fmt: skip
    assert config.target("other_sql").options["install_extensions"] == "pgcrypto"


def test_the_shipped_file_has_all_targets_of_the_published_tool() -> None:
    config = load_config(ROOT / "config.yaml")
    published = {
        "postgresql": "postgres", "cockroachdb": "postgres", "yugabyte_sql": "postgres",
        "yugabyte_cql": "cassandra", "cassandra_sync": "cassandra", "cassandra_async": "cassandra",
        "arangodb": "arangodb", "influxdb": "influxdb", "timescaledb": "timescaledb",
        "elasticsearch": "elasticsearch", "azure_data_explorer": "azure_data_explorer",
    }  # fmt: skip
    for name, module in published.items():
        assert config.target(name).module == module
    assert config.target("embedded").executor is ExecutorName.LOCAL
    assert config.target("embedded").start_server == "postgresql"


def test_the_shipped_file_needs_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{([A-Z_]+)", (ROOT / "config.yaml").read_text()):
        monkeypatch.delenv(name, raising=False)
    config = load_config(ROOT / "config.yaml")
    for name in config.target_names:
        assert "${" not in str(config.target(name))


def test_each_database_has_an_example_on_this_machine_to_uncomment(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "config.yaml").read_text()
    examples = "".join(re.findall(r"^  # local_\w+:\n(?:  #   .*\n)+", text, re.MULTILINE))
    for name in re.findall(r"\$\{([A-Z_]+)\}", examples):
        monkeypatch.setenv(name, "secret")
    config = load_config(write("targets:\n" + examples.replace("  # ", "  ")))
    modules = set()
    for name in config.target_names:
        target = config.target(name)
        assert target.executor is ExecutorName.LOCAL, name
        module = load_module(target.module)
        assert not config.unknown_keys(name, module.options_model.option_names)
        parse_options(module.options_model, target.options, str)
        modules.add(target.module)
    assert modules == set(module_names()) - {"blackhole"}


def test_keys_of_the_tool_are_no_options_of_the_module(write: Write) -> None:
    file = write(
        "targets:\n  x:\n    module: postgres\n    executor: local\n"
        "    start_server: postgresql\n    data_dir: /data\n    device_spread: 3\n"
    )
    target = load_config(file).target("x")
    assert target.executor is ExecutorName.LOCAL
    assert (target.start_server, target.data_dir) == ("postgresql", "/data")
    assert target.options == {"device_spread": 3}


@pytest.mark.parametrize(
    ("target", "executor"),
    [
        ("{module: questdb, endpoint: 'http://127.0.0.1:9000'}", "local"),
        ("{module: questdb, endpoint: 'http://[::1]:9000'}", "local"),
        ("{module: questdb, endpoint: 'http://questdb:9000'}", "kubernetes"),
        ("{module: questdb, endpoint: 'http://localhost-2:9000'}", "kubernetes"),
        (
            "{module: questdb, endpoint: 'http://localhost:9000', executor: kubernetes}",
            "kubernetes",
        ),
        ("{module: postgres, connection_string: host=localhost user=me}", "local"),
        ("{module: postgres, connection_string: host=/run/postgresql}", "local"),
        ("{module: postgres, connection_string: 'host=localhost,db-2'}", "kubernetes"),
        ("{module: postgres, start_server: postgresql, data_dir: x}", "local"),
        ("{module: cassandra, contact_points: [127.0.0.1, 127.0.0.2]}", "local"),
        ("{module: nowhere, endpoint: localhost}", "kubernetes"),
    ],
)
def test_servers_on_loopback_are_measured_from_this_machine(
    tmp_path: Path, target: str, executor: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"targets:\n  x: {target}\n")
    assert load_config(file).place_of("x")[1] == executor


# --- variables ------------------------------------------------------------------------------------

WITH_VARIABLES = """
targets:
  one:
    module: m
    password: "x${ONE_PASSWORD}y"
    user: ${ONE_USER:-me}
    list: ["${ONE_USER:-}", 5]
    map: {key: "${ONE_USER:-a:-b}"}
  two:
    module: m
"""


def test_variables_are_replaced(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_PASSWORD", "se$cret ${ONE_USER}")
    monkeypatch.delenv("ONE_USER", raising=False)
    config = load_config(write(WITH_VARIABLES))
    assert config.target("one").options == {
        # What a variable holds is not looked through again.
        "password": "xse$cret ${ONE_USER}y",
        "user": "me",
        "list": ["", 5],
        "map": {"key": "a:-b"},
    }
    monkeypatch.setenv("ONE_USER", "you")
    assert config.target("one").options["user"] == "you"
    # As in a shell, `:-` stands for an empty variable, too.
    monkeypatch.setenv("ONE_USER", "")
    assert config.target("one").options["user"] == "me"


def test_an_unset_variable_matters_for_its_target_alone(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONE_PASSWORD", raising=False)
    file = write(WITH_VARIABLES)
    assert load_config(file).target("two").options == {}
    assert error_of(file, "one") == (
        "FILE:5: targets.one.password: environment variable ONE_PASSWORD is not set;"
        " set it, or write ${ONE_PASSWORD:-default}"
    )


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "FILE is empty: it needs `targets:` with at least one target"),
        ("# only a remark\n", "FILE is empty: it needs `targets:` with at least one target"),
        ("- a\n- b\n", "FILE:1: must be a mapping with the key `targets`"),
        ("just text\n", "FILE:1: must be a mapping with the key `targets`"),
        ("namespace: x\n", "FILE:1: `targets` needs at least one target below it"),
        ("namespace: x\ntargets:\n", "FILE:2: `targets` needs at least one target below it"),
        ("namespace: x\ntargets: []\n", "FILE:2: `targets` needs at least one target below it"),
    ],
)
def test_files_without_targets(write: Write, text: str, expected: str) -> None:
    assert error_of(write(text)) == expected


def test_a_missing_file_says_where_to_look(tmp_path: Path) -> None:
    assert error_of(tmp_path / "nowhere.yaml") == (
        "there is no config file FILE: run from the folder that has it, name it with -c, or make"
        " one: python run.py targets --example > config.yaml"
    )


def test_a_folder_or_binary_file_can_not_be_read(tmp_path: Path) -> None:
    assert error_of(tmp_path) == "config file FILE can't be read: Is a directory"
    binary = tmp_path / "binary"
    binary.write_bytes(b"targets:\n  \xff: 1\n")
    assert error_of(binary) == "FILE:2: is not text in UTF-8: save it in that encoding"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("targets:\n  x: {module: m\n", 3),
        ("targets:\n  x:\n\tmodule: m\n", 3),
        ("targets:\n  x:\n    module: m\n   other: 1\n", 4),
        ("targets:\n  x:\n    password: *unknown\n", 3),
    ],
)
def test_malformed_yaml_names_the_line(write: Write, text: str, line: int) -> None:
    assert error_of(write(text)).startswith(f"FILE:{line}: not valid YAML: ")


def test_characters_that_yaml_does_not_allow(write: Write) -> None:
    assert error_of(write("targets: \x07")).startswith("FILE:1: not valid YAML: ")


def test_an_unknown_key_at_the_top(write: Write) -> None:
    text = error_of(write("targets:\n  x:\n    module: m\n\ntarget: 5\n"))
    assert text.startswith("FILE:5: unknown key 'target'; did you mean targets? (known: targets,")


@pytest.mark.parametrize("key", ["yes", "null", "1", "1.0", "0x10", "2024-01-01"])
def test_keys_that_are_no_texts_to_yaml(write: Write, key: str) -> None:
    """YAML reads `yes` as true, and so on: an error like any other."""
    top = error_of(write(f"targets:\n  x:\n    module: m\n{key}: 1\n"))
    assert top.startswith("FILE:4: ")
    within = error_of(write(f"targets:\n  {key}:\n    module: m\n"), "unknown")
    assert key in within


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("targets: {}\ntargets: {}\n", "FILE:2: targets: duplicate key: remove one"),
        (
            "targets:\n  x:\n    module: a\n  x:\n    module: b\n",
            "FILE:4: targets.x: duplicate key: remove one",
        ),
        (
            "targets:\n  x:\n    module: a\n    user: b\n    user: c\n",
            "FILE:5: targets.x.user: duplicate key: remove one",
        ),
    ],
)
def test_keys_that_stand_twice(write: Write, text: str, expected: str) -> None:
    """YAML would take the last one without a word."""
    assert error_of(write(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  x:\n    user: a\n", "FILE:2: targets.x: key `module` is missing"),
        (
            "  x:\n    modul: postgres\n",
            "FILE:2: targets.x: key `module` is missing; is 'modul' a misspelling?",
        ),
        ("  x:\n    module: 5\n", "FILE:2: targets.x: key `module` is missing"),
        ("  x:\n", "FILE:2: targets.x: needs keys below it, at least `module:`"),
        ("  x: [a]\n", "FILE:2: targets.x: needs keys below it, at least `module:`"),
        (
            "  x:\n    module: m\n    executor: here\n",
            "FILE:4: targets.x.executor: 'here' isn't an executor: use local or kubernetes",
        ),
        (
            "  x:\n    module: m\n    start_server: mysql\n",
            (
                "FILE:4: targets.x.start_server: 'mysql' can't be started by this tool"
                " (it can: postgresql)"
            ),
        ),
    ],
)
def test_wrong_targets(write: Write, text: str, expected: str) -> None:
    assert error_of(write("targets:\n" + text), "x") == expected


def test_a_wrong_target_does_not_keep_the_others_from_being_used(write: Write) -> None:
    config = load_config(write("targets:\n  x:\n  y:\n    module: m\n"))
    assert config.target("y").module == "m"


def test_an_unknown_target_names_the_known_ones_and_the_nearest(write: Write) -> None:
    file = write(PUBLISHED)
    assert error_of(file, "some_sq") == (
        "FILE has no target 'some_sq'; did you mean some_sql?"
        " (it has: some_sql, other_sql, wide_column)"
    )
    assert "did you mean" not in error_of(file, "entirely different")


def test_where_names_the_line_of_the_nearest_key(write: Write) -> None:
    config = load_config(write(PUBLISHED))
    assert config.where("targets", "other_sql", "install_extensions").endswith(
        ":9: targets.other_sql.install_extensions"
    )
    # A key that came from elsewhere: the target's line.
    assert config.where("targets", "other_sql", "nothing").endswith(":6: targets.other_sql.nothing")
    assert config.where("elsewhere").endswith(":1: elsewhere")


# --- Kubernetes -----------------------------------------------------------------------------------


def test_values_of_the_chart_are_merged_key_by_key(write: Write) -> None:
    file = write(
        "kubernetes:\n  resources: {cpu: 2, memory: 1Gi}\n  runAsUser: 5\n"
        "targets:\n  x:\n    module: m\n    kubernetes:\n      resources: {cpu: 4}\n"
        "  y:\n    module: m\n"
    )
    config = load_config(file)
    assert config.target("x").kubernetes == {
        "resources": {"cpu": 4, "memory": "1Gi"},
        "runAsUser": 5,
    }
    assert config.target("y").kubernetes == {
        "resources": {"cpu": 2, "memory": "1Gi"},
        "runAsUser": 5,
    }
    assert "kubernetes" not in config.target("x").options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "kubernetes:\n  resource: 5\ntargets:\n  x:\n    module: m\n",
            "FILE:2: kubernetes.resource: unknown key; did you mean resources? (known: ",
        ),
        (
            "targets:\n  x:\n    module: m\n    kubernetes:\n      run: {}\n",
            "FILE:5: targets.x.kubernetes.run: unknown key",
        ),
        (
            "targets:\n  x:\n    module: m\n    kubernetes: 5\n",
            "FILE:4: targets.x.kubernetes: needs keys below it, as in deployment/values.yaml",
        ),
    ],
)
def test_values_that_the_chart_does_not_have(write: Write, text: str, expected: str) -> None:
    assert error_of(write(text), "x").startswith(expected)


def test_each_key_that_nobody_knows_is_named(write: Write) -> None:
    """With the nearest one, whether that would be this tool's, the module's or the chart's."""
    file = write(
        "kubernetes:\n  resource: 5\ntargets:\n  x:\n    module: m\n    executr: local\n"
        "    hosst: db\n    kubernetes:\n      runAsUsr: 5\n    zzz: 1\n    host: db\n"
    )
    config = load_config(file)
    messages = [
        text.replace(str(file), "FILE")
        for text in config.unknown_keys("x", lambda _: ["host", "port"])
    ]
    assert [text.partition(" (known: ")[0] for text in messages] == [
        "FILE:6: targets.x.executr: unknown option 'executr'; did you mean executor?",
        "FILE:7: targets.x.hosst: unknown option 'hosst'; did you mean host?",
        "FILE:10: targets.x.zzz: unknown option 'zzz'",
        "FILE:9: targets.x.kubernetes.runAsUsr: unknown key; did you mean runAsUser?",
    ]
    assert "(known: cost_per_hour, data_dir, database_pids, disturbances, executor," in messages[0]
    (shared,) = config.unknown_shared_keys()
    assert "kubernetes.resource: unknown key; did you mean resources?" in shared


# --- cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "cost"), [("1.25", 1.25), ("3", 3.0), ("${E2E_COST}", 0.5)])
def test_cost_per_hour(
    write: Write, monkeypatch: pytest.MonkeyPatch, written: str, cost: float
) -> None:
    """A key of the target, not an option of the module."""
    monkeypatch.setenv("E2E_COST", "0.5")
    file = write(f"targets:\n  x:\n    module: blackhole\n    cost_per_hour: {written}\n")
    target = load_config(file).target("x")
    assert target.cost_per_hour == cost
    assert target.options == {}


def test_a_cost_is_not_needed(write: Write) -> None:
    assert load_config(write("targets: {x: {module: blackhole}}")).target("x").cost_per_hour is None


@pytest.mark.parametrize("written", ["0", "-1", "free", "true", "[1]", "inf", "nan"])
def test_a_wrong_cost(write: Write, written: str) -> None:
    file = write(f"targets:\n  x:\n    module: blackhole\n    cost_per_hour: {written}\n")
    error = error_of(file, "x")
    assert error.startswith("FILE:4: targets.x.cost_per_hour: ")
    assert "number above 0" in error


def test_a_price_of_cpus_and_disk(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2E_PRICE", "0.1")
    file = write(
        "targets:\n  x:\n    module: blackhole\n    cost_per_hour: 2\n"
        "    price: {cpu_hour: 0.05, gb_month: '${E2E_PRICE}'}\n  y: {module: blackhole}\n"
    )
    config = load_config(file)
    assert config.target("x").price == Price(2.0, 0.05, 0.1)
    assert config.target("x").options == {}
    # What a target doesn't say, a campaign may.
    assert config.target("y").price.over(Price(None, 0.5)) == Price(None, 0.5)
    assert Price(2.0).over(Price(3.0, 0.5)) == Price(2.0, 0.5)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("5", "write what it costs, as in {cpu_hour: 0.05"),
        ("{cpu: 1}", "write what it costs, as in {cpu_hour: 0.05"),
        ("{cpu_hour: free}", "'free' isn't a cost: write a number above 0"),
        ("{gb_month: 0}", "0 isn't a cost: write a number above 0"),
    ],
)
def test_a_wrong_price(write: Write, written: str, said: str) -> None:
    error = error_of(write(f"targets:\n  x:\n    module: blackhole\n    price: {written}\n"), "x")
    assert error.startswith("FILE:4: targets.x.price")
    assert said in error


def test_a_digest_is_the_same_in_each_version_of_this_tool(write: Write) -> None:
    """Campaigns that were begun with another one go on."""
    plain = "targets: {x: {module: blackhole, executor: local}}\n"
    digest = load_config(write(plain)).digest("x")
    assert digest == "260b482254e1932b77efda3c7b1bc84f0da237e09556dee8d8008d394c968f4d"
    assert load_config(write(plain + "kubernetes: {runAsUser: 5}\n")).digest("x") != digest
