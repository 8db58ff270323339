"""The meaning of a hierarchy's nodes: roles, grids, levels and pyramids, determined once for all users.

Reading, reports, pyramids, validation, fixing, xarray and rasters all ask here, and so agree. Every
convention is asked once about every node, in one order (`order_conventions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from zstore.errors import MetadataError, UnsupportedError, ZstoreError
from zstore.geo.conventions.base import (
    OWN,
    Affine,
    Convention,
    Facts,
    Finding,
    GeoModel,
    GroupNode,
    HeldArray,
    HeldGroup,
    HeldNode,
    LevelEntry,
    Mend,
    Node,
    Severity,
    Witness,
    hold,
    hold_group,
    hold_members,
    is_array,
    load_conventions,
    note_values,
    plain_name,
    read_at_once,
    surroundings,
)
from zstore.geo.conventions.cf import AXIS_NAMES, find_mapping, is_longitude_latitude, mapping_names
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import UUIDS, member_of, objects, tile_matrices
from zstore.geo.conventions.levels import (
    COORDINATES,
    LAYOUT,
    TILES,
    TRANSFORMATIONS,
    Grid,
    LevelPlace,
    cell_count,
    choose_affine,
    compare_boxes,
    compare_levels,
    find_others,
    first_of,
    join_levels,
    make_level,
    rank_level,
    statements_of,
)
from zstore.geo.conventions.timeaxis import TimeAxis

# Lists of levels that stand beside a layout or a tile matrix set, and the rules about them.
LISTS = {"multiscales": "OC-10", "ome": "OME"}
LINKS = ("coordinates", "bounds", "climatology")
SILENT = Facts()


@dataclass(frozen=True)
class Roles:
    """The arrays of one group by their role, each by name; `dims` are the names of all dimensions in use."""

    coordinates: Mapping[str, Any]
    mappings: Mapping[str, Any]
    auxiliary: Mapping[str, Any]
    data: Mapping[str, Any]
    dims: frozenset[str]


@dataclass(frozen=True)
class Reading:
    """The model of one node, and the findings about it; if it is no grid, `trouble` has the reason."""

    geo: GeoModel | None
    findings: tuple[Finding, ...]
    trouble: MetadataError | None = None


@dataclass
class Pyramid:
    """A multiscale group: its stored levels, the finest first, its model, and the lists' levels by path."""

    group: Any
    levels: list[LevelPlace]
    reading: Reading
    entries: Mapping[str, LevelEntry]

    @property
    def geo(self) -> GeoModel | None:
        """The model of the pyramid."""
        return self.reading.geo

    @property
    def stated(self) -> Any:
        """The value of the attribute `multiscales`."""
        return self.group.attrs.get("multiscales")

    @property
    def is_object(self) -> bool:
        """Whether `multiscales` is an object, and not a list."""
        return isinstance(self.stated, Mapping)

    @property
    def tile_matrix_set(self) -> Any:
        """The tile matrix set of `multiscales`, an object or a name; None without."""
        return member_of(self.stated, "tile_matrix_set")

    @property
    def matrices(self) -> dict[str, Mapping[str, Any]]:
        """The tile matrices of a set that is written out, by their id."""
        return tile_matrices(self.stated)


