"""Builds a wheel, tries it alone and runs the quick tests on every Python from 3.11 on that this machine has.

`make pythons` runs it. Looked at are the `python3.N` on the path and those that pyenv installed, one of each binary
interface; the environment that runs this is one of them and was tested before. Every Python gets an environment in
build/pythons, without pip (ours installs into it) and without what only slow tests need; it is made again when what
decides it changes. A core that does not build is a failure. It is built once, for the wheel: the wheel is installed in
an environment of its own, and the tests run in the checkout with the core of the wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "pythons"
OLDEST = (3, 11)
PROBE_TIMEOUT_S = 30
PROBE = """
import json, os, sys, sysconfig
print(json.dumps([
    sys.implementation.name, list(sys.version_info[:3]), sysconfig.get_config_var("SOABI"),
    os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
]))
"""
# Properties are tried in full by the tests of our own Python: another one needs to see that the code runs there.
EXAMPLES = "20"
IS_CORE_HERE = "import sys; from ottla import compiled; sys.exit(compiled.complaint())"


@dataclass(frozen=True, slots=True)
class Python:
    path: Path
    version: tuple[int, int, int]
    binary_interface: str  # of compiled modules, such as cpython-312-x86_64-linux-gnu
    has_headers: bool

    def __str__(self) -> str:
        return f"Python {'.'.join(map(str, self.version))} ({self.path})"


def candidates() -> Iterator[Path]:
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        if os.path.isdir(directory):
            yield from sorted(path for path in Path(directory).iterdir() if re.fullmatch(r"python3\.\d+t?", path.name))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/*/bin/python3"))


def probe(path: Path) -> Python | None:
    """What it is; None where it is too old, another implementation, or does not start (a shim of pyenv's)."""
    try:
        shown = subprocess.run(
            [path, "-c", PROBE], capture_output=True, text=True, check=True, timeout=PROBE_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    implementation, (major, minor, micro), binary_interface, has_headers = json.loads(shown)
    if implementation != "cpython" or (major, minor) < OLDEST:
        return None
    return Python(path, (major, minor, micro), binary_interface, has_headers)


def others() -> list[Python]:
    """One Python of each binary interface but our own; of several the first that can compile."""
    found: dict[str, Python] = {}
    for path in candidates():
        python = probe(path)
        if python is not None and (
            python.binary_interface not in found or not found[python.binary_interface].has_headers
        ):
            found[python.binary_interface] = python
    found.pop(str(sysconfig.get_config_var("SOABI")), None)
    return sorted(found.values(), key=lambda python: python.version)


def digest_of_sources() -> str:
    """Of what decides an environment."""
    sources = [ROOT / "pyproject.toml", ROOT / "setup.py", Path(__file__)]
    for pattern in ("*.pyx", "*.pxi", "*.h"):
        sources += sorted((ROOT / "src").rglob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def prepare(python: Python) -> Path:
    """The interpreter of its environment, with the core built."""
    directory = ENVIRONMENTS / python.binary_interface
    interpreter, stamp, digest = directory / "bin" / "python", directory / "ready", digest_of_sources()
    if stamp.exists() and stamp.read_text() == digest and is_core_here(interpreter):
        return interpreter
    stamp.unlink(missing_ok=True)
    run(python.path, "-m", "venv", "--clear", "--without-pip", directory)
    run(*pip(interpreter), "install", "--quiet", "--group", "quick")
    wheel = build_wheel(interpreter, directory / "wheel")
    try_alone(python, wheel, directory / "alone")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(ROOT / "src", [name for name in archive.namelist() if name.endswith(".so")])
    editable = ("--no-build-isolation", "--editable", ".")
    run(*pip(interpreter), "install", "--quiet", *editable, environment={"OTTLA_PURE_PYTHON": "1"})
    if not is_core_here(interpreter):
        raise SystemExit(f"{python}: the compiled core was built and cannot be imported")
    stamp.write_text(digest)
    return interpreter


def pip(interpreter: Path) -> list[object]:
    """Our pip, at work in the environment of `interpreter`."""
    return [sys.executable, "-m", "pip", "--python", interpreter]


def build_wheel(interpreter: Path, directory: Path) -> Path:
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, ".")
    run(*pip(interpreter), *build, environment={"OTTLA_REQUIRE_COMPILED": "1"})
    (wheel,) = directory.glob("*.whl")
    return wheel


def try_alone(python: Python, wheel: Path, directory: Path) -> None:
    """Installs the wheel where nothing else is and starts it; a second line of output would say what it lacks."""
    run(python.path, "-m", "venv", "--without-pip", directory)
    run(*pip(directory / "bin" / "python"), "install", "--quiet", wheel)
    command = [directory / "bin" / "ottla", "--version"]
    shown = subprocess.run(command, cwd=directory, env=clean_environment(), capture_output=True, text=True, check=True)
    if shown.stdout.count("\n") != 1:
        raise SystemExit(f"{python}: the wheel was installed alone and is not whole: {shown.stdout}")


def is_core_here(interpreter: Path) -> bool:
    done = subprocess.run([interpreter, "-c", IS_CORE_HERE], cwd=ROOT, env=clean_environment(), check=False)
    return done.returncode == 0


def run(*command: object, environment: dict[str, str] | None = None) -> None:
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True, env=clean_environment() | (environment or {}))


def clean_environment() -> dict[str, str]:
    """Without what would lead another Python to our packages, or away from the core."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OTTLA_PURE_PYTHON")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="2", help="processes that run tests at a time")
    parser.add_argument("tests", nargs="+")
    options = parser.parse_args()
    own = probe(Path(sys.executable))
    print(f"every Python from {'.'.join(map(str, OLDEST))} on: {own} runs all tests", flush=True)
    for python in others():
        if not python.has_headers:
            print(f"{python}: skipped, its headers are not installed (Python.h)", flush=True)
            continue
        print(f"{python}: the wheel, then the quick tests", flush=True)
        start = time.monotonic()
        try:
            interpreter = prepare(python)
            built = time.monotonic()
            tests = ("-m", "pytest", "-n", options.workers, "--dist", "worksteal", "-q", *options.tests)
            # A free-threaded one takes its lock for our core (decision 18), and warns of it unless it is asked to.
            run(interpreter, *tests, environment={"OTTLA_EXAMPLES": EXAMPLES, "PYTHON_GIL": "1"})
        except subprocess.CalledProcessError as error:
            print(f"{python}: FAILED, exit code {error.returncode} of {error.cmd[:4]}", file=sys.stderr)
            return 1
        print(
            f"{python}: passed, {built - start:.0f} s to prepare and {time.monotonic() - built:.0f} s of tests",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
