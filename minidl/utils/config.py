"""Properties of this installation: minidl.show_config(), python -m minidl."""

from __future__ import annotations

import platform
import sys
import sysconfig
from dataclasses import dataclass

import numpy as np

from minidl_c import __version__, build_info, isa, thread_wait
from minidl_c.runtime.threads import get_num_threads, openmp


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

    def __str__(self) -> str:
        threads = f"{self.threads} by default, {'of OpenMP' if self.openmp else 'of minidl itself'}"
        wait = f"; they wait {self.thread_wait}" if self.thread_wait else ""
        return "\n".join(
            (
                f"minidl           {self.minidl}",
                f"python           {self.python}",
                f"numpy            {self.numpy}",
                f"platform         {self.platform}",
                f"instruction set  {self.instruction_set}",
                f"threads          {threads}{wait}",
                f"compiler flags   {self.compiler_flags}",
            )
        )

    __repr__ = __str__


def show_config() -> Config:
    """Returns versions, instruction set, OpenMP and threads of this installation.

    `python -m minidl` prints the same.

    Returns
    -------
    Config
        It prints as a table. `minidl`, `python`, `numpy` and `platform` are versions, `instruction_set` is the build in
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
    )
