"""Loading installed plugins and collecting their offers; a broken plugin does not affect the others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zstore.base.locks import Lock
from zstore.errors import ExtensionError
from zstore.extensions.offers import Offer

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import pluggy

ENTRY_POINT_GROUP = "zstore"
DISABLE_VARIABLE = "ZSTORE_DISABLE_PLUGINS"

# kind, as messages name it -> the hook that collects its offers
KINDS = {
    "codec": "register_codecs",
    "data type": "register_data_types",
    "store": "register_stores",
    "convention": "register_conventions",
    "resampler": "register_resamplers",
    "command": "register_commands",
    "job": "register_jobs",
}

TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Plugin(NamedTuple):
    """One entry point of the group "zstore", and the result of loading it.

    `state` is "ok", "broken" (`error` has the reason; its offers are ignored) or "disabled" (never imported);
    `offers` pairs each offer with its kind.
    """

    name: str
    target: str
    package: str
    version: str
    state: str
    offers: tuple[tuple[str, Offer], ...] = ()
    error: ExtensionError | None = None


def disabled_names(value: str | None = None) -> frozenset[str]:
    """The plugins and packages that ZSTORE_DISABLE_PLUGINS (or `value`) lists; "*" stands for all."""
    text = os.environ.get(DISABLE_VARIABLE, "") if value is None else value
    return frozenset(_normal(name) for name in text.split(",") if name.strip())


def load_plugins(points: Iterable[EntryPoint], disabled: frozenset[str] = frozenset()) -> list[Plugin]:
    """Import each entry point, check its hooks and collect its offers, in order of package and name."""
    import pluggy

    from zstore.extensions import hookspecs

    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    loaded = []
    for point in sorted(points, key=lambda point: (*_source(point), point.name)):
        package, version = _source(point)
        plugin = Plugin(point.name, point.value, package, version, "disabled")
        if not disabled.intersection({"*", _normal(point.name), _normal(package)}):
            plugin = _load(manager, point, plugin)
        loaded.append(plugin)
    return loaded


def _load(manager: pluggy.PluginManager, point: EntryPoint, plugin: Plugin) -> Plugin:
    # No error in the code of one plugin may keep the others from loading, so every Exception is caught here;
    # the registry mentions it when a name is unknown.
    try:
        module = point.load()
        offers = _collect(manager, module, f"{plugin.package}/{plugin.name}")
    except Exception as error:
        reason = error if isinstance(error, ExtensionError) else _reason(error)
        return plugin._replace(state="broken", error=reason)
    return plugin._replace(state="ok", offers=offers)


def _reason(error: Exception) -> ExtensionError:
    reason = ExtensionError(f"{type(error).__name__}: {error}")
    reason.__cause__ = error
    return reason


def _collect(manager: pluggy.PluginManager, module: Any, name: str) -> tuple[tuple[str, Offer], ...]:
    import pluggy

    try:
        manager.register(module, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        raise ExtensionError(f"{error}; the hooks are {', '.join(KINDS.values())}") from error
    offers: list[tuple[str, Offer]] = []
    for kind, hook in KINDS.items():
        implementations = getattr(manager.hook, hook).get_hookimpls()
        functions = [one.function for one in implementations if one.plugin_name == name]
        if hasattr(module, hook) and not functions:
            raise ExtensionError(f"{hook} is not marked as a hook; expected @hookimpl above it")
        offers += [
            (kind, _checked(offer, hook)) for function in functions for offer in _listed(function(), hook)
        ]
    return tuple(offers)


def _listed(result: object, hook: str) -> Sequence[object]:
    if isinstance(result, (list, tuple)) and not isinstance(result, Offer):
        return result
    raise ExtensionError(f"{hook} returned {result!r}; expected a list of Offer")


def _checked(offer: object, hook: str) -> Offer:
    if (
        isinstance(offer, Offer)
        and all(isinstance(name, str) and name for name in (offer.name, *offer.aliases))
        and not isinstance(offer.aliases, str)
        and isinstance(offer.target, str)
        and isinstance(offer.summary, str)
        and TARGET.fullmatch(offer.target)
    ):
        return offer
    raise ExtensionError(f'{hook} returned {offer!r}; expected Offer(name, "package.module:Class", aliases)')


def _source(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist is not None else ("", "")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


_lock = Lock()
_loaded: list[Plugin] | None = None


def plugins() -> list[Plugin]:
    """The installed plugins, loaded at the first call.

    Raises
        ExtensionError: called by a plugin while that is being loaded.
    """
    global _loaded
    if _loaded is None:
        if _lock.is_mine:
            raise ExtensionError(
                "a plugin looked a name up while plugins were being loaded; expected at first use"
            )
        with _lock:
            if _loaded is None:
                # Imported here because it takes longer to import than all of this package.
                from importlib.metadata import entry_points

                _loaded = load_plugins(entry_points(group=ENTRY_POINT_GROUP), disabled_names())
    return _loaded
