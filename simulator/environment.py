"""What machine a process runs on, for the result."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from . import __version__

# What every module's payloads and measurements go through.
_SHARED = ("numpy", "orjson", "hdrhistogram")


def client_environment(packages: Iterable[str]) -> dict[str, Any]:
    """Processor, memory, kernel and Python of the load generator, and the versions of the
    distributions `packages` (a module's own) and of those that all modules use."""
    return {
        "simulator": __version__,
        "host": platform.node(),
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": _usable_cpus(),
        "memory_mb": _memory_mb(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _package(name) for name in (*packages, *_SHARED)},
    }


def node_name() -> str:
    """The Kubernetes node if the pod was told it, or else this host."""
    return os.environ.get("NODE_NAME") or platform.node()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or "unknown"


def _usable_cpus() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count()


def _memory_mb() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return None


# cgroup v2, then v1 as a container sees it: the limit, and what is used of it.
_LIMIT_FILES = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def free_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), limits: Iterable[tuple[Path, Path]] = _LIMIT_FILES
) -> int | None:
    """What this process may still take: of the machine's memory, and of its container's limit; None if
    that isn't known.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    found = []
    with suppress(OSError):
        lines = meminfo.read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for limit, used in limits:
        # Without a limit the file says `max`.
        with suppress(OSError, ValueError):
            found.append(max(0, int(limit.read_text()) - int(used.read_text())))
    return min(found, default=None)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
