"""Compares two builds of an archive, byte for byte, and names the files that differ.

python build_tools/compare.py first.whl second.whl          # or two .tar.gz
"""

import hashlib
import sys
import tarfile
import zipfile
from pathlib import Path


def differences(first: Path, second: Path) -> list[str]:
    """Returns a line for each difference; none if the bytes are equal."""
    if first.read_bytes() == second.read_bytes():
        return []
    one, two = members(first), members(second)
    found = [f"{name}: only in {first}" for name in one if name not in two]
    found += [f"{name}: only in {second}" for name in two if name not in one]
    for name in (name for name in one if name in two):
        changed = [what for what in one[name] if one[name][what] != two[name][what]]
        found += [f"{name}: {' and '.join(changed)}"] if changed else []
    return found or ["the order of the files, or their compression"]


def members(path: Path) -> dict[str, dict[str, object]]:
    """Returns what is known of each file in an archive, by name."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {
                info.filename: describe(wheel.read(info), info.date_time, info.external_attr)
                for info in wheel.infolist()
            }
    with tarfile.open(path) as archive:
        return {
            info.name: describe(archive.extractfile(info).read() if info.isfile() else b"", info.mtime, info.mode)
            for info in archive
        }


def describe(content: bytes, date: object, permissions: int) -> dict[str, object]:
    """Returns what is compared of a file, by its name in messages."""
    return {"content": hashlib.sha256(content).digest(), "date": date, "permissions": permissions}


def main(first: Path, second: Path) -> None:
    """Prints the hash of two equal archives, or exits with their differences."""
    if found := differences(first, second):
        sys.exit("\n".join([f"two builds of {first.name} differ:", *found]))
    print(f"{hashlib.sha256(first.read_bytes()).hexdigest()}  {first.name}: two builds, the same bytes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
