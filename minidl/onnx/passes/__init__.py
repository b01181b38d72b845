"""Passes, from a graph to an equal one of nodes that are closer to layers."""
