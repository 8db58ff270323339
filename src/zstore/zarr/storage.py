"""`zarr.storage`: zstore's stores under the names and methods of zarr-python's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from zstore.base.byterange import ByteRange
from zstore.errors import ChangedError, UnsupportedError, missing_name
from zstore.storage import local, memory
from zstore.storage.base import Entry, check_key, hold_name, in_thread, join_key
from zstore.storage.base import Store as Held
from zstore.storage.url import open_store
from zstore.storage.zarr_methods import StoreMethods, range_of
from zstore.zarr.buffer import Buffer
from zstore.zarr.errors import raising

__all__ = [
    "FsspecStore",
    "LocalStore",
    "ManagedMemoryStore",
    "MemoryStore",
    "ObjectStore",
    "StorePath",
    "WrapperStore",
    "ZipStore",
]

T = TypeVar("T")
ADVICE = {
    "ABSStore": "FsspecStore.from_url('abfs://…'), or ObjectStore",
    "DirectoryStore": "LocalStore",
    "FSStore": "FsspecStore.from_url(url)",
    "GpuMemoryStore": "MemoryStore, as zstore reads into numpy's arrays",
    "GCSStore": "FsspecStore.from_url('gs://…'), or ObjectStore",
    "LoggingStore": "zstore.trace, which notes what is asked of any store, with the seconds",
    "NestedDirectoryStore": "LocalStore",
    "S3Store": "FsspecStore.from_url('s3://…'), or ObjectStore",
    "StoreLike": "zstore.zarr.storage.Store",
}


def __getattr__(name: str) -> Any:
    raise missing_name(f"module {__name__!r}", name, ADVICE.get(name))


class DictStore(Held):
    """Values in a dictionary of the program's, which sees every change."""

    in_memory = True

    def __init__(self, values: MutableMapping[str, Any]) -> None:
        self.values = values

    @property
    def url(self) -> str:
        """ "memory://" and a number; a store in a dictionary cannot be opened again."""
        return f"memory://{id(self.values)}"

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        value = self.values.get(check_key(key))
        if value is None or byte_range is None:
            return value if value is None else _plain(value)
        begin, end = byte_range.resolve(len(value))
        return memoryview(_plain(value))[begin:end]

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.check_writable(check_key(key))
        self.values[key] = Buffer(value)

    def delete(self, key: str) -> None:
        self.check_writable(check_key(key))
        self.values.pop(key, None)

    def list(self, prefix: str = "") -> Iterator[str]:
        below = f"{prefix}/" if prefix else ""
        return iter([key for key in list(self.values) if key.startswith(below)])

    def entry(self, key: str) -> Entry | None:
        value = self.get(key)
        return None if value is None else Entry(key, len(value), f"{hash(bytes(value)):x}")

    def lock(self, key: str) -> AbstractContextManager[None]:
        self.check_writable(key)
        return hold_name((id(self.values), check_key(key)))

    def as_read_only(self) -> Held:
        return self._with(read_only=True)


def _plain(value: Any) -> bytes:
    """A value that a program has put into its dictionary: bytes, or a buffer of zarr-python's."""
    return value if isinstance(value, bytes) else bytes(getattr(value, "to_bytes", lambda: value)())


def _range(request: Any) -> ByteRange | None:
    """A range of bytes as zarr-python asks for it, or a pair of start and end."""
    return ByteRange(request[0], request[1] - request[0]) if type(request) is tuple else range_of(request)


