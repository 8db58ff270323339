"""Views: arrays shown as others, for those that make sources of their own."""

from __future__ import annotations

from zstore.views.carried import Carried
from zstore.views.document import Addresses
from zstore.views.view import View, concat, overlay, unpack, view

__all__ = ["Addresses", "Carried", "View", "concat", "overlay", "unpack", "view"]