class Meaning:
    """The meaning of the nodes of a hierarchy; each node is parsed once, however often it is requested."""

    def __init__(self, conventions: Sequence[str] | None = None) -> None:
        self.conventions: list[Convention] = load_conventions(conventions)
        self._facts: dict[HeldNode, tuple[Facts, ...]] = {}
        self._said: dict[HeldGroup, Facts] = {}
        self._roles: dict[HeldGroup, Roles] = {}
        self._grids: dict[HeldArray, Grid] = {}
        self._pyramids: dict[HeldGroup, Pyramid | None] = {}
        self._readings: dict[HeldNode, Reading] = {}
        self._plugins: dict[str, None] = {}

    @property
    def reads_own(self) -> bool:
        """Whether only zstore's own conventions are asked: a plugin may read more than these."""
        return all(convention.name in OWN for convention in self.conventions)

    def facts(self, node: Any) -> tuple[Facts, ...]:
        """The facts about a wrapped node by convention, in the order of the conventions."""
        if node not in self._facts:
            said = self._facts[node] = tuple(_ask(convention, node) for convention in self.conventions)
            self._plugins |= {f.convention: None for f in said if f.convention not in OWN and f != SILENT}
        return self._facts[node]

    def said(self, group: Any) -> Facts:
        """The facts about a wrapped group, each from the first convention that has it."""
        if group not in self._said:
            self._said[group] = _merged(self.facts(group))
        return self._said[group]

    def roles(self, group: Any) -> Roles:
        """The arrays of a wrapped group by role."""
        if group not in self._roles:
            self._roles[group] = _find_roles(group)
        return self._roles[group]

    def grid(self, array: Any) -> Grid | None:
        """The grid of a wrapped array; None unless it has two dimensions with cells of a raster."""
        if len(array.shape) < 2 or cells_of(array, array.parent) is not None:
            return None
        if array not in self._grids:
            facts, names = self.facts(array), array.dims or ()
            axes = (
                (names.index(pair[0]), names.index(pair[1]))
                for pair in self._stated_dimensions(array, facts)
                if pair is not None and set(pair) <= set(names)
            )
            known = next(axes, None)
            y, x = known or (len(array.shape) - 2, len(array.shape) - 1)
            if array.parent is not None:
                shape, above = (array.shape[y], array.shape[x]), self.facts(array.parent)
                facts = tuple(_handed_down(*pair, shape) for pair in zip(facts, above, strict=True))
            self._grids[array] = Grid(array, facts, y, x, known is not None)
        found = self._grids[array]
        return None if 0 in found.shape else found

    def _stated_dimensions(
        self, array: HeldArray, facts: Sequence[Facts]
    ) -> Iterator[tuple[str, str] | None]:
        # `spatial:dimensions` is a statement; what coordinates come to is found out.
        near = () if array.parent is None else self.facts(array.parent)
        yield from (found.dimensions for found in (*facts, *near))
        yield from (found.coordinate_dimensions for found in facts)
        for above in array.ancestors():
            yield from (found.dimensions for found in self.facts(above))

    def grids(self, group: Any) -> dict[str, Grid]:
        """The grids of a wrapped group whose y and x are known, by name."""
        found = {name: self.grid(array) for name, array in self.roles(group).data.items()}
        return {name: grid for name, grid in found.items() if grid is not None and grid.is_known}

    def is_pyramid(self, node: Any) -> bool:
        """Whether a group lists levels, readable or not."""
        held = self.hold(node)
        return isinstance(held, HeldGroup) and any(f.levels is not None for f in self.facts(held))

    def pyramid(self, group: Any) -> Pyramid | None:
        """The pyramid that a wrapped group lists; None without one."""
        if group not in self._pyramids:
            self._pyramids[group] = self._read_pyramid(group) if self.is_pyramid(group) else None
        return self._pyramids[group]

    def read(self, node: Any, parent: Any = None) -> Reading:
        """The model of an array, a group of arrays or a multiscale group, with findings.

        `parent` is the group that holds it; of an array of a store it is looked for.
        """
        held = self.hold(node, parent)
        if held not in self._readings:
            self._readings[held] = self._read(held)
        return self._readings[held]

    def hold(self, node: Any, parent: Any = None) -> HeldArray | HeldGroup:
        """The node wrapped so that its documents, children and values are read once."""
        if parent is None and not isinstance(node, HeldNode) and is_array(node):
            parent = surroundings(node)
        return hold(node, hold_group(parent))

    def _read(self, held: HeldArray | HeldGroup) -> Reading:
        root = self.said(held) if isinstance(held, HeldGroup) else Facts()
        try:
            if isinstance(held, HeldArray):
                geo, findings = self._place(held, None, None)
            elif (pyramid := self.pyramid(held)) is not None:
                return pyramid.reading
            else:
                self._read_ahead([held])
                geo, findings = self._read_dataset(held, None, None)
        except MetadataError as error:
            return Reading(None, (*root.findings, *self._unread(held)), error)
        return self._finished(geo, root, [*findings, *self._unread(held)])

    def _unread(self, held: HeldArray | HeldGroup) -> Iterator[Finding]:
        """Notes of the parts of standards in a node, and in its arrays, that are not read."""
        if not self.reads_own:
            return
        for node in (held, *(held.arrays.values() if isinstance(held, HeldGroup) else ())):
            for part in unread(node):
                yield Finding("ZS-11", "note", node.path, f"not looked at: {part}")

    def _read_ahead(self, nodes: Sequence[Any]) -> None:
        """Read the values that conventions need of these nodes in one batch, if the store is remote.

        They are asked twice: at first to hear which values they would read.
        """
        store = getattr(nodes[0].node, "store", None) if nodes else None
        if store is None or store.request_count == 1:
            return
        hold_members([node for node in nodes if isinstance(node, HeldGroup)])
        with note_values() as wanted, suppress(MetadataError):
            for node in nodes:
                arrays = self.roles(node).data.values() if isinstance(node, HeldGroup) else [node]
                for array in arrays:
                    if len(array.shape) > 1:
                        for convention in self.conventions:
                            _ask(convention, array)
        read_at_once(list(wanted), store.request_count)

    def _finished(self, geo: GeoModel, root: Facts, findings: Sequence[Finding]) -> Reading:
        geo = replace(geo, stac=root.stac, axes=root.axes, plugins=tuple(self._plugins))
        return Reading(geo, tuple(_unique([*root.findings, *findings])))

    def dialects(self, node: Any, level: str | None = None) -> list[str]:
        """The dialects, by name, of a group, its level at `level`, and the arrays in both.

        Attributes tell a dialect by being there, right or wrong.
        """
        held = self.hold(node)
        below = held.below(level) if level and isinstance(held, HeldGroup) else None
        found: dict[str, None] = {}
        for place in [held] if below is None else [held, below]:
            inside = place.arrays.values() if isinstance(place, HeldGroup) else ()
            for said in (place, *inside):
                found |= dict.fromkeys(self._dialects(said))
        return list(found)

    def _dialects(self, node: Any) -> Iterator[str]:
        for place, convention in enumerate(self.conventions):
            named = getattr(convention, "dialects", None)
            if named is not None:
                yield from named(node)
            elif self.facts(node)[place] != SILENT:
                yield convention.name

    def _place(
        self, array: HeldArray, entry: LevelEntry | None, root: Facts | None
    ) -> tuple[GeoModel, list[Finding]]:
        """(model, findings) of one array; `entry` and `root` are its pyramid's, if any."""
        if len(array.shape) < 2:
            raise MetadataError(
                f"array has {len(array.shape)} dimensions; expected a grid of two or more", path=array.path
            )
        grid, cells = self.grid(array), cells_of(array, array.parent)
        if cells is not None:
            raise MetadataError(f"array has the cells of the {cells}; expected a raster", path=array.path)
        if grid is None:
            raise MetadataError(
                f"grid of the array is {array.shape}; expected one cell at least", path=array.path
            )
        geo, findings = _place_grid(grid, entry, root)
        above = (*self.facts(array), *(facts for group in array.ancestors() for facts in self.facts(group)))
        stated = next((facts.dimensions for facts in above if facts.dimensions is not None), None)
        own = next((f.coordinate_dimensions for f in grid.facts if f.coordinate_dimensions is not None), None)
        if stated is not None and own == stated[::-1]:
            path = holder_of(array, "spatial:dimensions") or ""
            mend = Mend(f"spatial:dimensions are {list(own)}", {"spatial:dimensions": list(own)})
            findings.append(replace(_other_dimensions(path, stated, own, COORDINATES), mend=mend))
        sources: dict[str, str] = {}
        for fact, source in geo.sources.items():
            holder = holder_of(array, source)
            sources[fact] = source if holder is None else f"{source} at /{holder}"
        return replace(geo, sources=sources), findings

    def _read_dataset(
        self, group: HeldGroup, entry: LevelEntry | None, root: Facts | None
    ) -> tuple[GeoModel, list[Finding]]:
        """The model of the group's arrays that share the largest grid."""
        own, grids = self.said(group), [self.grid(array) for array in self.roles(group).data.values()]
        dimensions, handed = own.dimensions, None if root is None else root.dimensions
        names = (grid.node.dims for grid in grids if grid is not None)
        named = [dims for dims in names if dims is not None and None not in dims]
        unknown = list[Finding]()
        if named and dimensions is not None and not any(set(dimensions) <= set(names) for names in named):
            unknown.append(_other_dimensions(group.path, dimensions, named[0], "the arrays"))
            dimensions = None
        elif dimensions is None and handed is not None and any(set(handed) <= set(n) for n in named):
            dimensions = handed
        held: dict[tuple[tuple[int, int], tuple[str, str]], dict[str, tuple[GeoModel, list[Finding]]]] = {}
        for grid in grids:
            if grid is not None and _is_placed(grid, group, dimensions):
                geo, found = self._place(grid.node, entry, root)
                held.setdefault((geo.shape, geo.dimensions), {})[grid.node.name] = (geo, found)
        if not held:
            cells = (cells_of(array, group) for array in self.roles(group).data.values())
            return _read_bare(group, own, next((found for found in cells if found is not None), None))
        shape, dimensions = max(held, key=lambda grid: grid[0][0] * grid[0][1])
        chosen = held.pop((shape, dimensions))
        findings = unknown + [finding for _, found in chosen.values() for finding in found]
        for others in held.values():
            for name in others:
                message = f"array {name!r} is on another grid than {shape} {dimensions}; it is left out"
                findings.append(Finding("GZ-11", "note", group.path, message, shape, others[name][0].shape))
        models = {name: geo for name, (geo, _) in chosen.items()}
        placed = (geo for geo in models.values() if geo.crs is not None and geo.affine is not None)
        first = next(placed, next(iter(models.values())))
        for name, geo in models.items():
            if first.crs is not None and geo.crs is not None and not geo.crs.is_same(first.crs):
                message = f"array {name!r} has another CRS than the others"
                findings.append(Finding("GZ-22", "error", group.path, message, first.crs.wkt, geo.crs.wkt))
        variables = {name: geo.variables[name] for name, geo in models.items()}
        time = _choose_time(models, group.path, findings)
        return replace(first, variables=variables, time=time), findings

    def _read_pyramid(self, group: HeldGroup) -> Pyramid:
        root, findings = self.said(group), list[Finding]()
        self._read_ahead([level for entry in root.levels or () if (level := group.below(entry.path))])
        entries = {entry.path: entry for entry in root.levels or ()}
        places = [(entry, self._read_level(group, entry, root, findings)) for entry in root.levels or ()]
        read = [(entry, level, level.geo) for entry, level in places if level.geo is not None]
        if not read:
            levels = sorted((level for _, level in places), key=lambda level: -cell_count(level.shape))
            try:
                geo, found = self._read_dataset(group, None, None)
            except MetadataError as error:
                return Pyramid(group, levels, Reading(None, (*root.findings, *findings), error), entries)
            return Pyramid(group, levels, self._finished(geo, root, [*findings, *found]), entries)
        read.sort(key=lambda place: rank_level(place[0], place[2]))
        base_entry, _, base = read[0]
        models = []
        for entry, level, geo in read:
            model = make_level(entry, geo, base, base_entry, group.path, findings)
            level.affine, level.factors = model.affine, model.factors
            level.geo = replace(geo, affine=model.affine)
            models.append(model)
        find_others([level for _, level, _ in read])
        models = [replace(one, others=level.others) for one, (_, level, _) in zip(models, read, strict=True)]
        for _, level, _ in read[1:]:
            compare_levels(read[0][1], level, group.path, findings)
        if root.dimensions not in (None, base.dimensions):
            findings.append(_other_dimensions(group.path, root.dimensions, base.dimensions, "the levels"))
        findings += self._compare_lists(group, root, [level.path for _, level, _ in read])
        findings += _compare_methods(group.path, root)
        findings += _compare_tiles(group.path, root, [level for _, level, _ in read])
        listed = next(said.convention for said in self.facts(group) if said.levels)
        sources = {**base.sources, "levels": f"{listed} at /{group.path}"}
        geo = replace(base, levels=tuple(models), resampling=root.resampling, sources=sources)
        levels = [level for _, level, _ in read]
        return Pyramid(group, levels, self._finished(geo, root, findings), entries)

    def _compare_lists(self, group: HeldGroup, root: Facts, paths: Sequence[str]) -> Iterator[Finding]:
        """Find levels that a list of images or datasets names otherwise than the list that counts."""
        for facts in self.facts(group):
            rule, name = LISTS.get(facts.convention), facts.convention
            if rule is None or not facts.levels:
                continue
            listed = [_level_of(entry.path, paths) for entry in facts.levels]
            # Reading reports missing levels of the list that counts.
            read = {entry.path for entry in root.levels or ()}
            missing = [e.path for e in facts.levels if e.path not in read and group.below(e.path) is None]
            if missing:
                message = f"{name} lists {missing}, which are not there"
                yield Finding(rule, "error", group.path, message, list(paths), missing)
            left_out = [path for path in paths if path not in listed]
            is_turned = name == "ome" and [p for p in listed if p in paths] != list(paths)
            message = f"{name} leaves out the levels {left_out}"
            if not left_out:
                message = f"{name} lists {listed}: the finest is not first"
            if left_out or is_turned:
                said = (Witness("cells", list(paths)), Witness(name, listed))
                yield Finding(rule, "error", group.path, message, list(paths), listed, said)

    def _read_level(
        self, group: HeldGroup, entry: LevelEntry, root: Facts, findings: list[Finding]
    ) -> LevelPlace:
        node, found = group.below(entry.path), list[Finding]()
        place = LevelPlace(entry.path, node, {})
        if isinstance(node, HeldGroup):
            place.grids = self.grids(node)
        elif isinstance(node, HeldArray):
            # Levels that are arrays hold one variable, whatever each of them is called.
            grid = self.grid(node)
            place.grids = {} if grid is None or not grid.is_known else {"": grid}
        else:
            if node is None and not group.is_unreadable(entry.path):
                message = f"level {entry.path!r} is not there; it is left out"
                findings.append(Finding("ZC-03", "error", group.path, message, entry.path))
            return place
        try:
            is_array = isinstance(node, HeldArray)
            read = self._place if is_array else self._read_dataset
            place.geo, found = read(node, entry, root)
        except MetadataError as error:
            findings.append(Finding("MS-19", "error", group.path, f"level {entry.path!r}: {error}"))
        findings += found
        return place