class Store(StoreMethods):
    """A store of zstore's (`held`) with zarr-python's methods, which are awaited.

    Arrays and groups read and write what it holds without these methods.
    """

    supports_writes = supports_deletes = supports_listing = supports_consolidated_metadata = True
    supports_partial_writes = False

    def __init__(self, held: Held, *, read_only: bool = False) -> None:
        self.held = held.as_read_only() if read_only and not held.read_only else held

    @classmethod
    async def open(cls, *args: Any, **options: Any) -> Self:
        """The store, opened; takes the arguments of the class."""
        return await in_thread(lambda: cls(*args, **options))

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        return await in_thread(raising(function), *args)

    @property
    def read_only(self) -> bool:
        """Whether writing is an error."""
        return self.held.read_only

    def with_read_only(self, read_only: bool = False) -> Self:
        """The same store, for reading only or not.

        Raises
            RequestError: writing to one that was opened for reading.
        """
        if read_only == self.read_only:
            return self
        if not read_only:
            raise UnsupportedError(
                "a store that was opened for reading does not become writable; open it anew"
            )
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__, held=self.held.as_read_only())
        return made

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Buffer | None:
        """The value, or some of its bytes; None if there is no such key."""
        value = await self._run(self.held.get, key, _range(byte_range))
        return None if value is None else Buffer(value)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list[Buffer | None]:
        """The values or parts of several keys."""
        values = await self._run(self.held.get_many, [(key, _range(part)) for key, part in key_ranges])
        return [None if value is None else Buffer(value) for value in values]

    async def set(self, key: str, value: Any) -> None:
        """Keep a value under the key."""
        await self._run(self.held.put, key, _plain(value))

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Keep a value under the key, if it has none."""
        if not await self.exists(key):
            with suppress(ChangedError):
                await self._run(self.held.put_new, key, _plain(value))

    async def getsize_prefix(self, prefix: str) -> int:
        """The bytes of all values below a prefix."""
        return await self._run(lambda: sum(entry.size for entry in self.held.entries(prefix.strip("/"))))

    async def delete(self, key: str) -> None:
        """Remove the key; a missing key is no error."""
        await self._run(self.held.delete, key)

    def close(self) -> None:
        """Flush, and close files and connections."""
        self.held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __str__(self) -> str:
        return self.held.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (str(self), self.read_only) == (str(other), other.read_only)

    __hash__ = None  # type: ignore[assignment]


class LocalStore(Store):
    """The files below a directory, `root`."""

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        if not isinstance(root, Path | str):
            raise TypeError(f"root is {root!r}; expected a path")
        self.root = Path(root)
        super().__init__(local.LocalStore(self.root), read_only=read_only)

    def __str__(self) -> str:
        return f"file://{self.root.as_posix()}"


class MemoryStore(Store):
    """Values in a dictionary: one of the program's, or a new one."""

    def __init__(
        self, store_dict: MutableMapping[str, Any] | None = None, *, read_only: bool = False
    ) -> None:
        self._store_dict = {} if store_dict is None else store_dict
        super().__init__(DictStore(self._store_dict), read_only=read_only)


class ManagedMemoryStore(Store):
    """Values in memory under a name, which all of the process share: "memory://name"."""

    def __init__(self, name: str | None = None, *, path: str = "", read_only: bool = False) -> None:
        self.name, self.path = name or f"{id(self)}", path
        super().__init__(memory.MemoryStore(self.name), read_only=read_only)

    @classmethod
    def from_url(cls, url: str, *, read_only: bool = False) -> Self:
        """The store of a URL, "memory://name" or "memory://name/path"."""
        name, _, path = url.removeprefix("memory://").partition("/")
        return cls(name, path=path, read_only=read_only)


class ZipStore(Store):
    """The members of a zip file, which is written when the store is closed.

    mode  "r", "w" (a new one), "a", or "x" (there must be none)
    """

    def __init__(
        self,
        path: Any,
        *,
        mode: str = "r",
        read_only: bool | None = None,
        compression: int = 0,
        allowZip64: bool = True,
    ) -> None:
        from zstore.storage.zip.store import ZipStore as Zip

        if mode not in ("r", "w", "a", "x"):
            raise ValueError(f"mode is {mode!r}; expected 'r', 'w', 'a' or 'x'")
        self.path = Path(path) if isinstance(path, str | Path) else None
        if self.path is not None and mode == "x" and self.path.exists():
            raise FileExistsError(f"{str(path)!r} is there already; expected mode='w' or 'a'")
        if self.path is not None and mode == "r" and not self.path.exists():
            raise FileNotFoundError(
                f"there is no zip file {str(path)!r}; expected mode='w' or 'a' for a new one"
            )
        held = Zip(path, deflate=compression != 0)
        if mode == "w":
            held.delete_prefix("")
        super().__init__(held, read_only=mode == "r" if read_only is None else read_only)

    def __str__(self) -> str:
        return self.held.url if self.path is None else f"zip://{self.path}"


