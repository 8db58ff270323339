"""zstore as the implementation under test, for the fixtures' runner, whose docstring has the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zstore
from zstore.codecs.base import BytesCodec
from zstore.extensions.registry import codecs
from zstore.model import v2, v3
from zstore.model.array import CodecModel

FORMATS = {1, 2, 3}


def _store(store: str) -> Any:
    return f"zip://::file://{Path(store).absolute()}" if Path(store).is_file() else store


def open_array(store: str, path: str = "") -> zstore.Array:
    """The array at `path`."""
    return zstore.open_array(_store(store), path, "r")


class Group:
    """A group as the runner wants it."""

    def __init__(self, group: zstore.Group) -> None:
        self._group = group
        self.attrs = group.attrs.asdict()

    def members(self) -> dict[str, str]:
        """Name to kind."""
        return {
            name: "array" if isinstance(node, zstore.Array) else "group"
            for name, node in self._group.members()
        }


def open_group(store: str, path: str = "") -> Group:
    """The group at `path`."""
    return Group(zstore.open_group(_store(store), path, "r"))


def decode(config: dict[str, Any], data: bytes) -> Any:
    """Bytes by the numcodecs codec that `config` describes."""
    configuration = {name: value for name, value in config.items() if name != "id"}
    model = CodecModel(f"numcodecs.{config['id']}", configuration)
    codec = codecs.resolve(model.name).from_configuration(model.configuration)
    assert isinstance(codec, BytesCodec), f"{model.name} is no codec of bytes"
    return codec.decode(memoryview(data), 1 << 30)


def parse_metadata(document: dict[str, Any], zarr_format: int, node: str) -> None:
    """Raises where the document is not valid."""
    if node == "consolidated":
        v2.parse_group({v2.GROUP_KEY: {"zarr_format": 2}, v2.CONSOLIDATED_KEY: document}, path="fixture")
    elif zarr_format == 3:
        v3.parse_node({v3.KEY: document}, "fixture")
    elif node == "array":
        v2.parse_array({v2.ARRAY_KEY: document}, path="fixture")
    else:
        v2.parse_group({v2.GROUP_KEY: document}, path="fixture")
