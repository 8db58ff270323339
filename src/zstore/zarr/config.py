"""`zarr.config`: nested settings under zarr-python's names, those of its environment variables included.

What zstore goes by is in `EFFECTIVE`; the other names are kept, so that programs which set them run.
"""

from __future__ import annotations

import os
from ast import literal_eval
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pprint import pprint
from typing import Any, Literal

from zstore.engine.schedulers import set_threads
from zstore.errors import UnsupportedError

__all__ = ["ArrayConfig", "Config", "config"]

DEFAULTS: dict[str, Any] = {
    "default_zarr_format": 3,
    "array": {
        "order": "C",
        "write_empty_chunks": False,
        "read_missing_chunks": True,
        "target_shard_size_bytes": None,
        "rectilinear_chunks": True,
        "allow_unsafe_pickle_decode": False,
        "sharding_coalesce_max_gap_bytes": 1 << 20,
        "sharding_coalesce_max_bytes": 16 << 20,
    },
    "async": {"concurrency": 10, "timeout": None},
    "threading": {"max_workers": None},
    "json_indent": 2,
    "codec_pipeline": {"path": "zstore", "batch_size": 1, "max_workers": None},
    "codecs": {},
    "buffer": "zstore.zarr.buffer.Buffer",
    "ndbuffer": "zstore.zarr.buffer.NDBuffer",
}
EFFECTIVE = (
    "default_zarr_format",
    *(f"array.{name}" for name in list(DEFAULTS["array"])[:6]),
    "threading.max_workers",
)
MISSING: Any = object()


class Config:
    """Settings by dotted names ("array.order"); `set` changes some, for good or as a context."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self.defaults = [dict(defaults)]
        self.config: dict[str, Any] = {}
        self._thread_count: int | None = None
        self.reset()

    def reset(self) -> None:
        """Go back to the defaults, and to what environment variables (`ZARR_ARRAY__ORDER`) say."""
        self.config = deepcopy(self.defaults[0])
        for name, text in os.environ.items():
            if name.startswith("ZARR_"):
                self._put(name.removeprefix("ZARR_").lower().replace("__", "."), _value(text))
        self._follow()

    refresh = clear = reset

    def get(self, key: str, default: Any = MISSING) -> Any:
        """The value under a dotted name.

        Raises
            KeyError: there is none, and no default.
        """
        found: Any = self.config
        for name in key.split("."):
            found = found.get(name, MISSING) if isinstance(found, Mapping) else MISSING
        if found is not MISSING:
            return found
        if default is MISSING:
            raise KeyError(f"no setting {key!r}; expected one of {', '.join(_names(self.config))}")
        return default

    __getitem__ = get

    def set(self, arg: Mapping[str, Any] | None = None, **named: Any) -> AbstractContextManager[Config]:
        """Change settings now ("array.order", or `array__order=`); as a context, until it ends."""
        before = deepcopy(self.config)
        for key, value in {**(arg or {}), **{k.replace("__", "."): v for k, v in named.items()}}.items():
            self._put(key, value)
        self._follow()
        return self._until_end(before)

    def update(self, new: Mapping[str, Any], priority: str = "new") -> None:
        """Change several settings at once."""
        self.set(new)

    @contextmanager
    def _until_end(self, before: dict[str, Any]) -> Iterator[Config]:
        try:
            yield self
        finally:
            self.config = before
            self._follow()

    def enable_gpu(self) -> Any:
        """Nothing: zstore reads into the memory of the processor.

        Raises
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "zstore reads into numpy's arrays; expected no GPU, or `cupy.asarray(array[...])`"
        )

    def pprint(self, **options: Any) -> None:
        """Print all settings."""
        pprint(self.config, **options)

    def to_dict(self) -> dict[str, Any]:
        """A copy of all settings."""
        return deepcopy(self.config)

    def _put(self, key: str, value: Any) -> None:
        *above, last = key.split(".")
        held = self.config
        for name in above:
            held = held.setdefault(name, {})
        is_part = isinstance(value, Mapping) and isinstance(held.get(last), dict)
        held[last] = {**held[last], **value} if is_part else value

    def _follow(self) -> None:
        wanted = self.get("threading.max_workers")
        if wanted != self._thread_count:
            set_threads(wanted)
            self._thread_count = wanted


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _names(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in settings.items():
        is_part = isinstance(value, Mapping) and value
        yield from _names(value, f"{prefix}{name}.") if is_part else (prefix + name,)


config = Config(DEFAULTS)


@dataclass(frozen=True)
class ArrayConfig:
    """The part "array" of the settings, for reading and writing one array.

    order                the order of results in memory
    write_empty_chunks   whether chunks of nothing but the fill value are stored
    read_missing_chunks  whether chunks that are not stored read as the fill value, or are an error
    """

    order: Literal["C", "F"] = "C"
    write_empty_chunks: bool = False
    read_missing_chunks: bool = True
    sharding_coalesce_max_gap_bytes: int = 1 << 20
    sharding_coalesce_max_bytes: int = 16 << 20

    @classmethod
    def of(cls, given: Any = None, **changes: Any) -> ArrayConfig:
        """The settings as they are now, with those that are given: an `ArrayConfig`, a dict, or None.

        Raises
            TypeError: a name that is none of these.
            ValueError: an order that is neither "C" nor "F".
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        if isinstance(given, ArrayConfig):
            return replace(given, **changes)
        names = [field.name for field in fields(cls)]
        said = {**(given or {}), **changes}
        if unknown := sorted(said.keys() - {*names}):
            raise TypeError(f"config has {unknown}; expected some of {', '.join(names)}")
        made = cls(**{name: config.get(f"array.{name}") for name in names} | said)
        if made.order not in ("C", "F"):
            raise ValueError(f"order is {made.order!r}; expected 'C' or 'F'")
        return made

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArrayConfig:
        """The settings as they are now, with those that are given."""
        return cls.of(data)

    def to_dict(self) -> dict[str, Any]:
        """The settings by their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
