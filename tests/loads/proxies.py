"""A proxy between client and server that loses replies: the server has done what it was asked for, and nobody is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class LossyProxy:
    """Forwards connections; replies to requests for which `loses` is true are swallowed.

    Args:
        address: of the server.
        loses: takes the first line of a request and how often that line has come before.
    """

    def __init__(self, address: tuple[str, int], loses: Callable[[str, int], bool]) -> None:
        self.address_of_server, self._loses = address, loses
        self.lost: list[str] = []
        self._counts: dict[str, int] = {}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> LossyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self.address_of_server)
            except OSError:
                return
            with server:
                loses = threading.Event()
                back = threading.Thread(target=self._back, args=(server, client, loses), daemon=True)
                back.start()
                with suppress(OSError):
                    while data := client.recv(65536):
                        first = data.split(b"\r\n", 1)[0].decode("latin-1")
                        if first.endswith("HTTP/1.1"):
                            count = self._counts.get(first, 0)
                            self._counts[first] = count + 1
                            if self._loses(first, count):
                                self.lost.append(first)
                                loses.set()
                        server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                back.join(10)

    @staticmethod
    def _back(server: socket.socket, client: socket.socket, loses: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if loses.is_set() and not data.startswith(b"HTTP/1.1 100"):
                    break
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
