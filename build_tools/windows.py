"""What a compiler for Windows needs of CPython: headers with a pyconfig.h for Windows, and the library python3.lib."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import abi3info
import ziglang

# The limited API reads no more of it than this. The sizes are the compiler's own.
PYCONFIG = """
#define MS_WINDOWS
#define MS_WIN64
#define Py_ENABLE_SHARED
#define HAVE_DECLSPEC_DLL
#define HAVE_STDDEF_H 1
#define HAVE_WCHAR_H 1
#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__
"""


def headers(folder: Path) -> Path:
    """Copies the headers of this Python, with a pyconfig.h for Windows; returns their folder."""
    target = folder / "include"
    shutil.copytree(sysconfig.get_path("include"), target, dirs_exist_ok=True)
    (target / "pyconfig.h").write_text(PYCONFIG)
    return target


def import_library(folder: Path) -> Path:
    """Writes the import library of python3.dll, which exports the stable ABI; returns its path."""
    definition, library = folder / "python3.def", folder / "python3.lib"
    names = [symbol.name for symbol in abi3info.FUNCTIONS] + [f"{symbol.name} DATA" for symbol in abi3info.DATAS]
    definition.write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *names, ""]))
    zig = Path(ziglang.__file__).parent / "zig"
    subprocess.run([zig, "dlltool", "-m", "i386:x86-64", "-d", definition, "-l", library], check=True)
    return library
