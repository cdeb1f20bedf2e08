"""The scripts of every recipe from end to end, with kubectl and helm replaced by programs that write down
what they are told: the vendors' images can't be had everywhere, the commands can be checked anyway."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.run.cluster import Place
from cli.run.install.recipes import LOCAL, Recipe, Scripts
from cli.system.errors import RunFailed
from cli.system.processes import Interrupted, Interrupts

from ..e2e.tool import eventually
from .rendering import COMBINATIONS, RECIPES, Combination, chart_values, objects, render

PASSWORD = "Sesame0pen"
# "Sesame0pen" in base64, as a Secret holds it.
ENCODED = "U2VzYW1lMHBlbg=="

_PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >>"$RECORD/commands"
case "$*" in
  *"get secret"*"--output name") [ "$SECRET_STATUS" != 0 ] || echo "secret/$6" ;;
  *"--output yaml") for name in $OTHERS; do case "$*" in *" $name "*) exit ;; esac; done
    echo "    iot-database-benchmark/database: $DATABASE" ;;
  *"get --filename -"*"--output name") cat >/dev/null; printf '%s\n' $THERE ;;
  *"get persistentvolumeclaim"*) printf '%s\n' $CLAIMS ;;
  *"get values"*) [ "$VALUES" ] || exit 1; printf '%s\n' "$VALUES" ;;
  *"get secret"*variant*) printf '%s' "$INSTALLED" ;;
  *"get secret"*jsonpath*) printf '%s' ENCODED ;;
  *"get secret"*) exit "$SECRET_STATUS" ;;
  *"get storageclass"*) printf '%s' "$CLASSES"; exit "${CLASSES_STATUS:-0}" ;;
  *api-resources*) printf 'others.example.org\n%s\n' "$KNOWN" ;;
  *"filename -"* | *"values -"* | *"--stdin"*) cat >>"$RECORD/input" ;;
esac
""".replace("ENCODED", ENCODED)


def _definition(recipe: Recipe) -> str:
    """The resource by which a recipe knows that its operator is there."""
    match = re.search(
        r"^ *operator (\S+)", (recipe.folder / "install.sh").read_text(), re.MULTILINE
    )
    return match[1] if match else ""


class Recorded:
    """A folder with the two programs, and what they were told."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("kubectl", "helm"):
            (folder / name).write_text(_PROGRAM)
            (folder / name).chmod(0o755)
        for name in ("commands", "input"):
            (folder / name).touch()

    def run(
        self,
        recipe: Recipe,
        script: str,
        arguments: Sequence[str],
        secret_is_there: bool = False,
        operator_is_there: bool = False,
        installed: str = "",
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                "bash", recipe.folder / script, "--context", "ctx", "--namespace", "ns", *arguments,
            ],
            capture_output=True, text=True, check=False,
            env={
                **os.environ,
                "PATH": f"{self._folder}:{os.environ['PATH']}",
                "RECORD": str(self._folder),
                "SECRET_STATUS": "0" if secret_is_there else "1",
                "KNOWN": _definition(recipe) if operator_is_there else "",
                "INSTALLED": installed,
                "DATABASE": recipe.name,
                **dict.fromkeys(("OTHERS", "THERE", "CLAIMS", "VALUES"), ""),
                "CLASSES": "slow= fast=true ",
                **environment,
            },
        )  # fmt: skip

    @property
    def commands(self) -> list[str]:
        return (self._folder / "commands").read_text().splitlines()

    @property
    def input(self) -> str:
        return (self._folder / "input").read_text()


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


every_combination = pytest.mark.parametrize(
    "combination",
    [combination for combination in COMBINATIONS if combination.size == "small"],
    ids=str,
)


@every_combination
def test_install(combination: Combination, recorded: Recorded) -> None:
    recipe = combination.recipe
    done = recorded.run(recipe, "install.sh", combination.arguments)
    assert done.returncode == 0, done
    # Every command names the cluster that the user meant.
    for command in recorded.commands:
        context = "--kube-context=ctx" if command.startswith("helm ") else "--context=ctx"
        assert context in command
    # The password goes through pipes, and is not shown.
    output = "\n".join(recorded.commands) + done.stdout + done.stderr
    assert PASSWORD not in output and ENCODED not in output
    documents = render(combination)
    for document in objects(documents):
        assert f"kind: {document['kind']}\n" in recorded.input
    if chart_values(documents):
        helm = next(
            command for command in recorded.commands if command.startswith("helm upgrade --install")
        )
        assert "--version" in helm and "--namespace ns" in helm and "--wait" in helm
    if recipe.name in ("cockroachdb", "cratedb"):
        assert PASSWORD in recorded.input
    # It ends by waiting, whatever it was.
    waits = ("wait", "rollout status", "--wait")
    assert any(wait in command for command in recorded.commands for wait in waits)
    noted = next(command for command in recorded.commands if " annotate " in command)
    for note in (
        f"variant={combination.variant}", f"nodes={combination.nodes}", "size=small",
    ):  # fmt: skip
        assert f"iot-database-benchmark/{note}" in noted


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_install_again_keeps_operator_and_secrets(recipe: Recipe, recorded: Recorded) -> None:
    """The operator may be somebody else's, and the data knows the old password."""
    done = recorded.run(
        recipe, "install.sh", ["--size", "small"], secret_is_there=True, operator_is_there=True
    )
    assert done.returncode == 0, done
    assert not any(" create --filename" in command for command in recorded.commands)
    assert "kind: Secret" not in recorded.input
    assert not any("--create-namespace" in command for command in recorded.commands)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_uninstall_leaves_the_data_alone(recipe: Recipe, recorded: Recorded) -> None:
    for variant in recipe.variants:
        done = recorded.run(recipe, "uninstall.sh", [], installed=variant)
        assert done.returncode == 0, done
    changes = [
        command for command in recorded.commands if "delete" in command or "uninstall" in command
    ]
    assert len(changes) >= len(recipe.variants)
    for command in changes:
        words = command.replace(",", " ").split()
        assert not {"persistentvolumeclaim", "pvc", "secret", "namespace", "crd"} & set(words)

    done = recorded.run(recipe, "uninstall.sh", ["--delete-volumes"], installed=recipe.variants[0])
    assert done.returncode == 0, done
    deleted = [
        command for command in recorded.commands if "delete persistentvolumeclaim" in command
    ]
    assert len(deleted) == 1 and recipe.volumes in deleted[0]


