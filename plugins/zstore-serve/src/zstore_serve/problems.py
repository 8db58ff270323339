"""What went wrong with a request, as a JSON document that says no more than whoever asked may know.

Spec: RFC 9457 (problem details for HTTP APIs).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

__all__ = ["Problem"]


class Problem(Exception):
    """A request that gets no answer; `detail` is shown to whoever asked."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail

    def document(self) -> dict[str, Any]:
        """The problem as RFC 9457 writes it."""
        title = HTTPStatus(self.status).phrase
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
