"""Storage options of buckets and web servers: fsspec's words and object_store's, in one vocabulary.

What is in a table is known by each of its names, however the bucket is reached. Names are object_store's;
the prefixes of AWS, Google and Azure ("aws_", "azure_storage_") may stand before them, in capitals too.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from zstore.base.limits import WORDS, current_limits
from zstore.errors import StoreError
from zstore.storage.objects.profiles import find_profile

# The kind of each scheme.
KINDS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "az"),
    **dict.fromkeys(("http", "https"), "http"),
}

# By kind, what each name is called elsewhere: fsspec's filesystems, boto, and people.
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "access_key_id": ("key", "username"),
        "secret_access_key": ("secret", "password"),
        "session_token": ("token",),
        "skip_signature": ("anon",),
        "endpoint": ("endpoint_url", "endpoint_url_s3"),
        "region": ("region_name", "default_region"),
        "profile": ("profile_name",),
        "request_payer": ("requester_pays",),
        "virtual_hosted_style_request": ("virtual_hosted_style",),
        **dict.fromkeys(
            (
                *("bucket", "checksum_algorithm", "conditional_put", "copy_if_not_exists"),
                *("container_credentials_relative_uri", "container_credentials_full_uri"),
                *("container_authorization_token_file", "disable_tagging", "disable_bulk_delete"),
                *("imdsv1_fallback", "metadata_endpoint", "role_arn", "role_session_name", "s3_express"),
                *("server_side_encryption", "sse_bucket_key_enabled", "sse_customer_key_base64"),
                *("sse_kms_key_id", "sts_endpoint", "unsigned_payload", "web_identity_token_file"),
            ),
            (),
        ),
    },
    "gs": {
        "application_credentials": ("token",),
        "skip_signature": ("anon",),
        "base_url": ("endpoint_url", "endpoint"),
        "bearer_token": (),
        "bucket": (),
        "service_account": ("service_account_path",),
        "service_account_key": (),
        "project": (),
        "request_payer": ("requester_pays",),
    },
    "az": {
        "account_name": ("account",),
        "account_key": ("key",),
        "sas_key": ("sas_token",),
        "token": ("bearer_token",),
        "skip_signature": ("anon",),
        "endpoint": ("endpoint_url", "account_host"),
        "connection_string": (),
        "client_id": (),
        "client_secret": (),
        "tenant_id": (),
        **dict.fromkeys(
            (
                *("authority_host", "container_name", "credential_type", "disable_tagging", "encryption_key"),
                *("fabric_cluster_identifier", "fabric_session_token", "fabric_token_service_url"),
                *("fabric_workload_host", "federated_token_file", "msi_endpoint", "msi_resource_id"),
                *("object_id", "use_azure_cli", "use_emulator", "use_fabric_endpoint"),
            ),
            (),
        ),
    },
    "http": {},
    "memory": {},
}
PREFIXES = {"s3": ("aws_",), "gs": ("google_",), "az": ("azure_storage_", "azure_")}
# Of every kind that asks a server.
CLIENT: dict[str, tuple[str, ...]] = {
    "allow_http": (),
    "allow_invalid_certificates": (),
    "root_certificate": ("verify", "ca_bundle"),
    "default_headers": ("headers",),
    "proxy_url": ("proxy",),
    **dict.fromkeys(("connect_timeout", "read_timeout", "timeout", "user_agent", "default_content_type"), ()),
    **dict.fromkeys(
        ("http1_only", "http2_only", "http2_keep_alive_interval", "http2_keep_alive_timeout"), ()
    ),
    **dict.fromkeys(("http2_keep_alive_while_idle", "pool_idle_timeout", "pool_max_idle_per_host"), ()),
    **dict.fromkeys(("proxy_ca_certificate", "proxy_excludes", "randomize_addresses"), ()),
}
# What a connection string of Azure says.
AZURE_WORDS = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}
# What obstore takes beside its settings, and zstore.
OTHERS = ("retry_config", "credential_provider", "check_versions", "hides_missing")
# Where options may stand one below another.
NESTED = ("client_kwargs", "config_kwargs", "client_options", "config", "s3")
# fsspec's, about its own buffers and caches, which nothing here has.
NEEDLESS = {
    *("asynchronous", "loop", "batch_size", "use_listings_cache", "listings_expiry_time", "max_paths"),
    *("skip_instance_cache", "block_size", "blocksize", "default_block_size", "default_cache_type"),
    *("default_fill_cache", "fill_cache", "cache_type", "cache_options", "cache_timeout", "cache_regions"),
    *("max_concurrency", "fixed_upload_size", "local_expiry_check", "access", "consistency"),
    *("check_connection", "max_pool_connections", "retries", "signature_version", "secure_serialize"),
}
# fsspec's, with a meaning that obstore has not.
FSSPEC_ONLY = {
    "s3": {"version_aware", "s3_additional_kwargs", "session"},
    "gs": {"session_kwargs", "requests_timeout", "default_location", "version_aware"},
    "az": {"credential", "location_mode", "request_session", "socket_timeout", "version_aware"},
    "http": {
        *("simple_links", "same_scheme", "size_policy", "get_client", "encoded", "auth", "cookies", "ssl"),
        *("params", "allow_redirects", "max_redirects", "trust_env", "read_bufsize", "raise_for_status"),
        *("connector", "client_kwargs"),
    },
}
# By kind, where fsspec's filesystem takes what is in the vocabulary.
FSSPEC: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "access_key_id": ("key",),
        "secret_access_key": ("secret",),
        "session_token": ("token",),
        "skip_signature": ("anon",),
        "endpoint": ("endpoint_url",),
        "region": ("client_kwargs", "region_name"),
        "profile": ("profile",),
        "request_payer": ("requester_pays",),
        "root_certificate": ("client_kwargs", "verify"),
        "connect_timeout": ("config_kwargs", "connect_timeout"),
        "read_timeout": ("config_kwargs", "read_timeout"),
        "virtual_hosted_style_request": ("config_kwargs", "s3", "addressing_style"),
    },
    "gs": {
        "application_credentials": ("token",),
        "skip_signature": ("token",),
        "base_url": ("endpoint_url",),
        "project": ("project",),
        "request_payer": ("requester_pays",),
    },
    "az": {
        "account_name": ("account_name",),
        "account_key": ("account_key",),
        "sas_key": ("sas_token",),
        "skip_signature": ("anon",),
        "endpoint": ("account_host",),
        "connection_string": ("connection_string",),
        "client_id": ("client_id",),
        "client_secret": ("client_secret",),
        "tenant_id": ("tenant_id",),
    },
    "http": {"default_headers": ("headers",), "proxy_url": ("proxy",), "root_certificate": ("ssl",)},
}
# Options by which obstore asks, and fsspec's filesystems need not be told.
TUNING = {"check_versions", "hides_missing", "allow_http", "connect_timeout", "read_timeout", "timeout"}
# A time as a text, and the seconds that its units have.
DURATION = re.compile(r"(\d+(?:\.\d*)?) *(ms|s|sec|secs|seconds?|m|mins?|minutes?|h|hours?)?")
UNITS = dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0)
UNITS |= {"ms": 0.001, **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0)}
UNITS |= dict.fromkeys(("h", "hour", "hours"), 3600.0)
SECONDS = {"connect_timeout", "read_timeout", "timeout", "pool_idle_timeout", "http2_keep_alive_timeout"}


class Settings(NamedTuple):
    """Settings of the bucket (`config`), of connections (`client`), and the `provider` of credentials.

    `is_named` says whether the caller named the region; else the bucket's own is found out. `hides_missing`
    says that the server refuses (403) what does not exist, so that a refusal means that. `total_time` are the
    seconds for a request with all attempts, where the caller says so (`timeout`).
    """

    config: dict[str, Any]
    client: dict[str, Any]
    retry: Mapping[str, Any] | None
    provider: Any
    check_versions: bool
    is_named: bool
    hides_missing: bool
    total_time: float | None

    @property
    def is_anonymous(self) -> bool:
        """Whether requests are not signed."""
        return bool(self.config.get("skip_signature"))


def kind_of(scheme: str) -> str:
    """ "s3", "gs", "az" or "http" for a URL's scheme; others are their own kind."""
    return KINDS.get(scheme, scheme)


