"""Registries: the class behind a name, one registry for each kind that plugins can add to.

    codecs.resolve("zstd")      the class, imported at the first call, then looked up in a dict

Built-in names are resolved before any plugin is loaded, and plugins cannot replace them: such an offer is
listed as a conflict, so that installing a package never changes how existing data are read. If two plugins
offer the same name, resolving it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from zstore.base.once import look_up
from zstore.errors import ExtensionConflictError, ExtensionError, UnknownExtensionError
from zstore.extensions import builtin
from zstore.extensions.builtin import PrefixOffer
from zstore.extensions.extras import package_hint
from zstore.extensions.offers import Offer
from zstore.extensions.plugins import Plugin, plugins

BUILT_IN_PACKAGE = "zstore"


class Listing(NamedTuple):
    """One offer and its state: "ok", or a fault of which `detail` has the reason.

    conflict  another package offers the same name
    broken    it cannot be loaded
    missing   it cannot be loaded, because a package that it needs is not installed
    disabled  ZSTORE_DISABLE_PLUGINS lists it

    A plugin that is broken or disabled as a whole has one listing of kind "plugin".
    """

    kind: str
    name: str
    aliases: tuple[str, ...]
    target: str
    package: str
    version: str
    state: str = "ok"
    detail: str = ""
    summary: str = ""


class _Names(NamedTuple):
    """The names that plugins offer: their owners, conflicts, and all listings."""

    owners: dict[str, Listing]
    conflicts: dict[str, list[Listing]]
    listings: list[Listing]


class Registry:
    """The names of one kind, built-in and of plugins; safe to use from many threads at once."""

    def __init__(
        self,
        kind: str,
        built_in: Sequence[Offer],
        prefixes: Sequence[PrefixOffer] = (),
        load: Callable[[], list[Plugin]] = plugins,
    ) -> None:
        self.kind = kind
        self._built_in = tuple(built_in)
        self._built_in_targets = {name: offer.target for offer in built_in for name in _all_names(offer)}
        self._prefixes = tuple(prefixes)
        self._load = load
        self._plugin_names: _Names | None = None
        self._classes: dict[str, Any] = {}

    def resolve(self, name: str) -> Any:
        """The class behind a name or an alias.

        Raises
            UnknownExtensionError: no such name; the message has similar names and broken plugins.
            ExtensionConflictError: two plugins offer it.
            ExtensionError: its class cannot be imported.
        """
        kept = look_up(self._classes, name)
        if kept is None:
            # Two threads may both get here; they find the same class, so either may store it.
            kept = self._classes[name] = self._find(name)
        return kept

    def _find(self, name: str) -> Any:
        target = self._built_in_targets.get(name)
        if target is not None:
            return self._imported(name, target)
        unknown_rest: UnknownExtensionError | None = None
        for prefix, target in self._prefixes:
            if name.startswith(prefix) and name != prefix:
                try:
                    return self._imported(name, target)(name.removeprefix(prefix))
                except UnknownExtensionError as error:
                    unknown_rest = error
        names = self._from_plugins()
        if name in names.conflicts:
            raise self._conflict(name, names.conflicts[name])
        if name in names.owners:
            return self._imported(name, names.owners[name].target, names.owners[name].package)
        raise self._unknown(name, unknown_rest) from unknown_rest

    def target(self, name: str) -> str | None:
        """The target of a plugin's offer of a name, not imported; None unless just one plugin offers it."""
        line = self._from_plugins().owners.get(name)
        return None if line is None else line.target

    def summaries(self) -> dict[str, str]:
        """The names as `names` lists them, with the summaries of their offers; nothing is imported."""
        summaries = {name: line.summary for name, line in self._from_plugins().owners.items()}
        summaries |= {offer.name: offer.summary for offer in self._built_in}
        return {name: summaries[name] for name in self.names()}

    def names(self) -> list[str]:
        """All names that can be resolved, without aliases, sorted."""
        owners = self._from_plugins().owners
        own = {offer.name for offer in self._built_in}
        return sorted(own.union(name for name, line in owners.items() if name == line.name))

    def listings(self) -> list[Listing]:
        """Every offer of this kind, built-in ones first."""
        version = _own_version()
        offers = (*self._built_in, *(Offer(f"{prefix}*", target) for prefix, target in self._prefixes))
        built_in = [self._listing(offer, BUILT_IN_PACKAGE, version) for offer in offers]
        return built_in + self._from_plugins().listings

    def _listing(self, offer: Offer, package: str, version: str) -> Listing:
        name, target, aliases, summary = offer
        return Listing(self.kind, name, aliases, target, package, version, summary=summary)

    def load(self, line: Listing) -> Listing:
        """The listing with its state after importing the class."""
        try:
            if line.state == "ok":
                self._imported(line.name, line.target, line.package)
        except ExtensionError as error:
            cause = error.__cause__
            if isinstance(cause, ModuleNotFoundError) and cause.name is not None:
                needed = cause.name.partition(".")[0]
                if needed != line.target.replace(":", ".").partition(".")[0]:
                    return line._replace(state="missing", detail=f"needs {needed!r}, which is not installed")
            return line._replace(state="broken", detail=f"{type(cause).__name__}: {cause}")
        return line

    def _from_plugins(self) -> _Names:
        if self._plugin_names is None:
            self._plugin_names = self._sort_out(self._load())
        return self._plugin_names

    def _sort_out(self, loaded: Iterable[Plugin]) -> _Names:
        lines = [
            self._listing(offer, plugin.package, plugin.version)
            for plugin in loaded
            for kind, offer in plugin.offers
            if kind == self.kind
        ]
        claims: dict[str, list[Listing]] = {}
        for line in lines:
            for name in set(_all_names(line)).difference(self._built_in_targets):
                claims.setdefault(name, []).append(line)
        owners = {name: claimants[0] for name, claimants in claims.items() if len(claimants) == 1}
        conflicts = {name: claimants for name, claimants in claims.items() if len(claimants) > 1}
        return _Names(owners, conflicts, [self._with_state(line, conflicts) for line in lines])

    def _with_state(self, line: Listing, conflicts: dict[str, list[Listing]]) -> Listing:
        troubles = []
        for name in _all_names(line):
            if name in self._built_in_targets:
                troubles.append(f"{name!r} is built in, and the built-in stays")
            elif name in conflicts:
                packages = sorted({claimant.package for claimant in conflicts[name]})
                troubles.append(f"{name!r} is offered {len(conflicts[name])} times, by {', '.join(packages)}")
        return line._replace(state="conflict", detail="; ".join(troubles)) if troubles else line

    def _imported(self, name: str, target: str, package: str = BUILT_IN_PACKAGE) -> Any:
        module_name, _, attributes = target.partition(":")
        try:
            value: Any = import_module(module_name)
            for attribute in attributes.split("."):
                value = getattr(value, attribute)
        except Exception as error:  # a module can raise anything while it is imported
            raise ExtensionError(
                f"{self.kind} {name!r} could not be imported from {target!r} of {package}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return value

    def _conflict(self, name: str, claimants: list[Listing]) -> ExtensionConflictError:
        who = ", ".join(f"{line.package} {line.version} ({line.target})" for line in claimants)
        return ExtensionConflictError(
            f"{self.kind} {name!r} is offered by more than one plugin: {who}; "
            "expected one (uninstall one, or name one in ZSTORE_DISABLE_PLUGINS)"
        )

    def _unknown(self, name: str, reason: UnknownExtensionError | None) -> UnknownExtensionError:
        from difflib import get_close_matches

        known = self.names()
        # A codec of numcodecs' is called so by who knows it from Zarr v2.
        near = [each for each in known if each.partition(".")[2] == name or each.endswith(f"_{name}")]
        hint = "" if near else package_hint(self.kind, name)
        near = near or ([] if hint else get_close_matches(name, known, 3, 0.5))
        parts = [f"unknown {self.kind} {name!r}"]
        if reason is not None:
            parts.append(reason.message)
        if hint:
            parts.append(hint)
        if near:
            parts.append(f"did you mean {' or '.join(map(repr, near))}?")
        if not near and not hint:
            parts.append(f"offered: {', '.join([*known, *(f'{prefix}*' for prefix, _ in self._prefixes)])}")
        for line in _troubled(self._load()):
            trouble = f"could not be loaded: {line.detail}" if line.state == "broken" else "is disabled"
            parts.append(f"plugin {line.name!r} ({line.package} {line.version}) {trouble}")
        return UnknownExtensionError("; ".join(parts))


def list_offers() -> list[Listing]:
    """All offers, kind by kind, each with its state after loading; then the broken and disabled plugins."""
    loaded = [registry.load(line) for registry in REGISTRIES.values() for line in registry.listings()]
    return loaded + _troubled(plugins())


def _troubled(loaded: Iterable[Plugin]) -> list[Listing]:
    return [
        Listing("plugin", one.name, (), one.target, one.package, one.version, one.state, str(one.error or ""))
        for one in loaded
        if one.state != "ok"
    ]


def _all_names(offer: Offer | Listing) -> tuple[str, ...]:
    # A name that is repeated among the aliases counts once.
    return tuple(dict.fromkeys((offer.name, *offer.aliases)))


def _own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(BUILT_IN_PACKAGE)
    except PackageNotFoundError:  # running from a source tree that is not installed
        return ""


codecs = Registry("codec", builtin.CODECS, builtin.CODEC_PREFIXES)
data_types = Registry("data type", builtin.DATA_TYPES)
stores = Registry("store", builtin.STORES)
conventions = Registry("convention", builtin.CONVENTIONS)
resamplers = Registry("resampler", builtin.RESAMPLERS)
commands = Registry("command", builtin.COMMANDS)
jobs = Registry("job", builtin.JOBS)
# Of zstore alone: a document leads to no code of plugins.
makers = Registry("maker", builtin.MAKERS, load=list)

REGISTRIES = {
    registry.kind: registry
    for registry in (codecs, data_types, stores, conventions, resamplers, commands, jobs)
}
