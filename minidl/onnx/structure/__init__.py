"""The structure of a graph: nodes in series, and branches, which become containers."""
