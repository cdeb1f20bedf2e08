"""A TCP proxy between the tool and the API server, which can be cut or swallow everything."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Listens on a port of this machine. Use as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = True
        self._flowing = threading.Event()
        self._flowing.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        self._flowing.set()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        with self._lock:
            self._open = False
            for pair in self._pairs:
                for end in pair:
                    _close(end)
            self._pairs.clear()

    def stall(self) -> None:
        """Take everything and pass nothing on, as a firewall that drops packets does."""
        self._flowing.clear()

    def mend(self) -> None:
        """Let connections through again."""
        self._open = True
        self._flowing.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._open:
                    _close(near)
                    continue
                try:
                    far = socket.create_connection(self._target, 5)
                except OSError:
                    _close(near)
                    continue
                with self._lock:
                    self._pairs.append((near, far))
                for source, target in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._pass_on, args=[source, target], daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                target.sendall(data)
        _close(source)
        _close(target)


def _close(end: socket.socket) -> None:
    # Closing alone does not wake a thread that reads from it.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
