"""Drafts of a fix, and the fixes that need no georeference: documents, attributes, names of dimensions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zstore.base.byterange import ByteRange
from zstore.errors import MetadataError
from zstore.geo.conventions.base import RESAMPLING_METHODS, Convention, Mend, load_conventions
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import layout_items, member_of, name_method
from zstore.geo.conventions.levels import SHARED, Grid, LevelPlace
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.write import Profile
from zstore.geo.validation.fixing.evidence import Evidence
from zstore.geo.validation.rules.documents import (
    DIMENSIONS,
    dimension_trouble,
    has_no_fill,
    implicit_groups,
)
from zstore.geo.validation.rules.values import is_made_of_finer
from zstore.geo.validation.view import ArrayView, GroupView, Hierarchy, NodeView, find_mends
from zstore.model import v2, v3
from zstore.model.document import render_json
from zstore.model.packing import FILLS, decode_fill, fit_nodata, render_nodata
from zstore.storage.base import Names, Store, check_key, join_key


class OverlayStore(Store):
    """A store over `base` that keeps all changes in memory and reads everything else from `base`.

    version  the number of changes
    stored   by changed key, the value that `base` had as it was first changed; None where it had none
    """

    def __init__(self, base: Store) -> None:
        self.base = base
        self.version = 0
        self.stored: dict[str, bytes | None] = {}
        self._changed: dict[str, bytes | None] = {}

    @property
    def url(self) -> str:
        return self.base.url

    def changes(self) -> dict[str, bytes | None]:
        """The changes by key: the new value, or None for a deleted key."""
        return {key: value for key, value in sorted(self._changed.items()) if value != self.stored[key]}

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        if key not in self._changed:
            return self.base.get(key, byte_range)
        value = self._changed[key]
        if value is None or byte_range is None:
            return value
        first, last = byte_range.resolve(len(value))
        return value[first:last]

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self._change(key, bytes(value))

    def delete(self, key: str) -> None:
        self._change(key, None)

    def _change(self, key: str, value: bytes | None) -> None:
        if check_key(key) not in self._changed:
            before = self.base.get(key)
            self.stored[key] = None if before is None else bytes(before)
        self.version += 1
        self._changed[key] = value

    def _changed_below(self, prefix: str) -> dict[str, bytes | None]:
        inside = f"{prefix}/" if prefix else ""
        return {key: value for key, value in self._changed.items() if key.startswith(inside)}

    def list(self, prefix: str = "") -> Iterator[str]:
        yield from [key for key, value in self._changed_below(prefix).items() if value is not None]
        yield from (key for key in self.base.list(prefix) if key not in self._changed)

    def list_children(self, prefix: str = "") -> Names:
        skip, changed = len(prefix) + 1 if prefix else 0, self._changed_below(prefix)
        names = {key[skip:].partition("/")[0] for key, value in changed.items() if value is not None}
        touched = {key[skip:].partition("/")[0] for key, value in changed.items() if value is None}
        for name in self.base.list_children(prefix):
            # Only where something was deleted must the store be asked whether anything is left.
            whole = f"{prefix}/{name}" if prefix else name
            if name not in touched or self.get(whole) is not None or next(self.list(whole), None) is not None:
                names.add(name)
        return sorted(names)

    def lock(self, key: str) -> AbstractContextManager[None]:
        return nullcontext()


class Fix(NamedTuple):
    """One fix that was made, or one that was refused with the reason."""

    rule: str
    path: str
    message: str


@dataclass
class Draft:
    """The changes that fixes make, and one reading of the hierarchy for them to work on.

    crs, method, fill_value  the user's word, where the hierarchy states none, or several
    trust    the attributes and conventions that the user believes where statements disagree
    """

    hierarchy: Hierarchy
    store: OverlayStore
    profile: Profile | None = None
    crs: Crs | None = None
    method: str | None = None
    fill_value: int | float | None = None
    trust: tuple[str, ...] = ()
    fixed: list[Fix] = field(default_factory=list)
    refused: list[Fix] = field(default_factory=list)
    evidence: Evidence = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.hierarchy, self.trust)

    @property
    def has_mapping(self) -> bool:
        """Whether grids get a grid mapping variable."""
        return self.profile is None or self.profile.has_mapping

    @property
    def levels_in(self) -> Convention | None:
        """The convention that is to list the levels; None for the one that does."""
        name = None if self.profile is None else self.profile.levels_in
        return None if name is None else load_conventions([name])[0]

    def note(self, rule: str, node: NodeView | str, message: str) -> None:
        """Record a fix."""
        self.fixed.append(Fix(rule, node if isinstance(node, str) else node.path, message))

    def refuse(self, rule: str, node: NodeView | str, message: str) -> None:
        """Record a refusal with its reason."""
        self.refused.append(Fix(rule, node if isinstance(node, str) else node.path, message))

    def is_occupied(self, rule: str, path: str) -> bool:
        """Whether values lie at a path that has no node: an array made there would have them as cells.

        It is recorded as refused then.
        """
        found = next(iter(self.store.list(path)), None)
        if found is not None:
            message = f"{found!r} is there, without a node; expected nothing, to write an array"
            self.refuse(rule, path, message)
        return found is not None

    def attributes(self, node: NodeView) -> dict[str, Any]:
        """A copy of the node's attributes, earlier changes included."""
        document = self._load(node)
        found = document.get("attributes", {}) if node.zarr_format == 3 else document
        return dict(found) if isinstance(found, dict) else {}

    def edit(self, node: NodeView, changes: Mapping[str, Any]) -> None:
        """Set members of the node's own document, and remove those that are None."""
        if not changes:
            return
        key = join_key(node.path, node.kind)
        document = json.loads(bytes(self.store.get(key) or b"{}")) | changes
        gone = {name for name, value in changes.items() if value is None}
        self.store.put(key, render_json({n: value for n, value in document.items() if n not in gone}))

    def _load(self, node: NodeView) -> dict[str, Any]:
        data = self.store.get(join_key(node.path, node.attributes_key))
        document = {} if data is None else json.loads(bytes(data))
        return document if isinstance(document, dict) else {}

    def mend(self, rule: str, path: str, mend: Mend) -> None:
        """Write the mend of a finding, or note its refusal."""
        node = next(node for node in self.hierarchy.nodes if node.path == path)
        if not mend.attributes and not mend.members:
            self.refuse(rule, node, mend.message)
            return
        is_noted = self.update(rule, node, mend.message, mend.attributes)
        if mend.members:
            self.edit(node, mend.members)
            if not is_noted:
                self.note(rule, node, mend.message)

    def update(self, rule: str, node: NodeView, message: str, changes: Mapping[str, Any]) -> bool:
        """Set attributes that differ; returns whether any did.

        None removes one, whose position the first new one takes.
        """
        document, attributes = self._load(node), self.attributes(node)
        gone = [name for name, value in changes.items() if value is None and name in attributes]
        new = {name: v for name, v in changes.items() if v is not None and attributes.get(name) != v}
        if not gone and not new:
            return False
        changed: dict[str, Any] = {}
        for name, value in attributes.items():
            changed |= new if name in gone else {name: new.get(name, value)}
        changed |= new
        document = {**document, "attributes": changed} if node.zarr_format == 3 else changed
        self.store.put(join_key(node.path, node.attributes_key), render_json(document))
        self.note(rule, node, message)
        return True


