"""Execution of a model: layers are lowered to segments of ops, over one buffer of parameters and one of gradients."""
