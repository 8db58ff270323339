"""Views: arrays shown as others, for those that make sources of their own."""

from __future__ import annotations

from zstore.views.view import View, overlay, view

__all__ = ["View", "overlay", "view"]