def fix_findings(draft: Draft) -> None:
    """Write the mends that findings have, and the groups that are missing."""
    for rule, path, mend in find_mends(draft.hierarchy):
        draft.mend(rule, path, mend)
    for group, name in implicit_groups(draft.hierarchy):
        path = join_key(group.path, name)
        if group.zarr_format == 3:
            document = {"zarr_format": 3, "node_type": "group", "attributes": {}}
            draft.store.put(join_key(path, v3.KEY), render_json(document))
        else:
            draft.store.put(join_key(path, v2.GROUP_KEY), render_json({"zarr_format": 2}))
        draft.note("GZ-04", path, "a group is written where there was none")


def fix_methods(draft: Draft) -> None:
    """Correct the spelling of resampling methods to that of the draft of the specification."""
    for pyramid in draft.hierarchy.pyramids:
        attributes = draft.attributes(pyramid.group)
        stated = attributes.get("multiscales")
        if not isinstance(stated, dict):
            continue
        layout = stated.get("layout")
        changed = dict(stated)
        if isinstance(layout, list):
            changed["layout"] = [_with_method(item) for item in layout]
        changed = _with_method(changed)
        if draft.method is not None and changed.get("resampling_method") not in RESAMPLING_METHODS:
            changed["resampling_method"] = draft.method
        elif "resampling_method" not in changed and len(methods := _layout_methods(changed)) == 1:
            changed["resampling_method"] = methods.pop()
        elif "resampling_method" not in changed and "tile_matrix_set" in changed:
            message = "nothing says how the levels were made; expected --method"
            draft.refuse("GZ-37", pyramid.group, message)
        draft.update(
            "GZ-47", pyramid.group, "resampling_method spelt as the draft has it", {"multiscales": changed}
        )


