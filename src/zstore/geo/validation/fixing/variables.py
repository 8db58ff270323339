"""Fixes of attributes: their spelling and types, and what has to be the same at all levels."""

from __future__ import annotations

from collections import Counter

from zstore.geo.conventions.levels import SHARED, Grid, LevelPlace
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.validation.fixing.plan import Draft
from zstore.geo.validation.rules.documents import STANDARD_SPELLINGS, parse_text
from zstore.geo.validation.rules.values import is_made_of_finer
from zstore.geo.validation.view import ArrayView
from zstore.model.packing import render_nodata

# What is an object in every dialect; other text may be meant as text.
STRUCTURED = ("multiscales", "zarr_conventions", "ome", "_CRS", "proj:projjson")
NUMBERS = ("scale_factor", "add_offset")


def fix_words(draft: Draft) -> None:
    """Correct attributes that are misspelt, and text, numbers and lists of the wrong type."""
    for node in draft.hierarchy.nodes:
        stored = node.stored
        spelt = {name: STANDARD_SPELLINGS.get(name.lower().replace("_", ""), name) for name in stored}
        renamed = {name: right for name, right in spelt.items() if name != right and right not in stored}
        if renamed and len(set(renamed.values())) == len(renamed):
            draft.rename("GZ-23", node, renamed)
        for name in STRUCTURED:
            found = parse_text(stored.get(name))
            if found is not None:
                draft.update("GZ-24", node, f"{name} written as what its text is", {name: found})
        area = stored.get("AREA_OR_POINT")
        if isinstance(area, str) and area.capitalize() in ("Area", "Point"):
            draft.update(
                "GZ-28", node, "AREA_OR_POINT spelt as GDAL does", {"AREA_OR_POINT": area.capitalize()}
            )
        if isinstance(node, ArrayView):
            _fix_types(draft, node)


def _fix_types(draft: Draft, array: ArrayView) -> None:
    for name in NUMBERS:
        found = array.attrs.get(name)
        if isinstance(found, str):
            try:
                draft.update("GZ-16", array, f"{name} written as a number", {name: float(found)})
            except ValueError:
                draft.refuse("GZ-16", array, f"{name} is {found!r}; expected a number")
    meanings = array.attrs.get("flag_meanings")
    if isinstance(meanings, list) and all(isinstance(m, str) and m.split() == [m] for m in meanings):
        message = "flag_meanings written as words"
        draft.update("GZ-16", array, message, {"flag_meanings": " ".join(meanings)})


def fix_shared(draft: Draft) -> None:
    """Give a variable the same attributes at all levels, where one of them has others.

    The cells must confirm it: as they are stored, those of the level have to be what its method makes of the
    finer ones.
    """
    for pyramid in draft.hierarchy.pyramids:
        for name in pyramid.levels[0].grids if pyramid.levels else ():
            held = [(level, level.grids[name]) for level in pyramid.levels if name in level.grids]
            if len({grid.node.dtype for _, grid in held}) > 1:
                # Levels of another type hold other numbers: GZ-33 says so.
                continue
            for member in SHARED:
                _fix_member(draft, pyramid, name, held, member)


def _fix_member(
    draft: Draft, pyramid: Pyramid, name: str, held: list[tuple[LevelPlace, Grid]], member: str
) -> None:
    values = [getattr(grid.variable, member) for _, grid in held]
    counted = Counter(repr(value) for value in values if value is not None)
    if not counted or (len(counted) == 1 and None not in values):
        return
    (winner, count), *others = counted.most_common()
    against = sum(number for _, number in others)
    donor = next(grid for (_, grid), value in zip(held, values, strict=True) if repr(value) == winner)
    odd = [(level, grid) for (level, grid), value in zip(held, values, strict=True) if repr(value) != winner]
    missing = values.count(None)
    if (against and count <= against) or missing > count:
        for _, grid in odd:
            draft.refuse("GZ-22", grid.node, f"{member} is {', '.join(counted)} at different levels")
        return
    nodata = donor.variable.nodata
    # Where the finest level is the odd one, the next coarser is what tells.
    checked = {id(level): level for level, _ in odd if level is not pyramid.levels[0]}
    checked = checked or {id(level): level for level in pyramid.levels[1:2]}
    if not all(is_made_of_finer(pyramid, level, name, nodata) for level in checked.values()):
        for _, grid in odd:
            message = f"{member} differs, and the cells are not those that the finer level comes to"
            draft.refuse("GZ-22", grid.node, message)
        return
    for _, grid in odd:
        if member == "nodata":
            changes = (
                render_nodata(nodata, grid.node.dtype, grid.node.zarr_format) if nodata is not None else {}
            )
        else:
            changes = {member: donor.node.attrs[member]} if member in donor.node.attrs else {}
        draft.update("GZ-22", grid.node, f"{', '.join(changes)} as the other levels have it", changes)
