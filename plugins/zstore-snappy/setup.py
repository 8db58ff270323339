"""The one kernel, compiled against the header that zstore brings along."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import zstore

setup(
    ext_modules=cythonize(
        [
            Extension(
                "zstore_snappy.native",
                ["src/zstore_snappy/native.pyx"],
                depends=["src/zstore_snappy/snappy.h"],
                include_dirs=[zstore.get_include(), "src/zstore_snappy"],
                extra_compile_args=["-O3", "-g0", "-std=gnu11", "-fvisibility=hidden"],
            )
        ],
        compiler_directives={"language_level": 3, "freethreading_compatible": True},
    )
)
