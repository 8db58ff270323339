"""What is released: a wheel for each machine, small, with the licences of what is inside, at work alone."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from wheels import TARGETS

import zstore

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RECIPE = (ROOT / "recipe" / "recipe.yaml").read_text()
WHEELS = sorted(Path(os.environ.get("ZSTORE_WHEELS", ROOT / "dist")).resolve().glob("*.whl"))
# By what is linked into the kernels: words of its licence.
LICENSES = {
    "colour-maps": "Copyright (c) 2015 Kristen M. Thyng",
    "bitshuffle": "Kiyoshi Masui",
    "c-blosc2": "Blosc Development Team",
    "fastlz": "Ariya Hidayat",
    "lz4": "LZ4 Library",
    "xxhash": "xxHash Library",
    "zig-compiler-rt": "Zig contributors",
    "zlib-ng": "Jean-loup Gailly",
    "zstd": "For Zstandard software",
}
KERNELS = {path.relative_to(ROOT / "src").with_suffix("") for path in ROOT.glob("src/zstore/_ext/*/*.pyx")}
SIZE = 5_000_000
# What this Python finds beside its own packages is none of the environments'.
ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_the_version_stands_in_one_place():
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "zstore.__version__"}
    # A recipe names the release that it was made for.
    assert f'version: "{zstore.__version__}"' in RECIPE


def floors_of(words: list[str]) -> dict[str, str]:
    """The lowest version of each package, with the one that is left out."""
    found = [re.match(r"([\w-]+)(?:\[\w+\])?(?:>=([\d.]+))?(?:,!=(.+))?$", word).groups() for word in words]
    return {name: floor + (f", not {out}" if out else "") for name, floor, out in found if name != "zstore"}


def test_the_page_of_stability_has_every_floor_and_python():
    page = (ROOT / "docs" / "stability.md").read_text()
    told = dict[str, str]()
    for names, versions in re.findall(r"^\| (`[^|]+) \| (\d[^|]*) \|", page, re.M):
        listed = re.findall(
            "`([\\w-]+)`(?! is| \\()|`([\\w-]+)` \\(", names.replace("(`", "(").replace("`)", ")")
        )
        packages = [one or other for one, other in listed]
        floors = [versions] if len(packages) == 1 else versions.split(", ")
        told |= dict(zip(packages, floors, strict=True))
    project = PROJECT["project"]
    used = (
        "geo",
        "raster",
        "cli",
        "zarr",
        "http",
        "cloud",
        "xarray",
        "dask",
        "netcdf",
        "ml-dtypes",
        "msgpack",
    )
    extras = (*used, "telemetry", "time", "blosc2", "pcodec", "zfpy")
    asked = [word for extra in extras for word in project["optional-dependencies"][extra]]
    assert told == floors_of([*project["dependencies"], *asked])
    pythons = {line.rpartition(" ")[2] for line in project["classifiers"] if " :: Python :: 3." in line}
    rows = [line.split(" | ") for line in page.splitlines() if line.count(" | ") == 3]
    assert pythons == {
        one for row in rows if not row[3].startswith("never") for one in re.findall(r"3\.\d+", row[1])
    }


def test_the_recipe_asks_for_what_the_project_asks_for():
    def asked(words: list[str]) -> set[str]:
        return {word.replace(" ", "") for word in words if not word.startswith("zstore[")}

    listed = {
        part: set(re.findall(r"^ +- ([\w-]+(?: *[<>=!][^\n]*)?)$", text, re.M))
        for part, text in re.findall(r"^  (build|host|run):\n((?:    .*\n)+)", RECIPE, re.M)
    }
    extras = PROJECT["project"]["optional-dependencies"]
    # conda has no extras: the command comes along.
    run = asked([*PROJECT["project"]["dependencies"], *extras["cli"], *extras["geo"]])
    assert asked([*listed["run"]]) == run | {"python"}
    # The library of the codecs is a source of its own.
    build = asked(PROJECT["build-system"]["requires"]) - {"blosc2>=3.3"}
    assert asked([*listed["host"]]) == build | {"python", "pip"}
    assert asked([*listed["build"]]) <= build | {"python"}
    [command] = PROJECT["project"]["scripts"].items()
    assert f"- {command[0]} = {command[1]}" in RECIPE
    assert f"license: {PROJECT['project']['license']}" in RECIPE


def test_what_is_compiled_once_for_every_python_includes_nothing_of_python():
    rooms = [path.parent for path in ROOT.glob("src/zstore/_ext/*/templates.cc")]
    assert [room.name for room in sorted(rooms)] == ["reduce", "resample"]
    for header in [path for room in [rooms[0].parent, *rooms] for path in room.glob("*.h")]:
        assert not re.search(r"Python\.h|\bPy[A-Z_]", header.read_text()), header.name


def test_kernels_say_that_they_need_no_lock_as_the_package_does():
    assert '"freethreading_compatible": True' in (ROOT / "setup.py").read_text()
    assert "Programming Language :: Python :: Free Threading :: 2 - Beta" in PROJECT["project"]["classifiers"]


@pytest.mark.parametrize("system", ["win32", "cygwin"])
def test_windows_is_refused_before_anything_is_built(system):
    program = f"import sys; sys.platform = {system!r}; exec(open('setup.py').read())"
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"zstore cannot be built for {system!r}: its kernels need POSIX")
    assert "expected Linux or macOS" in line
    assert "WSL" in line


def test_what_is_linked_has_its_licence():
    found = {path.stem: path.read_text() for path in (ROOT / "licenses").iterdir()}
    assert found.keys() == LICENSES.keys()
    for name, words in LICENSES.items():
        assert words in found[name], name


def test_every_kind_of_wheel_runs_in_a_fresh_system_before_it_is_released():
    """On each machine, with each C library: the oldest and the newest Python that there are wheels for."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = dict(re.findall(r"^  (\w+):\n((?:    .*\n|\n)+)", text[text.index("\njobs:") :], re.M))
    systems, images = (re.search(rf"{name}: \[(.+)\]", jobs["installed"])[1] for name in ("os", "image"))
    machines = {"aarch64" if name.endswith("-arm") else "x86_64" for name in systems.split(", ")}
    libraries = {"slim": "manylinux", "alpine": "musllinux"}
    found = set(re.findall(r'"python:(3\.\d+)-(\w+)"', images))
    kinds = {f"{libraries[kind]} {machine}" for _, kind in found for machine in machines}
    assert kinds == {re.sub(r"_\d+_\d+_", " ", target.tag) for target in TARGETS}
    pythons = re.findall(r"^ +(3\.\d+)$", jobs["wheels"], re.M)
    assert found == {(version, kind) for version in (pythons[0], pythons[-1]) for kind in libraries}
    assert "needs: [wheels, installed, source]" in jobs["pypi"]


