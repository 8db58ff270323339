"""What a codec can be told: options, declared once for reading a configuration and for writing it back.

A codec lists them in its `options`: `(integer("level", 0, 9), flag("checksum", False))`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import MetadataError, ZstoreError
from zstore.model.array import CodecModel

REQUIRED: Any = object()


class Option(NamedTuple):
    """One member of a configuration, and the attribute of that name of the codec.

    expected  what it may be, in words
    parse     gives the value to keep; raises ValueError or TypeError for one that it may not be
    default   what is kept where it is left out: REQUIRED for what must be there, None for what is then left
              out again when the configuration is written
    render    the inverse of `parse`
    may_be_null  whether null says the same as leaving it out
    usual    what a new array is given where a REQUIRED one is left out, which is zarr-python's default
    """

    name: str
    expected: str
    parse: Callable[[Any], Any]
    default: Any = REQUIRED
    render: Callable[[Any], Any] = lambda value: value
    may_be_null: bool = False
    usual: Any = None


def refuse_option(codec: str, option: str, value: object, expected: str) -> MetadataError:
    """The error for an option of `codec` that has a value other than `expected`."""
    return MetadataError(f"codec {codec!r} has {option} {value!r}, expected {expected}", codec=codec)


def parse_options(codec: str, options: Iterable[Option], configuration: Any) -> dict[str, Any]:
    """The values of all `options` of `codec`, by their names.

    Raises
        MetadataError: an option is unknown, missing or not what is expected.
    """
    if not isinstance(configuration, Mapping):
        raise refuse_option(codec, "configuration", configuration, "an object")
    values = {}
    for option in options:
        value = configuration.get(option.name, REQUIRED)
        if value is REQUIRED or (value is None and option.may_be_null):
            value = option.default
            if value is REQUIRED:
                raise MetadataError(f"codec {codec!r} lacks the option {option.name!r}", codec=codec)
        else:
            try:
                value = option.parse(value)
            except ZstoreError:
                raise
            except (TypeError, ValueError) as error:
                raise refuse_option(codec, option.name, value, option.expected) from error
        values[option.name] = value
    refuse_unknown(codec, configuration, values)
    return values


def refuse_unknown(codec: str, configuration: Iterable[str], options: Collection[str]) -> None:
    """Raise MetadataError where `configuration` has members that are none of the codec's options."""
    unknown = sorted(map(str, set(configuration) - set(options)))
    if unknown:
        near = name_nearest(unknown[0], options)
        has = f"its options are {_quoted(options)}" if options else "it has none"
        meant = f"; did you mean {near!r}?" if near else ""
        raise MetadataError(
            f"codec {codec!r} has unknown options: {_quoted(unknown)}; {has}{meant}", codec=codec
        )


def name_nearest(given: str, names: Iterable[str]) -> str | None:
    """The one of `names` that somebody who wrote `given` may have meant."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(given, [*names], 1, 0.5)), None)


def usual_options(options: Iterable[Option]) -> dict[str, Any]:
    """What a new array is given of the options that a document must say."""
    return {option.name: option.usual for option in options if option.usual is not None}


def render_options(codec: object, options: Iterable[Option]) -> dict[str, Any]:
    """The configuration that `parse_options` reads, from the attributes of `codec`."""
    values = ((option, getattr(codec, option.name)) for option in options)
    return {
        option.name: option.render(value)
        for option, value in values
        if value is not None or option.default is not None
    }


def integer(
    name: str, low: int, high: int, default: Any = REQUIRED, *, may_be_null: bool = False, usual: Any = None
) -> Option:
    """An integer from `low` to `high`; 5.0 is taken for 5, as JSON does not tell them apart."""

    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError(value)
        return number

    return Option(
        name, f"an integer from {low} to {high}", parse, default, may_be_null=may_be_null, usual=usual
    )


def flag(name: str, default: Any = REQUIRED) -> Option:
    """True or false."""

    def parse(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    return Option(name, "true or false", parse, default)


def choice(
    name: str,
    choices: tuple[str, ...],
    default: Any = REQUIRED,
    *,
    may_be_null: bool = False,
    usual: Any = None,
) -> Option:
    """One of the words `choices`."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(value)
        return value

    return Option(name, f"one of {_quoted(choices)}", parse, default, may_be_null=may_be_null, usual=usual)


def anything(name: str, default: Any = REQUIRED) -> Option:
    """Any value: what it may be depends on the chunk, and `bind` looks at it."""
    return Option(name, "a value", lambda value: value, default)


def item_type(name: str, default: Any = REQUIRED) -> Option:
    """The dtype of stored items, by numpy's name for it."""
    return Option(name, "the name of a dtype", np.dtype, default, lambda dtype: dtype.str)


def codec_list(name: str, usual: Any = None) -> Option:
    """At least one other codec, each by its name alone or with a configuration."""

    def parse(value: Any) -> tuple[CodecModel, ...]:
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(value)
        models = []
        for entry in value:
            named: Any = {"name": entry} if isinstance(entry, str) else entry
            if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
                raise ValueError(value)
            models.append(CodecModel(named["name"], named.get("configuration") or {}))
        return tuple(models)

    def render(models: tuple[CodecModel, ...]) -> list[dict[str, Any]]:
        return [model.describe() for model in models]

    return Option(name, "a list of codecs, each with a name", parse, render=render, usual=usual)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