_OBJECTS = ("service/somebodys", "statefulset.apps/somebodys")


@pytest.mark.parametrize("script", ["install.sh", "uninstall.sh"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_what_somebody_else_made_is_left_alone(
    recipe: Recipe, script: str, recorded: Recorded
) -> None:
    """Objects, releases and volumes of the names that the recipe uses, and the Secret."""
    for variant in recipe.variants:
        arguments = ["--variant", variant]
        is_chart = bool(chart_values(render(Combination(recipe, variant, 1, "small"))))
        there: dict[str, str] = (
            {"VALUES": "replicas: 3"} if is_chart else {"THERE": " ".join(_OBJECTS)}
        )
        names = [f"release/{recipe.name}"] if is_chart else [*_OBJECTS]
        claim = f"persistentvolumeclaim/data-{recipe.name}-0"
        others: Any = {**there, "CLAIMS": claim, "OTHERS": " ".join([*names, claim])}
        done = recorded.run(recipe, script, arguments, **others)
        assert done.returncode == 1, done
        assert "which this tool did not make, so nothing was changed" in done.stderr
        assert all(name in done.stderr for name in names)
        labelled = recipe.volumes_of(variant).startswith("iot-database-benchmark/")
        assert (claim in done.stderr) or (labelled and is_chart), done.stderr
        secret = f"secret/{recipe.secret}"
        done = recorded.run(recipe, script, arguments, secret_is_there=True, OTHERS=secret)
        assert done.returncode == 1 and f"has {secret}, which" in done.stderr, done
    assert not [text for text in recorded.commands if " get " not in text]


def test_uninstall_of_what_is_not_there(recorded: Recorded) -> None:
    recipe = next(recipe for recipe in RECIPES if LOCAL in recipe.variants)
    done = recorded.run(recipe, "uninstall.sh", [])
    assert done.returncode == 1
    assert "not installed in namespace ns" in done.stderr
    assert not any("delete" in command for command in recorded.commands)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nodes", "5"], "number of nodes 5"),
        (["--size", "huge"], "size huge"),
        (["--variant", "own"], "variant own"),
        (["--image", "x:1", "--variant", "vendor"], "--variant local only"),
        (["--storage-class", "x: y"], "no name of a storage class"),
        (["--nonsense"], "usage:"),
    ],
)
def test_wrong_usage_changes_nothing(recorded: Recorded, arguments: list[str], text: str) -> None:
    recipe = next(recipe for recipe in RECIPES if LOCAL in recipe.variants)
    done = recorded.run(recipe, "install.sh", arguments)
    assert done.returncode in (1, 2) and text in done.stderr, done
    assert not recorded.commands


def test_one_node_only(recorded: Recorded) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.nodes == (1,))
    done = recorded.run(recipe, "install.sh", ["--nodes", "3"])
    assert done.returncode == 1 and "can have one node only" in done.stderr
    assert not recorded.commands


