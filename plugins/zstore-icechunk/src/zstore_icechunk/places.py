"""Finds the repository, and the version of it, that a URL and storage options name."""

from __future__ import annotations

import atexit
import difflib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, unquote, urlsplit

from zstore.errors import NotFoundError, StoreError, UnsupportedError, ZstoreError, without_secrets
from zstore.plugin.buckets import Settings, kind_of, read_options

__all__ = ["Place", "Version", "find_place", "library", "message_of", "read_version", "translate_errors"]

# Storage options of repositories; all others are for the bucket or server.
OWN = ("branch", "tag", "snapshot", "as_of", "allow", "remote_options")
MAIN = "main"
SNAPSHOT = re.compile(r"[0-9A-HJKMNP-TV-Z]{20}")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
FORM = "expected icechunk://PATH, icechunk+s3://BUCKET/PREFIX, or URL|icechunk:@branch.NAME/"
SECRETS = {
    *("access_key_id", "secret_access_key", "session_token", "account_key", "sas_key", "token"),
    *("bearer_token", "service_account_key"),
}
# By kind of place, the storage options that icechunk takes, and their names there.
TAKES: dict[str, dict[str, str]] = {
    "s3": {
        **{name: name for name in ("access_key_id", "secret_access_key", "session_token", "region")},
        "endpoint": "endpoint_url",
        "request_payer": "requester_pays",
    },
    "gs": {
        **{name: name for name in ("application_credentials", "bearer_token", "service_account_key")},
        "service_account": "service_account_file",
    },
    "az": {
        "account_name": "account",
        "account_key": "access_key",
        "sas_key": "sas_token",
        "token": "bearer_token",
    },
    "http": {},
}
# By kind of place, icechunk's options of which one is enough to sign requests.
CREDENTIALS = {
    "s3": {"access_key_id"},
    "gs": {"application_credentials", "bearer_token", "service_account_key", "service_account_file"},
    "az": {"access_key", "sas_token", "bearer_token"},
}

# Seconds that the end of the process leaves icechunk's threads, which drop Python's objects after they have
# delivered a result: one that does so when Python has ended makes the process crash.
LAST_TIME = 0.02

# The process that imported icechunk, 0 before.
_process = 0


def library() -> Any:
    """The package `icechunk`, set to log only errors unless somebody else imported it first.

    Raises
        StoreError: this process was forked from one that used icechunk, and lacks its threads.
    """
    global _process
    is_first = "icechunk" not in sys.modules
    import icechunk

    if is_first and not os.environ.get("ICECHUNK_LOG"):
        icechunk.set_logs_filter("error")
    if not _process:
        _process = os.getpid()
        atexit.register(time.sleep, LAST_TIME)
    if _process != os.getpid():
        raise StoreError(
            "icechunk was used before this process was forked, and its threads are missing here; expected a "
            "spawned process"
        )
    return icechunk


class Version(NamedTuple):
    """A version of a repository: the newest state of a branch, or its state at a time; a tag; a snapshot."""

    branch: str | None = None
    tag: str | None = None
    snapshot: str | None = None
    as_of: datetime | None = None

    @property
    def text(self) -> str:
        """The version as URL pipelines write it; they have no way to write a time."""
        if self.snapshot is not None:
            return f"@{self.snapshot}"
        return f"@tag.{quote(self.tag)}" if self.tag is not None else f"@branch.{quote(self.branch or MAIN)}"


