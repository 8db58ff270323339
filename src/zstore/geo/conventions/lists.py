"""Pyramids as lists of datasets, the finest first: Multiscale Arrays, ndpyramid's list of groups, OME-Zarr.

Spec: OGC Zarr 2.0 §4.5; Multiscale Arrays 0.1 (zarr-developers/zarr-specs#50); carbonplan's `pixels_per_tile`
and `crs` of a dataset; OME-NGFF 0.5 ("multiscales" metadata, under `ome`) and 0.6 (`coordinateSystems`), and
as read 0.4 and before.
Example: {"multiscales": [{"version": "0.1", "name": "b02", "datasets": [{"path": "0/b02"}]}]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import (
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GroupNode,
    LevelEntry,
    Node,
    is_group,
    parse_crs,
)
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import asset_path, member_of, objects, parse_numbers
from zstore.geo.conventions.model import RESAMPLING_METHODS, Affine, GeoModel, Level, Variable

ARRAYS_VERSION = "0.1"
OME_VERSION = "0.5"
OME_06 = "0.6"
# The system that the datasets of an image lead to.
INTRINSIC = "intrinsic"
MOST_AXES = 5
# In cells of the finest level.
TOLERANCE = 0.1
TYPES = {"time": "time", "t": "time"} | dict.fromkeys(("band", "bands", "channel", "c"), "channel")
UNITS = {"metre": "meter", "kilometre": "kilometer", "foot": "foot"}
# (steps, first centre), each (y, x).
Line = tuple[tuple[float, float], tuple[float, float]]


class Multiscales(Convention):
    """Multiscale Arrays 0.1."""

    name = "multiscales"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """Levels, CRS and resampling of a list of datasets, in whatever order it has them."""
        if not is_group(node):
            return Facts()
        stated = node.attrs.get("multiscales")
        if isinstance(stated, Mapping) and "datasets" in stated and "layout" not in stated:
            stated = [stated]
        if not isinstance(stated, (list, tuple)) or is_ome(stated):
            return Facts()
        findings: list[Finding] = []
        levels = _parse_datasets(stated, node, findings)
        first = stated[0] if stated and isinstance(stated[0], Mapping) else {}
        resampling = first.get("type")
        is_known = isinstance(resampling, str) and resampling in RESAMPLING_METHODS
        return Facts(
            crs=_parse_crs(first, node, findings),
            levels=tuple(levels),
            resampling=resampling if is_known else None,
            findings=tuple(findings),
        )

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The list, with one entry per array of data, the finest level first."""
        if not geo.levels:
            return {}
        items: list[dict[str, Any]] = []
        for name in _variables(geo):
            item: dict[str, Any] = {"version": ARRAYS_VERSION, "name": name}
            item["datasets"] = [
                _render_dataset(path, level, geo)
                for path, level in zip(_paths(geo, name), geo.levels, strict=True)
            ]
            if geo.resampling is not None:
                factors = [[float(factor) for factor in level.factors] for level in geo.levels]
                item["type"] = geo.resampling
                item["metadata"] = {"method": geo.resampling, "args": [], "kwargs": {"factors": factors}}
            items.append(item)
        return {"": Document(kind="group", attributes={"multiscales": items})}

    def dialects(self, node: Node) -> Iterator[str]:
        """The list."""
        stated = node.attrs.get("multiscales")
        if is_group(node) and isinstance(stated, (list, tuple)) and not is_ome(stated):
            yield "Multiscale Arrays"


def _render_dataset(path: str, level: Level, geo: GeoModel) -> dict[str, Any]:
    dataset: dict[str, Any] = {"path": path}
    if level.tile_shape is not None and level.tile_shape[0] == level.tile_shape[1]:
        dataset["pixels_per_tile"] = level.tile_shape[0]
    if geo.crs is not None and geo.crs.code is not None:
        dataset["crs"] = geo.crs.code
    return dataset


