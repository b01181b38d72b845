"""An sdist and wheels that depend on their files alone: building them twice gives the same bytes."""

import gzip
import json
import os
import tarfile
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

from build_tools import sbom
from build_tools.commit import IN_SDIST, commit

SOURCE_DATE = 1577836800  # 1 January 2020; SOURCE_DATE_EPOCH overrides it (https://reproducible-builds.org/specs/)


def normalize(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes from a member what differs between machines: dates, owners, and permissions except executability."""
    member.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", SOURCE_DATE))
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


class ReproducibleSdist(sdist):
    """The command `sdist`; it writes .tar.gz only, with the commit that it is made of, if that is known."""

    def make_release_tree(self, base_dir, files):
        """Makes the folder that is archived."""
        super().make_release_tree(base_dir, files)
        if known := commit(Path.cwd()):
            Path(base_dir, IN_SDIST).write_text(f"{known}\n", encoding="ascii")

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        """Writes the archive of `base_dir`; returns its path."""
        if format != "gztar":
            raise ValueError(f"sdist: expected the format gztar, got {format}")
        path = f"{base_name}.tar.gz"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for member in (Path(base_dir), *sorted(Path(base_dir).rglob("*"))):
                archive.add(member, recursive=False, filter=normalize)
        return path


class ReproducibleWheel(bdist_wheel):
    """The command `bdist_wheel`; it fixes dates and permissions, and adds the bill of materials."""

    def run(self):
        """Builds the wheel."""
        os.environ.setdefault("SOURCE_DATE_EPOCH", str(SOURCE_DATE))
        super().run()

    def write_wheelfile(self, wheelfile_base, *args, **kwargs):
        """Writes the last files of the folder that is archived; that of an editable install has no kernels."""
        super().write_wheelfile(wheelfile_base, *args, **kwargs)
        folder = Path(wheelfile_base).parent
        builds = [json.loads(path.read_text()) for path in sorted(folder.glob("minidl_c/*/build.json"))]
        if not builds:
            return
        bills = Path(wheelfile_base, "sboms")
        bills.mkdir()
        bill = sbom.bill(self.distribution.get_version(), builds)
        (bills / sbom.FILE).write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