class Place(NamedTuple):
    """Where a repository is.

    kind    "file", "s3", "gs", "az" or "http"
    bucket  the name of the bucket, or the path of a local directory
    url     what stands before "|icechunk:" in a URL pipeline
    """

    kind: str
    bucket: str
    prefix: str
    url: str

    @property
    def directory(self) -> str | None:
        """The path of a repository in local files; None for any other."""
        return self.bucket if self.kind == "file" else None

    def storage(self, options: Mapping[str, Any]) -> Any:
        """icechunk's storage object for this place.

        Raises
            StoreError: an option is unknown, or icechunk does not take it.
            UnsupportedError: this version of icechunk cannot read from web servers.
        """
        if self.kind == "http":
            return self._web_storage(options)
        if self.kind != "file":
            return self._bucket_storage(options)
        if options:
            raise StoreError(
                f"unknown storage options {sorted(options)}; expected {', '.join(OWN)}", path=self.url
            )
        return library().local_filesystem_storage(self.bucket)

    def _web_storage(self, options: Mapping[str, Any]) -> Any:
        icechunk = library()
        if not hasattr(icechunk, "http_storage"):
            raise UnsupportedError(
                f"icechunk {icechunk.__version__} cannot read from web servers; expected icechunk 2 or "
                "newer, which needs Python 3.12",
                path=self.url,
            )
        headers = _settings("http", options, self.url).client.get("default_headers")
        opts = {"allow_http": str(self.url.lower().startswith("http:")).lower()}
        return icechunk.http_storage(self.url, opts, **({"headers": dict(headers)} if headers else {}))

    def _bucket_storage(self, options: Mapping[str, Any]) -> Any:
        icechunk, settings = library(), _settings(self.kind, options, self.url)
        given = _translate(self.kind, settings, self.url)
        if not CREDENTIALS[self.kind] & given.keys():
            given["anonymous" if settings.is_anonymous else "from_env"] = True
        if self.kind == "s3":
            is_plain = str(given.get("endpoint_url", "")).startswith("http://")
            virtual_hosts = bool(settings.config.get("virtual_hosted_style_request"))
            return icechunk.s3_storage(
                bucket=self.bucket,
                prefix=self.prefix or None,
                allow_http=is_plain or bool(settings.client.get("allow_http")),
                force_path_style="endpoint_url" in given and not virtual_hosts,
                **given,
            )
        if self.kind == "gs":
            base = settings.config.get("base_url")
            config = {"google_base_url": str(base), "allow_http": "true"} if base else None
            return icechunk.gcs_storage(bucket=self.bucket, prefix=self.prefix, config=config, **given)
        if "account" not in given:
            raise StoreError(
                "no account is named; expected the storage option 'account_name', or the environment's "
                "AZURE_STORAGE_ACCOUNT_NAME",
                path=self.url,
            )
        endpoint = settings.config.get("endpoint")
        config = {"azure_storage_endpoint": str(endpoint), "allow_http": "true"} if endpoint else None
        if given.pop("anonymous", None):
            config = {**(config or {}), "azure_skip_signature": "true"}
            given["from_env"] = True
        return icechunk.azure_storage(container=self.bucket, prefix=self.prefix, config=config, **given)

    def secrets(self, options: Mapping[str, Any]) -> list[str]:
        """The values of storage options that messages must not show."""
        if self.kind == "file":
            return []
        found = read_options(self.kind, options, self.url)
        return [str(value) for name, value in found.config.items() if name in SECRETS and value]


def _settings(kind: str, options: Mapping[str, Any], url: str) -> Settings:
    """The storage options of a bucket or server, parsed.

    Raises
        StoreError: one is given that icechunk does not take.
    """
    settings, plain = read_options(kind, options, url), read_options(kind, {}, url)
    known = {"allow_http", *({"default_headers"} if kind == "http" else ())}
    other = [
        name
        for name, value in settings.client.items()
        if name not in known and value != plain.client.get(name)
    ]
    if settings.retry is not None:
        other.append("retry_config")
    if settings.provider is not None:
        other.append("credential_provider, or a profile that asks for credentials")
    if other:
        raise StoreError(f"icechunk takes no storage option {', '.join(other)}", path=url)
    return settings


def _translate(kind: str, settings: Settings, url: str) -> dict[str, Any]:
    """The storage options of a bucket under icechunk's names.

    Raises
        StoreError: one is given that icechunk does not take.
    """
    takes, known = TAKES[kind], {"skip_signature", "virtual_hosted_style_request", "base_url", "endpoint"}
    other = sorted(settings.config.keys() - takes.keys() - known)
    if other:
        raise StoreError(
            f"icechunk takes no storage option {', '.join(other)}; expected {', '.join(sorted(takes))}",
            path=url,
        )
    given = {takes[name]: value for name, value in settings.config.items() if name in takes and value}
    if kind == "az" and "account" not in given and os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        given["account"] = os.environ["AZURE_STORAGE_ACCOUNT_NAME"]
    if "requester_pays" in given:
        given["requester_pays"] = bool(given["requester_pays"])
    return given


