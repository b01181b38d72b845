"""How a model computes: its layers become stages of ops, with one buffer of parameters and one of gradients."""
