"""What all tests have: servers that fail are asked again soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zstore.storage import remote


@pytest.fixture(autouse=True, scope="session")
def _soon() -> Iterator[None]:
    """As often as ever, and with growing pauses, from a hundredth of a second on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "FIRST_PAUSE", 0.01)
        yield
