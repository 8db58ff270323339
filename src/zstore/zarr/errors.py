"""Errors and warnings under zarr-python's names; each error is also one of `zstore.errors` and a ValueError.

Programs catch them by zarr-python's names, by zstore's, or by those of Python that they caught before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from zstore import errors

__all__ = [
    "ArrayIndexError",
    "ArrayNotFoundError",
    "BaseZarrError",
    "BoundsCheckError",
    "ChunkNotFoundError",
    "ContainsArrayAndGroupError",
    "ContainsArrayError",
    "ContainsGroupError",
    "DataTypeValidationError",
    "GroupNotFoundError",
    "MetadataValidationError",
    "NegativeStepError",
    "NodeNotFoundError",
    "NodeTypeValidationError",
    "PickleCodecDisabledError",
    "UnknownCodecError",
    "UnstableSpecificationWarning",
    "VindexInvalidSelectionError",
    "ZarrDeprecationWarning",
    "ZarrFutureWarning",
    "ZarrRuntimeWarning",
    "ZarrUserWarning",
]

P = ParamSpec("P")
R = TypeVar("R")


class BaseZarrError(errors.ZstoreError, ValueError):
    """The base of zarr-python's errors."""


class NodeNotFoundError(BaseZarrError, errors.NotFoundError):
    """There is no array and no group at that path."""


class ContainsNodeError(BaseZarrError, errors.ExistsError):
    """There is an array or a group at that path already."""


# One look at a path asks for either.
ArrayNotFoundError = GroupNotFoundError = ChunkNotFoundError = NodeNotFoundError
ContainsArrayError = ContainsGroupError = ContainsNodeError


class ContainsArrayAndGroupError(BaseZarrError, errors.MetadataError):
    """There are documents of an array and of a group at that path."""


class MetadataValidationError(BaseZarrError, errors.MetadataError):
    """Metadata, or arguments that metadata are made of, are malformed or contradict each other."""


class NodeTypeValidationError(MetadataValidationError):
    """There is a group where an array was expected, or an array for a group."""


class DataTypeValidationError(MetadataValidationError):
    """A data type is malformed."""


class UnknownCodecError(BaseZarrError, errors.UnknownExtensionError):
    """Nobody offers a codec of that name."""


class PickleCodecDisabledError(BaseZarrError, errors.UnsupportedError):
    """Chunks are pickled, and to unpickle them was not allowed."""


class RequestError(BaseZarrError, errors.UnsupportedError):
    """A well-formed request or document beyond zstore's abilities."""


class ReadOnlyStoreError(BaseZarrError, errors.ReadOnlyError):
    """A write to a store that was opened for reading only."""


BoundsCheckError = ArrayIndexError = NegativeStepError = VindexInvalidSelectionError = errors.SelectionError


class ZarrFutureWarning(FutureWarning):
    """The warning of zarr-python's that something will be done otherwise."""


class UnstableSpecificationWarning(ZarrFutureWarning):
    """The warning of zarr-python's that something stored is in no specification."""


class ZarrDeprecationWarning(DeprecationWarning):
    """The warning of zarr-python's that a name will be removed."""


class ZarrUserWarning(UserWarning):
    """The warning of zarr-python's about a program."""


class ZarrRuntimeWarning(RuntimeWarning):
    """The warning of zarr-python's that something has no effect."""


# The first that fits counts.
KINDS: dict[type[errors.ZstoreError], type[errors.ZstoreError]] = {
    errors.ReadOnlyError: ReadOnlyStoreError,
    errors.ExistsError: ContainsNodeError,
    errors.NotFoundError: NodeNotFoundError,
    errors.MetadataError: MetadataValidationError,
    errors.UnknownExtensionError: UnknownCodecError,
    errors.UnsupportedError: RequestError,
}


def as_zarr(error: errors.ZstoreError) -> errors.ZstoreError:
    """The error as zarr-python's callers catch it; the error itself where they catch it already."""
    kind = next((made for base, made in KINDS.items() if isinstance(error, base)), None)
    if kind is None or isinstance(error, BaseZarrError | KeyError):
        return error
    return kind(error.message, path=error.path, key=error.key, codec=error.codec, offset=error.offset)


def raising(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors are those that zarr-python's callers catch."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except errors.ZstoreError as error:
            raise as_zarr(error) from error.__cause__

    return call
