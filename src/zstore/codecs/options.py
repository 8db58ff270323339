"""The options of codecs: declared once, they read a configuration and write it back.

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
    """One member of a configuration, and the codec's attribute of the same name.

    expected     the allowed values, in words, for messages
    parse        from the member to the attribute; raises ValueError or TypeError for a value not allowed
    default      the attribute if the member is left out: REQUIRED if it must not be; with None, the member
                 is left out again when the configuration is written
    render       the inverse of `parse`
    may_be_null  whether null means the same as leaving it out
    usual        the value of a REQUIRED option in a new array where the user leaves it out: zarr-python's
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
    """Check that all members of a configuration are options of the codec.

    Raises
        MetadataError: some are not; the message has the option that may have been meant.
    """
    unknown = sorted(map(str, set(configuration) - set(options)))
    if unknown:
        near = name_nearest(unknown[0], options)
        has = f"its options are {_quoted(options)}" if options else "it has none"
        meant = f"; did you mean {near!r}?" if near else ""
        raise MetadataError(
            f"codec {codec!r} has unknown options: {_quoted(unknown)}; {has}{meant}", codec=codec
        )


def name_nearest(given: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, which may have been meant by `given`; None if none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(given, [*names], 1, 0.5)), None)


def usual_options(options: Iterable[Option]) -> dict[str, Any]:
    """The values that required options have in a new array if the user leaves them out."""
    return {option.name: option.usual for option in options if option.usual is not None}


def render_options(codec: object, options: Iterable[Option]) -> dict[str, Any]:
    """The configuration of a codec, from the attributes that its options name; `parse_options` reads it."""
    values = ((option, getattr(codec, option.name)) for option in options)
    return {
        option.name: option.render(value)
        for option, value in values
        if value is not None or option.default is not None
    }


def integer(
    name: str, low: int, high: int, default: Any = REQUIRED, *, may_be_null: bool = False, usual: Any = None
) -> Option:
    """An option that is an integer from `low` to `high`; 5.0 is read as 5: JSON does not distinguish them."""

    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError(value)
        return number

    return Option(
        name, f"an integer from {low} to {high}", parse, default, may_be_null=may_be_null, usual=usual
    )


def flag(name: str, default: Any = REQUIRED) -> Option:
    """An option that is true or false."""

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
    """An option that is one of the words in `choices`."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(value)
        return value

    return Option(name, f"one of {_quoted(choices)}", parse, default, may_be_null=may_be_null, usual=usual)


def anything(name: str, default: Any = REQUIRED) -> Option:
    """An option with any value, for `bind` to check: the allowed ones depend on the chunk."""
    return Option(name, "a value", lambda value: value, default)


def item_type(name: str, default: Any = REQUIRED) -> Option:
    """An option that is a dtype, by numpy's name for it."""
    return Option(name, "the name of a dtype", np.dtype, default, lambda dtype: dtype.str)


def codec_list(name: str, usual: Any = None) -> Option:
    """An option that is a list of other codecs, at least one, each a name or an object with a name."""

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
