"""The surface that plugins are written on: one module for each thing that can be added to zstore.

from zstore.plugin import Offer, hookimpl

@hookimpl
def register_codecs():
    return [Offer("acme.delta2", "acme_zstore.delta2:Delta2")]

Names that a module here has in `__all__` stay; the modules that they come from may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zstore.extensions.offers import Offer

if TYPE_CHECKING:
    from zstore.extensions.hookspecs import hookimpl

__all__ = ["Offer", "hookimpl"]

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        if name == "hookimpl":  # loads pluggy, which the modules of this package do without
            from zstore.extensions.hookspecs import hookimpl

            return hookimpl
        raise AttributeError(f"module 'zstore.plugin' has no attribute {name!r}")
