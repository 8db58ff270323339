"""Requests to a bucket of S3, Google or Azure: regions, conditions of writes, and copies on the server."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.request import HTTPErrorProcessor, Request, build_opener

from zstore.base.limits import current_limits
from zstore.base.locks import Lock
from zstore.errors import NotFoundError, StoreError
from zstore.storage.base import in_thread
from zstore.storage.objects.backend import Backend, Pages
from zstore.storage.objects.clients import Client, make_client
from zstore.storage.objects.failures import is_changed, is_unsupported, named_region, status_of, telling
from zstore.storage.objects.library import ask_all, is_direct, wait_for
from zstore.storage.objects.options import Settings, read_options
from zstore.storage.remote import RequestLine

# Servers that are known to keep conditions; any other server that speaks S3 is tried once.
CONDITIONAL = (".amazonaws.com", ".amazonaws.com.cn", ".r2.cloudflarestorage.com")
PROBE = ".zstore-conditions"
AMAZON = "https://s3.amazonaws.com"

# By client, whether its server keeps conditions; what is known of one is known in the whole process.
_keeps: dict[int, tuple[Any, bool]] = {}
_probing = Lock()
# By bucket, the region that it turned out to be in.
_regions: dict[str, str] = {}


class Bucket(Backend):
    """A bucket of S3, Google or Azure; facts about it that its server has confirmed are kept."""

    is_served = True
    is_durable = True
    _may_move = False
    _may_list = True

    def _make_client(self, settings: Settings) -> Client:
        self._may_move = self.address.kind == "s3" and not settings.is_named
        region = _regions.get(self.address.bucket) if self._may_move else None
        return make_client(self.address, settings, region)

    async def _moved(self, error: Exception, client: Any) -> bool:
        """Whether the bucket is in another region than that of `client`, and another client is used now."""
        region = named_region(error)
        if region is None or (self._client is client and not self._may_move):
            return False
        if self._client is not client:  # another request has found it out
            return True
        bucket = self.address.bucket.partition("://")[2]
        endpoint = _endpoint(client) or AMAZON
        if not region and is_direct():
            region = _ask_region(endpoint, bucket)
        elif not region:
            region = await in_thread(_ask_region, endpoint, bucket)
        if region is None or self._client is not client:
            return region is not None
        self._may_move = False
        _regions[self.address.bucket] = region
        self._client, self._curl = make_client(
            self.address, read_options(self.address.kind, self.options, self.address.bucket), region
        )
        return True

    async def _is_unlisted(self, key: str) -> bool:
        """Whether the bucket's list does not have a key; one that is refused is not asked for again."""
        if not self._may_list:
            return False
        path = self.path(key)
        # The path itself is the first one behind this.
        before = f"{path[:-1]}{chr(ord(path[-1]) - 1)}\U0010ffff"
        try:
            page = await Pages(self, key.rpartition("/")[0], 1, after=before).next()
        except StoreError as error:
            self._may_list = error.__cause__ is None or status_of(error.__cause__) != 403
            return False
        return all(meta["path"] != path for meta in page)

    def is_beside(self, other: Backend) -> bool:
        """Whether both are in one bucket, reached with the same options."""
        here, there = self.address, other.address
        is_one = (here.kind, here.bucket) == (there.kind, there.bucket) and self.options == other.options
        return is_one and self.target is other.target

    async def copy(self, key: str, path: str) -> bool:
        """Copy the object of a whole path to a key, on the server; False if it does not do that.

        Raises
            NotFoundError: there is no such object.
        """
        try:
            await self._again(partial(self._do, "copy", path, self.path(key)), RequestLine("COPY", key))
        except FileNotFoundError as error:
            raise NotFoundError("there is no such value", path=self.url, key=path) from error
        except Exception as error:  # obstore's have no base but this
            # S3 copies no object of more than 5 GiB in one request, some servers copy none.
            if is_unsupported(error) or status_of(error) in (400, 405, 501):
                return False
            raise self.failed("write", key, error) from error
        return True

    def check_conditions(self, key: str) -> None:
        """Test, once for each client, whether its server keeps conditions; called outside of any loop.

        Raises
            StoreError: it does not, and would let writers overwrite each other.
        """
        client = self.client
        if self.address.kind != "s3":
            return
        with _probing:
            _, keeps = _keeps.get(id(client), (None, None))
            if keeps is None:
                host = _endpoint(client).partition("://")[2].partition("/")[0].partition(":")[0]
                keeps = not host or host.endswith(CONDITIONAL) or wait_for(self._probe())
                # The client is kept beside it, so that no other one gets its number.
                _keeps[id(client)] = client, keeps
        if not keeps:
            raise self.unconditional(key, "it overwrote in spite of a condition")

    async def _probe(self) -> bool:
        """Whether the server keeps the conditions of writes, tested with a temporary value.

        It has one name for all, so that what a killed process leaves goes with the next trial. Where that
        fails, another process may have removed the value meanwhile: a name of one's own tells.
        """
        return await self._keeps_at(PROBE) or await self._keeps_at(f"{PROBE}-{os.urandom(8).hex()}")

    async def _keeps_at(self, probe: str) -> bool:
        path = self.path(probe)

        async def holds(mode: Any) -> bool:
            try:
                put = partial(self._do, "put", path, b"", mode=mode, use_multipart=False)
                await self._again(put, RequestLine("PUT", probe))
            except Exception as error:
                if is_changed(error) or is_unsupported(error) or isinstance(error, FileNotFoundError):
                    return is_changed(error)
                raise self.failed("write", None, error) from error
            return False

        with telling("write", self.url, None, self.address.kind):
            put = partial(self._do, "put", path, b"", mode="overwrite", use_multipart=False)
            await self._again(put, RequestLine("PUT", probe))
        try:
            return all(await ask_all(holds, ["create", {"e_tag": '"zstore"'}]))
        finally:
            with suppress(StoreError):  # whoever may not delete may write
                await self.delete(probe)


class _Unfollowed(HTTPErrorProcessor):
    """Returns every response as it is, whatever its status."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


def _endpoint(client: Any) -> str:
    """The address from the options or the environment in place of Amazon's, if any."""
    return str(client.config.get("endpoint") or client.config.get("aws_endpoint") or "")


def _ask_region(endpoint: str, bucket: str) -> str | None:
    """The region of a bucket, which the server tells anybody."""
    try:
        request = Request(f"{endpoint.rstrip('/')}/{bucket}", method="HEAD")
        with build_opener(_Unfollowed).open(request, timeout=current_limits().connect_time) as answer:
            found: str | None = answer.headers.get("x-amz-bucket-region")
            return found
    except (OSError, ValueError):
        return None