def test_without_a_default_storage_class_nothing_waits_for_volumes(recorded: Recorded) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "questdb")
    done = recorded.run(recipe, "install.sh", [], CLASSES="slow= fast=false ")
    assert done.returncode == 1
    assert done.stderr == (
        "error: the cluster has no default storage class: name one by --storage-class"
        " (there is: slow fast), or --storage-class '' for volumes that are there\n"
    )
    assert "(there is: none)" in recorded.run(recipe, "install.sh", [], CLASSES="").stderr
    assert all(" get " in command for command in recorded.commands)
    named = recorded.run(recipe, "install.sh", ["--storage-class", "slow"], CLASSES="slow= ")
    forbidden = recorded.run(recipe, "install.sh", [], CLASSES="", CLASSES_STATUS="1")
    by_hand = recorded.run(recipe, "install.sh", ["--storage-class", ""], CLASSES="")
    assert named.returncode == forbidden.returncode == by_hand.returncode == 0
    assert "storageClass: slow\n" in recorded.input
    # Volumes may have a class that is no object.
    unknown = recorded.run(recipe, "install.sh", [], CLASSES="slow= ", STORAGE_CLASS="manual")
    assert unknown.returncode == 0
    assert "no storage class manual (there is: slow)" in unknown.stderr
    assert "no storage class" not in named.stderr + by_hand.stderr


def test_a_password_is_made_once_and_well(recorded: Recorded) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "postgresql")
    passwords = set()
    for _ in range(3):
        done = recorded.run(recipe, "install.sh", ["--variant", "local", "--size", "small"])
        assert done.returncode == 0, done
    for line in recorded.input.splitlines():
        if line.startswith("  password: "):
            passwords.add(line.removeprefix("  password: "))
    assert len(passwords) == 3
    # 24 letters and digits are 32 characters in base64.
    assert all(len(text) == 32 for text in passwords)


# --- how the tool runs them -----------------------------------------------------------------------


@pytest.fixture
def scripts(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """The scripts of a recipe without any yet; SIGKILL comes a little after SIGTERM."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("cli.run.install.recipes.END_PATIENCE_S", 0.2)
    return Scripts(
        replace(RECIPES[0], folder=tmp_path), Place("ns", context="ctx"), 60, Interrupts()
    )


def test_a_script_reads_nothing_and_its_status_counts(
    scripts: Scripts, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "install.sh").write_text('echo "told $*, read <$(cat)>"; exit 2\n')
    script = ("install.sh", ["--status"])
    with pytest.raises(RunFailed, match=r"install\.sh ended with status 2"):
        scripts.run(*script)
    # And nothing from bash, which ends what watched over it.
    assert (
        capfd.readouterr().err
        == "told --namespace ns --context ctx --timeout 60 --status, read <>\n"
    )


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_script_does_not_outlive_a_tool_that_was_killed(
    scripts: Scripts, tmp_path: Path, stubborn: bool
) -> None:
    """Nor does what it has started."""
    ignored = "trap '' TERM\n" if stubborn else ""
    pids = tmp_path / "pids"
    pids.touch()
    (tmp_path / "install.sh").write_text(f"{ignored}sleep 1000 & echo $$ $! >{pids}\nwait\n")
    tool = os.fork()
    if not tool:
        try:
            scripts.run("install.sh", [])
        finally:
            os._exit(1)
    numbers = eventually(lambda: pids.read_text().split(), "the script")
    processes = [psutil.Process(int(number)) for number in numbers]
    group = os.getpgid(processes[0].pid)
    os.kill(tool, signal.SIGKILL)
    os.waitpid(tool, 0)
    _, alive = psutil.wait_procs(processes, 60)
    assert not alive
    eventually(lambda: not _has_members(group), "the end of its group")


@pytest.mark.parametrize("signals", [1, 2])
def test_a_script_that_is_interrupted_ends_in_good_order_or_at_once(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: int
) -> None:
    monkeypatch.setattr("cli.run.install.recipes.END_PATIENCE_S", 600.0)
    begun, undone = tmp_path / "begun", tmp_path / "undone"
    (tmp_path / "install.sh").write_text(
        f"undo() {{ while [ {signals} = 2 ]; do sleep 0.1; done; touch {undone}; exit; }}\n"
        # Without a program in the foreground: dash loses a signal that comes while it starts one by vfork.
        f"trap undo TERM\n: > {begun}\nsleep 60 & wait\n"
    )

    def interrupt() -> None:
        eventually(begun.exists, "the script")
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.5)  # nothing tells that the first has been handled

    with scripts._interrupts:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(Interrupted) as ended:
            scripts.run("install.sh", [])
        thread.join()
    assert "install.sh of" in ended.value.left
    assert undone.exists() == (signals == 1)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
