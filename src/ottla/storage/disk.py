"""The old place of `ottla.disk`; goes away as soon as nothing imports it."""

from ottla.disk import (
    Disk,
    File,
    RealDisk,
    RealFile,
    make_durable_directory,
    read_file,
    storage_error,
    write_atomically,
)

__all__ = [
    "Disk",
    "File",
    "RealDisk",
    "RealFile",
    "make_durable_directory",
    "read_file",
    "storage_error",
    "write_atomically",
]
