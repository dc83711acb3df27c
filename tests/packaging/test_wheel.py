"""A wheel as it is published: from the source distribution, without what users do not need, and installed alone."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("Cython")
pytest.importorskip("setuptools")

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("src", "packaging", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
CORE = ("ottla/records/_native", "ottla/net/_shortcut", "ottla/broker/_repeat")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# The fixture of docs/guide/testing.md: it starts, answers and stops.
SERVES = """
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic

with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
    print(client.ask(create_topic("orders"), version=7).topics[0].error_code)
"""


@dataclass(frozen=True, slots=True)
class Published:
    source: Path
    wheel: Path

    def names_in_wheel(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Built in a copy, in which other builds have left nothing, with what the environment of this test has."""
    directory = tmp_path_factory.mktemp("published")
    checkout = directory / "checkout"
    checkout.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        else:
            shutil.copy2(ROOT / name, checkout)
    (checkout / "src" / "ottla" / "records" / "_native.c").write_text("left by a build\n")
    # The core is not compiled for the source distribution, and Cython takes as long as all the rest.
    source = build(checkout, "build_sdist", directory, OTTLA_PURE_PYTHON="1")
    with tarfile.open(source) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2, Debian's, has none
        archive.extractall(directory)
    unpacked = directory / source.name.removesuffix(".tar.gz")
    # How fast the core is does not matter here, and not optimizing it takes a fifth of the time.
    wheel = build(unpacked, "build_wheel", directory, OTTLA_REQUIRE_COMPILED="1", OTTLA_CFLAGS="-O0")
    return Published(source, wheel)


def build(project: Path, what: str, directory: Path, **environment: str) -> Path:
    program = f"from setuptools import build_meta; print(build_meta.{what}({str(directory)!r}))"
    done = run(sys.executable, "-c", program, cwd=project, environment=environment)
    return directory / done.stdout.splitlines()[-1]


def run(*command: object, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "PYTHON"))}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_source_distribution_has_the_sources_and_nothing_that_was_built(published: Published) -> None:
    with tarfile.open(published.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "src" / "ottla").rglob("*")
        if path.suffix in (".py", ".pyi", ".pyx", ".pxi", ".h", ".typed")
    }
    assert wanted - names == set()
    assert "packaging/ottla.service" in names
    assert [name for name in names if name.endswith((".c", ".so", ".pyc"))] == []


def test_the_wheel_has_modules_the_core_and_nothing_else(published: Published) -> None:
    names = published.names_in_wheel()
    installed = [name for name in names if ".dist-info/" not in name]
    core = sorted(name for name in installed if name.endswith(".so"))
    assert [name.partition(".")[0] for name in core] == sorted(CORE)
    others = [name for name in installed if not name.endswith((".py", ".so"))]
    assert sorted(others) == ["ottla/py.typed", "ottla/records/_native.pyi"]
    assert {name.partition("/")[0] for name in installed} == {"ottla", "pyspark_ottla"}


def test_the_wheel_has_every_module_but_those_for_tests_of_ottla_itself(published: Published) -> None:
    names = {name for name in published.names_in_wheel() if name.endswith(".py")}
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    left_out = modules - names
    assert names <= modules
    assert {name for name in left_out if not name.startswith("ottla/testing/")} == set()
    assert "ottla/testing/soak/run.py" in left_out
    assert "ottla/testing/mixed_cluster.py" in left_out


def test_what_is_installed_imports_only_what_is_installed(published: Published) -> None:
    names = {name for name in published.names_in_wheel() if name.endswith(".py")}
    texts = [text for name in names if "ottla.testing" in (text := (ROOT / "src" / name).read_text())]
    needed = {module for text in texts for module in imported_testing_modules(text)}
    assert {module for module in needed if not is_module_in(module, names)} == set()


def test_what_the_guides_show_is_installed(published: Published) -> None:
    names = set(published.names_in_wheel())
    pages = [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md")]
    shown = {
        module
        for page in pages
        for block in BLOCK.findall(page.read_text())
        for module in imported_testing_modules(block)
    }
    assert "ottla.testing.broker" in shown
    assert {module for module in shown if not is_module_in(module, names)} == set()


def imported_testing_modules(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "ottla.testing":
            yield from (f"ottla.testing.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ottla.testing."):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("ottla.testing."))


def is_module_in(module: str, names: set[str]) -> bool:
    path = module.replace(".", "/")
    return f"{path}.py" in names or f"{path}/__init__.py" in names


def test_it_installs_alone_and_runs_compiled(published: Published, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "clean", cwd=tmp_path)
    programs = tmp_path / "clean" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    run(*pip, "install", "--quiet", "--no-compile", published.wheel, cwd=tmp_path)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    # A second line would say that the core is missing.
    assert run(programs / "ottla", "--version", cwd=tmp_path).stdout == f"ottla {version}\n"
    assert run(programs / "python", "-c", SERVES, cwd=tmp_path).stdout == "0\n"


def test_wheels_are_configured_for_every_python_that_is_named() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    prefix = "Programming Language :: Python :: 3."
    named = [text.removeprefix(prefix) for text in settings["project"]["classifiers"] if text.startswith(prefix)]
    assert {f"cp3{minor}-*" for minor in named} <= set(settings["tool"]["cibuildwheel"]["build"])


def test_no_extra_is_empty() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [name for name, needed in extras.items() if not needed] == []
