"""Views: arrays shown as others, for those that make sources of their own."""

from __future__ import annotations

from zstore.views.carried import Carried
from zstore.views.document import Addresses
from zstore.views.functions import ACROSS
from zstore.views.made import MadeBy, MadeSource, origin_of
from zstore.views.view import View, concat, overlay, stack, unpack, view

__all__ = [
    "ACROSS",
    "Addresses",
    "Carried",
    "MadeBy",
    "MadeSource",
    "View",
    "concat",
    "origin_of",
    "overlay",
    "stack",
    "unpack",
    "view",
]