def _layout_methods(stated: dict[str, Any]) -> set[str]:
    """The resampling methods of the derived levels of a layout."""
    found = {item.get("resampling_method") for item in layout_items(stated) if "derived_from" in item}
    return {method for method in found if method in RESAMPLING_METHODS} if None not in found else set()


def _with_method(item: Any) -> Any:
    right = name_method(member_of(item, "resampling_method"))
    return item if right is None else {**item, "resampling_method": right}


def implied_nodata(array: ArrayView) -> int | float | None:
    """The nodata of a Zarr v3 array in GDAL's way only: its fill value, which others do not take for it."""
    stated = (*FILLS, "grid_mapping")
    if array.zarr_format != 3 or "_CRS" not in array.attrs or array.dtype.kind not in "iuf":
        return None
    if array.fill_value is None or any(array.attrs.get(name) is not None for name in stated):
        return None
    return fit_nodata(array.fill_value, array.dtype)


def fix_fill_values(draft: Draft) -> None:
    """Write a fill value where Zarr v3 has none, by the array's attributes or the user's word."""
    for array in draft.hierarchy.arrays:
        if has_no_fill(array):
            _fix_no_fill(draft, array)


def _fix_no_fill(draft: Draft, array: ArrayView) -> None:
    value: Any = draft.fill_value
    for name in ("missing_value", "_FillValue"):
        if array.attrs.get(name) is not None:
            value = array.attrs[name]
    if value is None:
        message = "nothing says what the array holds where no chunk is; expected --fill-value"
        draft.refuse("ZS-08", array, f"{message}, which GDAL takes for nodata")
        return
    try:
        fitted = decode_fill(value, array.dtype)
    except MetadataError as error:
        draft.refuse("ZS-08", array, error.message)
        return
    rendered = array.node.model.data_type.render_fill(array.dtype.type(fitted), 3)
    draft.edit(array, {"fill_value": rendered})
    draft.note("ZS-08", array, f"fill_value is {rendered}")


