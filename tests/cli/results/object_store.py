"""A stand-in for S3 on this machine: objects are put, got and listed as the protocol has it."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from ..stand_in import QuietHandler, StandIn

_DATE = "2026-01-02T03:04:05.000Z"


class ObjectStore(StandIn):
    """Serves `objects`, by /bucket/key. `refuse`: what the keys of refused requests have in them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refuse = ""
        self.writes_only = False
        self.signed: set[str] = set()
        """The Authorization headers of all requests."""
        store = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def answer_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                store.signed.add(self.headers.get("Authorization", ""))
                status, content = store.answer(self.command, self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", '"1"')
                self.send_header("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_HEAD = answer_any  # noqa: N815

        super().__init__(Handler)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and content."""
        parts = urlsplit(path)
        key = unquote(parts.path)
        if (self.refuse and self.refuse in key) or (self.writes_only and method != "PUT"):
            return 403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        if method == "PUT":
            self.objects[key] = body
            return 200, b""
        if "list-type=2" in parts.query:
            parameters = parse_qs(parts.query)
            return 200, self._list(key.rstrip("/"), parameters.get("prefix", [""])[0]).encode()
        if key not in self.objects:
            return 404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        return 200, self.objects[key]

    def _list(self, bucket: str, prefix: str) -> str:
        contents, folders = [], set()
        for whole, content in sorted(self.objects.items()):
            key = whole.removeprefix(f"{bucket}/")
            if whole == key or not key.startswith(prefix):
                continue
            folder, slash, _ = key.removeprefix(prefix).partition("/")
            if slash:
                folders.add(
                    f"<CommonPrefixes><Prefix>{escape(prefix + folder)}/</Prefix></CommonPrefixes>"
                )
            else:
                contents.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                    f'<LastModified>{_DATE}</LastModified><ETag>"1"</ETag></Contents>'
                )
        inside = "".join([*contents, *sorted(folders)])
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{inside}</ListBucketResult>"
