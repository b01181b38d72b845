"""Tools of `setup.py`, and programs that build and check what is released."""
