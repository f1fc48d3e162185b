"""A proxy that drops every connection after so many bytes, until it is mended."""

from __future__ import annotations

import socket
import threading


class CutProxy:
    """Passes on to ``port`` of this machine; ``cut_after(n)`` drops all once ``n`` more passed.

    Bytes of both directions count.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._guard = threading.Lock()
        self._left: int | None = None
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.passed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, n_bytes: int) -> None:
        with self._guard:
            self._left = n_bytes

    def mend(self) -> None:
        with self._guard:
            self._left = None

    def close(self) -> None:
        self._listener.close()
        self._drop()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._left == 0:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._guard:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                data, is_cut = self._allowed(data)
                sink.sendall(data)
                if is_cut:
                    self._drop()
                    return
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _allowed(self, data: bytes) -> tuple[bytes, bool]:
        with self._guard:
            self.passed += len(data)
            if self._left is None:
                return data, False
            data = data[: self._left]
            self._left -= len(data)
            return data, self._left == 0

    def _drop(self) -> None:
        with self._guard:
            ends, self._open = self._open, set()
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
