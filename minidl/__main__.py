"""python -m minidl: prints versions and build options of this installation."""

from minidl.utils.config import show_config

print(show_config())