def holder_of(node: Any, source: str) -> str | None:
    """The path of the node that has a source of facts about a node: itself, one above, or an array beside."""
    name = source.partition(".")[0].partition(" ")[0]
    member = {LAYOUT: "multiscales", TILES: "multiscales", TRANSFORMATIONS: "ome"}.get(name, name)
    if name == COORDINATES:
        return None if node.parent is None else str(node.parent.path)
    for place in (node, *node.ancestors()):
        if member in place.attrs:
            return str(place.path)
        if isinstance(place, HeldGroup) and name in place.arrays:
            return str(place.arrays[name].path)
    return None


def _level_of(path: str, levels: Sequence[str]) -> str:
    """The level that a path of a list leads to: it may be that of an array in the level."""
    above = path.rpartition("/")[0]
    return above if path not in levels and above in levels else path


def _other_dimensions(path: str, stated: Sequence[str], own: Sequence[Any], source: str) -> Finding:
    """The finding that `spatial:dimensions` are others than those of a source."""
    message = f"spatial:dimensions are {list(stated)}; those of {source} are {list(own)}"
    said = (Witness(source, list(own)), Witness("spatial:dimensions", list(stated)))
    return Finding("ZC-05", "error", path, message, list(own), list(stated), said)


def _compare_methods(path: str, root: Facts) -> Iterator[Finding]:
    """Report levels made by another method than the group, or the first level, names."""
    methods = {entry.path: entry.resampling for entry in root.levels or () if entry.resampling is not None}
    wanted = root.resampling or next(iter(methods.values()), None)
    for name, method in methods.items():
        if method != wanted:
            message = f"level {name!r} is made by {method!r}, the others by {wanted!r}"
            yield Finding("GZ-48", "error", path, message, wanted, method)


