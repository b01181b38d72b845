"""Where an op stands in a model, as a number that its random numbers depend on."""

from hashlib import blake2b


def path_number(path):
    """64 bits of a digest of a layer's path, such as "3.body.0"; raises TypeError unless it is a string."""
    if not isinstance(path, str):
        raise TypeError(f"path: expected a string, got {path!r}")
    return int.from_bytes(blake2b(path.encode(), digest_size=8).digest(), "little")
