"""How long a socket's calls may wait, as the kernel keeps it.

With `settimeout`, Python makes two system calls or more out of each: it asks whether the socket is ready and
then sends or receives what there is room for. Each time the thread gives up the interpreter's lock and has to
get it back. A call that blocks is one, and the kernel can end its wait as well (SO_RCVTIMEO, SO_SNDTIMEO:
https://man7.org/linux/man-pages/man7/socket.7.html).
"""

from __future__ import annotations

import socket
import ssl
import struct

TIMEOUTS = (TimeoutError, BlockingIOError)
"""What a call raises that has waited too long: by Python's clock, and by the kernel's."""

_TIMEVAL = struct.Struct("ll")
_MILLION = 1_000_000


def limit_waits(stream: socket.socket, timeout_s: float) -> None:
    """End each call on the socket after so long: it then raises one of `TIMEOUTS`."""
    # OpenSSL would try again when the kernel gives up.
    if isinstance(stream, ssl.SSLSocket):
        stream.settimeout(timeout_s)
        return
    stream.settimeout(None)
    # The kernel takes zero for no limit.
    limit = _TIMEVAL.pack(*divmod(max(1, round(timeout_s * _MILLION)), _MILLION))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
