"""The tool as an installed package: from a wheel, in an environment of its own, in any folder."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli.main import COMMANDS, commands
from cli.system.installation import missing_package
from simulator import __version__, modules
from simulator.errors import DriverMissing
from simulator.modules import load_module

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED = ("config.yaml", "dbinstall", "deployment")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install .` builds."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment with the wheel. What the tool depends on is taken
    from the environment of this test."""
    folder = tmp_path_factory.mktemp("environment")
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps",
         "--no-index", str(wheel)],
    ):  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return python.parent


def _run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["EMBEDDED_DATA_DIR"] = str(folder / "data")
    return subprocess.run(
        [str(installed / "iotbench"), *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def _files(*names: str) -> Iterator[str]:
    """The files of the repository below these folders, without what is only made by running."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", *names], capture_output=True, text=True, check=True
    )
    yield from listed.stdout.splitlines()


def test_the_wheel_has_the_code_and_every_file_beside_it_that_the_code_reads(wheel: Path) -> None:
    assert wheel.name.startswith(f"iot_database_benchmark-{__version__}-py3-none-any")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(_files("cli", "iotbench", "simulator")) <= names
    assert {f"cli/shipped/{name}" for name in _files(*SHIPPED)} <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    manual = [name.rpartition("/")[2] for name in names if "/data/share/man/man1/" in name]
    assert sorted(manual) == sorted(file.name for file in (ROOT / "man").iterdir())
    about = next(name for name in names if name.endswith("METADATA"))
    assert "License-Expression: Apache-2.0" in zipfile.ZipFile(wheel).read(about).decode()
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}


def test_the_licences_of_all_that_the_images_contain_are_listed() -> None:
    page = (ROOT / "docs" / "reference" / "licences.md").read_text()
    lock = (ROOT / "requirements.txt").read_text()
    pinned = re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)
    assert re.findall(r"^\| (\S+) \| \S", page, re.MULTILINE)[2:] == sorted(pinned, key=str.lower)


def test_without_a_config_file_there_are_the_targets_that_need_no_server(
    installed: Path, tmp_path: Path
) -> None:
    remedy = r"iotbench targets --example > config\.yaml"
    listed = _run(installed, tmp_path, "targets")
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    assert (listed.returncode, names) == (0, ["embedded", "blackhole"])
    assert re.search(remedy, listed.stderr)
    refused = _run(installed, tmp_path, "insert", "--target", "postgresql")
    assert refused.returncode == 2
    assert re.search(
        rf"no config file config\.yaml: .*{remedy}\n.* embedded, blackhole$", refused.stderr.strip()
    )
    example = _run(installed, tmp_path, "targets", "--example")
    schema, _, shown = (ROOT / "config.yaml").read_text().partition("\n")
    assert schema.startswith("# yaml-language-server: ")
    assert example.stdout == shown


def test_the_shell_completes_commands_options_and_their_values(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complete(*words: str) -> set[str]:
        choices = completion.get_completions(list(words[:-1]), words[-1])
        return {choice.value for choice in choices}

    completion = ShellComplete(commands, {}, "iotbench", "_IOTBENCH_COMPLETE")
    assert {"insert", "compare"} <= complete("")
    assert complete("insert", "--primary") == {"--primary-key"}
    # And what a shell does for it.
    monkeypatch.setenv("_IOTBENCH_COMPLETE", "bash_source")
    assert "_IOTBENCH_COMPLETE=bash_complete" in _run(installed, tmp_path).stdout
    monkeypatch.setenv("_IOTBENCH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "iotbench insert --primary-key ")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert "plain,uuid" in _run(installed, tmp_path).stdout.split()


def test_a_run_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    # Nothing in the user's folder may stand in for a module of the tool.
    (tmp_path / "simulator").mkdir()
    (tmp_path / "simulator" / "__init__.py").write_text("raise ImportError('the wrong one')")
    done = _run(
        installed, tmp_path,
        "insert", "--target", "embedded", "--workers", "2", "--runs", "1", "--duration", "1s",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Workers" in done.stdout
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_the_chart_and_the_recipes_are_those_of_the_installed_package(installed: Path) -> None:
    code = (
        "from cli.run.cluster import CHART; from cli.plan.config import chart_keys;"
        " from cli.run.install.recipes import FOLDER, load_recipe;"
        "print(CHART, FOLDER, (CHART / 'Chart.yaml').is_file(), 'image' in chart_keys(),"
        " load_recipe('postgresql').secret)"
    )
    done = subprocess.run(
        [str(installed / "python"), "-P", "-c", code],
        cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    chart, recipes, *rest = done.stdout.split()
    assert Path(chart).is_relative_to(installed.parent)
    assert Path(recipes).is_relative_to(installed.parent)
    assert rest == ["True", "True", "postgresql-benchmark"]


EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def _list_required(*extras: str) -> Iterator[Requirement]:
    """What these extras name, through extras that they are made of."""
    for requirement in map(Requirement, (text for extra in extras for text in EXTRAS[extra])):
        if requirement.name == PROJECT["name"]:
            yield from _list_required(*requirement.extras)
        else:
            yield requirement


def _complete(*extras: str) -> set[str]:
    """The packages that the tool with these extras consists of here, all in all."""
    pending = [*map(Requirement, PROJECT["dependencies"]), *_list_required(*extras)]
    packages = set[str]()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name not in packages:
            packages.add(name)
            pending += [
                needed
                for needed in map(Requirement, metadata.requires(name) or ())
                if not needed.marker or needed.marker.evaluate()
            ]
    return packages


def _read_lock(path: Path) -> dict[str, str]:
    """Package -> version; each has hashes."""
    text = path.read_text()
    entries = re.findall(
        r"^([\w.-]+)==(\S+)(?: ;[^\\]*)? \\\n((?: +--hash=sha256:[0-9a-f]{64}.*\n)+)",
        text,
        re.MULTILINE,
    )
    assert len(entries) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
    return {canonicalize_name(name): version for name, version, _ in entries}


def test_all_that_can_be_installed_is_locked_with_hashes() -> None:
    """`make lock` makes both files anew."""
    whole, image = (
        _read_lock(ROOT / f"{folder}/requirements.txt") for folder in (".", "simulator")
    )
    assert image.items() <= whole.items()
    assert _complete("all") <= whole.keys()
    assert _complete("databases") <= image.keys()
    for requirement in (*map(Requirement, PROJECT["dependencies"]), *_list_required("all")):
        version = whole[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}, but {version}"


NOT_BROUGHT = {"apache-iotdb"}
"""Clients that are too large to come with their module: 229 MB with what they need."""


@pytest.mark.parametrize("name", sorted(modules._own_names()))
def test_a_module_has_an_extra_with_what_it_imports_and_its_clients(name: str) -> None:
    """And with nothing else; `all` has each."""
    module = load_module(name)
    clients = [package for client in module.CLIENTS.values() for package in client.packages]
    owners = metadata.packages_distributions()
    late = [owners[package.partition(".")[0]][0] for package in module.IMPORTED_LATE
            if not package.startswith("simulator")]  # fmt: skip
    # azure, a namespace of many packages, is among what PACKAGES has.
    late = [package for package in late if not package.startswith("azure-")]
    declared = {*map(canonicalize_name, (*module.PACKAGES, *clients, *late))} - NOT_BROUGHT
    extra = name.replace("_", "-")
    named = {canonicalize_name(requirement.name) for requirement in _list_required(extra)}
    assert declared <= _complete(extra)
    assert named <= declared
    assert _complete(extra) <= _complete("databases") <= _complete("all")


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    subprocess.run([*build, "-t", "wheel"], cwd=folder, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()


def _leave_only(folder: Path, *extras: str) -> str:
    """The folder, for PYTHONPATH: with it Python has only what the tool with these extras consists of."""
    complete = _complete(*extras)
    others = sorted(
        package
        for package, owners in metadata.packages_distributions().items()
        if complete.isdisjoint(map(canonicalize_name, owners))
    )
    assert {"kubernetes", "cassandra", "pyarrow", "scipy"} <= set(others)
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        f"OTHERS = {others}\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in OTHERS:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    return str(folder)


def test_the_demo_needs_no_more_than_what_it_installs(tmp_path: Path) -> None:
    """The file of `make demo`, for one candidate and a shorter time."""
    makefile = (ROOT / "Makefile").read_text()
    installed = re.search(r"^\$\(VENV\)/demo:.*\n.*\n.*'\.\[([\w,]+)\]'$", makefile, re.MULTILINE)
    assert installed is not None
    (tmp_path / "only").mkdir()
    text = (ROOT / "examples/demo.yaml").read_text()
    for long, short in {
        "  plain: {}\n": "", "prefill-span: 1h": "prefill-span: 6m", "duration: 5s": "duration: 4s",
        "settle: 0s": "settle: 0s\nrepeats: 2",
    }.items():  # fmt: skip
        assert long in text
        text = text.replace(long, short)
    (tmp_path / "demo.yaml").write_text(text)
    only = _leave_only(tmp_path / "only", *installed[1].split(","))
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "campaign", "demo.yaml"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": only, "EMBEDDED_DATA_DIR": str(tmp_path / "data")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # No table of a job, and no ranking.
    assert re.match(r"\nVerdict: .*\nCandidate ", done.stdout)


COMMANDS_OF_EMBEDDED = {
    "workloads machines --types": None,
    "workloads temperature --plot": "vl_convert",
    "ceiling --events 100 --batch 10": None,
    "targets": None,
    "targets embedded": None,
    "doctor --executor local": None,
    "doctor": "kubernetes",
    "campaign --example": None,
    "campaign campaign.yaml --dry-run": None,
    "campaign campaign.yaml": "vl_convert",
    "insert --target postgresql": "kubernetes",
    "insert --target cassandra_sync": "cassandra",
    "capacity --target clickhouse --limit p99=1s": "lz4",
    "results list": None,
    "results show stored.json": None,
    "results export stored.json": None,
    "results export stored.json --output all.parquet": "pyarrow",
    "compare stored.json stored.json": None,
    "report stored.json": "vl_convert",
    "plot stored.json": "vl_convert",
    "clean": "kubernetes",
    "db status": "kubernetes",
}
"""Command -> the package that it lacks with `[embedded]` alone; None: it works all the same."""


def test_every_command_works_with_embedded_alone_or_names_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "only").mkdir()
    only = _leave_only(tmp_path / "only", "embedded")
    (tmp_path / "stored.json").write_bytes((ROOT / "img/results/demo-insert.json").read_bytes())
    (tmp_path / "config.yaml").write_bytes((ROOT / "config.yaml").read_bytes())
    (tmp_path / "campaign.yaml").write_text(
        "targets: [embedded]\nsteps:\n  - insert: {workers: 1, duration: 1s}\n"
    )
    code = (
        "import shlex, sys\n"
        "from cli.main import _status\n"
        "for line in sys.stdin:\n"
        "    sys.argv = ['run.py', *shlex.split(line)]\n"
        "    print('\\n>>>', line.strip(), file=sys.stderr, flush=True)\n"
        "    print('<<<', _status(sys.argv[1:]), file=sys.stderr, flush=True)\n"
    )
    lines = [*COMMANDS_OF_EMBEDDED, *(f"{name} --help" for name in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(lines), cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{only}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    outcomes = {
        line: (output.strip(), int(status))
        for line, output, status in re.findall(
            r"^>>> (.*)\n((?:.*\n)*?)<<< (\d+)$", done.stderr, re.MULTILINE
        )
    }
    assert list(outcomes) == lines
    for line, (output, status) in outcomes.items():
        lacks = COMMANDS_OF_EMBEDDED.get(line)
        if lacks is None:
            assert status == 0, f"{line}: {output}"
        else:
            assert status == 2, f"{line}: {output}"
            assert lacks in output and "pip install" in output, line
            assert len(output.splitlines()) == 1, line
    assert re.search(r"^cassandra_sync .* not installed", done.stdout, re.MULTILINE)
    for target, extra in (("cassandra_sync", "cassandra"), ("postgresql", "kubernetes")):
        assert re.search(
            r"error: the Python package \w+ is needed for this and not installed:"
            rf" \S+ -m pip install -e '\S+\[{extra}\]'$",
            outcomes[f"insert --target {target}"][0],
        )
    for output in (done.stdout, outcomes["ceiling --events 100 --batch 10"][0]):
        left_out = re.search(r"^left out, since .* not installed: .*$", output, re.MULTILINE)
        assert left_out and "arangodb" in left_out[0] and "[databases]'" in left_out[0]


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it() -> None:
    text = missing_package(
        ModuleNotFoundError("No module named 'kubernetes.x'", name="kubernetes.x")
    )
    assert text is not None
    assert "package kubernetes is" in text
    assert re.search(r"python\S* -m pip install -e '\S+\[kubernetes\]'$", text)
    text = missing_package(DriverMissing("azure.kusto.data", "azure_data_explorer"))
    assert text is not None and text.endswith("[azure-data-explorer]'")
    assert missing_package(ModuleNotFoundError("No module named 'cli.x'", name="cli.x")) is None
