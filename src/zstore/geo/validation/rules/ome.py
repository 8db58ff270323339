"""Rules of OME-Zarr: images, labels, plates, wells, series, scenes and their transformations.

Spec
    OME-Zarr 0.1 to 0.5 and 0.6rc0. Of versions before 0.4, labels and wells are looked at as those of 0.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from zstore.geo.conventions.base import Severity
from zstore.geo.conventions.geozarr import member_of, objects
from zstore.geo.conventions.levels import FORMER_VERSIONS, former_version, is_ome
from zstore.geo.conventions.write import OME, OME_06
from zstore.geo.validation.view import Found, GroupView, Hierarchy, Rule
from zstore.model.document import plain

__all__ = ["check_ome"]


class Fault(NamedTuple):
    """A breach of a shape: its place in the document, the expected value, and the value found."""

    where: str
    expected: str
    value: Any
    severity: Severity | None = None


# A check of one value of a document, at a place in it.
Shape: TypeAlias = Callable[[Any, str], Iterator[Fault]]

# Shapes


def _anything(value: Any, where: str) -> Iterator[Fault]:
    return iter(())


def _text(pattern: str = "", expected: str = "a text") -> Shape:
    def check(value: Any, where: str) -> Iterator[Fault]:
        if not isinstance(value, str) or (pattern and re.fullmatch(pattern, value) is None):
            yield Fault(where, expected, value)

    return check


def _number(expected: str = "a number", *, is_whole: bool = False, low: float | None = None,
            high: float | None = None, is_above: bool = False) -> Shape:  # fmt: skip
    def check(value: Any, where: str) -> Iterator[Fault]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            not is_number
            or (is_whole and not float(value).is_integer())
            or (low is not None and (value <= low if is_above else value < low))
            or (high is not None and value > high)
        ):
            yield Fault(where, expected, value)

    return check


def _choice(*words: str) -> Shape:
    def check(value: Any, where: str) -> Iterator[Fault]:
        if value not in words:
            yield Fault(where, " or ".join(words), value)

    return check


def _list(item: Shape, least: int = 0, most: int = 1 << 30, *, is_set: bool = True) -> Shape:
    def check(value: Any, where: str) -> Iterator[Fault]:
        if not isinstance(value, list | tuple):
            yield Fault(where, "a list", value)
            return
        if not least <= len(value) <= most:
            count = f"{least} to {most}" if most < 1 << 30 else f"{least} or more"
            yield Fault(where, f"{count} of them", value)
        for number, one in enumerate(value):
            yield from item(one, f"{where}[{number}]")
        texts = [json.dumps(plain(one), sort_keys=True) for one in value]
        if is_set and len(set(texts)) < len(texts):
            yield Fault(where, "no two that are equal", value)

    return check


def _object(
    required: Mapping[str, Shape],
    optional: Mapping[str, Shape] | None = None,
    *more: Shape,
    advised: Mapping[str, Severity] | None = None,
) -> Shape:
    """The shape of an object with these members; `more` shapes look at it whole."""

    def check(value: Any, where: str) -> Iterator[Fault]:
        if not isinstance(value, Mapping):
            yield Fault(where, "an object", value)
            return
        for name, shape in {**required, **(optional or {})}.items():
            if name in value:
                yield from shape(value[name], f"{where}.{name}")
            elif name in required:
                yield Fault(f"{where}.{name}", "to be there", None)
        for name, severity in (advised or {}).items():
            if name not in value:
                yield Fault(f"{where}.{name}", "to be there", None, severity)
        for shape in more:
            yield from shape(value, where)

    return check


def _one_of(*names: str) -> Shape:
    def check(value: Any, where: str) -> Iterator[Fault]:
        if not any(name in value for name in names):
            yield Fault(where, f"{' or '.join(names)} in it", plain(value))

    return check


def _named_apart(key: str) -> Shape:
    """The shape of a list of objects of which no two have the same value of `key`."""

    def check(value: Any, where: str) -> Iterator[Fault]:
        names = [member_of(one, key) for one in _items(value)]
        said = [name for name in names if isinstance(name, str | int)]
        if len(set(said)) < len(said):
            yield Fault(where, f"a {key} of its own for each", said)

    return check


def _both(*shapes: Shape) -> Shape:
    def check(value: Any, where: str) -> Iterator[Fault]:
        for shape in shapes:
            yield from shape(value, where)

    return check


def _items(value: Any) -> Sequence[Any]:
    """The items of a list; none of anything else."""
    return value if isinstance(value, list | tuple) else ()


# Objects

TEXT, NUMBER, COUNT = _text(), _number(), _number("a whole number from 0", is_whole=True, low=0)
NAME = _text(".+", "a name")
POSITIVE = _number("a whole number above 0", is_whole=True, low=0, is_above=True)
WORD = _text("[A-Za-z0-9]+", "letters and digits")
NUMBERS = _list(NUMBER, is_set=False)


def _axes(value: Any, where: str, *, is_old: bool) -> Iterator[Fault]:
    yield from _list(_object({"name": NAME}, {"type": TEXT, "unit": TEXT}), 2, 5)(value, where)
    yield from _named_apart("name")(value, where)
    kinds = [member_of(axis, "type") for axis in _items(value)]
    # In former versions, an axis without a type may be one of space.
    spaces = kinds.count("space") + (kinds.count(None) if is_old else 0)
    if not (spaces >= 2 and kinds.count("space") <= 3) and (is_old or kinds.count("array") < 2):
        yield Fault(where, "two or three of the type space", kinds)


_old_axes, _new_axes = (partial(_axes, is_old=is_old) for is_old in (True, False))


def _axes_in_order(value: Any, where: str) -> Iterator[Fault]:
    order = ["tczyx".find(axis) for axis in value if isinstance(axis, str)] if isinstance(value, list) else []
    if order != sorted(order):
        yield Fault(where, "t, c, z, y, x in this order", plain(value))


def _matrix(value: Any, where: str) -> Iterator[Fault]:
    yield from _list(NUMBERS, 1, is_set=False)(value, where)
    if isinstance(value, list | tuple) and len({len(row) for row in value if isinstance(row, list)}) > 1:
        yield Fault(where, "rows of one length", plain(value))


def _rotation(value: Any, where: str) -> Iterator[Fault]:
    yield from _matrix(value, where)
    rows = _items(value)
    if not 2 <= len(rows) <= 5 or any(not isinstance(row, list) or len(row) != len(rows) for row in rows):
        yield Fault(where, "as many rows as columns, two to five", plain(value))


def _transformation(value: Any, where: str) -> Iterator[Fault]:
    kind = member_of(value, "type")
    shape = TRANSFORMATIONS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        yield Fault(where, f"a type of {', '.join(TRANSFORMATIONS)}", kind)
    else:
        yield from shape(value, where)


def _fits(value: Any, where: str) -> Iterator[Fault]:
    """A scale or translation of some axes has a number for each of them."""
    one, axes = value.get("transformation"), value.get("inputAxes")
    numbers = member_of(one, str(member_of(one, "type")))
    if isinstance(axes, list | tuple) and isinstance(numbers, list | tuple) and len(numbers) != len(axes):
        yield Fault(f"{where}.inputAxes", f"{len(numbers)} axes, as many as the numbers", plain(axes))


def _each_axis_once(value: Any, where: str) -> Iterator[Fault]:
    """Together, the transformations of some axes lead to all axes, and none leads to another's."""
    axes = [axis for one in _items(value) for axis in _items(member_of(one, "outputAxes"))]
    if all(isinstance(axis, int) for axis in axes) and sorted(axes) != [*range(len(axes))]:
        yield Fault(f"{where}.outputAxes", f"each axis from 0 to {len(axes) - 1} once", axes)


