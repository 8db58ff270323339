"""GETs and PUTs of many values at once by libcurl, made by the calling thread without the interpreter's lock."""

from collections.abc import Callable
from typing import Any, final

__test__: dict[str, Any]

DONE: int
REFUSED: int
UNSIZED: int
UNRANGED: int
BROKEN: int
STALLED: int
SLOW: int
UNASKED: int

def trouble() -> str: ...
def version() -> str: ...
def puts() -> bool: ...
def reason_of(code: int) -> str: ...

@final
class Body: ...

@final
class Connections:
    def __new__(cls, authorities: bytes | None = None) -> Connections: ...
    @property
    def count(self) -> int: ...
    def get(
        self,
        requests: list[tuple[bytes, bytes | None, list[bytes], int]],
        terms: tuple[int, float, float, float, int],
        check: Callable[[], object],
        share: int = 1,
    ) -> list[tuple[int, int, Any, int, int, bytes, bytes, bytes, bytes, int, float, bool]]: ...

@final
class Stream:
    def __new__(
        cls,
        connections: Connections,
        terms: tuple[int, float, float, float, int],
        allowed: int,
        most_size: int,
        places: int = 128,
    ) -> Stream: ...
    @property
    def room(self) -> int: ...
    def ask(
        self,
        name: object,
        request: tuple[bytes, bytes | None, list[bytes], int],
        content: bytes | None = None,
    ) -> None: ...
    def send(self) -> None: ...
    def take(
        self, check: Callable[[], object]
    ) -> list[tuple[Any, tuple[int, int, Any, int, int, bytes, bytes, bytes, bytes, int, float, bool]]]: ...
    def leave(self) -> None: ...