def _parse_crs(first: Mapping[str, Any], node: Node, findings: list[Finding]) -> tuple[tuple[str, Crs], ...]:
    stated = first.get("crs")
    if stated is None:
        stated = next((d["crs"] for d in objects(first.get("datasets")) if "crs" in d), None)
    if stated is None:
        return ()
    return tuple(parse_crs("multiscales.crs", stated, "OC-10", node.path, findings))


class Ome(Convention):
    """OME-Zarr.

    What is written counts from the raster's own corner, rows downwards and columns to the right, in the CRS's
    unit: readers of OME-Zarr want positive steps. `translation` is the centre of the first cell.
    """

    name = "ome"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """The levels of `ome`, else of OME-Zarr's former list, with the affines of their transformations."""
        if not is_group(node):
            return Facts()
        findings: list[Finding] = []
        ome, former = node.attrs.get("ome"), node.attrs.get("multiscales")
        stated = ome.get("multiscales") if isinstance(ome, Mapping) else former if is_ome(former) else None
        if not isinstance(stated, (list, tuple)):
            return Facts() if stated is None else Facts(levels=())
        return Facts(levels=tuple(_parse_datasets(stated, node, findings)), findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`ome`, with one image per array of data; arrays that OME-Zarr has no axes for are not listed.

        Raises
            MetadataError: Zarr v2, or no array that OME-Zarr has axes for.
        """
        if not geo.levels:
            return {}
        if zarr_format != 3:
            raise MetadataError(f"OME-Zarr {OME_VERSION} is written as Zarr v3; zarr_format is {zarr_format}")
        images = []
        for name, variable in _variables(geo).items():
            axes = _axes(variable, geo)
            if axes is not None:
                datasets = [
                    _image_dataset(path, level, len(axes))
                    for path, level in zip(_paths(geo, name), geo.levels, strict=True)
                ]
                image = {"name": name, "axes": axes, "datasets": datasets}
                images.append(image if geo.resampling is None else {**image, "type": geo.resampling})
        if not images:
            raise MetadataError(
                f"OME-Zarr {OME_VERSION} wants two to five axes, time before bands before {geo.dimensions}; "
                f"none of {sorted(geo.variables)} is like that"
            )
        ome = {"version": OME_VERSION, "multiscales": images}
        return {"": Document(kind="group", attributes={"ome": ome})}

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where images have no list of datasets, or levels whose cells or corners do not agree."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        for image in objects(member_of(node.attrs.get("ome"), "multiscales")):
            version = str(member_of(node.attrs.get("ome"), "version"))
            if "coordinateSystems" in image or version.startswith("0.6"):
                findings += _check_systems(image, node.path)
        affines = {level.path: level.affine for level in geo.levels}
        base = next((entry.fallback_affine for entry in facts.levels or () if entry.fallback_affine), None)
        for entry in facts.levels or ():
            expected, found = affines.get(entry.path), entry.fallback_affine
            if expected is None or found is None or base is None:
                continue
            if not np.allclose(found.cell, expected.cell, rtol=1e-6):
                message = f"scale of {entry.path!r} comes to cells of {found.cell}; expected {expected.cell}"
                findings.append(Finding("OME", "error", node.path, message, expected.cell, found.cell))
            shift = max(abs(found.c - base.c) / base.cell[1], abs(found.f - base.f) / base.cell[0])
            if shift > TOLERANCE:
                message = f"translation of {entry.path!r} puts its corner {shift:.4g} cells off the finest's"
                findings.append(Finding("OME", "warning", node.path, message, base[2::3], found[2::3]))
        return findings

    def dialects(self, node: Node) -> Iterator[str]:
        """OME-Zarr in its version."""
        former, ome = node.attrs.get("multiscales"), node.attrs.get("ome")
        stated = [former[0]] if isinstance(former, (list, tuple)) and is_ome(former) else []
        for found in [*stated, *([ome] if isinstance(ome, Mapping) else [])] if is_group(node) else ():
            yield f"OME-Zarr {found.get('version', '') if isinstance(found, Mapping) else ''}"


def to_06(ome: Mapping[str, Any]) -> dict[str, Any]:
    """`ome` of version 0.5 as 0.6 has it: one coordinate system, to which every dataset leads."""
    return {"version": OME_06, "multiscales": [_to_06(image) for image in ome["multiscales"]]}


def _to_06(image: Mapping[str, Any]) -> dict[str, Any]:
    datasets = [
        {
            "path": dataset["path"],
            "coordinateTransformations": [
                {
                    "type": "sequence",
                    "input": {"path": dataset["path"]},
                    "output": {"name": INTRINSIC},
                    "transformations": dataset["coordinateTransformations"],
                }
            ],
        }
        for dataset in image["datasets"]
    ]
    systems = [{"name": INTRINSIC, "axes": image["axes"]}]
    made = {"name": image["name"], "coordinateSystems": systems, "datasets": datasets}
    method = image.get("type")
    return made if method is None else {**made, "type": method, "metadata": {"method": method}}


def _check_systems(image: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """Findings about an image that has coordinate systems, by OME-Zarr 0.6."""

    def wrong(message: str, expected: Any = None, found: Any = None) -> Finding:
        return Finding("OME", "error", path, message, expected, found)

    systems = image.get("coordinateSystems")
    known = systems if isinstance(systems, list) else []
    names = [member_of(system, "name") for system in known]
    if not known or not all(isinstance(name, str) and name for name in names):
        yield wrong("coordinateSystems is no list of systems with names", "a list", systems)
    elif len(set(names)) != len(names):
        yield wrong(f"coordinateSystems have the names {names}, one of them twice", None, names)
    for system in known:
        axes = objects(member_of(system, "axes"))
        kinds, called = ([axis.get(word) for axis in axes] for word in ("type", "name"))
        if not 2 <= len(kinds) <= MOST_AXES or kinds.count("space") not in (2, 3):
            yield wrong(f"axes have the types {kinds}; expected two to five, two or three of them space")
        if not all(isinstance(name, str) and name for name in called) or len(set(called)) != len(called):
            yield wrong(f"axes are named {called}; expected a name of its own for each")
    outputs, datasets = list[Any](), image.get("datasets")
    for dataset in datasets if isinstance(datasets, list) else ():
        stated = dataset.get("coordinateTransformations") if isinstance(dataset, Mapping) else None
        first = stated[0] if isinstance(stated, list) and len(stated) == 1 else None
        if not isinstance(first, Mapping) or not _is_allowed(first):
            message = (
                f"transformations of {dataset!r:.80} are not one scale, identity, or scale and translation"
            )
            yield wrong(message, "one", stated)
            continue
        source = first.get("input")
        if not isinstance(source, Mapping) or source.get("path") != dataset.get("path"):
            yield wrong(
                f"input of {dataset.get('path')!r} is {source!r}", {"path": dataset.get("path")}, source
            )
        if _output(dataset) not in outputs:
            outputs.append(_output(dataset))
    if len(outputs) > 1 or (known and any(output not in names for output in outputs)):
        yield wrong(f"datasets lead to {sorted(map(str, outputs))}", names, sorted(map(str, outputs)))


def _is_allowed(transformation: Mapping[str, Any]) -> bool:
    kind = transformation.get("type")
    if kind != "sequence":
        return kind in ("scale", "identity")
    kinds = [str(step.get("type")) for step in objects(transformation.get("transformations"))]
    return sorted(kinds) == ["scale", "translation"]


def _axes(variable: Variable, geo: GeoModel) -> list[dict[str, Any]] | None:
    names = variable.dimensions or geo.dimensions
    if not 2 <= len(names) <= MOST_AXES or tuple(names[-2:]) != geo.dimensions:
        return None
    axes: list[dict[str, Any]] = []
    for name in names[:-2]:
        is_time = geo.time is not None and name == geo.time.name
        kind = "time" if is_time else TYPES.get(name.lower())
        axes.append({"name": name} if kind is None else {"name": name, "type": kind})
    kinds = [axis.get("type", "channel") for axis in axes]
    if kinds not in ([], ["time"], ["channel"], ["time", "channel"]):
        return None
    unit = None if geo.crs is None or geo.affine is None else UNITS.get(geo.crs.unit_name)
    for name in geo.dimensions:
        axes.append({"name": name, "type": "space"} | ({} if unit is None else {"unit": unit}))
    return axes


def _image_dataset(path: str, level: Level, count: int) -> dict[str, Any]:
    # Without an affine, cells are counted in the finest level's.
    cell = level.factors if level.affine is None else level.affine.cell
    others = count - 2
    scale = [1.0] * others + [float(length) for length in cell]
    translation = [0.0] * others + [length / 2 for length in cell]
    return {
        "path": path,
        "coordinateTransformations": [
            {"type": "scale", "scale": scale},
            {"type": "translation", "translation": translation},
        ],
    }


def is_ome(items: Any) -> bool:
    """Whether a list under `multiscales` is OME-Zarr's: it has axes or transformations."""
    images = objects(items)
    datasets = (dataset for image in images for dataset in objects(image.get("datasets")))
    has_axes = any("axes" in image for image in images)
    return has_axes or any("coordinateTransformations" in dataset for dataset in datasets)


def is_image(group: Any) -> bool:
    """Whether a group is an image of OME-Zarr, in any version."""
    return isinstance(group.attrs.get("ome"), Mapping) or is_ome(group.attrs.get("multiscales"))


def _variables(geo: GeoModel) -> dict[str, Variable]:
    """The model's arrays by name, in the order of their names, in which they are listed."""
    return dict(sorted(geo.variables.items()))


def _paths(geo: GeoModel, name: str) -> list[str]:
    """The paths of the levels of one array."""
    return [f"{level.path}/{name}" for level in geo.levels]


def _parse_datasets(items: Sequence[Any], node: GroupNode, findings: list[Finding]) -> list[LevelEntry]:
    """The levels: groups where every item lists one array in each of them, else those of the first item."""
    images: list[list[LevelEntry]] = []
    if not items:
        message = "multiscales is an empty list; its levels are not known"
        findings.append(Finding("OC-10", "error", node.path, message))
    for item in items:
        entries = _parse_item(item, node, findings)
        if entries:
            images.append(entries)
    if not images:
        return []
    levels = [_levels_of(entries) for entries in images]
    if levels[0] is not None and all(level == levels[0] for level in levels):
        return [
            LevelEntry(path, None, e.fallback_affine, e.extent, e.shape, e.cell, e.scale, e.tile_shape)
            for path, e in zip(levels[0], images[0], strict=True)
        ]
    if len(images) > 1:
        message = f"multiscales lists {len(images)} images with levels of their own; the first one is read"
        findings.append(Finding("OC-10", "note", node.path, message))
    return images[0]


def _levels_of(entries: list[LevelEntry]) -> list[str] | None:
    """The groups that hold one array of the same name each; None where the paths are not like that."""
    split = [entry.path.rpartition("/") for entry in entries]
    above = [parts[0] for parts in split]
    is_one_array = len({parts[2] for parts in split}) == 1
    return above if is_one_array and all(above) and len(set(above)) == len(above) else None


def _parse_item(item: Any, node: GroupNode, findings: list[Finding]) -> list[LevelEntry]:
    datasets = member_of(item, "datasets")
    if not isinstance(datasets, (list, tuple)):
        message = "multiscales has no list of datasets; its levels are not known"
        findings.append(Finding("OC-10", "error", node.path, message))
        return []
    axes = _axes_of(item)
    places = _axis_places(axes)
    # From 0.6 on, datasets lead to the image's own system, and what follows to others.
    has_systems = "coordinateSystems" in item
    outer = None if has_systems else _line(item.get("coordinateTransformations"), places)
    entries = []
    for dataset in datasets:
        path = asset_path(dataset)
        if path is None:
            findings.append(Finding("OC-10", "error", node.path, f"dataset {dataset!r} has no relative path"))
            continue
        affine = _affine(_line(_steps(dataset, axes), places), outer)
        tile = dataset.get("pixels_per_tile")
        is_length = isinstance(tile, int) and not isinstance(tile, bool) and tile > 0
        cell = None if affine is None else affine.cell
        tile_shape = (tile, tile) if is_length else None
        entries.append(LevelEntry(path, fallback_affine=affine, cell=cell, tile_shape=tile_shape))
    return entries


def _axes_of(item: Mapping[str, Any]) -> Any:
    """The axes of an image: its own, or from 0.6 on those of the system that its datasets lead to."""
    systems = item.get("coordinateSystems")
    if not isinstance(systems, (list, tuple)):
        return item.get("axes")
    known = objects(systems)
    name = next((name for dataset in item.get("datasets") or () if (name := _output(dataset))), None)
    return next((system for system in known if system.get("name") == name), (known or [{}])[0]).get("axes")


def _output(dataset: Any) -> Any:
    """The name of the coordinate system that the first transformation of a dataset leads to."""
    return member_of(member_of(_first(dataset), "output"), "name")


def _first(dataset: Any) -> Any:
    """The first transformation of a dataset; None where there is no list of them."""
    stated = member_of(dataset, "coordinateTransformations")
    return stated[0] if isinstance(stated, (list, tuple)) and stated else None


def _steps(dataset: Mapping[str, Any], axes: Any) -> Any:
    """The scale and the translation of a dataset, out of their sequence, or made of the identity."""
    stated, first = dataset.get("coordinateTransformations"), _first(dataset)
    if not isinstance(first, Mapping):
        return stated
    if first.get("type") == "sequence":
        return first.get("transformations")
    if first.get("type") == "identity" and isinstance(axes, (list, tuple)):
        return [{"type": "scale", "scale": [1.0] * len(axes)}]
    return stated


def _axis_places(axes: Any) -> tuple[int, int]:
    """The indices of y and x among the numbers of a transformation."""
    names = [
        axis.get("name") if isinstance(axis, Mapping) else axis
        for axis in (axes if isinstance(axes, (list, tuple)) else ())
    ]
    if "y" in names and "x" in names:
        return names.index("y"), names.index("x")
    # The order of the axes puts those of space last, y before x.
    return (len(names) - 2, len(names) - 1) if len(names) >= 2 else (-2, -1)


def _line(transformations: Any, places: tuple[int, int]) -> Line | None:
    if not isinstance(transformations, (list, tuple)):
        return None
    found = {
        item.get("type"): item.get(item.get("type"))
        for item in transformations
        if isinstance(item, Mapping) and item.get("type") in ("scale", "translation")
    }
    scale = found.get("scale")
    if not isinstance(scale, (list, tuple)) or len(scale) < 2 or max(places) >= len(scale):
        return None
    steps = parse_numbers([scale[place] for place in places], 2)
    translation = found.get("translation")
    if not isinstance(translation, (list, tuple)) or len(translation) != len(scale):
        translation = [0.0] * len(scale)
    centres = parse_numbers([translation[place] for place in places], 2)
    if steps is None or centres is None or 0 in steps:
        return None
    return (steps[0], steps[1]), (centres[0], centres[1])


def _affine(line: Line | None, outer: Line | None) -> Affine | None:
    if line is None:
        return None
    (y_step, x_step), (y, x) = line
    if outer is not None:
        # The image's own transformation comes after its datasets'.
        (y_factor, x_factor), (y_shift, x_shift) = outer
        y_step, x_step = y_step * y_factor, x_step * x_factor
        y, x = y * y_factor + y_shift, x * x_factor + x_shift
    # OME counts from the centre of the first cell.
    return Affine(float(x_step), 0.0, x - x_step / 2, 0.0, float(y_step), y - y_step / 2)