@pytest.mark.install
def test_there_are_wheels_to_look_at():
    assert WHEELS, "`make wheels` builds them, ZSTORE_WHEELS names their folder"


@pytest.mark.install
@pytest.mark.parametrize("wheel", WHEELS, ids=lambda path: path.stem)
def test_what_a_wheel_holds(wheel):
    assert wheel.stat().st_size < SIZE
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = f"zstore-{zstore.__version__}.dist-info"
        metadata = archive.read(f"{about}/METADATA").decode()
        licenses = {Path(name).stem: archive.read(name).decode() for name in names if "/licenses/" in name}
    assert f"\nVersion: {zstore.__version__}\n" in metadata
    assert licenses.pop("LICENSE") == (ROOT / "LICENSE").read_text()
    assert licenses.keys() == LICENSES.keys()
    assert all(words in licenses[name] for name, words in LICENSES.items())
    inside = {Path(name).suffix for name in names if not name.startswith(about)}
    assert not inside & {".c", ".cc", ".cpp", ".pyx", ".pxd", ".a", ".map", ".pyc"}
    [tag] = re.findall(r"-(cp\d+-cp\d+)-", wheel.name)
    ending = f".cpython-{tag.partition('-')[0][2:]}-"
    kernels = {Path(name.partition(ending)[0]) for name in names if name.endswith(".so")}
    assert kernels == KERNELS
    assert [name for name in names if name.endswith(".h")] == ["zstore/_ext/include/zstore_codec.h"]


