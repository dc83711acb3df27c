"""Builds the compiled core. It is optional: without a compiler the package installs and runs on the reference.

A core that is not built is said here in capital letters, which `pip install --verbose` shows, and by whatever runs
without it (`ottla.compiled`). In the environment: `OTTLA_PURE_PYTHON=1` does not build it, `OTTLA_REQUIRE_COMPILED=1`
lets the installation fail where it cannot be built.

A wheel has what users need: no sources in C or Cython, and nothing of `ottla.testing` that only our own tests use.
"""

import os
import sys
from contextlib import suppress
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# What the guides of docs/guide show of `ottla.testing`, and what that imports; tests/packaging checks both. The rest
# is for tests of Ottla itself, which run in a checkout.
TESTING_FOR_USERS = frozenset(
    (
        *("__init__", "broker", "inline", "ports", "pytest_plugin", "security", "waiting"),
        *("raw_client", "raw_groups", "raw_requests", "raw_transactions", "wire_client"),
        *("disk", "loop", "network", "simulated_connector", "simulated_ensemble", "world"),
        *("history", "history_check", "schema_registry", "spark", "spark_cluster"),
    )
)
IS_PURE = bool(os.environ.get("OTTLA_PURE_PYTHON"))
IS_REQUIRED = bool(os.environ.get("OTTLA_REQUIRE_COMPILED"))


def not_built(what: str, error: Exception) -> None:
    """Goes on without it, but not quietly."""
    if IS_REQUIRED:
        raise error
    line = "*" * 100
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    print(
        f"{line}\nTHE COMPILED CORE OF OTTLA WAS NOT BUILT ({what}: {error}).\n"
        f"Ottla works without it, several times slower. It takes a C compiler and the headers of {python}.\n{line}",
        file=sys.stderr,
    )


class BuildCore(build_ext):
    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            not_built(ext.name, error)
            # What a former build left would be of other sources, and be installed.
            with suppress(FileNotFoundError):
                os.remove(self.get_ext_fullpath(ext.name))


class BuildForUsers(build_py):
    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in modules if package != "ottla.testing" or module[1] in TESTING_FOR_USERS]


def extensions() -> list[Extension]:
    if IS_PURE:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError as error:
        not_built("Cython", error)
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
        extension.optional = not IS_REQUIRED  # set here: cythonize makes new extensions and forgets it
    return extended


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCore, "build_py": BuildForUsers})