class FsspecStore(Store):
    """The objects below a path of one of fsspec's filesystems."""

    def __init__(self, fs: Any, read_only: bool = False, path: str = "/", **options: Any) -> None:
        from zstore.storage.fsspec import FsspecStore as Fsspec

        if getattr(
            fs, "asynchronous", False
        ):  # as zarr-python has them; zstore's threads wait for themselves
            fs = type(fs)(*fs.storage_args, **{**fs.storage_options, "asynchronous": False})
        self.fs, self.path = fs, path
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        held = Fsspec(f"{protocol}://{path.lstrip('/') if protocol != 'file' else path}", filesystem=fs)
        super().__init__(held, read_only=read_only)

    @classmethod
    def from_url(
        cls, url: str, storage_options: Mapping[str, Any] | None = None, read_only: bool = False, **_: Any
    ) -> Store:
        """The store at a URL, by the library that reaches it best."""
        return Store(open_store(url, storage_options=storage_options, read_only=read_only))

    @classmethod
    def from_mapper(cls, fs_map: Any, read_only: bool = False, **_: Any) -> Self:
        """The store of one of fsspec's mappers."""
        return cls(fs_map.fs, read_only, fs_map.root)


class ObjectStore(Store):
    """The objects of one of obstore's stores."""

    def __init__(self, store: Any, *, read_only: bool = False) -> None:
        self.store = store
        super().__init__(open_store(store), read_only=read_only)

    def __str__(self) -> str:
        return f"object_store://{self.store}"


class WrapperStore(Store):
    """A store that passes everything on to another; it has no subclasses, whose methods nobody would call."""

    def __init__(self, store: Store) -> None:
        if type(self) is not WrapperStore:
            raise UnsupportedError(
                f"methods of {type(self).__name__} would not be called; expected a subclass of "
                "zstore.plugin.stores.Store, which every function takes"
            )
        super().__init__(store.held)


class StorePath:
    """A store and a path in it."""

    def __init__(self, store: Store, path: str = "") -> None:
        self.store, self.path = store, path.strip("/")

    @property
    def read_only(self) -> bool:
        """Whether writing is an error."""
        return self.store.read_only

    def __truediv__(self, other: str) -> StorePath:
        return StorePath(self.store, join_key(self.path, other))

    def __str__(self) -> str:
        return f"{self.store}/{self.path}" if self.path else str(self.store)

    def __repr__(self) -> str:
        return f"StorePath({type(self.store).__name__}, {str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StorePath):
            return NotImplemented
        return (self.store, self.path) == (other.store, other.path)

    __hash__ = None  # type: ignore[assignment]

    async def get(self, prototype: Any = None, byte_range: Any = None) -> Buffer | None:
        """The value under the path; None if there is none."""
        return await self.store.get(self.path, prototype, byte_range)

    async def set(self, value: Any) -> None:
        """Keep a value under the path."""
        await self.store.set(self.path, value)

    async def delete(self) -> None:
        """Remove the value under the path."""
        await self.store.delete(self.path)

    async def exists(self) -> bool:
        """Whether there is a value under the path."""
        return await self.store.exists(self.path)


def find_store(
    given: Any = None,
    path: str | None = None,
    *,
    read_only: bool = False,
    is_new: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> StorePath:
    """The store and path of what zarr-python's functions take for a store: None for a new one in memory."""
    if isinstance(given, StorePath):
        inner = find_store(given.store, read_only=read_only, storage_options=storage_options)
        return inner / join_key(given.path, (path or "").strip("/"))
    if isinstance(given, Store):
        if storage_options:
            raise TypeError(f"storage_options are for a URL; expected none for {given!r}")
        store = given.with_read_only(True) if read_only else given
    elif given is None or isinstance(given, dict):
        store = MemoryStore(given, read_only=read_only)
    elif type(given).__name__ == "FSMap":
        store = FsspecStore.from_mapper(given, read_only)
    else:
        held = open_store(given, read_only=read_only, is_new=is_new, storage_options=storage_options)
        store = _shown(given, held)
    return StorePath(store, path or "")


def _shown(given: Any, held: Held) -> Store:
    """A store that was opened by its path or URL, as the class that a program of zarr-python's expects."""
    if isinstance(held, local.LocalStore):
        is_path = not isinstance(given, Held) and "://" not in str(given)
        return _showing(LocalStore, held, root=Path(given) if is_path else held.root)
    if isinstance(held, memory.MemoryStore):
        return _showing(ManagedMemoryStore, held, name=held.name, path="")
    return Store(held)


def _showing(kind: type[Store], held: Held, **attributes: Any) -> Store:
    made = kind.__new__(kind)
    made.__dict__.update(attributes, held=held)
    return made
