"""The kernels: which there are, how they are compiled, what they link."""

import os
import re
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

if sys.platform in ("win32", "cygwin"):
    raise SystemExit(
        f"zstore cannot be built for {sys.platform!r}: its kernels need POSIX (openat, flock, pthreads), "
        "expected Linux or macOS; on Windows it works in WSL, the Windows Subsystem for Linux"
    )

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

EXT = Path("src/zstore/_ext")
DEBUG = os.environ.get("ZSTORE_DEBUG_KERNELS") == "1"
# Rooms or kernels, such as "codecs,engine.select"; all where it is empty, and "none" for none.
ONLY = set(os.environ.get("ZSTORE_KERNELS", "").split(",")) - {""}

# Built as where O_TMPFILE, openat2 and the like are not known.
PORTABLE = os.environ.get("ZSTORE_PORTABLE_KERNELS") == "1"
IS_MAC = sys.platform == "darwin"

# The C codecs come from the static archive in the blosc2 wheel, or in the folder that ZSTORE_BLOSC2 names (as
# of another machine's wheel). Its symbols stay inside the extension, so that another zstd or lz4 in the same
# process is never mixed with ours.
BLOSC2 = os.environ.get("ZSTORE_BLOSC2") or os.path.dirname(find_spec("blosc2").origin)  # noqa: PTH120
CODEC_LIBRARIES = {
    "extra_objects": [f"{BLOSC2}/lib/libblosc2.a"],
    "extra_link_args": [
        "-Wl,-exported_symbol,_PyInit_native" if IS_MAC else f"-Wl,--version-script={EXT / 'module.map'}",
        "-pthread",
        "-lm",
    ],
}
# StringDType has no buffer that could be asked for; its C API came with numpy 2.
NUMPY_STRINGS = {
    "include_dirs": [numpy.get_include()],
    "define_macros": [
        ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
        ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
    ],
}
# C++ for its templates alone: nothing of its library is linked. They are a source of their own beside the
# kernel, which knows nothing of Python and is compiled once for all of them.
TEMPLATES = {
    "language": "c++",
    "extra_compile_args": ["-std=gnu++17", "-fno-exceptions", "-fno-rtti"],
    "extra_link_args": ["-pthread", "-lm", *([] if IS_MAC else ["-static-libgcc", "-Wl,--as-needed"])],
}
KERNELS = {
    "resample.blocks": TEMPLATES,  # first: it takes longest, the others meanwhile
    "codecs.native": CODEC_LIBRARIES,
    "codecs.vlen": NUMPY_STRINGS,
    "engine.files": {},
    "engine.gather": {},
    "engine.references": {},
    "engine.select": {},
    "engine.transfer": {"extra_link_args": ["-pthread"]},
    "reduce.fold": TEMPLATES,
    "requests.curl": {"extra_link_args": ["-pthread", *([] if IS_MAC else ["-ldl"])]},
    "resample.warp": {"extra_link_args": ["-pthread", "-lm"]},
}
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": not DEBUG,
    "initializedcheck": DEBUG,
    "embedsignature": False,
    # docs/design/0031-free-threads.md says what threads share.
    "freethreading_compatible": True,
}


# What a source names that is read with it: headers, parts in Cython, and declarations of other kernels.
NAMED = re.compile(r'^\s*(?:#?include|cdef extern from) "(.+)"|^from zstore\._ext\.(\S+) cimport', re.M)


def sources(path: Path, seen: dict[Path, None]) -> dict[Path, None]:
    """`path` and every file of ours that compiling it reads."""
    if path.is_file() and path not in seen:
        seen[path] = None
        for file, module in NAMED.findall(path.read_text()):
            named = Path(file) if file else Path(*module.split(".")).with_suffix(".pxd")
            for folder in (path.parent, EXT, EXT / "include"):
                sources(folder / named, seen)
        if path.suffix == ".pyx":
            sources(path.with_suffix(".pxd"), seen)
    return seen


def kernel(name: str, options: dict) -> Extension:
    source = EXT.joinpath(*name.split(".")).with_suffix(".pyx")
    compiled = [source, *([source.with_name("templates.cc")] if options.get("language") == "c++" else [])]
    optimise = ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
    flags = [*optimise, "-pthread", "-fvisibility=hidden", "-Wno-unused-function"]
    if PORTABLE:
        flags.append("-DZS_PORTABLE")
    return Extension(
        f"zstore._ext.{name}",
        [str(path) for path in compiled],
        depends=[__file__, *(str(path) for each in compiled for path in sources(each, {}))],
        include_dirs=[str(EXT), str(EXT / "include"), *options.pop("include_dirs", [])],
        extra_compile_args=[*flags, *options.pop("extra_compile_args", [])],
        **options,
    )


def is_wanted(name: str) -> bool:
    return not ONLY or bool(ONLY & {name, name.partition(".")[0]})


class Build(build_ext):
    """Builds the kernels; templates, which take longest, once for every Python that has the same compiler."""

    def build_extension(self, extension: Extension) -> None:
        templates = [source for source in extension.sources if source.endswith(".cc")]
        extension.sources = [source for source in extension.sources if source not in templates]
        extension.extra_objects += [self.compiled(source, extension) for source in templates]
        super().build_extension(extension)

    def compiled(self, source: str, extension: Extension) -> str:
        """The object of a source that knows nothing of Python, compiled unless there is one."""
        # What Pythons differ in: how they were optimised and warned of themselves.
        own = ("-O", "-W", "-g", "-fwrapv", "-fno-strict-overflow")
        words = [word for word in self.compiler.compiler_so_cxx if not word.startswith(own)]
        words += [
            "-fwrapv",
            *extension.extra_compile_args,
            *(f"-I{folder}" for folder in extension.include_dirs),
        ]
        kept = Path("build/templates", sha256(repr(words).encode()).hexdigest()[:16], source).with_suffix(
            ".o"
        )
        if self.force or newer_group([source, *extension.depends], str(kept)):
            kept.parent.mkdir(parents=True, exist_ok=True)
            self.spawn([*words, "-c", source, "-o", str(kept)])
        return str(kept)


# Processes that compile Cython code import this file, where Python starts them anew (3.14 does).
if __name__ == "__main__":
    setup(
        cmdclass={"build_ext": Build},
        ext_modules=cythonize(
            [kernel(name, dict(options)) for name, options in KERNELS.items() if is_wanted(name)],
            compiler_directives=DIRECTIVES,
            nthreads=os.cpu_count() or 1,
        ),
    )
