"""Why a request gets no answer, as a JSON document that tells nothing about the inside of the server.

Spec: RFC 9457 (problem details for HTTP APIs).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["Problem", "answer_unless_gone", "problem_answer"]


class Problem(Exception):
    """Raised where a request gets no answer; `detail` is shown to the client."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail

    def document(self) -> dict[str, Any]:
        """The problem as a document of RFC 9457."""
        title = HTTPStatus(self.status).phrase
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}


def problem_answer(problem: Problem) -> Response:
    """The answer to a request that has a problem."""
    content = json.dumps(problem.document()).encode()
    return Response(content, problem.status, {"Cache-Control": "no-store"}, "application/problem+json")


async def answer_unless_gone(
    request: Request,
    answer: Coroutine[Any, Any, Response],
    explain: Callable[[Exception], Awaitable[Problem]],
) -> Response:
    """The answer, or a problem document; the work is cancelled when the client has gone.

    explain  the problem that an error of the work comes to
    """
    work = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        response = await work if work.done() else Response(status_code=499)
    except Problem as problem:
        response = problem_answer(problem)
    except Exception as error:
        response = problem_answer(await explain(error))
    finally:
        work.cancel()
        gone.cancel()
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