def kind(wheel: Path) -> str:
    """For which Pythons a wheel is, such as "cp313-manylinux_2_28_aarch64"."""
    [(number, tag)] = re.findall(r"-(cp\d+)-cp\d+-(.+)$", wheel.stem)
    return f"{number}-{tag}"


def own_pythons() -> dict[str, str]:
    """The Pythons of this machine, by kind."""
    if platform.libc_ver()[0] != "glibc":
        return {}
    lines = subprocess.run([ROOT / "tools" / "pythons"], capture_output=True, text=True, check=True).stdout
    tag = f"manylinux_2_28_{platform.machine()}"
    found = dict(map(str.split, lines.splitlines()))
    return {f"cp{version.replace('.', '')}-{tag}": python for version, python in found.items()}


OWN = own_pythons() if WHEELS else {}
# Others that can be started here, each with its kind before it and a ";" between two:
# "cp313-manylinux_2_28_aarch64=qemu-aarch64-static -L /arm /arm/usr/bin/python3.13".
NAMED = [one.partition("=") for one in os.environ.get("ZSTORE_OTHER_PYTHONS", "").split(";")]
OTHERS = {of: shlex.split(words) for of, _, words in NAMED if of}


def install(wheel: Path, place: Path) -> tuple[list[str], dict[str, str]]:
    """Install a wheel and what it asks for; the words that start a Python with it, and variables to set."""
    pip = [sys.executable, "-m", "pip"]
    options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    if kind(wheel) in OWN:
        python = OWN[kind(wheel)]
        if python == sys.executable:
            venv.create(place)
        else:
            subprocess.run([python, "-m", "venv", place], check=True)
        inside = str(place / "bin" / "python")
        subprocess.run(
            [*pip, "--python", inside, "install", *options, f"{wheel}[cli]"], env=ALONE, check=True
        )
        return [inside], {}
    # pip itself may not run there.
    parts = re.fullmatch(r"cp(\d+)-(\w+linux)_(\d+)_(\d+)_(\w+)", kind(wheel))
    number, library, major, minor, machine = parts.groups()
    platforms = [f"{library}_{major}_{older}_{machine}" for older in range(int(minor), -1, -1)]
    platforms += [f"manylinux2014_{machine}"] * (library == "manylinux")
    options += ["--target", str(place), "--implementation", "cp", "--python-version", number]
    options += [word for one in platforms for word in ("--platform", one)]
    subprocess.run([*pip, "install", *options, f"{wheel}[cli]"], env=ALONE, check=True)
    return [*OTHERS[kind(wheel)], "-S"], {"PYTHONPATH": str(place)}


@pytest.mark.install
@pytest.mark.parametrize(
    "wheel", [wheel for wheel in WHEELS if kind(wheel) in {*OWN, *OTHERS}], ids=lambda path: path.stem
)
def test_a_wheel_works_where_there_is_nothing_else(wheel, tmp_path):
    python, variables = install(wheel, tmp_path / "environment")
    text = (ROOT / "docs" / "quickstart.md").read_text()
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    commands = [line.split()[1:] for line in re.findall(r"^\$ (zstore .*)$", text, re.MULTILINE)]
    assert ["doctor"] in commands
    for words in (["-c", program], *(["-m", "zstore", *command] for command in commands)):
        done = subprocess.run(
            [*python, *words], cwd=tmp_path, env=ALONE | variables, capture_output=True, text=True
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