def find_place(url: str, root: str) -> Place:
    """The place of the repository at `root`: a path, or the URL of a directory, a bucket or a web server.

    Raises
        StoreError: it is none of these.
    """
    scheme = SCHEME.match(root)
    kind = "file" if scheme is None or scheme[1].lower() == "file" else kind_of(scheme[1].lower())
    rest = root if scheme is None else root[scheme.end() :]
    if (
        kind not in ("file", *TAKES)
        or not rest.strip("/")
        or "::" in root
        or "|" in root
        or "\0" in unquote(rest)
    ):
        raise StoreError(f"{FORM}; it stands for a directory, a bucket or a web server", path=url)
    if kind == "file":
        if scheme is not None:
            rest = unquote(urlsplit(root).path)
            if urlsplit(root).netloc:
                raise StoreError("expected file:///PATH, with an absolute path", path=url)
        path = os.path.abspath(rest)  # noqa: PTH100
        return Place("file", path, "", f"file://{quote(path)}")
    if "@" in rest.partition("/")[0]:
        # Without the URL, which may have a password.
        raise StoreError(f"{FORM}, without '@': credentials are storage options")
    if "?" in rest or "#" in rest or ".." in unquote(rest).split("/"):
        raise StoreError(f"{FORM}, without '?', '#' and '..'", path=url)
    if kind == "http":
        return Place(kind, "", "", root.rstrip("/"))
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    return Place(kind, bucket, prefix, f"{kind}://{bucket}{prefix and '/'}{prefix}")


def split_url(url: str) -> str:
    """PATH of "icechunk://PATH", "s3://BUCKET/PREFIX" of "icechunk+s3://BUCKET/PREFIX".

    Raises
        StoreError: there is more in the URL than that.
    """
    name, mark, rest = url.partition("://")
    if not mark or "?" in rest or "#" in rest:
        raise StoreError(f"{FORM}, or the storage options branch, tag, snapshot, as_of", path=url)
    bucket = name.partition("+")[2]
    return f"{bucket}://{rest}" if bucket else unquote(rest)


def read_version(url: str, given: str, options: Mapping[str, Any]) -> tuple[Version, str]:
    """The version that a URL and storage options name together, and the node's path.

    url    for messages
    given  the last stage of a URL pipeline: "@branch.NAME/PATH", "@tag.NAME/PATH" or "@SNAPSHOT/PATH", each
           also with "//" in place of "@"; PATH alone is on the branch main

    Raises
        StoreError: no snapshot can have such a name, a time has no zone, or two versions are named.
    """
    word, path = "", given
    if given.startswith(("//", "@")):
        word, _, path = given.removeprefix("//").removeprefix("@").partition("/")
        word = unquote(word)
    found: dict[str, Any] = {}
    if word.startswith(("branch.", "tag.")):
        kind, _, name = word.partition(".")
        found[kind] = name
    elif word:
        found["snapshot"] = word
    for name in ("branch", "tag", "snapshot", "as_of"):
        value = options.get(name)
        if value is not None and found.setdefault(name, value) != value:
            raise StoreError(
                f"{name} is {found[name]!r} in the URL and {value!r} among the storage options", path=url
            )
    _check_version(url, found)
    if "as_of" in found:
        found["as_of"] = _time(url, found["as_of"])
    if not found.keys() & {"tag", "snapshot"}:
        found.setdefault("branch", MAIN)
    return Version(**found), unquote(path).strip("/")