def _by_axes(value: Any, where: str) -> Iterator[Fault]:
    members = {"transformation": _transformation, "inputAxes": AXES, "outputAxes": AXES}
    yield from _object(members, None, _fits)(value, where)


AXES = _list(COUNT, 1)
PLACES = _list(_number("an index from 0 to 4", is_whole=True, low=0, high=4), 1, 3)
FIELD = _object({"path": TEXT}, {"interpolation": _choice("nearest", "linear", "cubic")})
TRANSFORMATIONS: dict[str, Shape] = {
    "identity": _anything,
    "mapAxis": _object(
        {"mapAxis": _list(_number("an index from 0 to 4", is_whole=True, low=0, high=4), 2, 5)}
    ),
    "projectAxis": _object(
        {}, {"droppedInputs": PLACES, "createdOutputs": PLACES}, _one_of("droppedInputs", "createdOutputs")
    ),
    "scale": _object({"scale": _list(_number("a number above 0", low=0, is_above=True), is_set=False)}),
    "translation": _object({"translation": NUMBERS}),
    "affine": _object({}, {"affine": _matrix, "path": TEXT}, _one_of("affine", "path")),
    "rotation": _object({}, {"rotation": _rotation, "path": TEXT}, _one_of("rotation", "path")),
    "bijection": _object({"forward": _transformation, "inverse": _transformation}),
    "sequence": _object({"transformations": _list(_transformation, is_set=False)}),
    "byDimension": _object({"transformations": _both(_list(_by_axes), _each_axis_once)}),
    "displacements": FIELD,
    "coordinates": FIELD,
}  # fmt: skip


