"""The bill of materials of a wheel: what was compiled into it, and with what.

It is CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/), in the place that PEP 770 reserves for it. What a wheel only
depends on is in its METADATA. A library that auditwheel copies into a wheel gets a bill of auditwheel's own.
"""

import re

FILE = "minidl.cdx.json"


def bill(version: str, builds: list[dict]) -> dict:
    """Returns the bill of a wheel whose modules have these descriptions: see `describe` in setup.py.

    The same builds give the same bill, so it has neither a date nor a serial number.
    """
    minidl, cython = f"pkg:pypi/minidl@{version}", f"pkg:pypi/cython@{builds[0]['cython']}"
    compilers = sorted({build["compiler"] for build in builds})
    commits = sorted({build["commit"] for build in builds} - {""})
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": minidl,
                "name": "minidl",
                "version": version,
                "licenses": [{"license": {"id": "BSD-3-Clause"}}],
                "purl": minidl,
                "properties": [{"name": "minidl:commit", "value": commit} for commit in commits],
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": cython,
                "name": "Cython",
                "version": builds[0]["cython"],
                "description": "Translated the kernels to C; each module contains its utility code",
                "scope": "required",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": cython,
            },
            *map(compiler, compilers),
        ],
        "dependencies": [{"ref": minidl, "dependsOn": [cython]}],
        "compositions": [{"aggregate": "complete", "assemblies": [minidl]}],
    }


def compiler(line: str) -> dict:
    """Returns the component of a compiler, from the first line of its version message."""
    name = "clang" if "clang" in line else line.split()[0]
    numbers = re.findall(r"\d+(?:\.\d+)+", re.sub(r"\(.*?\)", "", line))
    return {
        "type": "application",
        "bom-ref": line,
        "name": name,
        "version": numbers[0] if numbers else "",
        "description": f"Compiled the modules, which may contain functions of its runtime library: {line}",
        "scope": "excluded",
    }