def _compare_tiles(path: str, root: Facts, levels: Sequence[LevelPlace]) -> Iterator[Finding]:
    """Find that a tile matrix set has another CRS than a level: the first such level."""
    for source, crs in root.crs:
        for level in levels if source.startswith(TILES) else ():
            own = None if level.geo is None else level.geo.crs
            if own is not None and not own.is_same(crs):
                message = f"{source} is {crs.label}, the CRS of level {level.path!r} {own.label}"
                stated = (name for grid in level.grids.values() for name, _ in grid.stated_crs)
                said = (Witness(next(stated, "coordinates"), own.label), Witness(source, crs.label))
                yield Finding("GZ-40", "error", path, message, own.label, crs.label, said)
                break


def words(value: Any) -> list[str]:
    """The words of a string; [] for anything else."""
    return value.split() if isinstance(value, str) else []


def _ask(convention: Convention, node: Any) -> Facts:
    """The facts about a node in a convention; a finding if a plugin's convention fails."""
    try:
        facts = convention.parse(node, node.parent)
        # Most conventions say nothing of a node.
        return facts if facts == SILENT else replace(facts, convention=convention.name)
    except MetadataError as error:
        reason = error.message
    except Exception as error:
        if convention.name in OWN or isinstance(error, ZstoreError):
            raise
        reason = f"{type(error).__name__}: {error}"
    message = f"convention {convention.name!r} cannot read it: {reason}"
    finding = Finding(convention.name.upper(), "error", node.path, message)
    return Facts(findings=(finding,), convention=convention.name)


