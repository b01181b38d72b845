"""Makes threadpoolctl and joblib limit minidl's own thread pool, as they limit OpenMP's threads."""

from typing import ClassVar

import threadpoolctl

from minidl_c import __version__
from minidl_c.runtime.threads import openmp


class ThreadPoolController(threadpoolctl.LibController):
    """The thread pool of a build without OpenMP, for threadpoolctl: internal_api is "minidl".

    Its user_api is "openmp", so a limit that is meant for OpenMP holds for every build. It limits the default, not an
    explicit `num_threads`.
    """

    user_api: ClassVar[str] = "openmp"
    internal_api: ClassVar[str] = "minidl"
    filename_prefixes: ClassVar[tuple[str, ...]] = ("threads.",)  # minidl_c/runtime/threads.pyx
    check_symbols: ClassVar[tuple[str, ...]] = ("minidl_get_num_threads", "minidl_set_num_threads")

    def get_num_threads(self) -> int:
        """Returns the limit."""
        return int(self.dynlib.minidl_get_num_threads())

    def set_num_threads(self, num_threads: int) -> None:
        """Sets the limit."""
        self.dynlib.minidl_set_num_threads(num_threads)

    def get_version(self) -> str:
        """Returns the version of minidl."""
        return __version__


def register() -> None:
    """Registers the pool with threadpoolctl, if this build uses it."""
    if not openmp():
        threadpoolctl.register(ThreadPoolController)
