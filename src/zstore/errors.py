"""Every exception that zstore raises, and the warnings that callers filter.

    ZstoreError
    ├── NotFoundError          (LookupError, FileNotFoundError)  no array, group or store there
    ├── MetadataError          (ValueError)    a metadata document is malformed or contradicts itself
    ├── UnsupportedError                       well-formed, but not something zstore does
    ├── SelectionError         (IndexError)    a selection that does not fit the array
    ├── CodecError                             a chunk that cannot be encoded or decoded
    │   └── ChecksumError                      a chunk whose checksum does not match
    ├── StoreError             (OSError)       the store failed, or the key is not one it takes
    │   ├── ExistsError        (FileExistsError, ValueError)  a node is there already
    │   ├── ReadOnlyError                      a write to something opened for reading
    │   └── ChangedError                       somebody else wrote what was to be changed
    └── ExtensionError                         plugins
        ├── UnknownExtensionError (LookupError)  nobody offers that name
        └── ExtensionConflictError               two plugins offer that name

    UserWarning
    ├── ReadingWarning                         documents say something wrong, which was not what was asked
    └── RasterWarning                          a raster lacks something, or Zarr cannot express it

A message says what failed, the value, what was expected, and where. The fields `path` (of the array or
group), `key` (in the store), `codec` and `offset` carry the same facts for programs; the engine fills in what
the code that raised could not know (`locate`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from errno import EACCES, EEXIST, EISDIR, ELOOP, ENOENT, ENOLINK, ENOTDIR, ENOTSUP, EPERM, EXDEV
from typing import Any

__all__ = [
    "ChangedError",
    "ChecksumError",
    "CodecError",
    "ExistsError",
    "ExtensionConflictError",
    "ExtensionError",
    "MetadataError",
    "NotFoundError",
    "RasterWarning",
    "ReadOnlyError",
    "ReadingWarning",
    "SelectionError",
    "StoreError",
    "UnknownExtensionError",
    "UnsupportedError",
    "ZstoreError",
]

# What web addresses carry of passwords and signatures.
SECRETS = re.compile(
    r"""(?:(?<=http://)|(?<=https://))[^/\s"'\\@]+@"""
    r"""|(?<=[?&])(?P<name>(?:x-amz-(?:signature|security-token|credential)|x-goog-(?:signature|credential)"""
    r"""|sig|signature|awsaccesskeyid|token|access_token|api_?key|key|password)=)[^&\s"'\\]+""",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """The text with "..." for passwords and signatures in web addresses, to be shown to anybody."""
    if "://" not in text:
        return text
    return SECRETS.sub(lambda found: f"{found['name']}..." if found["name"] else "...@", text)


def printable(text: str) -> str:
    """The text with escapes in place of characters that a terminal would act upon."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def clean(text: str, most: int = 640) -> str:
    """The text on one line, cut after `most` characters, with terminal characters escaped."""
    shown = printable(text)
    return shown if len(shown) <= most else shown[:most] + "..."


class ZstoreError(Exception):
    """The base of all errors of zstore; has the path, key and codec, as far as they are known."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        key: str | None = None,
        codec: str | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.key = key
        self.codec = codec
        self.offset = offset

    def __str__(self) -> str:
        where = []
        # Neither is of any use where it is the root, "".
        if self.key:
            where.append(f"{self.key!r}")
        if self.path:
            where.append(f"of {self.path!r}" if where else f"{self.path!r}")
        return without_secrets(f"{self.message} (at {' '.join(where)})" if where else self.message)

    def locate(self, *, path: str | None = None, key: str | None = None) -> ZstoreError:
        """The same error, with path and key added if it lacks them."""
        self.path = self.path if self.path is not None else path
        self.key = self.key if self.key is not None else key
        return self

    def __reduce__(self) -> tuple[object, ...]:
        fields = {"path": self.path, "key": self.key, "codec": self.codec, "offset": self.offset}
        number = getattr(self, "errno", None)
        return (_rebuild, (type(self), self.message, fields), None if number is None else {"errno": number})


class located:
    """A context that adds the path and key to errors of zstore that lack them."""

    __slots__ = ("_key", "_path")

    def __init__(self, path: str | None = None, key: str | None = None) -> None:
        self._path = path
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ZstoreError):
            error.locate(path=self._path, key=self._key)


def _rebuild(kind: type[ZstoreError], message: str, fields: dict[str, object]) -> ZstoreError:
    return kind(message, **fields)  # type: ignore[arg-type]


class NotFoundError(ZstoreError, LookupError, FileNotFoundError):
    """There is no array, group or store at that path.

    hint  gives the end of the message: what is near. It is called when somebody reads the message, which
          nobody does where something is yet to be made
    """

    _hint: Callable[[], str] | None = None

    def __init__(self, message: str, *, hint: Callable[[], str] | None = None, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.errno = ENOENT
        self._hint = hint

    @property
    def message(self) -> str:
        """The text of the error, with the names of nodes and files nearby."""
        if self._hint is not None:
            hint, self._hint = self._hint, None
            self._message += hint()
        return self._message

    @message.setter
    def message(self, message: str) -> None:
        self._message = message


class MetadataError(ZstoreError, ValueError):
    """A metadata document is malformed, incomplete or contradicts itself."""


class UnsupportedError(ZstoreError):
    """A well-formed request or document beyond zstore's abilities."""


class SelectionError(ZstoreError, IndexError):
    """A selection that does not fit the array."""


class CodecError(ZstoreError):
    """A chunk could not be encoded or decoded."""


class ChecksumError(CodecError):
    """A chunk's checksum does not match its bytes."""


class StoreError(ZstoreError, OSError):
    """The store failed, or got a key that it cannot take."""

    @property
    def is_denied(self) -> bool:
        """Whether the store reports a lack of permission, at least for this user."""
        return self.errno in (EACCES, EPERM)

    @property
    def is_no_list(self) -> bool:
        """Whether a list was asked of a store that has none, or none for this user; else it has failed."""
        return self.is_denied or self.errno == ENOTSUP

    @property
    def is_of_key(self) -> bool:
        """Whether one key alone is out of reach: a link leads astray, or the store refuses."""
        return self.is_denied or self.errno in (EXDEV, ENOLINK, ELOOP, EISDIR, ENOTDIR)


class ExistsError(StoreError, FileExistsError, ValueError):
    """A node that was to be made is there already."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.errno = EEXIST


class ReadOnlyError(StoreError):
    """A write to something that was opened for reading only."""


class ChangedError(StoreError):
    """Somebody else has written a value since it was read in order to be changed; try again.

    is_sure  False: an answer was lost, so that this writer's value may have been there before the other one's
    """

    is_sure = True


class ExtensionError(ZstoreError):
    """A fault of a plugin, or of a name that plugins offer."""


class UnknownExtensionError(ExtensionError, LookupError):
    """No offer has that name."""


class ExtensionConflictError(ExtensionError):
    """Two plugins offer the same name."""


class ReadingWarning(UserWarning):
    """Something wrong in documents, noticed while they were read for another purpose than checking."""


class RasterWarning(UserWarning):
    """The warning that a raster lacks something, or has something that Zarr cannot express."""


# By path, the errors of what the call that is under way has left out.
_left: ContextVar[dict[str, ZstoreError] | None] = ContextVar("left", default=None)


def is_loss(error: Exception) -> bool:
    """Whether an error is of one value alone, damaged or out of reach, and not of a store that fails."""
    return error.is_of_key if isinstance(error, StoreError) else isinstance(error, CodecError)


def leave_out(path: str, error: ZstoreError, *, is_asked: bool = True) -> None:
    """Warn that a node is left out, and have the call that is under way raise the error at its end.

    is_asked  whether the call is about the node too; else nothing is raised

    Warns
        ReadingWarning: with the path and the reason; of one call once.
    """
    left = _left.get()
    if left is not None and is_asked:
        if str(left.get(path)) == str(error):
            return
        left.setdefault(path, error)
    warnings.warn(ReadingWarning(f"{path!r} is left out: {error}"), stacklevel=3)


@contextmanager
def left_out() -> Iterator[dict[str, ZstoreError]]:
    """Context with the errors, by path, of the nodes that are left out within it; nothing is raised."""
    left = dict[str, ZstoreError]()
    token = _left.set(left)
    try:
        yield left
    finally:
        _left.reset(token)


@contextmanager
def going_on() -> Iterator[None]:
    """Context of a call that goes on without unreadable nodes, and raises the first error at its end.

    Within another such context it does nothing: the outermost raises.
    """
    if _left.get() is not None:
        yield
        return
    with left_out() as left:
        yield
    for error in left.values():
        raise error


def missing_name(owner: str, name: str, hint: str | None) -> AttributeError:
    """The error for a name that `owner` lacks, with its replacement, if there is one."""
    ending = f"; use {hint}" if hint and not name.startswith("_") else ""
    return AttributeError(f"{owner} has no attribute {name!r}{ending}")


# What numpy, CPython's locks and threads, and OpenSSL say where memory was refused, for a MemoryError.
_WITHOUT_MEMORY = (
    "without setting an exception",
    "error return without exception set",
    "can't allocate",
    "can't start new thread",
    "[digital envelope routines]",
)


def say_no_memory(error: Exception) -> None:
    """Raise a MemoryError if an error of another library means a lack of memory; else do nothing."""
    said = str(error)
    is_caused = isinstance(error, SystemError) and isinstance(error.__cause__, MemoryError)
    if is_caused or (not isinstance(error, ZstoreError) and any(words in said for words in _WITHOUT_MEMORY)):
        raise MemoryError(f"no memory: {said}") from error