def _find_roles(group: HeldGroup) -> Roles:
    arrays = group.arrays
    dims = frozenset(name for array in arrays.values() for name in array.dims or () if name is not None)
    linked = {name for array in arrays.values() for link in LINKS for name in words(array.attrs.get(link))}
    mapped = {n for a in (group, *arrays.values()) for n in mapping_names(a.attrs.get("grid_mapping"))}
    parts: dict[str, dict[str, Any]] = {"coordinates": {}, "mappings": {}, "auxiliary": {}, "data": {}}
    for name, array in arrays.items():
        is_mapping = len(array.shape) < 2 and {"grid_mapping_name", "crs_wkt"} & set(array.attrs)
        if name in dims:
            kind = "coordinates"
        elif is_mapping or (name in mapped | {"spatial_ref", "crs"} and array.shape == ()):
            kind = "mappings"
        elif name in linked or array.attrs.get("standard_name") in ("latitude", "longitude"):
            kind = "auxiliary"
        else:
            kind = "data"
        parts[kind][name] = array
    return Roles(**parts, dims=dims)


def _merged(parsed: Sequence[Facts]) -> Facts:
    stated = [facts.levels for facts in parsed if facts.levels is not None]
    return replace(
        first_of(Facts, [replace(facts, crs=(), affines=(), levels=None, findings=()) for facts in parsed]),
        crs=tuple(pair for facts in parsed for pair in facts.crs),
        affines=tuple(pair for facts in parsed for pair in facts.affines),
        levels=join_levels(stated) if stated else None,
        findings=tuple(finding for facts in parsed for finding in facts.findings),
    )


