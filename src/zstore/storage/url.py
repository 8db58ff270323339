"""Opening stores by path, URL or URL pipeline."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from errno import ENOTDIR
from functools import wraps
from pathlib import Path
from stat import S_ISDIR
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from zstore._ext.engine.files import file_mode
from zstore.base.byterange import ByteRange
from zstore.errors import NotFoundError, StoreError, UnknownExtensionError, UnsupportedError
from zstore.extensions.registry import stores
from zstore.storage.base import PrefixStore, Store, failing
from zstore.storage.kinds import (
    KINDS,
    MARK_SIZE,
    N5,
    REFERENCES,
    VIEW,
    ZIP,
    ZSTORE,
    FileKind,
    check_target,
    ending_of,
    kind_by_mark,
    kind_by_name,
    kind_of_file,
)
from zstore.storage.local import LocalStore

# "s3://bucket/a", and fsspec's chains such as "simplecache::s3://bucket/a".
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(?:::|://)")
# A URL pipeline, "file:///x.zip|zip:a/b|zarr3:c": a URL, and adapters that are applied to it from left to
# right.
STAGE = re.compile(r"\|([A-Za-z][A-Za-z0-9+.-]*):")
FORMATS = {"zarr2": 2, "zarr3": 3}
# The schemes that `use_storage_options` counts for: object storage and web servers, by any library
# ("fsspec+s3").
REMOTE = re.compile(r"(?:[a-z0-9+.-]+\+)?(?:s3a?|gs|gcs|az|abfss?|adl|https?)")

# The schemes, besides none, that its option `allow` counts for, and no other option.
LINKING = ("", "file", "view", "virtual")

# What stands before a path inside a file.
INSIDE = re.compile("(?<=[^/#])[/#]")
# What stands between a scheme and a local path, where it is not "://".
JOINTS = {"zip": "::"}
# A scheme that lacks a slash or its colon; one letter is a drive.
SLIP = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?::/?(?!/)|//)")
# The beginning of a path on a drive of Windows.
DRIVE = re.compile(r"[A-Za-z]:[\\/]+")
# The ending of a file that opens as a store, at the end of a path or before that of a node inside.
FILE = re.compile(
    "(?:{})(?=[/#?]|$)".format("|".join(re.escape(e) for k in KINDS if k.scheme for e in k.endings)),
    re.IGNORECASE,
)

# Local paths that can name nothing but a directory, or a file without an ending; most do.
PLAIN = re.compile(r"[^.#*?\[:]*(?:\.zarr(?=/|$)[^.#*?\[:]*)*")

# What makes a path a pattern of several, and a URL, in which brackets are of hosts and queries have the rest.
MAGIC, FAR_MAGIC = re.compile(r"[*?\[]"), re.compile(r"\*")
# The end of a file or Zarr in a pattern, before the path of a node inside.
MEMBER = re.compile(rf"(?:{FILE.pattern}|\.zarr(?=[/#]|$))", re.IGNORECASE)

P = ParamSpec("P")
R = TypeVar("R")

_options: ContextVar[Mapping[str, Any] | None] = ContextVar("storage_options", default=None)


def with_storage_options(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose argument `storage_options` applies to all URLs that it opens."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given: Any = kwargs.get("storage_options")
        with use_storage_options(given):
            return function(*args, **kwargs)

    return call


@contextmanager
def use_storage_options(options: Mapping[str, Any] | None) -> Iterator[None]:
    """A context in which stores are opened with these options, unless a call has its own.

    `allow` is for directories and references, all others are for buckets and web servers.
    """
    token = _options.set(options or _options.get())
    try:
        yield
    finally:
        _options.reset(token)


def current_storage_options() -> Mapping[str, Any] | None:
    """The options of the innermost `use_storage_options`, to pass on to other threads."""
    return _options.get()


def open_store(
    target: str | os.PathLike[str] | Store | list[Any] | tuple[Any, ...],
    *,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    durable: bool = False,
    is_new: bool = True,
) -> Store:
    """The store at a path or URL; a `Store` is returned as it is, or as a read-only view of it.

    A path or "file://" URL opens a directory, or a file by what it is: a zip file, also a new one of
    that ending; NetCDF, HDF5 and rasters, for reading; references, which end in ".json", ".vzarr", ".parq" or
    ".parquet". A pattern, as "era5_*.nc", or a list opens several as one, joined along the dimension that
    differs. In buckets and on servers the ending tells, and where
    nothing is found, the first bytes (`open_by_content`). What stands behind a file, as "x.nc/group" or
    "x.nc#/group", is a path inside. "memory://name" is a store in
    memory that all of this process share; other schemes open the stores that are offered for them. The store
    object of another library opens as the store that is offered under the full name of its class or of a base
    class ("zarr.abc.store.Store").

    storage_options  of the store that is opened
    durable          every change survives a power cut
    is_new           whether a store that can be written to may be a new one, whose name then must not
                     promise a file of another kind (`check_target`)

    Raises
        UnknownExtensionError: no store is offered for the URL's scheme.
        StoreError: the store cannot be opened, does not take these options, or cannot be durable; its ending
            is that of other files.
    """
    if not isinstance(storage_options, Mapping | None):
        expected = "expected a mapping of names to values, such as {'anon': True}"
        raise StoreError(f"storage_options is {storage_options!r}; {expected}", path=str(target))
    if durable:
        opened = open_store(target, read_only=read_only, storage_options=storage_options, is_new=is_new)
        return opened.as_durable()
    if isinstance(target, Store):
        if storage_options:
            raise StoreError("storage options are for opening a store, this one is open", path=target.url)
        return target.as_read_only() if read_only and not target.read_only else target
    if not isinstance(target, str | os.PathLike):
        return _adopt(target, read_only=read_only, storage_options=storage_options)
    text = os.fspath(target)
    if not isinstance(text, str):
        raise StoreError(f"expected a path, a URL or a Store, got {target!r}")
    if not text:
        raise StoreError("expected a path, a URL or a Store, got ''")
    is_address = ":" in text and isinstance(target, str)
    if is_address and STAGE.search(text):
        return _open_pipeline(text, read_only=read_only, storage_options=storage_options)
    found = SCHEME.match(text) if is_address else None
    scheme = found[1].lower() if found else ""
    inside = ""
    if not scheme and PLAIN.fullmatch(text) and "//" not in text:
        directory = _open_directory(text, read_only=read_only, storage_options=storage_options)
        if directory is not None:
            return directory
    if scheme in ("", "file"):
        path = unquote(urlsplit(text).path) if scheme else text
        file = find_file(path)
        if file is None and not (is_new and not read_only):
            file = find_pattern(path)
        if file is not None:
            scheme, text, inside = file
        elif (":" in path or "//" in path) and not os.path.lexists(path):
            _check_slip(path)
        elif "#" in path and os.path.isdir(path[: path.index("#")]) and not os.path.lexists(path):  # noqa: PTH112
            path = path.replace("#", "/", 1)
            scheme, text = "", path
        name = path.rstrip("/").rpartition("/")[2]
        is_other = is_new and not read_only and "." in name and not name.endswith(ZSTORE.endings)
        if is_other and file is None and not os.path.lexists(path):
            check_target(path)
    elif REMOTE.fullmatch(scheme):
        if not read_only and is_new:
            check_target(text)
            if kind_by_name(text) is ZIP:
                expected = "expected a path on a disk, or another name; a zip file elsewhere is only read"
                raise StoreError(f"'.zip' is the ending of a zip file; {expected}", path=text)
        elif ".zarr#" in text:
            above, _, below = text.partition("#")
            text = f"{above}/{below.lstrip('/')}"
        elif (file := find_pattern(text) or _find_remote(text)) is not None:
            scheme, text, inside = file
    if storage_options is None and ("::" not in text or scheme in LINKING):
        storage_options = _options_for(scheme)
    if not scheme:
        return LocalStore.from_path(text, read_only=read_only, storage_options=storage_options)
    kind: type[Store] = stores.resolve(scheme)
    store = kind.from_url(text, read_only=read_only, storage_options=storage_options)
    return PrefixStore(store, inside) if inside else store


def _open_directory(
    path: str, *, read_only: bool, storage_options: Mapping[str, Any] | None
) -> LocalStore | None:
    """The store in the directory at a path; None where a file is there, or above."""
    said = _options_for("") if storage_options is None else storage_options
    try:
        return LocalStore.from_path(path, read_only=read_only, storage_options=said)
    except StoreError as error:
        if error.errno != ENOTDIR:
            raise
        return None


def find_file(path: str) -> tuple[str, str, str] | None:
    """(scheme, URL, path inside) of the file at a local path or above it that opens as a store."""
    named = [match.end() for match in FILE.finditer(path)] if "." in path else []
    ends = [*named]
    if len(path) not in ends:
        try:
            mode = file_mode(path)
            may_be_inside = (
                not mode and "#" in path
            )  # where there is nothing, there is no file above it either
            if mode and not S_ISDIR(mode):
                ends.append(len(path))
        except (OSError, ValueError):
            may_be_inside = True
        if may_be_inside:  # a file without an ending may have it inside
            ends += [match.start() for match in INSIDE.finditer(path)]
    for end in ends:
        file, inside = path[:end], path[end:].strip("/#")
        if os.path.isfile(file):  # noqa: PTH113
            with failing("open", file):
                scheme = kind_of_file(file).scheme
        elif end not in named:
            continue
        else:
            # References in Parquet and N5 are directories, and a zip file can be a new one.
            kind = kind_by_name(file)
            is_store = kind is REFERENCES and _is_references(file)
            is_store |= kind is N5 and os.path.isdir(file) and not _has_document(file)  # noqa: PTH112
            is_store |= kind is ZIP and not inside and not os.path.isdir(file)  # noqa: PTH112
            scheme = kind.scheme if kind is not None and is_store else None
        if scheme is not None:
            return scheme, f"{scheme}{JOINTS.get(scheme, '://')}{os.path.abspath(file)}", inside  # noqa: PTH100
    return None


def file_address(url: str) -> str | None:
    """The path, or the URL elsewhere, of the file whose store has this URL, by which it opens as that store.

    None for other stores, and for files that open by their scheme alone.
    """
    match = SCHEME.match(url)
    if match is None or match[1].lower() == "file" or is_remote(url):
        return None
    scheme, rest = match[1].lower(), url[match.end() :]
    for path in dict.fromkeys((rest, unquote(rest))):
        found = _find_remote(path) if is_remote(path) else find_file(path) or find_pattern(path)
        if found is not None and (found[0], found[2]) == (scheme, ""):
            return path
    return None


def find_pattern(text: str) -> tuple[str, str, str] | None:
    """(scheme, URL, path inside) of a pattern of several hierarchies; None for a path or URL of one."""
    is_far = SCHEME.match(text) is not None
    magic = FAR_MAGIC if is_far else MAGIC
    found = [*magic.finditer(text)]
    if not found or (not is_far and os.path.lexists(text)):
        return None
    end = next((one.end() for one in MEMBER.finditer(text, found[-1].end())), len(text))
    pattern = text[:end] if is_far else os.path.abspath(text[:end])  # noqa: PTH100
    return "joined", f"joined::{pattern}", text[end:].strip("/#")


def _find_remote(url: str) -> tuple[str, str, str] | None:
    """(scheme, URL, path inside) of a file elsewhere that opens as a store, by its ending."""
    match = FILE.search(url)
    kind = None if match is None else kind_by_name(url[: match.end()])
    if match is None or kind is None or kind.scheme is None:
        return None
    file, inside = (
        (url, "") if url[match.end() :].startswith("?") else (url[: match.end()], url[match.end() :])
    )
    text = _pipeline(file, kind)
    return text.partition("::")[0], text, inside.strip("/#")


def is_remote(target: Any) -> bool:
    """Whether a target is a plain URL of a bucket or a web server."""
    scheme = SCHEME.match(target) if isinstance(target, str) else None
    return scheme is not None and bool(REMOTE.fullmatch(scheme[1].lower())) and not STAGE.search(target)


def open_by_content(
    target: Any, storage_options: Mapping[str, Any] | None = None
) -> tuple[Store, str] | None:
    """The store of a file on a server that its first bytes alone tell, and the path inside.

    A node inside stands behind "#"; nothing above the file is asked for.
    """
    if not is_remote(target):
        return None
    file, _, inside = target.partition("#")
    above, _, name = file.rstrip("/").rpartition("/")
    if not name or above.endswith("/") or ending_of(name):
        return None
    kind = _kind_on_server(above, name, storage_options)
    if kind is None or kind.scheme is None:
        return None
    url = _pipeline(f"{above}/{name}", kind)
    return open_store(url, read_only=True, storage_options=storage_options), inside.strip("/")


def _kind_on_server(above: str, name: str, storage_options: Mapping[str, Any] | None) -> FileKind | None:
    try:
        with closing(open_store(above, read_only=True, storage_options=storage_options)) as store:
            return kind_by_mark(bytes(store.get(name, ByteRange(0, MARK_SIZE)) or b""))
    except (StoreError, NotFoundError):
        return None


def _pipeline(file: str, kind: FileKind) -> str:
    """The URL by which a file elsewhere opens as a store."""
    # What can be read in place of other formats is scanned.
    scheme = kind.scheme if kind in (ZIP, REFERENCES, N5, VIEW) else "scan"
    return f"{scheme}::{file}"


def _check_slip(path: str) -> None:
    """Refuse a path of Windows, and a new one that begins as a URL whose scheme lacks slashes.

    Raises
        StoreError: it does.
    """
    drive = DRIVE.match(path)
    if drive is not None and os.name != "nt" and not os.path.isdir(path[:2]):  # noqa: PTH112
        meant = f"/mnt/{path[0].lower()}/{path[drive.end() :]}".replace("\\", "/")
        raise StoreError(
            f"{path!r} is a path of Windows, and there are no drives here; did you mean {meant!r}?"
        )
    slip = SLIP.match(path)
    if slip is None or os.path.isdir(f"{slip[1]}:"):  # noqa: PTH112
        return
    has_slash = path[slip.end() - 2 : slip.end()] == ":/"
    if has_slash or (REMOTE.fullmatch(slip[1].lower()) and not os.path.lexists(path)):
        rest = path[slip.end() :]
        meant = f"file:///{rest}" if slip[1].lower() == "file" else f"{slip[1]}://{rest}"
        raise StoreError(f"{path!r} is no path, and a URL has two slashes; did you mean {meant!r}?")


def _options_for(scheme: str) -> Mapping[str, Any] | None:
    """The options of the innermost `use_storage_options` that count for a scheme."""
    said = _options.get()
    if not said:
        return None
    is_linking = scheme in LINKING
    if not (is_linking or REMOTE.fullmatch(scheme)):
        return None
    return {name: value for name, value in said.items() if (name == "allow") == is_linking} or None


def _is_references(path: str) -> bool:
    """Whether a directory holds references in Parquet, not a store with consolidated metadata."""
    return os.path.isfile(f"{path}/.zmetadata") and not _has_document(path)  # noqa: PTH113


def _has_document(path: str) -> bool:
    """Whether a directory is a node of Zarr v2 or v3."""
    return any(os.path.isfile(f"{path}/{name}") for name in (".zgroup", ".zarray", "zarr.json"))  # noqa: PTH113


def _open_pipeline(url: str, *, read_only: bool, storage_options: Mapping[str, Any] | None) -> Store:
    """The store at a URL pipeline; its last adapter, "zarr2:" or "zarr3:", is the only format that counts.

    Spec
        URL pipelines (https://github.com/jbms/url-pipeline).
    """
    root, *stages = STAGE.split(url)
    path, zarr_format, store = "", None, None
    for adapter, given in zip(stages[::2], stages[1::2], strict=True):
        if zarr_format is not None:
            raise StoreError(f"{adapter!r} stands behind a node; expected nothing there", path=url)
        if adapter in FORMATS:
            path, zarr_format = unquote(given).strip("/"), FORMATS[adapter]
        elif store is not None:
            raise StoreError(f"{adapter!r} stands behind a hierarchy; expected zarr2: or zarr3:", path=url)
        elif adapter == "zip":
            root = f"zip://{given.strip('/')}::{root}"
        else:
            store = _adapt(url, adapter, root, given, read_only, storage_options)
    if store is None:
        store = open_store(root, read_only=read_only, storage_options=storage_options)
    return store if zarr_format is None else PrefixStore(store, path, zarr_format=zarr_format)


def _adapt(
    url: str, adapter: str, root: str, given: str, read_only: bool, storage_options: Mapping[str, Any] | None
) -> Store:
    """The store that an adapter makes of the URL before it, by the store offered under its name."""
    try:
        kind: type[Store] = stores.resolve(adapter)
    except UnknownExtensionError as error:
        expected = "expected zip:, zarr2: or zarr3:, or one of a plugin, as icechunk: of zstore-icechunk"
        raise UnsupportedError(f"no adapter {adapter!r} for URL pipelines; {expected}", path=url) from error
    scheme = SCHEME.match(root)
    if storage_options is None and scheme is not None and scheme[1].lower() not in LINKING:
        storage_options = _options_for(scheme[1].lower())
    return kind.from_adapter(root, given, read_only=read_only, storage_options=storage_options)


def _adopt(target: Any, *, read_only: bool, storage_options: Mapping[str, Any] | None) -> Store:
    """A store around another library's store object, or of the members of a list."""
    if isinstance(target, list | tuple):
        with use_storage_options(storage_options):
            joined: type[Store] = stores.resolve("joined")
            return joined.from_object(target, read_only=read_only)
    if storage_options:
        raise StoreError("storage options are for opening a store, this one is open", path=str(target))
    for base in type(target).__mro__:
        try:
            kind: type[Store] = stores.resolve(f"{base.__module__}.{base.__qualname__}")
        except UnknownExtensionError:
            continue
        return kind.from_object(target, read_only=read_only)
    hint = "; 'memory://name' is a store in memory" if isinstance(target, dict) else ""
    hint = "; a node is where its `store` and its `path` say" if hasattr(target, "store") else hint
    raise StoreError(f"expected a path, a URL or a Store, got {target!r}{hint}")


def file_of(store: Store) -> Path | None:
    """The file that contains a store (a zip file, a database), by its URL; None if there is none."""
    above = store.url.rpartition("::")[2].partition("://")[2]
    return Path("/", unquote(above).lstrip("/")) if above.startswith("/") else None


def without_password(url: str) -> str:
    """The URL with the name of a user, but without a password, so that it can be shown and opened again."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{name}{at}{host}" if name else host))
