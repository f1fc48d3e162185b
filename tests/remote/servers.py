"""A static web server with byte ranges, in a thread, and ways for it to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

Misbehave = Callable[["StaticHandler", str, bytes], bool]
"""Called with the handler, the path and the body that is due; True when it answered itself."""


class StaticHandler(SimpleHTTPRequestHandler):
    """Files below a folder, whole or one range, without listings; HTTP/1.1, kept open."""

    protocol_version = "HTTP/1.1"
    misbehave: Misbehave | None = None
    has_ranges = True

    def do_GET(self) -> None:
        self._answer(is_head=False)

    def do_HEAD(self) -> None:
        self._answer(is_head=True)

    def _answer(self, *, is_head: bool) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        path = Path(self.directory) / unquote(self.path.split("?")[0]).lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        if self.misbehave is not None and self.misbehave(self, self.path, data):
            return
        wanted = self.headers.get("Range") if self.has_ranges else None
        first, last = 0, len(data) - 1
        if wanted:
            first, last = (int(text) for text in wanted.removeprefix("bytes=").split("-"))
            if first >= len(data):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            last = min(last, len(data) - 1)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        body = data[first : last + 1]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.server.sent += len(body)
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return None


class Server(ThreadingHTTPServer):
    daemon_threads = True
    asked: list[tuple[str, str, dict[str, str]]]
    sent: int

    def handle_error(self, *args: object) -> None:
        return None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(
    folder: Path, *, misbehave: Misbehave | None = None, has_ranges: bool = True
) -> Iterator[Server]:
    """A server of ``folder`` for the time of the ``with`` block."""
    kind = type(
        "Handler",
        (StaticHandler,),
        {
            "misbehave": staticmethod(misbehave) if misbehave else None,
            "has_ranges": has_ranges,
        },
    )
    server = Server(("127.0.0.1", 0), partial(kind, directory=str(folder)))
    server.asked, server.sent = [], 0
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
