"""Connections: no more than so many at once, and none that takes too long to send the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds from a connection, or the first byte of a further request in it, to the end of the request's head.
HEAD_TIME = 30.0
# What is sent to whoever comes when there are too many.
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 17\r\n\r\ntoo many clients\n"
)


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for ever for requests that are sent in part.

    Half-sent requests would else hold descriptors until there are none left for others. A connection beyond
    `limit_concurrency` is closed as it comes; uvicorn itself keeps it and refuses its requests.
    """

    head_time = HEAD_TIME
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            transport.write(FULL)
            transport.close()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._deadline is None:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Between requests uvicorn's own limit counts, `timeout_keep_alive`.
        self._stop_waiting()

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(self.head_time, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
