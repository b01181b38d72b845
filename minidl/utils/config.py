"""Properties of this installation: minidl.show_config(), python -m minidl."""

from __future__ import annotations

import platform
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from minidl_c import __version__, build_info, isa, thread_wait
from minidl_c.runtime.threads import get_num_threads, openmp

PACKAGES = (  # what results, files and plots can depend on
    *("scipy", "scikit-learn", "pandas", "safetensors", "threadpoolctl", "onnx", "onnxruntime", "matplotlib", "pillow"),
    *("tensorboardX", "mpi4py", "river", "torch"),
)


@dataclass(frozen=True)
class Config:
    """The result of `show_config()`; prints as a table."""

    minidl: str
    python: str
    numpy: str
    platform: str
    instruction_set: str
    openmp: bool
    threads: int
    thread_wait: str
    compiler_flags: str
    commit: str = ""
    packages: dict[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        threads = f"{self.threads} by default, {'of OpenMP' if self.openmp else 'of minidl itself'}"
        wait = f"; they wait {self.thread_wait}" if self.thread_wait else ""
        commit = [f"commit           {self.commit}"] if self.commit else []
        packages = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        return "\n".join(
            (
                f"minidl           {self.minidl}",
                *commit,
                f"python           {self.python}",
                f"numpy            {self.numpy}",
                f"packages         {packages or 'none'}",
                f"platform         {self.platform}",
                f"instruction set  {self.instruction_set}",
                f"threads          {threads}{wait}",
                f"compiler flags   {self.compiler_flags}",
            )
        )

    __repr__ = __str__


def show_config() -> Config:
    """Returns commit, versions, instruction set, OpenMP and threads of this installation.

    `python -m minidl` prints the same. Nothing is imported.

    Returns
    -------
    Config
        It prints as a table. `minidl`, `python`, `numpy` and `platform` are versions, and `packages` is a dict of those
        of packages that minidl can use, if they are installed. `commit` is the commit of git of which the kernels were
        built, with "-dirty" for one that was changed, and "" if it was not known. `instruction_set` is the build in
        use, such as "v3", `openmp` tells whether the threads are OpenMP's, `threads` is their default number,
        `thread_wait` says how OpenMP's wait for each other ("" for minidl's own), and `compiler_flags` are those of the
        build.

    Examples
    --------
    >>> import minidl
    >>> config = minidl.show_config()
    >>> config.minidl == minidl.__version__, config.threads == minidl.get_num_threads()
    (True, True)
    """
    info = build_info()
    free_threaded = ", free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return Config(
        minidl=__version__,
        python=sys.version.split()[0] + free_threaded,
        numpy=np.__version__,
        platform=platform.platform(),
        instruction_set=isa,
        openmp=openmp(),
        threads=get_num_threads(),
        thread_wait=thread_wait if openmp() else "",
        compiler_flags=" ".join(info["compile_args"] + info["isa_args"]),
        commit=info["commit"],
        packages=dict(_installed()),
    )


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """Returns names and versions of the packages that are installed: their metadata take milliseconds to read."""
    from importlib import metadata  # a third of the time that minidl takes

    found = []
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return tuple(found)
