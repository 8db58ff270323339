"""The kernels: which there are, how they are compiled, what they link."""

import os
from pathlib import Path

import blosc2
import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

EXT = Path("src/zstore/_ext")
BLOSC2 = Path(blosc2.__file__).parent
DEBUG = os.environ.get("ZSTORE_DEBUG_KERNELS") == "1"
ONLY = set(os.environ.get("ZSTORE_KERNELS", "").split(",")) - {""}

# The C codecs come from the static archive in the blosc2 wheel. Its symbols stay inside the extension, so
# that another zstd or lz4 in the same process is never mixed with ours.
CODEC_LIBRARIES = {
    "include_dirs": [str(BLOSC2 / "include")],
    "extra_objects": [str(BLOSC2 / "lib" / "libblosc2.a")],
    "extra_link_args": ["-Wl,--exclude-libs,ALL", "-pthread", "-lm", "-ldl"],
}
# StringDType has no buffer that could be asked for; its C API came with numpy 2.
NUMPY_STRINGS = {
    "include_dirs": [numpy.get_include()],
    "define_macros": [
        ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
        ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
    ],
}
KERNELS = {
    "files": {},
    "native": CODEC_LIBRARIES,
    "order": {"extra_link_args": ["-pthread"]},
    "resample": {"extra_link_args": ["-pthread", "-lm"]},
    "select": {},
    "transfer": {"extra_link_args": ["-pthread"]},
    "vlen": NUMPY_STRINGS,
    "warp": {"extra_link_args": ["-pthread", "-lm"]},
}
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": not DEBUG,
    "initializedcheck": DEBUG,
    "embedsignature": False,
    "freethreading_compatible": True,
}


def kernel(name: str, options: dict) -> Extension:
    options = {"include_dirs": [], **options}
    options["include_dirs"] = [*options["include_dirs"], str(EXT), str(EXT / "include")]
    optimise = ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
    return Extension(
        f"zstore._ext.{name}",
        [str(EXT / f"{name}.pyx")],
        depends=[str(header) for header in EXT.glob("**/*.h")],
        extra_compile_args=[
            *optimise,
            "-std=gnu11",
            "-pthread",
            "-fvisibility=hidden",
            "-Wno-unused-function",
        ],
        **options,
    )


setup(
    ext_modules=cythonize(
        [kernel(name, options) for name, options in KERNELS.items() if not ONLY or name in ONLY],
        compiler_directives=DIRECTIVES,
    )
)
