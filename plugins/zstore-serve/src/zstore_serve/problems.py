"""Why a request gets no answer, as a JSON document that tells nothing about the inside of the server.

Spec: RFC 9457 (problem details for HTTP APIs).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

__all__ = ["Problem"]


class Problem(Exception):
    """Raised where a request gets no answer; `detail` is shown to the client."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail

    def document(self) -> dict[str, Any]:
        """The problem as a document of RFC 9457."""
        title = HTTPStatus(self.status).phrase
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