def is_for_fsspec(options: Mapping[str, Any]) -> bool:
    """Whether options of a web server need fsspec, because obstore lacks them."""
    return any(name in FSSPEC_ONLY["http"] for name in options)


def read_options(kind: str, options: Mapping[str, Any], url: str) -> Settings:
    """Storage options, in either library's words, in obstore's form.

    Raises
        StoreError: an option that nobody knows, or that only fsspec has; two names of one with two values; a
            file or a profile that is not there.
    """
    found = _flat(kind, options, url)
    for name in ("endpoint", "base_url"):
        if name in found and not str(found[name] or "").strip():
            raise StoreError(
                f"the storage option for the server's address is {found[name]!r}; expected a URL, or no such "
                "option, for the provider's own",
                path=url,
            )
    check_versions = as_flag(found.pop("check_versions", True))
    hides_missing = as_flag(found.pop("hides_missing", False))
    retry, provider = found.pop("retry_config", None), found.pop("credential_provider", None)
    is_named = "region" in found or "AWS_REGION" in os.environ or "AWS_DEFAULT_REGION" in os.environ
    if kind == "s3":
        # What is said comes before what the environment says, and that before a file at home.
        if provider is None and not as_flag(found.get("skip_signature", False)):
            given, provider = find_profile(found.pop("profile", None), found, url)
            found = {**given, **found}
        found.pop("profile", None)
        is_named = is_named or "region" in found
        if provider is not None or "access_key_id" in found:
            found.setdefault("skip_signature", False)
        endpoint = s3_endpoint(found, url)
    elif kind == "gs":
        _read_google(found)
        endpoint = found.get("base_url", "")
    elif kind == "az":
        _read_azure(found, url)
        endpoint = found.get("endpoint", "")
    else:
        endpoint = url if kind == "http" else ""
    if as_flag(found.get("skip_signature", False)):
        # Where nothing is signed, keys are of no use, and half of them an error.
        for name in ("access_key_id", "secret_access_key", "session_token"):
            found.pop(name, None)
    client = {name: found.pop(name) for name in [*found] if name in CLIENT}
    is_limited = "timeout" in client
    client = _client(client, str(endpoint), kind)
    total_time = client["timeout"].total_seconds() if is_limited and kind != "memory" else None
    return Settings(found, client, retry, provider, check_versions, is_named, hides_missing, total_time)