def _check_version(url: str, found: Mapping[str, Any]) -> None:
    """Raise StoreError where more than one version is named, or none can have such a name."""
    kinds = [name for name in ("branch", "tag", "snapshot") if name in found]
    if len(kinds) > 1 or ("as_of" in found and kinds not in ([], ["branch"])):
        both = " and ".join([*kinds, *(["as_of"] if "as_of" in found else [])])
        raise StoreError(
            f"{both} are given; expected one of branch, tag, snapshot, or as_of on a branch", path=url
        )
    for name in kinds:
        if not isinstance(found[name], str) or not found[name]:
            raise StoreError(f"{name} is {found[name]!r}, expected a name", path=url)
    snapshot = found.get("snapshot")
    if snapshot is not None and not SNAPSHOT.fullmatch(snapshot):
        raise StoreError(
            f"{snapshot!r} is not a snapshot; expected 20 digits and letters, or branch.NAME or tag.NAME",
            path=url,
        )


def _time(url: str, value: Any) -> datetime:
    """The time that the option `as_of` gives."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise StoreError(
            f"as_of is {value!r}, expected a time with its zone, such as 2024-05-01T12:00:00Z", path=url
        )
    return found


def message_of(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """The message of an error of icechunk in one line, without its stack of contexts and without secrets."""
    text = re.split(r"\n[\s|│]*context:", str(error))[0]
    text = " ".join(line.strip(" |│×x╰─▶") for line in text.splitlines() if line.strip(" |│"))
    for secret in secrets:
        # Shorter ones are found in other words, too: they are looked for where values stand.
        near = ("", "") if len(secret) >= 8 else (r"""(?<=[=:"'])""", r"(?![A-Za-z0-9])")
        text = re.sub(re.escape(secret).join(near), "...", text)
    return without_secrets(text)


@contextmanager
def translate_errors(action: str, url: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """A context whose errors of icechunk become "cannot ACTION" errors of zstore."""
    try:
        yield
    except ZstoreError:
        raise
    except Exception as error:
        text = message_of(error, secrets) or type(error).__name__
        # Without the error of icechunk as the cause, where that would show a secret.
        raise StoreError(f"cannot {action}: {text}", path=url) from (None if any(secrets) else error)


def no_repository(place: Place) -> NoReturn:
    """Raise that there is no repository, and say what is there, or near."""
    raise NotFoundError(f"no icechunk repository there{_say_near(place.directory)}", path=place.url)


def is_repository(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory looks like a repository."""
    there = Path(directory)
    return (there / "snapshots").is_dir() and ((there / "refs").is_dir() or (there / "repo").exists())


def _say_near(directory: str | None) -> str:
    """The end of an error's sentence: what is in a directory, above or beside it."""
    if directory is None:
        return ""
    there = Path(directory)
    try:
        if there.is_dir():
            if any((there / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
                return "; it is a Zarr hierarchy in a directory: open its path alone"
            below = sorted(path.name for path in there.iterdir() if is_repository(path))[:3]
            if below:
                return f"; below it: {', '.join(map(repr, below))}"
            above = next((path for path in there.parents if is_repository(path)), None)
            return f"; {str(above)!r} is one" if above is not None else "; the directory holds none"
        above = next((path for path in there.parents if is_repository(path)), None)
        if above is not None:
            return f"; {str(above)!r} is one, and a node in it is PATH|icechunk:NODE"
        beside = [path.name for path in there.parent.iterdir()] if there.parent.is_dir() else []
        near = difflib.get_close_matches(there.name, beside, 3, 0.5)
        return f"; beside it: {', '.join(map(repr, near))}" if near else "; there is no such directory"
    except OSError:
        return ""


def say_names(kind: str, name: str, names: Iterable[str]) -> str:
    """The end of an error's sentence: which branches or tags there are."""
    every = sorted(names)
    near = difflib.get_close_matches(name, every, 3, 0.6) or every[:8]
    more = len(every) - len(near)
    plural = {"branch": "branches", "tag": "tags"}[kind]
    if not every:
        return f"there are no {plural}"
    return f"there {'are' if len(near) > 1 else 'is'} {', '.join(map(repr, near))}" + (
        f" and {more} more" if more else ""
    )
