"""The contract suite on the official images of tests/compose.yaml, one system after another.

python -m tests.on_images [SYSTEM...]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

COMPOSE_FILE = Path(__file__).with_name("compose.yaml")


def services() -> Mapping[str, Any]:
    """Name -> service of the compose file."""
    definitions: Mapping[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    return definitions


def suite_of(system: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs the suite on one system, and the environment that it needs."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/contract"]
    # Whole names: "postgres" is in "postgres-embedded", too.
    command += ["-k", f"{system} and not stand-in and not embedded and not three"]
    return command, {**services()[system]["x-variables"], "REQUIRE_SERVERS": system}


def run(system: str) -> bool:
    """Start a system, run the suite, end it; whether all tests passed."""
    compose = ["docker", "compose", "-f", str(COMPOSE_FILE)]
    command, variables = suite_of(system)
    try:
        subprocess.run([*compose, "up", "--detach", "--wait", system], check=True)
        return subprocess.run(command, env=os.environ | variables, check=False).returncode == 0
    except subprocess.CalledProcessError:
        subprocess.run([*compose, "logs", "--tail", "50", system], check=False)
        return False
    finally:
        subprocess.run([*compose, "rm", "--force", "--stop", "--volumes", system], check=False)


def main(systems: Sequence[str]) -> int:
    """Run all that are asked for; 0 if all passed."""
    definitions = services()
    if unknown := [system for system in systems if system not in definitions]:
        print(f"unknown: {', '.join(unknown)} (known: {', '.join(definitions)})", file=sys.stderr)
        return 2
    failed = [system for system in systems or definitions if not run(system)]
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
