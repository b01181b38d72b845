"""Checks of arguments and arrays, and the reading of data: what all the others use."""