def _unique(findings: Iterable[Finding]) -> list[Finding]:
    # A coordinate or a grid mapping that several arrays share is parsed with each of them; what is assumed of
    # one level is assumed of all.
    kept: dict[str, Finding] = {}
    for finding in findings:
        kept.setdefault(finding.rule if finding.rule == "OC-09" else repr(finding), finding)
    return list(kept.values())


def _handed_down(facts: Facts, group: Facts, shape: tuple[int, int]) -> Facts:
    """The facts about an array, with its group's facts that apply to it, added behind its own."""
    if group == SILENT:
        return facts
    is_its_own = group.shape in (None, shape)
    affines = group.affines if is_its_own else ()
    return replace(
        facts,
        crs=(*facts.crs, *(pair for pair in group.crs if pair not in facts.crs)),
        affines=(*facts.affines, *(pair for pair in affines if pair not in facts.affines)),
        bbox=facts.bbox or (group.bbox if is_its_own else None),
        convention=group.convention,
    )


def _place_grid(grid: Grid, entry: LevelEntry | None, root: Facts | None) -> tuple[GeoModel, list[Finding]]:
    """The model of one grid; `entry` is its level in the pyramid's list, `root` the pyramid's own facts."""
    node, shape, parsed = grid.node, grid.shape, list(grid.facts)
    findings = [finding for facts in parsed for finding in facts.findings]
    if not grid.is_known and not (entry is not None and entry.names_axes and node.dims is None):
        message = f"dimensions are {node.dims!r}: none is known for y or x; the last two are taken"
        is_named = node.dims is not None and None not in node.dims
        is_placed = entry is not None or any(facts.crs for facts in parsed)
        # Of two dimensions without names there is nothing to choose.
        severity: Severity = "warning" if node.dims or len(node.shape) > 2 else "note"
        severity = "error" if is_named and is_placed else severity
        findings.append(Finding("GZ-43", severity, node.path, message))
    if root is not None:
        # What a multiscale group says of its own grid is the finest level's, told by shape and scale.
        is_finest = entry is None or entry.scale in (None, (1, 1))
        is_its_own = is_finest and root.shape in (None, shape)
        affines = root.affines if is_its_own and root.shape == shape else ()
        parsed.append(replace(root, affines=affines, bbox=root.bbox if is_its_own else None))
    if entry is not None and entry.shape not in (None, shape):
        message = f"spatial:shape of the layout is {entry.shape}; expected the array's {shape}"
        findings.append(Finding("ZC-06", "error", node.path, message, shape, entry.shape))
    source, crs = _choose_crs([pair for facts in parsed for pair in facts.crs], node.path, findings)
    placed = choose_affine(statements_of(parsed, entry, shape), entry, shape, node.path, findings)
    findings += () if placed is None else compare_boxes(parsed, placed, shape, node.path)
    affine = None if placed is None else placed.affine
    if crs is None:
        crs = _assume_crs(grid, affine, findings)
    sources = {} if crs is None else {"crs": source}
    sources |= {} if placed is None else {"affine": placed.source}
    y, x = map(plain_name, grid.dimensions)
    time = next((facts.time for facts in parsed if facts.time is not None), None)
    variables = {node.name: grid.variable}
    dimensions = (y or "y", x or "x")
    geo = GeoModel(crs, affine, shape, dimensions, variables=variables, time=time, sources=sources)
    return geo, findings