def fix_shared(draft: Draft) -> None:
    """Give a variable the same attributes at all levels, if one of them has others.

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


# What xarray and netCDF call dimensions that have no names.
MADE_UP = re.compile(r"(dim|phony_dim)_\d+")


def fix_dimensions(draft: Draft) -> None:
    """Name dimensions whose names are missing or made up."""
    for array in draft.hierarchy.arrays:
        known = tuple(array.dims or ()) or (None,) * len(array.shape)
        made_up = [name is not None and bool(MADE_UP.fullmatch(name)) for name in known]
        if not dimension_trouble(array) and not any(made_up):
            continue
        if not array.shape:
            siblings = array.parent.arrays.values() if array.parent is not None else ()
            if array.zarr_format == 2 and any(sibling.dims for sibling in siblings):
                draft.update("GZ-10", array, "a scalar has no dimensions", {DIMENSIONS: []})
            continue
        kept = [None if is_made_up else name for name, is_made_up in zip(known, made_up, strict=True)]
        names = next((found for found in _candidates(draft, array) if _fits(array, found, kept)), None)
        if names is None or names == array.dims:
            continue
        if array.zarr_format == 3:
            draft.edit(array, {"dimension_names": list(names)})
            draft.note("GZ-10", array, f"dimensions are named {', '.join(names)}")
        else:
            message = f"dimensions are named {', '.join(names)}"
            draft.update("GZ-10", array, message, {DIMENSIONS: list(names)})


def _candidates(draft: Draft, array: ArrayView) -> Iterator[tuple[str, ...]]:
    """The names that the dimensions of an array may have, the likeliest first."""
    group = array.parent
    written = array.stored.get(DIMENSIONS)
    if isinstance(written, list) and all(isinstance(name, str) for name in written):
        yield tuple(written)
    if not isinstance(group, GroupView):
        return
    if len(array.shape) == 1:
        # The arrays whose coordinate this one would be.
        relatives = (*group.arrays.values(), *_twins(draft, array, group))
        if any(array.name in (other.dims or ()) for other in relatives):
            yield (array.name,)
        return
    for twin in _twins(draft, array, group):
        yield from _whole(twin)
    for other in group.arrays.values():
        if other.shape == array.shape:
            yield from _whole(other)
    stated = next((s for g in (group, *group.ancestors()) if (s := g.attrs.get("spatial:dimensions"))), None)
    lengths: dict[int, list[str]] = {}
    for name, other in group.arrays.items():
        if len(other.shape) == 1 and other.dims in (None, (None,), (name,)):
            lengths.setdefault(other.shape[0], []).append(name)
    by_length = [lengths.get(length, []) for length in array.shape]
    if isinstance(stated, list) and len(stated) == 2 and all(isinstance(name, str) for name in stated):
        others = [names[0] if len(names) == 1 else "" for names in by_length[:-2]]
        yield (*others, *stated)
    if all(len(names) == 1 for names in by_length):
        yield tuple(names[0] for names in by_length)


def _twins(draft: Draft, array: ArrayView, group: GroupView) -> Iterator[ArrayView]:
    """The arrays of the same name at the other levels of a pyramid."""
    for pyramid in draft.hierarchy.pyramids:
        nodes = [level.node for level in pyramid.levels]
        if not any(node is group for node in nodes):
            continue
        for node in nodes:
            twin = node.arrays.get(array.name) if isinstance(node, GroupView) else None
            if twin is not None and twin is not array:
                yield twin


def _whole(array: ArrayView) -> Iterator[tuple[str, ...]]:
    """The names of an array's dimensions, if all of them have one that was not made up."""
    names = array.dims
    if names is not None and all(name and not MADE_UP.fullmatch(name) for name in names):
        yield tuple(str(name) for name in names)


def _fits(array: ArrayView, names: tuple[str, ...], kept: Sequence[str | None]) -> bool:
    """Whether these may be an array's dimensions: by the names it has, and their lengths in other arrays."""
    if len(names) != len(array.shape) or len(set(names)) != len(names) or not all(names):
        return False
    if any(known is not None and known != name for known, name in zip(kept, names, strict=False)):
        return False
    arrays = array.parent.arrays if isinstance(array.parent, GroupView) else {}
    for name, length in zip(names, array.shape, strict=True):
        lengths = {
            size
            for other in arrays.values()
            if other is not array
            for dimension, size in zip(other.dims or (), other.shape, strict=False)
            if dimension == name
        }
        coordinate = arrays.get(name)
        if coordinate is not None and coordinate is not array and len(coordinate.shape) == 1:
            lengths.add(coordinate.shape[0])
        if lengths and length not in lengths:
            return False
    return True
