"""AWS profiles: settings of ~/.aws/config and ~/.aws/credentials, after those of caller and environment."""

from __future__ import annotations

import configparser
import importlib
import importlib.util
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from zstore.errors import StoreError

# What says who one is without any file.
GIVEN = ("access_key_id", "web_identity_token_file", "role_arn")
VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
NAMES = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}
# How long credentials that botocore gives are used before it is asked again.
KEPT = timedelta(minutes=5)


class Provider:
    """The credentials of a profile that botocore has to request."""

    def __init__(self, profile: str | None) -> None:
        self.profile = profile
        self._found: Any = None

    def __call__(self) -> dict[str, Any]:
        if self._found is None:
            session = importlib.import_module("botocore.session").Session(profile=self.profile)
            self._found = session.get_credentials()
        if self._found is None:
            raise ValueError(f"the AWS profile {self.profile or 'default'!r} has no credentials")
        now = self._found.get_frozen_credentials()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.now(UTC) + KEPT,
        }

    def __reduce__(self) -> Any:
        return Provider, (self.profile,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provider) and other.profile == self.profile

    def __hash__(self) -> int:
        return hash((Provider, self.profile))


def find_profile(name: str | None, options: Mapping[str, Any], url: str) -> tuple[dict[str, Any], Any]:
    """(options of a profile, provider of its credentials if the files lack them, else None).

    Without a name, it is the profile in AWS_PROFILE; the default one only where no other credentials are
    given.

    Raises
        StoreError: there is no such profile, or it needs botocore, which is not installed.
    """
    wanted = name or os.environ.get("AWS_PROFILE")
    is_known = any(options.get(known) for known in GIVEN) or (
        name is None and any(os.environ.get(variable) for variable in VARIABLES)
    )
    if is_known and not wanted:
        return {}, None
    profiles = _read_files()
    if wanted and wanted not in profiles:
        expected = f"expected one of {', '.join(sorted(profiles))}" if profiles else "there are none"
        raise StoreError(
            f"no AWS profile {wanted!r} in ~/.aws/config and ~/.aws/credentials; {expected}", path=url
        )
    said = profiles.get(wanted or "default", {})
    found = {NAMES[key]: value for key, value in said.items() if key in NAMES and value}
    # The environment goes before the files, but for a profile that the caller names.
    for key, variables in (
        ("region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
        ("endpoint", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    ):
        if name is None and any(os.environ.get(variable) for variable in variables):
            found.pop(key, None)
    if is_known:
        return {key: value for key, value in found.items() if key in ("region", "endpoint")}, None
    if "access_key_id" in found or not said or not _asks_somebody(said):
        return found, None
    if importlib.util.find_spec("botocore") is None:
        raise StoreError(
            f"the AWS profile {wanted or 'default'!r} has no keys of its own; expected botocore, which knows "
            "how to ask for them: pip install botocore",
            path=url,
        )
    return found, Provider(wanted)


def _asks_somebody(said: Mapping[str, str]) -> bool:
    return any(key.startswith(("sso_", "role_arn", "credential_", "source_", "web_identity")) for key in said)


def _read_files() -> dict[str, dict[str, str]]:
    """The settings in both files by profile; those in the file of credentials take precedence."""
    profiles: dict[str, dict[str, str]] = {}
    for variable, default in (
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        ("AWS_CONFIG_FILE", "~/.aws/config"),
    ):
        path = Path(os.environ.get(variable) or default).expanduser()
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path)
        except (OSError, configparser.Error, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read AWS's profiles: {error}", path=str(path)) from error
        for section in parser.sections():
            if section.startswith(("sso-session", "services")):
                continue
            into = profiles.setdefault(section.removeprefix("profile ").strip(), {})
            for key, value in parser.items(section):
                into.setdefault(key, value)
    return profiles