def _of_dataset(value: Any, where: str) -> Iterator[Fault]:
    """One scale, identity, or scale and translation, from the dataset's path to a system."""
    steps = [value] if member_of(value, "type") != "sequence" else member_of(value, "transformations")
    kinds = [member_of(step, "type") for step in steps] if isinstance(steps, list | tuple) else []
    if kinds not in (["scale"], ["identity"]) and sorted(map(str, kinds)) != ["scale", "translation"]:
        yield Fault(where, "scale, identity, or a sequence of scale and translation", plain(value))
    yield from _transformation(value, where)
    ends = {"input": _object({"path": TEXT}), "output": _object({"name": TEXT})}
    yield from _object(ends)(value, where)


def _old_steps(value: Any, where: str) -> Iterator[Fault]:
    yield from _list(_object({"type": _choice("scale", "translation")}), 1)(value, where)
    for number, one in enumerate(_items(value)):
        kind = member_of(one, "type")
        if kind in ("scale", "translation"):
            yield from _object({kind: _list(NUMBER, 2, is_set=False)})(one, f"{where}[{number}]")
    kinds = [member_of(one, "type") for one in _items(value)]
    if kinds.count("scale") != 1 or kinds.count("translation") > 1:
        yield Fault(where, "one scale, and one translation at most", kinds)


def _systems(value: Any, where: str) -> Iterator[Fault]:
    yield from _list(_object({"name": NAME, "axes": _new_axes}))(value, where)
    yield from _named_apart("name")(value, where)


def _leads(value: Any, where: str) -> Iterator[Fault]:
    """The datasets of an image of 0.6 lead from their own paths to one of its systems."""
    outputs = dict[Any, None]()
    names = [member_of(one, "name") for one in _items(value.get("coordinateSystems"))]
    for number, dataset in enumerate(_items(value.get("datasets"))):
        first = next(iter(_items(member_of(dataset, "coordinateTransformations"))), None)
        path, own = member_of(member_of(first, "input"), "path"), member_of(dataset, "path")
        if isinstance(path, str) and path != own:
            yield Fault(f"{where}.datasets[{number}].input", f"the path {own!r}", path, "warning")
        output = member_of(member_of(first, "output"), "name")
        if isinstance(output, str):
            outputs[output] = None
    if len(outputs) > 1 or any(output not in names for output in outputs):
        yield Fault(f"{where}.datasets", f"one output of {names}", list(outputs))


def _dimensions_agree(value: Any, where: str) -> Iterator[Fault]:
    """The transformations of an image of 0.4 or 0.5 have a number for each axis."""
    axes = value.get("axes")
    for number, dataset in enumerate(_items(value.get("datasets"))):
        for one in _items(member_of(dataset, "coordinateTransformations")):
            numbers = member_of(one, str(member_of(one, "type")))
            if isinstance(axes, list) and isinstance(numbers, list) and len(numbers) != len(axes):
                place = f"{where}.datasets[{number}]"
                yield Fault(place, f"{len(axes)} numbers, one for each axis", numbers)


