"""What is said of a node at a glance."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs
from zstore.geo.report.summary import MOST_PYRAMIDS, describe
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
    facts = dict(describe(inner).facts())
    assert facts["CRS"] == "EPSG:32632" and not [name for name in facts if name.startswith("pyramid")]


def test_no_more_pyramids_are_looked_at_than_are_shown() -> None:
    root = zstore.create_group(MemoryStore())
    for number in range(MOST_PYRAMIDS + 2):
        pyramid(root, f"p{number:02}")
    assert len(describe(root).below) == MOST_PYRAMIDS
