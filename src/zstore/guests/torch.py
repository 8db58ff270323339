"""Batches in torch: a dataset that its DataLoader divides among workers, each sample to one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from zstore.errors import UnsupportedError


def to_torch(batches: Any) -> Any:
    """The batches as a dataset of torch, for `DataLoader(dataset, batch_size=None, num_workers=2)`.

    Each worker has a share of the samples, and the memory that the batches were made with. A DataLoader that
    starts its workers anew in each epoch is told which one it is: `dataset.set_epoch(n)`. The dataset has
    `state_dict` and `load_state_dict`, as torchdata's `StatefulDataLoader` asks for them.

    Raises
        UnsupportedError: torch is missing.
    """
    return _dataset_class()(batches)


@cache
def _dataset_class() -> type[Any]:
    try:
        from torch.utils.data import IterableDataset, get_worker_info
    except ImportError as error:
        raise UnsupportedError("datasets of torch need the package torch, which is not installed") from error

    class BatchDataset(IterableDataset):  # type: ignore[misc]
        """Batches as a dataset of torch, of which each worker yields its share."""

        def __init__(self, batches: Any) -> None:
            self._batches = batches
            self._own: Any = None
            self._state: Mapping[str, Any] | None = None

        def __reduce__(self) -> tuple[Any, ...]:
            return to_torch, (self._batches,), {"_state": self._state}

        def __iter__(self) -> Iterator[Any]:
            if self._own is None:
                worker = get_worker_info()
                is_shared = worker is not None and worker.num_workers > 1
                self._own = self._batches.shard(worker.id, worker.num_workers) if is_shared else self._batches
            if self._state is not None:
                self._own.restore(self._state)
                self._state = None
            iterator: Iterator[Any] = iter(self._own)
            return iterator

        def set_epoch(self, epoch: int) -> None:
            """Begin the next iteration with an epoch."""
            self._batches.set_epoch(epoch)
            self._own = None

        def state_dict(self) -> dict[str, Any]:
            """The state of this worker's batches."""
            state: dict[str, Any] = (self._batches if self._own is None else self._own).state()
            return state

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            """Go on after a state of this worker's batches, when they are iterated."""
            self._state = state

    return BatchDataset
