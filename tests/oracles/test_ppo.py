"""examples/ppo.py beside benchmarks/ppo_torch.py: the same weights after some iterations, to rounding."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.oracle
def test_both_sides_learn_the_same(monkeypatch):
    """The gradient that the example writes out is that of PyTorch's autograd, and so is all that follows it."""
    for folder in ("examples", "benchmarks"):
        monkeypatch.syspath_prepend(ROOT / folder)
    import ppo
    import ppo_torch

    try:
        own, other = ppo.Agent(0), ppo_torch.TorchAgent(0)
        for agent in (own, other):
            carts = ppo.Carts(ppo.CARTS, np.random.default_rng(0))
            for _ in range(2):  # 64 steps of the net; later, an action differs by rounding
                ppo.improve(agent, carts)
        ours, theirs = (agent.predict(carts.state) for agent in (own, other))
        for name in ("policy", "value"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-3, atol=2e-3)
    finally:
        for name in ("ppo", "ppo_torch", "cartpole"):
            sys.modules.pop(name, None)
