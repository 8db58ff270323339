"""Expressions of bands: numbers equal to numpy's, on the grid of the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, UnsupportedError

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
AFFINE = [10.0, 0.0, 600000.0, 0.0, -10.0, 5300000.0]


def test_bands_of_a_pyramid_are_those_of_its_finest_level(scene: zstore.Group, tmp_path: Path) -> None:
    made = zstore.build_pyramid(scene, tmp_path / "pyramid.zarr", levels=1)
    assert np.array_equal(
        zstore.calculate("b5 - b4", made).read(), zstore.calculate("b5 - b4", scene).read(), equal_nan=True
    )
    with pytest.raises(NotFoundError, match="expected one of b4, b5, qa"):
        zstore.calculate("b6", made)


@pytest.fixture
def scene(tmp_path: Path) -> zstore.Group:
    """Packed "b4" and "b5" with nodata 0, and "qa" of bits, on one grid."""
    group = zstore.create_group(tmp_path / "scene.zarr")
    random = np.random.default_rng(0)
    place: dict[str, Any] = {"proj:code": "EPSG:32632", "spatial:transform": AFFINE}
    place["spatial:dimensions"] = ["y", "x"]
    packed = {"scale_factor": 1e-4, "add_offset": -0.1, "_FillValue": 0, "units": "1"}
    for name in ("b4", "b5", "qa"):
        data = random.integers(0, 3000, (40, 50)).astype("u2")
        said = place if name == "qa" else {**place, **packed}
        group.create_array(name, data=data, chunks=(16, 16), attributes=said, dimension_names=("y", "x"))
    return group


def _numbers(group: zstore.Group) -> dict[str, Any]:
    made: dict[str, Any] = {"qa": group["qa"][:]}  # type: ignore[index]
    for name in ("b4", "b5"):
        stored = group[name][:].astype("f8")  # type: ignore[index]
        made[name] = np.where(stored == 0, np.nan, stored * 1e-4 - 0.1)
    return made


EXPRESSIONS = [
    ("(b5 - b4) / (b5 + b4)", lambda b4, b5, qa: (b5 - b4) / (b5 + b4)),
    ("where((stored(qa) & 3) == 0, b4, nan)", lambda b4, b5, qa: np.where(qa & 3 == 0, b4, np.nan)),
    (
        "uint8(0.05 < b4 <= 0.1 and not b5 > 0.1)",
        lambda b4, b5, qa: ((b4 > 0.05) & (b4 <= 0.1) & ~(b5 > 0.1)).astype("u1"),
    ),
    (
        "-max(b4, b5) ** 2 + hypot(b4, 3) // 0.5",
        lambda b4, b5, qa: -(np.maximum(b4, b5) ** 2) + np.hypot(b4, 3) // 0.5,
    ),
    ("isin(stored('qa'), [1, 2, 3])", lambda b4, b5, qa: np.isin(qa, [1, 2, 3])),
    ("clip(b4, 0, 2 ** -4) * pi", lambda b4, b5, qa: np.clip(b4, 0, 2**-4) * np.pi),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), EXPRESSIONS)
@pytest.mark.filterwarnings("ignore:invalid value|divide by zero")
def test_numbers_are_numpys(scene: zstore.Group, text: str, expected: Any) -> None:
    made = zstore.calculate(text, scene)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(made.read(), expected(**_numbers(scene)), rtol=1e-12)
    assert tuple(zstore.GeoGrid.of(made).affine) == tuple(AFFINE)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("b4 +", UnsupportedError, "is no expression"),
        ("b4.mean()", UnsupportedError, "is nothing to compute"),
        ("__import__('os')", UnsupportedError, "is no function"),
        ("open(b4)", UnsupportedError, "'open' is no function"),
        ("matmul(b4, b5)", UnsupportedError, "'matmul' is no function"),
        ("[b4 for b4 in b5]", UnsupportedError, "is nothing to compute"),
        ("b4 if b5 else qa", UnsupportedError, "is nothing to compute"),
        ("b9 * 2", NotFoundError, "no source is named 'b9'; expected one of b4, b5, qa"),
        ("1 + 2", UnsupportedError, "names no source"),
        ("hypot(b4)", UnsupportedError, "hypot has 1 arguments; expected 2"),
        ("1 / 0 * b4", UnsupportedError, "cannot be computed|divide by zero"),
        ("b4 + 9 ** 9 ** 9", UnsupportedError, "cannot be computed|overflow"),
        ("-" * 200 + "b4", UnsupportedError, "nested more than"),
        ("b4" + " + 1" * 2000, UnsupportedError, "expected 4096 at most"),
        ("b4 @ b5", UnsupportedError, "the operator MatMult"),
        ("stored(3) + b4", UnsupportedError, "'3' is no name of a source"),
        ("b4 & 3", UnsupportedError, "cannot be computed"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_expression_is_refused(scene: zstore.Group, text: str, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        zstore.calculate(text, scene)


def test_sources_lie_on_one_grid(scene: zstore.Group, tmp_path: Path) -> None:
    attributes = {**scene["b4"].attrs, "spatial:transform": [10.0, 0.0, 600005.0, 0.0, -10.0, 5300000.0]}
    other = zstore.create_array(
        tmp_path / "o", data=scene["b4"][:], attributes=attributes, dimension_names=("y", "x")  # type: ignore[index]
    )  # fmt: skip
    with pytest.raises(MetadataError, match=r"different grids \('a' EPSG:32632, .*600000.*'b' .*600005"):
        zstore.calculate("a + b", {"a": scene["b4"], "b": other})


def test_the_command_stores_what_the_function_shows(
    scene: zstore.Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("click", reason="the command line needs click (extra 'cli')")
    from click.testing import CliRunner

    from zstore.cli.root import zstore as command

    def run(*words: str) -> Any:
        return CliRunner().invoke(command, ["calc", "(b5 - b4) / (b5 + b4)", *words], catch_exceptions=False)

    monkeypatch.chdir(tmp_path)
    expected = zstore.calculate("(b5 - b4) / (b5 + b4)", scene, dtype="f4")
    with np.errstate(all="ignore"):
        numbers = expected.read()
    assert expected.dtype == "f4"
    for target, words in (
        ("one.zarr", ["scene.zarr", "--above"]),
        ("two.zarr", ["b4=scene.zarr/b4", "b5=scene.zarr/b5"]),
    ):
        result = run(*words, target, "--dtype", "float32", "--codec", "zstd:1", "-q")
        assert result.exit_code == 0 and f"{target}/data (40, 50) float32" in result.output, result.output
        made: Any = zstore.open_group(target)
        np.testing.assert_array_equal(made["data"][...], numbers)
        assert tuple(zstore.GeoGrid.of(made).affine) == tuple(AFFINE)
    assert run("b4=scene.zarr/b4", "scene.zarr", "t.zarr").exit_code == 2
    assert run("b4=scene.zarr/b4", "t.zarr", "-q").exit_code == 1
