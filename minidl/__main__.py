"""Prints the versions and build options of this installation: python -m minidl."""

from minidl.utils.config import show_config

print(show_config())
