"""Builds the compiled core. It is optional: without a compiler the package installs and runs on the reference."""

import os
from glob import glob

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    if os.environ.get("OTTLA_PURE_PYTHON"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    # The address sanitizer build of tests/fuzz/asan.sh comes in through these two.
    compile_args = ["-O3", *os.environ.get("OTTLA_CFLAGS", "").split()]
    link_args = os.environ.get("OTTLA_LDFLAGS", "").split()
    native = Extension(
        "ottla.records._native",
        ["src/ottla/records/_native.pyx"],
        depends=[*glob("src/ottla/records/_*.h"), *glob("src/ottla/records/_*.pxi")],
        include_dirs=["src/ottla/records"],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    hot_paths = [
        Extension(name, [source], extra_compile_args=compile_args, extra_link_args=link_args)
        for name, source in (
            ("ottla.net._shortcut", "src/ottla/net/_shortcut.pyx"),
            ("ottla.broker._repeat", "src/ottla/broker/_repeat.pyx"),
        )
    ]
    extended: list[Extension] = cythonize([native, *hot_paths], language_level=3)
    for extension in extended:
        extension.optional = True  # set here: cythonize makes new extensions and forgets it
    return extended


setup(ext_modules=extensions())
