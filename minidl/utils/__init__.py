"""Checks of arguments and arrays, and data sources, used by all other folders."""
