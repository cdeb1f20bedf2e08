"""A process of a run that is connected to one server, and to nothing else: the tests' own process may be
connected to servers of other tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CONNECT = """
import json, socket, sys
address = json.loads(sys.argv[1])
family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
if family == socket.AF_INET and ":" in address[0]:
    family = socket.AF_INET6
connection = socket.socket(family)
connection.connect(address if isinstance(address, str) else tuple(address))
print("connected", flush=True)
sys.stdin.read()
"""


@contextmanager
def connected(address: str | tuple[str, int]) -> Iterator[int]:
    """Its number; `address` is a path, or a host and a port."""
    command = [sys.executable, "-S", "-c", _CONNECT, json.dumps(address)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "connected\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()
