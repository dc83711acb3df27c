#!/bin/sh
# Runs the record tests, the record fuzzer and those of the hot paths on compiled code with the address and undefined-behaviour sanitizers.
# The core is built from a copy under build/asan, so the normal one stays as it is; once for the same sources.
#
#   tests/fuzz/asan.sh [more pytest arguments]        PYTHON names the interpreter, OTTLA_FUZZ_CASES the effort
set -eu
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-.venv/bin/python}
command -v "$PYTHON" >/dev/null || { echo "asan.sh: no interpreter $PYTHON: run make setup first" >&2; exit 2; }
PYTHON=$(command -v "$PYTHON")
case $PYTHON in /*) ;; *) PYTHON=$PWD/$PYTHON ;; esac
copy=$PWD/build/asan

mkdir -p "$copy"
rm -rf "$copy/src"
cp -R src "$copy/src"
rm -f "$copy"/src/ottla/*/*.so
cp setup.py "$copy/"
sanitize="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
sources=$({
    cat setup.py tests/fuzz/asan.sh src/ottla/*/_*.pyx src/ottla/*/_*.pxi src/ottla/*/_*.h
    "$PYTHON" -VV
    gcc --version
} | sha256sum)
if [ "$(cat "$copy/cores/sources" 2>/dev/null)" = "$sources" ]; then
    cp -R "$copy/cores/ottla" "$copy/src/"
else
    (
        cd "$copy"
        rm -rf cores temp
        OTTLA_CFLAGS="-O1 -g $sanitize" OTTLA_LDFLAGS="$sanitize" \
            "$PYTHON" setup.py -q build_ext --build-lib cores --build-temp temp
        cp -R cores/ottla src/
    ) >"$copy/build.log" 2>&1 || { cat "$copy/build.log" >&2; exit 1; }
    echo "$sources" >"$copy/cores/sources"
fi

# The interpreter itself is not sanitized, so the library has to be there first. Python's own allocator would hide
# overruns from it, and what the interpreter keeps until its end is no leak of ours.
export LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
export PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export PYTHONPATH="$copy/src" PYTHONDONTWRITEBYTECODE=1
"$PYTHON" -c 'import sys, ottla.records._native as core; sys.exit(not core.__file__.startswith(sys.argv[1]))' "$copy" ||
    { echo "asan.sh: the sanitized core was not loaded" >&2; exit 1; }
# pytest must not catch the report that the sanitizer writes as it dies.
exec "$PYTHON" -m pytest -q -p no:cacheprovider --capture=sys tests/unit/records tests/wire/test_record_vectors.py \
    tests/wire/test_record_clients.py tests/fuzz/test_records_decoders.py \
    tests/fuzz/test_records_columns.py tests/unit/net/test_connection.py \
    tests/unit/broker/test_repeat_twins.py "$@"
