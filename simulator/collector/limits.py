"""What a client may send to the collector before it has shown that it is one of its own."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers: uvicorn with httptools has no limit and keeps them all."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed when a request's headers don't end."""

    _head_bytes = 0
    _reads_head = True
    _requests = 0

    def data_received(self, data: bytes) -> None:
        """Parse what came, of which at most one reading of the socket is beyond the limit."""
        before = self._requests
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._requests == before else 0
        if self._reads_head and self._head_bytes > MOST_HEAD_BYTES:
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Headers are over: what follows is read as the application asks for it."""
        self._reads_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next request may begin."""
        self._reads_head = True
        self._requests += 1
        super().on_message_complete()
