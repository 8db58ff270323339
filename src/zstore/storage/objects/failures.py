"""obstore's exceptions as errors of zstore: the cause, the remedy, and whether to try again."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from zstore.errors import ChangedError, NotFoundError, StoreError, ZstoreError
from zstore.storage.remote import PASSING, pause_before

# What says that somebody else wrote the value, by name: a forked process has classes of its own.
CHANGED = {"PreconditionError", "AlreadyExistsError"}
STATUS = re.compile(r"status code: (\d{3})")
REGION = re.compile(r"<Region>([a-z0-9-]+)</Region>|expecting '([a-z0-9-]+)'")
# What Amazon answers about a bucket in another region than the one that was asked.
ELSEWHERE = ("AuthorizationHeaderMalformed", "PermanentRedirect", "redirect without LOCATION")
# Of what has no status: a connection that broke, or a body that did.
BROKEN = ("error sending request", "response body error", "connection closed", "timed out", "kind: Timeout")
# How often somebody is called who does not answer.
CALLS = 3
# A signature in a URL, as Azure's tokens are.
QUERY = re.compile(r"(https?://[^\s?)\"]+)\?[^\s)\"]+")

# Words of the answer, and what to say of them. `{bucket}` is the place that was opened.
SENTENCES = (
    ("169.254.169.254", "there are no credentials for {bucket}; {credentials}"),
    ("metadata.google", "there are no credentials for {bucket}; {credentials}"),
    ("InvalidAccessKeyId", "the server does not know this access key; {credentials}"),
    ("SignatureDoesNotMatch", "the secret does not belong to the access key; {credentials}"),
    ("ExpiredToken", "the credentials have expired; expected new ones"),
    ("InvalidToken", "the session token is not valid; {credentials}"),
    ("RequestTimeTooSkewed", "this machine's clock differs from the server's; expected the right time"),
    ("dns error", "there is no server of that name; expected a network, and the right {endpoint}"),
    ("Connection refused", "no server answers there; expected one that runs, and the right {endpoint}"),
    (
        "Certificate",
        "the server's certificate is not trusted; expected the storage option root_certificate with the PEM "
        "file of its authority",
    ),
    ("kind: Connect,", "the server cannot be reached; expected a network, and the right {endpoint}"),
)
CREDENTIALS = {
    "s3": "expected the storage options key and secret, or profile, AWS_ACCESS_KEY_ID in the environment, or "
    "anon=True for what is public",
    "gs": "expected the storage option token (a file of credentials), GOOGLE_APPLICATION_CREDENTIALS in the "
    "environment, or anon=True for what is public",
    "az": "expected the storage options account_name and account_key or sas_token, AZURE_STORAGE_ACCOUNT_KEY "
    "in the environment, or anon=True for what is public",
    "http": "expected the storage option headers with what the server asks for",
}

# What to say where a value may not be read, and may not be there either.
HIDDEN = "; where that is the answer for what does not exist, too: the storage option hides_missing=True"


class Elsewhere(Exception):
    """Raised for responses of web servers that obstore cannot read, but fsspec can; has the reason."""


def changed(url: str, key: str) -> ChangedError:
    """The error that another writer has changed a value since it was read."""
    return ChangedError(
        "value was written by somebody else since it was read; nothing was overwritten, do it again",
        path=url,
        key=key,
    )


def no_listing(url: str, prefix: str) -> StoreError:
    """The error of a web server, which is asked for a list and has none."""
    expected = "expected consolidated metadata, the name of the array, or convert in place of a copy"
    error = StoreError(f"HTTP has no listing; {expected}", path=url, key=prefix or None)
    error.errno = errno.ENOTSUP
    return error


@contextmanager
def telling(action: str, url: str, key: str | None, kind: str = "") -> Iterator[None]:
    """A context in which exceptions of obstore become StoreError."""
    try:
        yield
    except (ZstoreError, Elsewhere):
        raise
    except Exception as error:  # obstore's have no base but this; every one goes on as the cause
        raise failed(action, url, key, error, kind) from _unsigned(error)


def is_changed(error: BaseException) -> bool:
    """Whether the error means that the condition of a write does not hold."""
    return type(error).__name__ in CHANGED


def is_unsupported(error: BaseException) -> bool:
    """Whether the error means that the server does not support such a request."""
    # By name: a forked process has classes of its own.
    return (
        isinstance(error, NotImplementedError)
        or type(error).__name__ == "NotSupportedError"
        or "non-partial response" in str(error)
        or status_of(error) == 501
    )


def status_of(error: BaseException) -> int | None:
    """The HTTP status of the response; None if there was none."""
    found = STATUS.search(str(error))
    return None if found is None else int(found[1])


def named_region(error: BaseException) -> str | None:
    """The region named in the response; "" if it only says that it is another one, else None."""
    text = str(error)
    if not any(word in text for word in ELSEWHERE):
        return None
    found = REGION.search(text)
    return "" if found is None else found[1] or found[2]


def missing_bucket(error: BaseException) -> bool:
    """Whether the error means that the bucket does not exist, not the key."""
    text = str(error)
    return "NoSuchBucket" in text or "ContainerNotFound" in text or "bucket does not exist" in text


def pause_after(error: Exception, attempt: int, is_http: bool) -> float | None:
    """Seconds to wait before the request is repeated; None if repeating is of no use."""
    if isinstance(error, (StoreError, Elsewhere, FileNotFoundError)):
        return None
    status, text = status_of(error), str(error)
    if status is not None:
        may_pass = status in PASSING or (not is_http and "RequestTimeout" in text)
    elif "kind: Connect," in text:
        is_nobody = "dns error" in text or "Certificate" in text
        is_busy = attempt < CALLS or "Refused" not in text
        may_pass = not is_http and not is_nobody and is_busy
    else:
        may_pass = isinstance(error, TimeoutError) or any(word in text for word in BROKEN)
    return pause_before(attempt) if may_pass else None


def failed(
    action: str, url: str, key: str | None, error: BaseException, kind: str = "", *, anonymous: bool = False
) -> StoreError:
    """The error for an exception of obstore, with its cause and remedy."""
    said = _sentence(error, url, kind, anonymous)
    if action == "read" and status_of(error) == 403:
        said += HIDDEN
    # obstore shows its own source's structures behind an empty line.
    reason = f"{type(error).__name__}: {first_line(error)}"
    failure = StoreError(f"cannot {action}: {f'{said} ({reason})' if said else reason}", path=url, key=key)
    is_denied = type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError")
    if is_denied or status_of(error) in (401, 403):  # which lists have no exception of their own for
        # Whoever looks for several documents goes on with those that may be read.
        failure.errno = errno.EACCES
    elif is_unsupported(error):
        failure.errno = errno.ENOTSUP
    return failure


def _sentence(error: BaseException, url: str, kind: str, anonymous: bool) -> str:
    text = str(error)
    credentials = CREDENTIALS.get(kind, "expected others")
    endpoint = "URL" if kind == "http" else "storage option endpoint_url"
    if (region := named_region(error)) is not None:
        return f"the bucket is in another region; expected the storage option region={region or '...'!r}"
    if missing_bucket(error):
        return f"there is no such bucket; expected the right name, and the right {endpoint}"
    for word, sentence in SENTENCES:
        if word in text:
            return sentence.format(bucket=url, credentials=credentials, endpoint=endpoint)
    if status_of(error) in (401, 403):
        if anonymous:
            return f"the server refuses this to everybody; {credentials.partition(', or anon=True')[0]}"
        return f"the server refuses this to these credentials; {credentials}"
    return ""


def first_line(error: BaseException) -> str:
    """The first lines of an error's text, without signatures."""
    line = QUERY.sub(r"\1?...", str(error).partition("\n\nDebug source")[0])
    return " ".join(line.split())[:500]


def _unsigned(error: Exception) -> Exception | None:
    """The error as a cause, unless its text holds a signature."""
    return None if QUERY.search(str(error)) else error


def no_bucket(url: str) -> NotFoundError:
    """The error that the bucket does not exist."""
    return NotFoundError(
        "there is no such bucket; expected the right name, and the right storage option endpoint_url",
        path=url,
    )