WINDOW = _object(dict.fromkeys(("start", "min", "end", "max"), NUMBER))
CHANNEL = _object({}, {"window": WINDOW, "label": TEXT, "family": TEXT, "color": TEXT})
OMERO = _object({"channels": _list(CHANNEL, is_set=False)})
OLD_IMAGE = _object(
    {
        "datasets": _list(_object({"path": TEXT, "coordinateTransformations": _old_steps}), 1),
        "axes": _old_axes,
    },
    {"name": TEXT, "coordinateTransformations": _old_steps},
    _dimensions_agree,
)
FORMER_DATASETS = _list(_object({"path": TEXT}), 1)
FORMER_AXES = _both(_list(_choice("t", "c", "z", "y", "x"), 2, 5), _axes_in_order)
FORMER_IMAGES = {
    **dict.fromkeys(("0.1", "0.2"), _object({"datasets": FORMER_DATASETS}, {"name": TEXT})),
    "0.3": _object({"datasets": FORMER_DATASETS, "axes": FORMER_AXES}, {"name": TEXT}),
}


def _until_05(value: Any, where: str) -> Iterator[Fault]:
    """An image as its own version has it, where that has one of its own."""
    version = former_version(value) if isinstance(value, Mapping) else None
    return (OLD_IMAGE if version is None else FORMER_IMAGES[version])(value, where)


ENDS = {"input": _object({"name": TEXT}), "output": _object({"name": TEXT})}
IMAGE = _object(
    {
        "datasets": _list(
            _object({"path": TEXT, "coordinateTransformations": _list(_of_dataset, 1, 1)}), 1
        ),
        "coordinateSystems": _both(_list(_anything, 1), _systems),
    },
    {
        "name": TEXT,
        "coordinateTransformations": _list(_both(_transformation, _object(ENDS)), 1, is_set=False),
    },
    _leads,
)  # fmt: skip
COLOR = _object(
    {"label-value": NUMBER},
    {
        "rgba": _list(
            _number("a whole number from 0 to 255", is_whole=True, low=0, high=255), 4, 4, is_set=False
        )
    },
)
LABEL = _object(
    {},
    {
        "colors": _both(_list(COLOR, 1), _named_apart("label-value")),
        "properties": _list(_object({"label-value": _number("a whole number", is_whole=True)}), 1),
        "source": _object({}, {"image": TEXT}),
    },
    advised={"colors": "warning"},
)
ACQUISITION = _object(
    {"id": COUNT},
    {"maximumfieldcount": POSITIVE, "name": TEXT, "description": TEXT, "starttime": COUNT, "endtime": COUNT},
    advised={"name": "warning", "maximumfieldcount": "warning"},
)


def _wells_agree(value: Any, where: str) -> Iterator[Fault]:
    """The path of each well of a plate consists of the names of its row and its column."""
    rows, columns = ([member_of(one, "name") for one in _items(value.get(n))] for n in ("rows", "columns"))
    for number, well in enumerate(objects(value.get("wells"))):
        row, column, path = (well.get(name) for name in ("rowIndex", "columnIndex", "path"))
        if isinstance(row, int) and isinstance(column, int) and isinstance(path, str):
            is_known = 0 <= row < len(rows) and 0 <= column < len(columns)
            expected = f"{rows[row]}/{columns[column]}" if is_known else "a row and a column of the plate"
            if path != expected:
                yield Fault(f"{where}.wells[{number}]", expected, plain(well), "warning")


def _plate(well: Shape) -> Shape:
    return _object(
        {
            "columns": _both(_list(_object({"name": WORD}), 1), _named_apart("name")),
            "rows": _both(_list(_object({"name": WORD}), 1), _named_apart("name")),
            "wells": _list(well, 1),
        },
        {"acquisitions": _list(ACQUISITION), "field_count": POSITIVE, "name": TEXT},
        _wells_agree,
        advised={"name": "warning"},
    )


WELL = {"path": _text("[A-Za-z0-9]+/[A-Za-z0-9]+", "row/column")}
INDICES = {"rowIndex": COUNT, "columnIndex": COUNT}
PLATE, FORMER_PLATE = _plate(_object({**WELL, **INDICES})), _plate(_object(WELL, INDICES))


def _plate_until_05(value: Any, where: str) -> Iterator[Fault]:
    """A plate, of which wells have indices from 0.4 on."""
    return (FORMER_PLATE if member_of(value, "version") in FORMER_VERSIONS else PLATE)(value, where)


