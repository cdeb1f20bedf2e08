"""The end of TLS before a PostgreSQL that has none: the client's side is encrypted, the server's is not.

https://www.postgresql.org/docs/current/protocol-flow.html, "SSL Session Encryption"
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2.extensions
import trustme

_SSL_REQUEST = struct.pack("!II", 8, 80877103)


@contextmanager
def tls_to(dsn: str, folder: Path) -> Iterator[str]:
    """How to reach the server (by TCP) over TLS, with a certificate that libpq verifies."""
    here = psycopg2.extensions.parse_dsn(dsn)
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = (here["host"], int(here["port"]))
        threading.Thread(target=_accept, args=[listener, server, context], daemon=True).start()
        changes = {
            "host": "127.0.0.1", "port": str(listener.getsockname()[1]),
            "sslmode": "verify-full", "sslrootcert": str(trusted),
        }  # fmt: skip
        yield str(psycopg2.extensions.make_dsn(dsn, **changes))
        # close() alone would not wake the thread that waits in accept().
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, server: tuple[str, int], context: ssl.SSLContext) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=[client, server, context], daemon=True).start()


def _serve(client: socket.socket, address: tuple[str, int], context: ssl.SSLContext) -> None:
    """Serve a connection in one thread: two can't use both directions of TLS at once."""
    with suppress(OSError), client, socket.create_connection(address) as server:
        for stream in (client, server):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert client.recv(len(_SSL_REQUEST), socket.MSG_WAITALL) == _SSL_REQUEST
        client.sendall(b"S")
        with context.wrap_socket(client, server_side=True) as secure:
            while True:
                ready = [secure] if secure.pending() else select.select([secure, server], (), ())[0]
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    (server if source is secure else secure).sendall(data)
