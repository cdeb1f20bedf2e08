"""This machine's network traffic during a run: the bytes of TCP connections to the database's ports, and the
share of what its links can carry. As counted by Linux."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

from .timeline import Step, Window, add_up

_log = logging.getLogger(__name__)

# https://man7.org/linux/man-pages/man7/sock_diag.7.html
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST_AND_DUMP = 0x301
_INET_DIAG_INFO = 2
# All connection states but listening and closed without an owner (bits by TCP_ESTABLISHED = 1 …).
_TCP_LISTEN, _TCP_TIME_WAIT, _TCP_CLOSE, _TCP_SYN_RECV, _TCP_NEW_SYN_RECV = 10, 6, 7, 3, 12
_STATES = 0xFFF & ~sum(
    1 << state
    for state in (0, _TCP_LISTEN, _TCP_TIME_WAIT, _TCP_CLOSE, _TCP_SYN_RECV, _TCP_NEW_SYN_RECV)
)
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_ATTRIBUTE = struct.Struct("=HH")
# In struct inet_diag_msg, before the attributes.
_MESSAGE_BYTES, _COOKIE_AT = 72, 44
# tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info, since Linux 4.1.
_COUNTS, _COUNTS_AT = struct.Struct("=QQ"), 120
_PATIENCE_S = 1.0

Traffic = Mapping[int, tuple[int, int]]
"""Connection, by a unique number -> bytes that the listening side received and sent."""


@dataclass(frozen=True)
class Link:
    """An interface with a known speed. Bytes count from when it came up."""

    bits_per_s: float
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True)
class NetworkSnapshot:
    """All connections and links at one instant, by `read_clock_s`."""

    at: float
    traffic: Traffic | None = None
    """None if it can't be seen."""
    links: Mapping[str, Link] = field(default_factory=dict)


def merge_networks(earlier: NetworkSnapshot, later: NetworkSnapshot) -> NetworkSnapshot | None:
    """The earlier one, if both have the same connections and links: what the later one counts is in the
    snapshots that follow."""
    if earlier.links.keys() != later.links.keys():
        return None
    if earlier.traffic is None or later.traffic is None:
        return earlier if earlier.traffic is later.traffic else None
    return earlier if earlier.traffic.keys() == later.traffic.keys() else None


def sum_traffic(
    snapshots: Iterable[NetworkSnapshot], window: Window
) -> tuple[int | None, int | None]:
    """Bytes received and sent in a window; None if too little is known of it. Pure.

    The last bytes of a connection that has ended can't be seen. That step is assumed to be like the others.
    """
    steps = (
        Step(before.at, after.at, dict(enumerate(grown)))
        for before, after in pairwise(snapshots)
        if (grown := _compare(before.traffic, after.traffic)) is not None
    )
    amounts = add_up(steps, window)
    return (None, None) if amounts is None else (round(amounts[0]), round(amounts[1]))


def _compare(before: Traffic | None, after: Traffic | None) -> tuple[int, int] | None:
    """What all connections carried between two snapshots; None if one has ended."""
    if before is None or after is None or before.keys() - after.keys():
        return None
    pairs = [(before.get(cookie, (0, 0)), now) for cookie, now in after.items()]
    received, sent = (sum(now[n] - was[n] for was, now in pairs) for n in (0, 1))
    return received, sent


def read_traffic(ports: Iterable[int]) -> Traffic | None:
    """The bytes that the existing connections carried to and from these ports; None if that can't be seen, as
    on systems other than Linux."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    traffic: dict[int, tuple[int, int]] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_PATIENCE_S)
            for port in ports:
                for family in (socket.AF_INET, socket.AF_INET6):
                    netlink.send(_make_request(family, port))
                    for message in _receive(netlink):
                        counts = _read_counts(message)
                        if counts is None:
                            return None
                        traffic[int.from_bytes(message[_COOKIE_AT : _COOKIE_AT + 8], "little")] = (
                            counts
                        )
    except OSError as error:
        _log.debug("connections can't be read: %s", error)
        return None
    return traffic


def _make_request(family: int, port: int) -> bytes:
    """A request for all connections whose own port is this one."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), _STATES)
    # Ports, then addresses, interface and cookie: any.
    request += struct.pack("!HH", port, 0) + bytes(36) + b"\xff" * 8
    size = _HEADER.size + len(request)
    return _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_AND_DUMP, 0, 0) + request


def _receive(netlink: socket.socket) -> Iterator[bytes]:
    """The messages of an answer, each without its header; OSError if the answer is an error."""
    while True:
        data = netlink.recv(1 << 20)
        while data:
            size, kind, *_ = _HEADER.unpack_from(data)
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                raise OSError("the kernel refuses it")
            yield data[_HEADER.size : size]
            data = data[(size + 3) & ~3 :]


def _read_counts(message: bytes) -> tuple[int, int] | None:
    """Bytes received, and sent and acknowledged; None if the kernel is too old to tell."""
    place = _MESSAGE_BYTES
    while place + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, place)
        if kind == _INET_DIAG_INFO and size >= _ATTRIBUTE.size + _COUNTS_AT + _COUNTS.size:
            sent, received = _COUNTS.unpack_from(message, place + _ATTRIBUTE.size + _COUNTS_AT)
            return received, sent
        place += (max(size, _ATTRIBUTE.size) + 3) & ~3
    return None


# The share of what this machine's network links can carry.

_BITS_PER_MBIT = 1e6
_INTERFACES = Path("/sys/class/net")


def read_links() -> dict[str, Link]:
    """The machine's links now. Leaves out links that lead nowhere (loopback), that report an invented speed
    (bridges and containers) or none (most virtual machines)."""
    counters = psutil.net_io_counters(pernic=True)
    return {
        name: Link(stats.speed * _BITS_PER_MBIT, counted.bytes_recv, counted.bytes_sent)
        for name, stats in psutil.net_if_stats().items()
        if stats.isup and 0 < stats.speed < 1 << 31
        if not psutil.LINUX or (_INTERFACES / name / "device").exists()
        if (counted := counters.get(name)) is not None
    }


def find_link_share(snapshots: Iterable[NetworkSnapshot], window: Window) -> float | None:
    """The share of the busiest link, in its busier direction, in a window; None if no link reports its speed,
    or too little is known of the window. Pure."""
    steps = (_compare_links(before, after) for before, after in pairwise(snapshots))
    busy_s = add_up(steps, window)
    return max(busy_s.values()) / window.length_s if busy_s else None


def _compare_links(before: NetworkSnapshot, after: NetworkSnapshot) -> Step:
    """For how many seconds each link would have been busy at full speed, in either direction."""
    amounts: dict[Hashable, float] = {}
    for name in before.links.keys() & after.links.keys():
        was, now = before.links[name], after.links[name]
        grown = (now.received_bytes - was.received_bytes, now.sent_bytes - was.sent_bytes)
        for direction, size in enumerate(grown):
            amounts[name, direction] = 8 * max(0, size) / now.bits_per_s
    return Step(before.at, after.at, amounts)
