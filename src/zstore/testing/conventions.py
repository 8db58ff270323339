"""The contract of conventions, as a test class to inherit from.

from zstore.testing.conventions import ConventionContract

class TestMyConvention(ConventionContract):
    def make(self):
        return MyConvention()
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.plugin.conventions import (
    Affine,
    Band,
    Convention,
    Crs,
    Documents,
    Facts,
    GeoModel,
    LevelEntry,
    Mend,
    Stac,
    TimeAxis,
    Variable,
    is_array,
    is_group,
    render_geo,
)

__all__ = ["ConventionContract", "DocumentArray", "DocumentGroup", "build_tree", "sample_models"]

NONSENSE: tuple[Any, ...] = (None, "", "nonsense", -1, 1.5, True, [], ["x"], [[]], {}, {"x": None}, 10**30)


class DocumentArray:
    """An array made from a document, with the interface that conventions use."""

    def __init__(self, path: str, document: Mapping[str, Any], values: Any, zarr_format: int) -> None:
        self.path, self.zarr_format = path, zarr_format
        self.attrs: Mapping[str, Any] = document.get("attributes", {})
        self.dims: tuple[str | None, ...] | None = document.get("dimension_names")
        self.fill_value = document.get("fill_value")
        self._values = np.asarray(values)
        self.shape, self.dtype = self._values.shape, self._values.dtype

    def __getitem__(self, selection: Any) -> Any:
        return self._values[selection]


class DocumentGroup:
    """A group made from a document, with the interface that conventions use."""

    def __init__(self, path: str, attributes: Mapping[str, Any], zarr_format: int) -> None:
        self.path, self.attrs, self.zarr_format = path, attributes, zarr_format
        self.children: dict[str, Any] = {}

    def members(self) -> Iterator[tuple[str, Any]]:
        yield from self.children.items()

    def __getitem__(self, path: str) -> Any:
        node: Any = self
        for part in path.split("/"):
            node = node.children[part]
        return node


def build_tree(documents: Documents, geo: GeoModel, zarr_format: int) -> DocumentGroup:
    """The hierarchy of these documents; data arrays contain only their fill value.

    Groups that have no document themselves, but nodes below, have no attributes.
    """
    root = DocumentGroup("", documents.get("", {}).get("attributes", {}), zarr_format)
    shapes = {grid.path: grid.shape for grid in geo.grids}
    for path in sorted(set(documents) - {""}):
        document = documents[path]
        above, _, name = path.rpartition("/")
        parent = root
        for part in filter(None, above.split("/")):
            parent = parent.children.setdefault(part, DocumentGroup(part, {}, zarr_format))
        if document.get("kind") == "array":
            values = document.get("data")
            if values is None:
                variable = geo.variables[name]
                named = dict(zip(geo.dimensions, shapes[above], strict=True))
                if geo.time is not None and geo.time.values.ndim:
                    named[geo.time.name] = geo.time.values.size
                if len(variable.bands) > 1:
                    named["band"] = len(variable.bands)
                shape = [named.get(dim, 1) for dim in variable.dimensions or geo.dimensions]
                values = np.broadcast_to(np.zeros((), variable.dtype), shape)
            parent.children[name] = DocumentArray(path, document, values, zarr_format)
        else:
            parent.children[name] = DocumentGroup(path, document.get("attributes", {}), zarr_format)
    return root


def sample_models() -> list[GeoModel]:
    """Rasters and pyramids that every convention must handle, from plain to unusual ones."""
    utm = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
    band = Variable(np.dtype("uint16"), ("y", "x"), nodata=0, scale_factor=0.0001, add_offset=0.0, units="1")
    height = Variable(np.dtype("float32"), ("time", "lat", "lon"), nodata=-9999.0, area_or_point="Point")
    degrees = Affine(0.5, 0.0, -180.0, 0.0, 0.25, -90.0)
    plain = GeoModel(Crs.from_user("EPSG:32632"), utm, (1095, 1093), variables={"b02": band})
    pyramid = GeoModel(
        plain.crs,
        utm,
        plain.shape,
        levels=tuple(plain.plan_level(str(i), (2**i, 2**i), (256, 256)) for i in range(3)),
        resampling="average",
        variables={"b02": band},
    )
    south_up = GeoModel(
        Crs.from_user("EPSG:4326"), degrees, (720, 720), ("lat", "lon"), variables={"h": height}
    )
    rotated = GeoModel(None, Affine(17.0, 5.0, 100.0, 10.0, -8.0, 200.0), (15, 10), variables={"b02": band})
    return [plain, pyramid, south_up, rotated, _described(pyramid)]


def _described(pyramid: GeoModel) -> GeoModel:
    """A pyramid with time, bands and STAC metadata."""
    bands = (
        Band("B02", "blue", "blue", 0.49, 0.1),
        Band("B08", common_name="nir", wavelength=0.842, others={"gsd": 10}),
    )
    cube = Variable(np.dtype("int16"), ("time", "band", "y", "x"), nodata=-1, bands=bands)
    scene = Variable(np.dtype("uint8"), ("y", "x"), nodata=0, bands=(Band("SCL"),), flag_values=(1, 2))
    return replace(
        pyramid,
        variables={"cube": cube, "scene": replace(scene, flag_meanings=("land", "water"))},
        time=TimeAxis.from_dates(["2020-02-29", "2020-03-01T12:00"]),
        stac=Stac("item", {"type": "Feature", "id": "scene", "assets": {"cube": {"href": "0/cube"}}}),
    )


class ConventionContract:
    """The tests of a convention: inherit and define `make`."""

    def make(self) -> Convention:
        """The convention to test."""
        raise NotImplementedError

    def rendered(self) -> Iterator[tuple[Documents, GeoModel, int]]:
        """The documents that the convention renders for each model in each format, unless it refuses."""
        for geo in sample_models():
            for zarr_format in (2, 3):
                try:
                    yield self.make().render(geo, zarr_format), geo, zarr_format
                except MetadataError:
                    continue

    def test_documents_are_strict_json_and_the_same_at_every_call(self) -> None:
        name, rendered = self.make().name, [*self.rendered()]
        assert isinstance(name, str) and name, "a convention has a name"
        assert rendered, "it refuses every model"
        for documents, geo, zarr_format in rendered:
            again = self.make().render(geo, zarr_format)
            assert repr(documents) == repr(again), "rendering twice gave two results"
            for path, document in documents.items():
                _check_document(path, document)

    def test_what_it_writes_it_reads_and_finds_no_fault_with(self) -> None:
        convention = self.make()
        for documents, geo, zarr_format in self.rendered():
            for path, node, parent in _nodes(documents, geo, zarr_format):
                is_data = is_array(node) and path.rpartition("/")[2] in geo.variables
                _check_facts(convention.parse(node, parent), geo, path, is_data)
                if is_group(node):
                    _check_group(convention.parse(node, parent), path)
                if path == "" or is_data:
                    errors = [f for f in convention.check(node, geo, parent) if f.severity == "error"]
                    assert not errors, f"it finds fault with its own document {path!r}: {errors}"

    def test_nonsense_is_a_finding_and_never_an_error(self) -> None:
        convention, rendered = self.make(), [*self.rendered()]
        for _, node, parent in _nodes(*rendered[-1]):
            attributes = node.attrs
            for name, nonsense in product(attributes, NONSENSE):
                node.attrs = {**attributes, name: nonsense}
                convention.parse(node, parent)
                convention.check(node, rendered[-1][1], parent)

    def test_a_mend_mends(self) -> None:
        convention, rendered = self.make(), [*self.rendered()]
        for _, node, parent in _nodes(*rendered[-1]):
            attributes = node.attrs
            # A number written as text is what mends are for most often.
            for name, value in attributes.items():
                for wrong in (*NONSENSE, str(value)):
                    node.attrs = {**attributes, name: wrong}
                    for finding in convention.parse(node, parent).findings:
                        if finding.mend is None or not finding.mend.attributes or finding.path != node.path:
                            continue
                        node.attrs = _mended({**attributes, name: wrong}, finding.mend)
                        left = [(f.rule, f.message) for f in convention.parse(node, parent).findings]
                        assert (finding.rule, finding.message) not in left, f"{finding} stays when mended"
            node.attrs = attributes


def _check_document(path: str, document: Mapping[str, Any]) -> None:
    unknown = set(document) - {"kind", "attributes", "dimension_names", "data", "fill_value"}
    assert not unknown, f"document {path!r} has the members {sorted(unknown)}"
    attributes = document.get("attributes", {})
    encoded = json.dumps(attributes, allow_nan=False)
    assert json.loads(encoded) == attributes, f"attributes of {path!r} change on their way through JSON"
    assert not path.startswith("/") and ".." not in path.split("/"), f"path {path!r} is not relative"


def _nodes(documents: Documents, geo: GeoModel, zarr_format: int) -> Iterator[tuple[str, Any, Any]]:
    """(path, node, group above) of the hierarchy that has only the attributes of `documents`.

    The nodes themselves come from the built-in conventions.
    """
    base = render_geo(geo, zarr_format)[0]
    for path, document in base.items():
        document["attributes"] = documents.get(path, {}).get("attributes", {})
    base |= {path: document for path, document in documents.items() if path not in base}
    tree = build_tree(base, geo, zarr_format)
    for path in base:
        above = path.rpartition("/")[0]
        yield path, tree[path] if path else tree, (tree[above] if above else tree) if path else None


def _mended(attributes: Mapping[str, Any], mend: Mend) -> dict[str, Any]:
    joined = {**attributes, **mend.attributes}
    return {name: value for name, value in joined.items() if value is not None}


def _check_group(facts: Facts, path: str) -> None:
    # Without it, they would count for arrays of any shape.
    assert not facts.affines or facts.shape is not None, (
        f"affines of the group {path!r} count for arrays of its `shape` only, which the facts lack; "
        "expected the shape, or affines as facts of each array"
    )
    for entry in facts.levels or ():
        assert isinstance(entry, LevelEntry), f"level {entry!r} of {path!r} is no LevelEntry"


def _check_facts(facts: Facts, geo: GeoModel, path: str, is_data: bool) -> None:
    errors = [finding for finding in facts.findings if finding.severity == "error"]
    assert not errors, f"it finds fault with its own document {path!r}: {errors}"
    for source, crs in facts.crs:
        assert geo.crs is not None and crs.is_same(geo.crs), f"{source} at {path!r} is another CRS"
    known = [grid.affine for grid in geo.grids]
    for source, affine in facts.affines:
        assert affine in known, f"{source} at {path!r} is {affine}, no affine of the model"
    if facts.levels:
        assert {entry.path for entry in facts.levels} == {level.path for level in geo.levels}
    for kind in ("time", "stac"):
        said = getattr(facts, kind)
        assert said is None or said == getattr(geo, kind), f"{kind} at {path!r} is {said!r}"
    if is_data and facts.variable is not None:
        expected = geo.variables[path.rpartition("/")[2]]
        for member in fields(Variable):
            found = getattr(facts.variable, member.name)
            if found is not None and found not in ((), {}):
                assert found == getattr(expected, member.name), f"{member.name} of {path!r} is {found!r}"
