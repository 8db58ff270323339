"""Stores for the tests: a right pyramid, and ways to spoil it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

import zstore
from zstore.geo.conventions.base import Affine, GeoModel, Level, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.geo.validation.fixing.documents import Draft
from zstore.geo.validation.fixing.fix import FixPlan
from zstore.geo.validation.fixing.georeference import affine_of, crs_of
from zstore.geo.validation.view import ArrayView, GroupView, load_hierarchy
from zstore.storage.base import Store, join_key
from zstore.storage.memory import MemoryStore

SHAPE = (128, 96)
TILE = 32
UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
DEGREES = Affine(0.5, 0.0, -20.0, 0.0, -0.5, 64.0)
NAMES = {"b02": "surface_bidirectional_reflectance", "t2m": "air_temperature"}


def values_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(7)
    return rng.integers(1, 2000, shape).astype(dtype)


def variables(dtype: str = "uint16", **more: Any) -> dict[str, Variable]:
    packing = {"scale_factor": 0.0001, "add_offset": 0.0} if dtype[0] in "iu" else {}
    nodata = 0 if dtype[0] in "iu" else -9999.0
    options = {"standard_name": NAMES["b02"], "units": "1", "long_name": "B02", "nodata": nodata} | packing
    return {"b02": Variable(dtype=np.dtype(dtype), **{**options, **more})}


def write(
    store: Store,
    geo: GeoModel,
    zarr_format: int,
    base: dict[str, np.ndarray],
    path: str = "",
    **options: Any,
) -> None:
    """The whole of `geo`, its coarser levels averaged, below `path`."""
    documents, _ = render_geo(geo, zarr_format, **options)
    levels = {level.path: level for level in geo.grids}
    for name, document in sorted(documents.items(), key=lambda item: item[0].count("/")):
        where = join_key(path, name)
        if document.get("kind", "array") == "group":
            zstore.create_group(store, where, zarr_format=zarr_format, attributes=document["attributes"])
            continue
        above, _, own = name.rpartition("/")
        data = document.get("data")
        chunks: Any = -1
        if data is None:
            level = levels[above]
            factors = tuple(int(f) for f in level.factors)
            steps = (1,) * (base[own].ndim - 2) + factors
            data = base[own]
            if factors != (1, 1):
                data = zstore.downsample(data, steps, "average", nodata=geo.variables[own].nodata)
            chunks = (*data.shape[:-2], *(level.tile_shape or (TILE, TILE)))
        zstore.create_array(
            store, where, data=data, chunks=chunks, fill_value=document.get("fill_value"), order="C",
            zarr_format=zarr_format, attributes=document["attributes"],
            dimension_names=document.get("dimension_names"),
        )  # fmt: skip


def model(
    crs: str | None = "EPSG:32632", affine: Affine | None = UTM, levels: int = 2, dtype: str = "uint16"
) -> GeoModel:
    """A model of SHAPE, with so many levels; 0 is a plain raster."""
    geo = GeoModel(None if crs is None else Crs.from_user(crs), affine, SHAPE, variables=variables(dtype))
    if not levels:
        return geo
    made = tuple(geo.plan_level(str(n), (2**n, 2**n), (TILE, TILE)) for n in range(levels))
    return GeoModel(geo.crs, affine, SHAPE, levels=made, resampling="average", variables=geo.variables)


_made: dict[str, dict[str, bytes]] = {}


def right(zarr_format: int = 3, geo: GeoModel | None = None, **options: Any) -> MemoryStore:
    """A store with nothing wrong in it."""
    geo = geo or model()
    name = repr((zarr_format, geo, options))
    if name not in _made:
        made = _right(zarr_format, geo, **options)
        _made[name] = {key: bytes(made.get(key) or b"") for key in made.list()}
    store = MemoryStore()
    for key, value in _made[name].items():
        store.put(key, value)
    return store


def _right(zarr_format: int, geo: GeoModel, **options: Any) -> MemoryStore:
    store = MemoryStore()
    base = {name: values_of(str(v.dtype), geo.shape) for name, v in geo.variables.items()}
    write(store, geo, zarr_format, base, **options)
    return store


class Documents:
    """The documents of a store, to be changed."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def key(self, path: str, kind: str = "attributes") -> str:
        if self.store.get(join_key(path, "zarr.json")) is not None:
            return join_key(path, "zarr.json")
        if kind == "attributes":
            return join_key(path, ".zattrs")
        return next(
            key for name in (".zarray", ".zgroup") if self.store.get(key := join_key(path, name)) is not None
        )

    def edit(self, path: str, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change the node's main document."""
        self._edit(self.key(path, "node"), change)

    def attributes(self, path: str, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change the node's attributes."""
        key = self.key(path)
        if key.endswith(".zattrs"):
            self._edit(key, change)
        else:
            self._edit(key, lambda document: change(document.setdefault("attributes", {})))

    def set(self, path: str, **attributes: Any) -> None:
        """Set attributes; None removes one. "__" in a name stands for ":"."""

        def change(found: dict[str, Any]) -> None:
            for name, value in attributes.items():
                if value is None:
                    found.pop(name.replace("__", ":"), None)
                else:
                    found[name.replace("__", ":")] = value

        self.attributes(path, change)

    def multiscales(self, change: Callable[[dict[str, Any]], Any], path: str = "") -> None:
        """Change the `multiscales` object."""
        self.attributes(path, lambda found: change(found["multiscales"]))

    def matrix(self, name: str, **members: Any) -> None:
        """Change a tile matrix."""

        def change(multiscales: dict[str, Any]) -> None:
            for matrix in multiscales["tile_matrix_set"]["tileMatrices"]:
                if matrix["id"] == name:
                    matrix.update(members)

        self.multiscales(change)

    def raw(self, path: str, data: bytes) -> None:
        """Replace the document that holds the attributes."""
        self.store.put(self.key(path), data)

    def remove(self, path: str) -> None:
        """Remove a node and what is below it."""
        self.store.delete_prefix(path)

    def _edit(self, key: str, change: Callable[[dict[str, Any]], Any]) -> None:
        data = self.store.get(key)
        document = {} if data is None else json.loads(bytes(data))
        change(document)
        self.store.put(key, json.dumps(document).encode())


__all__ = ["DEGREES", "SHAPE", "TILE", "UTM", "Documents", "Level", "model", "right", "values_of", "write"]


def check_meaning(plan: FixPlan, crs: str | None = None) -> None:
    """What is read after a fix is what was chosen before, and nothing is wrong that was not."""
    chosen = None if crs is None else Crs.from_user(crs)
    before = Draft(load_hierarchy(getattr(plan.store, "base", plan.store)), plan.store, crs=chosen)
    after = load_hierarchy(plan.store)
    for path, grid in before.hierarchy.grids.items():
        if after.grids[path].shape != grid.shape:
            # Its dimensions were named wrongly, so that the affine was chosen for another shape.
            continue
        found, affine = crs_of(before, grid), affine_of(before, grid)
        geo = after.meaning.read(after.grids[path].node).geo
        assert geo is not None
        assert found is None or (geo.crs is not None and geo.crs.is_same(found)), (path, geo.crs, found)
        if affine is not None:
            np.testing.assert_allclose(geo.affine, affine, rtol=1e-9, atol=1e-6, err_msg=path)
    # An array that could not be read before may show mistakes of its own.
    read = {node.path for node in before.hierarchy.nodes if isinstance(node, ArrayView | GroupView)}
    known = {(f.rule, f.path) for f in plan.before.findings}
    new = {(f.rule, f.path) for f in plan.after.findings if f.severity != "note" and f.path in read}
    assert new <= known
