"""ThreadPoolController: the thread pool of a build without OpenMP, for threadpoolctl and joblib, which limit it."""

from typing import ClassVar

import threadpoolctl

from minidl_c import __version__


class ThreadPoolController(threadpoolctl.LibController):
    """What threadpoolctl knows of the pool: internal_api is "minidl".

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