def _choose_crs(
    stated: Sequence[tuple[str, Crs]], path: str, findings: list[Finding]
) -> tuple[str, Crs | None]:
    """The first (source, CRS) in documents, checked against the others; without any, coordinates tell it."""
    if not stated:
        return COORDINATES, None
    source, crs = stated[0]
    for other_source, other in stated[1:]:
        # What a tile matrix set says is compared once, with all levels.
        if not crs.is_same(other) and not other_source.startswith(TILES):
            message = f"{other_source} is {other.label}, {source} is {crs.label}, which counts"
            said = (Witness(source, crs.label), Witness(other_source, other.label))
            findings.append(Finding("OC-08", "error", path, message, crs.label, other.label, said))
    return source, crs


def _assume_crs(grid: Grid, affine: Affine | None, findings: list[Finding]) -> Crs | None:
    """OGC:CRS84 for a grid with longitudes and latitudes and no other CRS; None for others."""
    if not is_longitude_latitude(grid):
        return None
    if affine is not None:
        _, south, _, north = affine.bounds(grid.shape)
        if max(-south, north) > 90 + affine.cell[0]:
            return None
    try:
        crs = Crs.from_user("OGC:CRS84")
    except UnsupportedError:
        # Without pyproj, no CRS is read at all.
        return None
    path = grid.node.path.rpartition("/")[0]
    message = "longitudes and latitudes without a CRS; OGC:CRS84 is assumed"
    findings.append(Finding("OC-09", "warning", path, message, "a CRS"))
    return crs


def _is_placed(grid: Grid, group: HeldGroup, stated: tuple[str, str] | None) -> bool:
    """Whether an array of a group is data on the ground, not a table of bounds or the like."""
    dims, shape = grid.node.dims, grid.node.shape
    if dims is None or None in dims:
        return True
    if stated is not None:
        return set(stated) <= set(dims)
    is_bounds = len(shape) == 2 and shape[1] in (2, 4) and dims[-1] not in group.arrays
    return not is_bounds or str(dims[-1]).lower() in AXIS_NAMES


