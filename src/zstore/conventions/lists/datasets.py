"""The levels of a list of datasets, as Multiscale Arrays, ndpyramid and OME-Zarr write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zstore.conventions.base import Finding, GroupNode, LevelEntry
from zstore.conventions.layout import asset_path
from zstore.conventions.model import Affine, GeoModel, Variable
from zstore.conventions.zarr_conventions import parse_numbers

__all__ = ["dataset_paths", "is_ome", "list_variables", "parse_datasets"]

# (steps, first centre), each (y, x).
Line = tuple[tuple[float, float], tuple[float, float]]


def is_ome(items: Any) -> bool:
    """Whether a list under `multiscales` is OME-Zarr's: it has axes or transformations."""
    return isinstance(items, (list, tuple)) and any(
        isinstance(item, Mapping) and ("axes" in item or _has_transformations(item)) for item in items
    )


def _has_transformations(item: Mapping[str, Any]) -> bool:
    datasets = item.get("datasets")
    return isinstance(datasets, (list, tuple)) and any(
        isinstance(dataset, Mapping) and "coordinateTransformations" in dataset for dataset in datasets
    )


def list_variables(geo: GeoModel) -> dict[str, Variable]:
    """The model's arrays by name, in the order of their names, in which they are listed."""
    return dict(sorted(geo.variables.items()))


def dataset_paths(geo: GeoModel, name: str) -> list[str]:
    """Where the levels of one array are."""
    return [f"{level.path}/{name}" for level in geo.levels]


def parse_datasets(items: Sequence[Any], node: GroupNode, findings: list[Finding]) -> list[LevelEntry]:
    """The levels: groups where every item lists one array in each of them, else what the first one lists."""
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
    datasets = item.get("datasets") if isinstance(item, Mapping) else None
    if not isinstance(datasets, (list, tuple)):
        message = "multiscales has no list of datasets; its levels are not known"
        findings.append(Finding("OC-10", "error", node.path, message))
        return []
    places = _places(item.get("axes"))
    outer = _line(item.get("coordinateTransformations"), places)
    entries = []
    for dataset in datasets:
        path = asset_path(dataset)
        if path is None:
            findings.append(Finding("OC-10", "error", node.path, f"dataset {dataset!r} has no relative path"))
            continue
        affine = _affine(_line(dataset.get("coordinateTransformations"), places), outer)
        tile = dataset.get("pixels_per_tile")
        is_length = isinstance(tile, int) and not isinstance(tile, bool) and tile > 0
        cell = None if affine is None else affine.cell
        tile_shape = (tile, tile) if is_length else None
        entries.append(LevelEntry(path, fallback_affine=affine, cell=cell, tile_shape=tile_shape))
    return entries


def _places(axes: Any) -> tuple[int, int]:
    """Which numbers of a transformation are y's and x's."""
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
        y_step, y, x_step, x = (
            y_step * y_factor,
            y * y_factor + y_shift,
            x_step * x_factor,
            x * x_factor + x_shift,
        )
    # OME counts from the centre of the first cell.
    return Affine(float(x_step), 0.0, x - x_step / 2, 0.0, float(y_step), y - y_step / 2)