def _well(path: str) -> Shape:
    field = _object(
        {"path": _text(path, "a name of a group")}, {"acquisition": _number("a whole number", is_whole=True)}
    )
    return _object({"images": _list(field, 1)})


END = _object({"name": TEXT}, {"path": TEXT})
SCENE = _object(
    {"coordinateTransformations": _list(
        _both(_transformation, _object({"input": END, "output": END})), 1, is_set=False
    )},
    {"coordinateSystems": _systems},
)  # fmt: skip
# By the member that tells an object of OME-Zarr, its shape: up to 0.5, and from 0.6 on.
OBJECTS: dict[str, tuple[Shape, Shape]] = {
    "multiscales": (_list(_until_05, 1), _list(IMAGE, 1)),
    "omero": (OMERO, OMERO),
    "image-label": (LABEL, LABEL),
    "plate": (_plate_until_05, PLATE),
    "well": (_well("[A-Za-z0-9]+"), _well(r"(?!\.+$)(?!__)[A-Za-z0-9_.-]+")),
    "series": (_list(TEXT, is_set=False), _list(TEXT, is_set=False)),
    "bioformats2raw.layout": (_number("3", low=3, high=3), _number("3", low=3, high=3)),
    "scene": (SCENE, SCENE),
    "labels": (_list(TEXT), _list(TEXT)),
}


# Without a profile, members of these names are OME-Zarr's in Zarr v2 if they have one of these.
MARKS = {"plate": ("columns", "rows", "wells"), "well": ("images",)}


@Rule("OME", "error", "overviews", "OME-Zarr 0.1 to 0.6",
      "Images, labels, plates, wells, series and scenes have the members that OME-Zarr gives them.",
      "correct the members of ome", profiles=(OME, OME_06))  # fmt: skip
def check_ome(hierarchy: Hierarchy) -> Iterator[Found]:
    has_any = False
    for group in hierarchy.groups:
        ome = group.attrs.get("ome")
        stated = ome if isinstance(ome, Mapping) else _former(group, is_asked=hierarchy.profile is not None)
        found = [name for name in OBJECTS if name in stated]
        has_any |= bool(found)
        if ome is not None and not found:
            yield Found(group, f"ome is {plain(ome)!r:.120}", f"one of {', '.join(OBJECTS)} in it")
        elif ome is not None and not isinstance(stated.get("version"), str):
            yield Found(group, "ome.version is not there", "such as 0.5", plain(stated.get("version")))
        for name in found:
            shape = OBJECTS[name][_is_new(stated)]
            faults = [*shape(stated[name], name), *(_versions(stated[name], name) if ome is None else ())]
            for where, expected, value, severity in faults:
                is_there = value is not None
                message = f"{where} is {plain(value)!r:.120}" if is_there else f"{where} is not there"
                yield Found(group, message, expected, plain(value), severity)
    if not has_any and hierarchy.profile in (OME, OME_06):
        yield Found(hierarchy.root, "there is no object of OME-Zarr", f"one of {', '.join(OBJECTS)}")


def _versions(value: Any, name: str) -> Iterator[Fault]:
    """The version of each object up to 0.4, where they have it themselves."""
    version = _object({}, {"version": _choice("0.1", "0.2", "0.3", "0.4")}, advised={"version": "note"})
    each = _list(version, is_set=False) if name == "multiscales" else version
    return each(value, name) if name in ("multiscales", "image-label", "plate", "well") else iter(())


def _is_new(stated: Mapping[str, Any]) -> bool:
    """Whether the objects of a group are of OME-Zarr 0.6."""
    images = stated.get("multiscales")
    has_systems = any("coordinateSystems" in image for image in objects(images))
    return has_systems or str(stated.get("version", "")).startswith("0.6")


def _former(group: GroupView, *, is_asked: bool) -> Mapping[str, Any]:
    """The members of OME-Zarr among a group's attributes, where they were up to 0.4."""
    found = {name: value for name, value in group.attrs.items() if name in OBJECTS}
    if is_asked:
        return found
    return {
        name: value
        for name, value in found.items()
        if (is_ome(value) if name == "multiscales" else name not in ("labels", "series", "scene", "omero"))
        and (name not in MARKS or any(member_of(value, mark) is not None for mark in MARKS[name]))
    }