def _read_bare(group: HeldGroup, root: Facts, cells: str | None) -> tuple[GeoModel, list[Finding]]:
    """The model of a group from its attributes; `cells` names the discrete global grid of its arrays."""
    if root.shape is None:
        reason = "no array of two or more dimensions, no spatial:shape"
        found = reason if cells is None else f"its arrays have the cells of the {cells}"
        raise MetadataError(f"group holds no grid: {found}", path=group.path)
    findings: list[Finding] = []
    crs = _choose_crs(root.crs, group.path, findings)[1]
    placed = choose_affine(statements_of([root], None, root.shape), None, root.shape, group.path, findings)
    affine = None if placed is None else placed.affine
    return GeoModel(crs, affine, root.shape, root.dimensions or ("y", "x")), findings


def _choose_time(models: Mapping[str, GeoModel], path: str, findings: list[Finding]) -> TimeAxis | None:
    stated = [geo.time for geo in models.values() if geo.time is not None]
    # A dimension says more than a moment that all arrays have beside them.
    chosen = max(stated, key=lambda axis: axis.values.ndim, default=None)
    others = sorted({axis.name for axis in stated if chosen is not None and axis.name != chosen.name})
    if chosen is not None and others:
        message = f"time is {chosen.name!r} here; {', '.join(map(repr, others))} are not in the model"
        findings.append(Finding("MS-09", "note", path, message, chosen.name, others))
    return chosen


# Parts of standards that zstore knows by name and does not read, and tells so: of CF 1.13 aggregation
# variables (2.8), anomalies (7.5) and HEALPix (appendix F); of zarr-conventions dggs and NZUG.

DGGS_UUID, NZUG_UUID = "7b255807-140c-42ca-97f6-7a1cfecdbc38", "d0a980b5-c644-4dcc-85a1-283799a58f40"
HEALPIX = "healpix"


def unread(node: Node) -> Iterator[str]:
    """A description of each part of a standard in a node's attributes that zstore does not read."""
    attributes = node.attrs
    if (dggs := attributes.get("dggs")) is not None:
        yield f"dggs, a {_grid(dggs, 'name')}: its cells are no rows and columns"
    if attributes.get("grid_mapping_name") == HEALPIX:
        yield f"CF 1.13's {_grid(attributes, 'grid_mapping_name')}: its cells are no rows and columns"
    if "aggregated_data" in attributes:
        yield "an aggregation variable of CF 1.13: its fragments are other datasets"
    methods = attributes.get("cell_methods")
    if isinstance(methods, str) and "anomaly_wrt" in methods.split():
        yield f"anomalies of CF 1.13, {methods!r}: the norm is a variable like others"
    if is_nzug(node):
        yield "NZUG: types of attributes, and names of dimensions that are one length in a group"
    for entry in objects(attributes.get("zarr_conventions")):
        name, uuid = entry.get("name"), entry.get("uuid")
        is_known = str(name).rstrip(":") in UUIDS or uuid in UUIDS.values()
        if not is_known and uuid not in (DGGS_UUID, NZUG_UUID):
            yield f"the convention {name if isinstance(name, str) else uuid!r} of zarr_conventions"


def is_nzug(node: Node) -> bool:
    """Whether a node declares the NetCDF-Zarr Users Guide."""
    stated = node.attrs.get("conventions", node.attrs.get("Conventions"))
    entries = objects(node.attrs.get("zarr_conventions"))
    is_stated = isinstance(stated, str) and "NZUG" in stated.upper()
    return is_stated or any(entry.get("uuid") == NZUG_UUID for entry in entries)


def cells_of(array: Any, parent: GroupNode | None) -> str | None:
    """The name of the discrete global grid whose cells an array has along a dimension; None for rasters."""
    for node in (array, parent):
        dggs = None if node is None else node.attrs.get("dggs")
        if isinstance(dggs, Mapping) and dggs.get("spatial_dimension") in (array.dims or ()):
            return _grid(dggs, "name")
    mapping = find_mapping(array, parent)[1]
    if mapping is not None and is_array(mapping) and mapping.attrs.get("grid_mapping_name") == HEALPIX:
        return _grid(mapping.attrs, "grid_mapping_name")
    return None


def _grid(stated: Any, key: str) -> str:
    said = stated if isinstance(stated, Mapping) else {}
    level = said.get("refinement_level")
    return f"discrete global grid {said.get(key)!r}" + ("" if level is None else f" of level {level!r}")