def fsspec_options(kind: str, options: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The same options in the words of fsspec's filesystem for that kind; unknown ones are kept.

    Raises
        StoreError: as `read_options`, or an option that only obstore has.
    """
    if kind not in FSSPEC:
        return dict(options)
    own = {name: value for name, value in options.items() if name in NEEDLESS | FSSPEC_ONLY[kind]}
    rest = {name: value for name, value in options.items() if name not in own}
    nested = {name: dict(rest.pop(name)) for name in ("client_kwargs", "config_kwargs") if rest.get(name)}
    made: dict[str, Any] = {**nested, **own}
    for name, value in _flat(kind, rest, url).items():
        if name not in FSSPEC[kind]:
            if name in TUNING:
                continue
            raise StoreError(f"storage option {name!r} needs obstore: pip install 'zstore[cloud]'", path=url)
        if name == "virtual_hosted_style_request":
            value = "virtual" if as_flag(value) else "path"
        elif name in ("skip_signature", "request_payer"):
            value = as_flag(value)
        elif (kind, name) == ("http", "root_certificate"):
            import ssl  # which a Python may lack

            value = ssl.create_default_context(cadata=_certificate(value).decode())
        if (kind, name) == ("gs", "skip_signature"):
            if not value:
                continue
            value = "anon"
        *above, last = FSSPEC[kind][name]
        into = made
        for step in above:
            into = into.setdefault(step, {})
        into[last] = value
    return made


def _flat(kind: str, options: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Options by object_store's names, nested ones included."""
    found: dict[str, Any] = {}
    for name, value in _pairs(options):
        if value is None or name in NEEDLESS:
            continue
        known = _known(kind, name, value, url)
        if known is None:
            continue
        known_name, known_value = known
        if known_name in found and found[known_name] != known_value:
            raise StoreError(f"storage option {name!r} contradicts another name of {known_name!r}", path=url)
        found[known_name] = known_value
    return found


def _pairs(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if name in NESTED and isinstance(value, Mapping):
            yield from _pairs(value)
        else:
            yield str(name), value


def _known(kind: str, name: str, value: Any, url: str) -> tuple[str, Any] | None:
    """(the name in the common vocabulary, the value in its form); None for an option without effect."""
    names = NAMES.get(kind, {})
    client = CLIENT if kind != "memory" else {}
    plain = name.lower() if name.isupper() else name
    for prefix in PREFIXES.get(kind, ()):
        plain = plain.removeprefix(prefix)
    if plain == "use_ssl" and kind == "s3":
        return ("allow_http", True) if not as_flag(value) else None
    if plain == "addressing_style" and kind == "s3":
        return None if value == "auto" else ("virtual_hosted_style_request", value == "virtual")
    for table in (names, client):
        for known, others in table.items():
            if plain == known or plain in others:
                return known, value
    if plain in OTHERS:
        return plain, value
    if plain in FSSPEC_ONLY.get(kind, ()):
        raise StoreError(
            f"storage option {name!r} is fsspec's own; expected a URL that begins with 'fsspec+', to have it",
            path=url,
        )
    tables = (names, client)
    every = [name for table in tables for known, others in table.items() for name in (known, *others)]
    near = difflib.get_close_matches(plain, every, 3, 0.6)
    expected = " or ".join(map(repr, near)) if near else ", ".join(every) or "none"
    raise StoreError(f"no storage option {name!r}; expected {expected}", path=url)


def as_flag(value: Any) -> bool:
    """The truth value of an option, which may be a word."""
    return WORDS.get(value.strip().lower(), bool(value)) if isinstance(value, str) else bool(value)


def s3_endpoint(found: Mapping[str, Any], url: str) -> str:
    """The address of the S3 server.

    Raises
        StoreError: the environment says another place, and object_store would go there.
    """
    first, *others = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    given, forced = str(found.get("endpoint") or ""), os.environ.get(first, "")
    if given and forced and given.rstrip("/") != forced.rstrip("/"):
        raise StoreError(
            f"the environment's {first} is {forced!r}, and would go before the endpoint_url {given!r}; "
            "expected AWS_ENDPOINT_URL in its place, or none",
            path=url,
        )
    return given or forced or next((os.environ[name] for name in others if os.environ.get(name)), "")


def _client(client: dict[str, Any], endpoint: str, kind: str) -> dict[str, Any]:
    """The settings of connections: those of the options, else the limits."""
    if kind == "memory":
        return {}
    limits = current_limits()
    verify = client.get("root_certificate", os.environ.get("AWS_CA_BUNDLE") if kind == "s3" else None)
    if verify is None or verify is True:
        client.pop("root_certificate", None)
    elif verify is False:
        del client["root_certificate"]
        client["allow_invalid_certificates"] = True
    else:
        client["root_certificate"] = _certificate(verify)
    for name in SECONDS & {*client}:
        client[name] = _duration(name, client[name], endpoint)
    for name in ("allow_http", "allow_invalid_certificates", "http1_only", "http2_only"):
        if name in client:
            client[name] = as_flag(client[name])
    return {
        "connect_timeout": timedelta(seconds=limits.connect_time),
        "read_timeout": timedelta(seconds=limits.read_time),
        "timeout": timedelta(seconds=limits.total_time),
        "allow_http": endpoint.lower().startswith("http://"),
        **client,
    }


def _duration(name: str, value: Any, url: str) -> timedelta:
    """A time of so many seconds; as a text, also with its unit, as obstore takes it."""
    if isinstance(value, timedelta):
        return value
    found = DURATION.fullmatch(str(value).strip())
    if found is None or isinstance(value, bool):
        expected = "expected seconds, such as 20, or a text such as '20s', '500ms' or '2m'"
        raise StoreError(f"storage option {name!r} is {value!r}; {expected}", path=url or None)
    return timedelta(seconds=float(found[1]) * UNITS[found[2] or "s"])


def _certificate(value: Any) -> bytes:
    """The PEM text: the value itself, or the content of the file that it names."""
    if isinstance(value, bytes) or "-----BEGIN" in str(value):
        return value if isinstance(value, bytes) else str(value).encode()
    try:
        path = Path(value)
        state = path.stat()
        return _read_certificate(path, (state.st_ino, state.st_size, state.st_mtime_ns))
    except OSError as error:
        raise StoreError(
            f"cannot read the certificates {str(value)!r}; expected a PEM file: {error}"
        ) from error


@lru_cache(4)
def _read_certificate(path: Path, state: tuple[int, int, int]) -> bytes:
    """The content of a file in that state, the same object each time: it knows its hash."""
    return path.read_bytes()


def _read_google(found: dict[str, Any]) -> None:
    """The settings of gcsfs's options: `token` has many forms, the paying project becomes a header."""
    token = found.pop("application_credentials", None)
    if isinstance(token, Mapping):
        found["service_account_key"] = json.dumps(dict(token))
    elif token == "anon":
        found["skip_signature"] = True
    elif token not in (None, "google_default", "cloud", "cache"):
        found["application_credentials"] = str(token)
    project, pays = found.pop("project", None), found.pop("request_payer", False)
    payer = project if pays is True else pays
    if payer:
        found["default_headers"] = {"x-goog-user-project": str(payer), **found.get("default_headers", {})}
    host = os.environ.get("STORAGE_EMULATOR_HOST")
    if host and "base_url" not in found:
        found["base_url"] = host if "://" in host else f"http://{host}"
        found.setdefault("skip_signature", True)


def _read_azure(found: dict[str, Any], url: str) -> None:
    """The settings of Azure's options, those inside a connection string included."""
    text = found.pop("connection_string", None)
    is_given = bool(text)
    text = text or os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    parts = (part.partition("=") for part in text.split(";")) if text else ()
    said = {AZURE_WORDS[name]: value for name, _, value in parts if name in AZURE_WORDS}
    if not is_given:
        # The environment's is about one account, and says nothing of another.
        if found.get("account_name", said.get("account_name")) != said.get("account_name"):
            said = {}
        if found.keys() & {"account_key", "sas_key", "token", "client_id", "skip_signature"}:
            said = {name: said[name] for name in said.keys() & {"account_name", "endpoint"}}
    for name, value in said.items():
        found.setdefault(name, value)
    host = found.get("endpoint")
    if host and "://" not in str(host):
        found["endpoint"] = f"https://{host}"
    if "sas_key" in found:
        found["sas_key"] = str(found["sas_key"]).removeprefix("?")
