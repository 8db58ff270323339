"""The one kernel. zstore_codec.h is a copy of zstore's, so that this is built where zstore is not."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "zstore_snappy.native",
                ["src/zstore_snappy/native.pyx"],
                depends=["src/zstore_snappy/snappy.h", "src/zstore_snappy/zstore_codec.h"],
                include_dirs=["src/zstore_snappy"],
                extra_compile_args=["-O3", "-g0", "-std=gnu11", "-fvisibility=hidden"],
            )
        ],
        compiler_directives={"language_level": 3},
    )
)
