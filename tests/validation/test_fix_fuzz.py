"""Fixing damaged documents: never worse, no chunk touched, and all taken back byte for byte."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zstore.engine.documents import METADATA_NAMES
from zstore.errors import NotFoundError
from zstore.geo.conventions.write import RULED
from zstore.geo.validation.fixing.fix import FixPlan, plan_fix, restore_backup, write_plan
from zstore.geo.validation.view import ArrayView, GroupView, load_hierarchy
from zstore.storage.memory import MemoryStore

from . import cases
from .stores import DEGREES, model, right

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")

MAKERS: tuple[Callable[[], MemoryStore], ...] = (
    right,
    lambda: right(2),
    lambda: right(3, model("EPSG:4326", DEGREES)),
    lambda: right(2, model("EPSG:4326", DEGREES, dtype="float32")),
    lambda: right(3, model(levels=0), profile="gdal"),
    lambda: right(3, model(None, DEGREES, levels=0)),
    lambda: right(3, profile="ome"),
    cases.listed,
    cases.consolidated,
    cases.by_tiles,
    cases.without_transforms,
)
JUNK: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2.5, 1e300, float("nan"), float("inf"), 10**30, "", "x", "/", "a/../b", "é\u2028",
    "NaN", "EPSG:4326", "EPSG:0", "1 2 3 4 5 6", [], [1], [None], {}, {"a": 1}, [[1, 2], [3]], ["x", "y"],
    [0] * 6,
)  # fmt: skip


def contents(store: Any) -> dict[str, bytes]:
    return {key: bytes(store.get(key)) for key in store.list()}


def places_in(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value in a document is, as what leads there."""
    if above:
        yield above
    if not isinstance(document, dict | list):
        return
    for name, value in document.items() if isinstance(document, dict) else enumerate(document):
        yield from places_in(value, (*above, name))


def value_at(document: Any, place: tuple[Any, ...]) -> Any:
    for name in place:
        document = document[name]
    return document


def damage(store: MemoryStore, data: st.DataObject) -> None:
    """Delete or cut a document, or drop, replace, scale or copy a value in it."""
    key = data.draw(
        st.sampled_from(sorted(k for k in store.list() if k.rpartition("/")[2] in METADATA_NAMES))
    )
    raw = bytes(store.get(key) or b"")
    kind = data.draw(st.sampled_from(("junk", "drop", "scale", "copy", "junk", "drop", "cut", "delete")))
    if kind == "delete":
        return store.delete(key)
    if kind == "cut":
        return store.put(key, raw[: data.draw(st.integers(0, len(raw)))])
    try:
        document = json.loads(raw)
    except ValueError:
        return None
    places = list(places_in(document))
    if not places:
        return None
    place = data.draw(st.sampled_from(places))
    place = place[: data.draw(st.integers(1, len(place)))]
    holder, name = value_at(document, place[:-1]), place[-1]
    if kind == "drop":
        del holder[name]
    elif kind == "scale" and isinstance(holder[name], int | float):
        holder[name] *= data.draw(st.sampled_from((-1, 0, 2, 0.5, 1.0001, 1 + 1e-9)))
    elif kind == "copy":
        holder[name] = json.loads(json.dumps(value_at(document, data.draw(st.sampled_from(places)))))
    else:
        holder[name] = data.draw(st.sampled_from(JUNK))
    return store.put(key, json.dumps(document).encode())


def errors(plan: FixPlan, when: str) -> set[tuple[str, str]]:
    verdict = plan.before if when == "before" else plan.after
    return {(finding.rule, finding.path) for finding in verdict.findings if finding.severity == "error"}


def check(data: st.DataObject) -> None:
    store = data.draw(st.sampled_from(MAKERS))()
    for _ in range(data.draw(st.integers(1, 3))):
        damage(store, data)
    options: dict[str, Any] = {
        "profile": data.draw(st.sampled_from((None, None, None, *RULED))),
        "crs": data.draw(st.sampled_from((None, None, None, "EPSG:32632"))),
        "method": data.draw(st.sampled_from((None, "average"))),
        "fill_value": data.draw(st.sampled_from((None, 0))),
    }
    before = contents(store)
    try:
        nodes = load_hierarchy(store).nodes
    except NotFoundError:
        return
    plan = plan_fix(store, **options)
    assert contents(store) == before
    read = {node.path for node in nodes if isinstance(node, ArrayView | GroupView)}
    # What could not be read before may show what is wrong in it.
    assert {found for found in errors(plan, "after") - errors(plan, "before") if found[1] in read} == set()
    list(plan.diff())
    coordinates = {"x", "y", "spatial_ref"}
    for key in plan.changes:
        parts = set(key.split("/"))
        assert parts & set(METADATA_NAMES) or parts & coordinates, key
    if not plan.changes:
        return
    with tempfile.TemporaryDirectory() as folder:
        write_plan(plan, store, Path(folder) / "backup")
        assert plan_fix(store, **options).changes == {}
        assert restore_backup(store, Path(folder) / "backup") == len(plan.changes)
    assert contents(store) == before


QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


@settings(max_examples=25, suppress_health_check=QUIET)
@given(st.data())
def test_fixing_never_leaves_a_store_worse(data: st.DataObject) -> None:
    check(data)


@pytest.mark.slow
@settings(max_examples=3000, suppress_health_check=QUIET)
@given(st.data())
def test_fixing_never_leaves_a_store_worse_however_long_one_looks(data: st.DataObject) -> None:
    check(data)
