"""Which servers on this machine a run's processes are connected to."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

Endpoint = tuple[str, int]

# They listen for a server that is elsewhere: in a container, mostly.
_FORWARDERS = frozenset({"docker-proxy", "rootlessport", "com.docker.backend", "gvproxy", "pasta"})
_EAGER_LOOKS, _SELDOM = 3, 10
"""At first, and when one has ended, so many looks ask for connections; later one in so many, as that takes
milliseconds."""
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - looked for, not bound to
_PATH = re.compile(r"/[^\s'\"?&=]+")


class Servers:
    """Found by the connections of a run's processes, so that no module need tell its addresses."""

    def __init__(self, options: Iterable[object], pids: Collection[int] = ()) -> None:
        """`options`: values of the module's; a folder that one names may have a server's socket. `pids`:
        processes that are known to be the database's."""
        found = [path for text in options for path in _PATH.findall(str(text))]
        self._paths = {Path(path) for path in found} - {Path("/")}
        self._asked: set[Endpoint] = set()
        self._served: set[Endpoint] = set()
        self._addresses: set[str] | None = None
        self._by_socket: set[int] = set()
        self._must_find_sockets = True
        self._looks = 0
        self.pids: set[int] = set(pids)
        """Processes that listen, as far as they live."""
        self.ports: set[int] = set()
        """Where they do, as far as the run's processes are connected to it by TCP."""
        self.hidden = False
        """Whether there is one on this machine that can't be told from others."""

    def look(self, own: Collection[int]) -> bool:
        """Look for servers that the processes `own` are connected to; whether more is known now."""
        gone = {pid for pid in self.pids if not _is_alive(pid)}
        self.pids -= gone
        if gone:
            # What is started in their place is found by the same addresses.
            self._asked.clear()
            self._must_find_sockets, self._looks = True, 0
        self._looks += 1
        if self.pids and self._looks > _EAGER_LOOKS and self._looks % _SELDOM:
            return False
        before = set(self.pids), self.hidden
        connected, sockets = _list_connections(own)
        new = {address for address in connected - self._asked if self._is_here(address[0])}
        self._asked |= connected
        if new:
            self._find_listeners(new)
        if self._must_find_sockets:
            found = self._find_sockets()
            self._by_socket |= found
            # A server that was there comes back.
            self._must_find_sockets = bool(self._by_socket) and not found
            self.pids |= found
        # The other end of a socket without an address can't be seen.
        self.hidden |= sockets and not self._by_socket and not self._asked
        return before != (self.pids, self.hidden)

    def _is_here(self, address: str) -> bool:
        if ipaddress.ip_address(address).is_loopback:
            return True
        if self._addresses is None:
            listed = psutil.net_if_addrs().values()
            self._addresses = {one.address.partition("%")[0] for own in listed for one in own}
        return address in self._addresses

    def _find_listeners(self, endpoints: Iterable[Endpoint]) -> None:
        listening: dict[int, list[Any]] = {}
        with suppress(psutil.Error, OSError):  # macOS: only root may see all
            for one in psutil.net_connections("tcp"):
                if one.laddr and one.status == psutil.CONN_LISTEN:
                    listening.setdefault(one.laddr.port, []).append(one)
        for address, port in endpoints:
            found = [
                one
                for one in listening.get(port, [])
                if _plain(one.laddr.ip) == address or one.laddr.ip in _ANY
            ]
            endpoint = (address, port)
            if not found and endpoint in self._served:
                # It has just ended, or isn't back yet.
                self._asked.discard(endpoint)
                continue
            if found:
                self._served.add(endpoint)
                self.ports.add(port)
            self.pids |= {_find_first(one, "tcp") for one in found if one.pid}
            self.hidden |= not found or any(_forwards(one.pid) for one in found)

    def _find_sockets(self) -> set[int]:
        """Who listens at Unix sockets in the folders that the options name."""
        found: set[int] = set()
        if not self._paths:
            return found
        with suppress(psutil.Error, OSError):
            for one in psutil.net_connections("unix"):
                path = Path(str(one.laddr or "/"))
                if path in self._paths or path.parent in self._paths:
                    found |= {_find_first(one, "unix")} if one.pid else set()
        return found


def _find_first(listening: Any, kind: str) -> int:
    """Who listens, rather than a process that it has just forked: that has the same socket until it closes
    it, and of all who have it psutil names the last."""
    pid: int = listening.pid
    with suppress(psutil.Error, OSError):
        while parent := psutil.Process(pid).parent():
            if all(one.laddr != listening.laddr for one in parent.net_connections(kind)):
                break
            pid = parent.pid
    return pid


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _forwards(pid: int | None) -> bool:
    """Whether a server is behind a process, rather than it; also if that can't be seen."""
    if pid is None:
        return True
    try:
        return psutil.Process(pid).name() in _FORWARDERS
    except psutil.Error:
        return True


def _list_connections(own: Collection[int]) -> tuple[set[Endpoint], bool]:
    """Where these processes are connected to, each other aside, and whether they have Unix sockets
    (but for those of the collector, which are its event loop's)."""
    to: set[Endpoint] = set()
    listening: set[int] = set()
    sockets = False
    for pid in own:
        with suppress(psutil.Error, OSError):  # it has just ended
            found = psutil.Process(pid).net_connections("all")
            tcp = [(one.laddr, one.raddr, one.status) for one in found if _is_tcp(one)]
            ports = {here.port for here, _, status in tcp if status == psutil.CONN_LISTEN}
            to |= {
                (_plain(there.ip), there.port)
                for here, there, status in tcp
                if status == psutil.CONN_ESTABLISHED and here.port not in ports
            }
            sockets |= not ports and any(one.family == socket.AF_UNIX for one in found)
            listening |= ports
    return {address for address in to if address[1] not in listening}, sockets


def _is_tcp(connection: Any) -> bool:
    return bool(connection.family != socket.AF_UNIX and connection.type == socket.SOCK_STREAM)


def _plain(address: str) -> str:
    """`127.0.0.1` for `::ffff:127.0.0.1`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
