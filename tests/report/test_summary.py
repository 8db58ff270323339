"""What is said of a node at a glance."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs
from zstore.geo.report.summary import MOST_PYRAMIDS, describe
from zstore.model.document import plain
from zstore.storage.memory import MemoryStore

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")


def pyramid(root: zstore.Group, path: str) -> None:
    layout = [{"asset": "0"}, {"asset": "1", "derived_from": "0", "transform": {"scale": [2.0, 2.0]}}]
    crs = Crs.from_user("EPSG:32632").wkt
    group = root.create_group(path, attributes={"multiscales": {"layout": layout}, "proj:wkt2": crs})
    affine = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
    for level, size in (("0", 8), ("1", 4)):
        attributes = {
            "spatial:transform": list(affine.scaled((8 / size, 8 / size))),
            "spatial:dimensions": ["y", "x"],
        }
        group.create_array(
            f"{level}/b", data=np.zeros((size, size)), dimension_names=("y", "x"), attributes=attributes
        )


def test_a_product_names_the_pyramids_below_it() -> None:
    root = zstore.create_group(MemoryStore())
    pyramid(root, "measurements/r10m")
    root.create_group("quality", attributes={"multiscales": "none that can be read"})
    facts = dict(describe(root).facts())
    assert facts["pyramid measurements/r10m"] == "EPSG:32632, 8 rows × 8 columns, 2 levels"
    assert not [name for name in facts if "quality" in name] and "CRS" not in facts
    inner = root["measurements/r10m"]
    assert "\nCRS        EPSG:32632\n" in str(describe(inner))
    facts = dict(describe(inner).facts())
    assert facts["CRS"] == "EPSG:32632" and not [name for name in facts if name.startswith("pyramid")]


def test_no_more_pyramids_are_looked_at_than_are_shown() -> None:
    root = zstore.create_group(MemoryStore())
    for number in range(MOST_PYRAMIDS + 2):
        pyramid(root, f"p{number:02}")
    assert len(describe(root).below) == MOST_PYRAMIDS


def two_grids() -> zstore.Group:
    """Air on fine cells, soil on coarse ones, under a CRS that parameters alone state."""
    group = zstore.create_group(MemoryStore())
    parameters = {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [25.0, 25.0]}
    parameters |= {"longitude_of_central_meridian": 265.0, "earth_radius": 6371229.0}
    group.create_array("crs", data=np.int32(0), dimension_names=(), attributes=parameters)
    for name, dims, cell in (("air", ("y", "x"), 10.0), ("soil", ("y2", "x2"), 20.0)):
        for dim, axis, way in zip(dims, "YX", (-1, 1), strict=True):
            length, said = round(80 / cell), {"axis": axis, "units": "m"}
            said |= {"standard_name": f"projection_{axis.lower()}_coordinate"}
            centres = way * (np.arange(length) * cell + cell / 2)
            group.create_array(dim, data=centres, dimension_names=(dim,), attributes=said)
        fills = {"_FillValue": -1.0, "missing_value": [1e20, -1.0]}
        data = np.ones((round(80 / cell),) * 2, "f4")
        attributes = {"grid_mapping": "crs", **fills}
        group.create_array(name, data=data, dimension_names=dims, attributes=attributes)
    return group


def test_json_has_numbers_and_every_grid() -> None:
    found = plain(describe(two_grids()).as_json())
    assert found["grid"]["affine"] == [10.0, 0.0, 0.0, 0.0, -10.0, 0.0]
    assert found["grid"]["bbox"] == [0.0, -80.0, 80.0, 0.0] and found["grid"]["arrays"] == ["air"]
    assert [(grid["arrays"], grid["cell_size"]) for grid in found["grids"]] == [
        (["air"], [10.0, 10.0]), (["soil"], [20.0, 20.0])
    ]  # fmt: skip
    assert (
        found["crs"]["code"] is None and Crs.from_user(found["crs"]["projjson"]).wkt == found["crs"]["wkt2"]
    )
    assert found["facts"]["CRS"] == "unnamed lambert_conformal_conic, ellipsoid of 6371229 m"
    assert found["facts"]["grid of soil"].startswith("4 rows × 4 columns (y2, x2), unnamed lambert")
    assert found["sources"] == {"crs": "crs.grid_mapping_name at /crs", "affine": "coordinates at /"}
    assert found["arrays"]["air"]["nodata_values"] == [-1.0, float(np.float32(1e20))]


def test_json_is_as_its_schema_says() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the schema is checked with jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "info.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    grids = two_grids()
    product = zstore.create_group(MemoryStore())
    pyramid(product, "made")
    made = product["made"]
    table = zstore.create_group(MemoryStore(), zarr_format=2)
    table.create_array("a", data=np.array([np.nan]), fill_value=np.nan)
    for node in (grids, grids["air"], grids["x"], made, made["0"], table, table["a"]):
        document = json.loads(json.dumps(plain(describe(node).as_json(with_sizes=True)), allow_nan=False))
        jsonschema.validate(document, schema)
        assert document["grid"] is not None or document["crs"] is None
    assert [level["path"] for level in plain(describe(made).as_json())["levels"]] == ["0", "1"]
    assert describe(made).geo.sources["levels"] == "zarr_conventions at /made"
