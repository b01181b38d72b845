"""A hash of a layer's path in the model: part of the key of its random numbers."""

from hashlib import blake2b


def hash_path(path):
    """Returns a 64-bit hash of a layer's path, such as "3.body.0"; raises TypeError unless it is a string."""
    if not isinstance(path, str):
        raise TypeError(f"path: expected a string, got {path!r}")
    return int.from_bytes(blake2b(path.encode(), digest_size=8).digest(), "little")
