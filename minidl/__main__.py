"""python -m minidl: what this installation is and does."""

from minidl.utils.config import show_config

print(show_config())
