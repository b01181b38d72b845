"""A cart and a pole
===================

The environment of `ppo.py` and `dqn.py`: a pole on a cart falls unless the cart is pushed to the right side in time.

Run it with: `python examples/cartpole.py`

These are the differential equations of Barto, Sutton and Anderson (1983), for many carts at a time, with the limits of
CartPole-v1: an episode ends when the pole falls or the cart leaves the track, and after 500 steps.

The program prints the mean length of 100 episodes under random pushes, and under pushes to the side to which the pole
falls.
"""

import numpy as np

STEPS = 500  # of an episode, at most


class Carts:
    """Carts on a track, each with a pole. A state is (x, dx/dt, angle, dangle/dt); actions are 0 and 1."""

    def __init__(self, count, rng):
        self.count, self.rng = count, rng
        self.state, self.steps = self.draw(count), np.zeros(count, int)

    def draw(self, count):
        """Draws the first states of episodes."""
        return self.rng.uniform(-0.05, 0.05, (count, 4))

    def step(self, actions):
        """Moves all carts by 0.02 s; returns whether each episode is over. The next one of that cart has begun then."""
        _, speed, angle, turn = self.state.T
        force, mass, length, gravity, pole = np.where(actions == 1, 10.0, -10.0), 1.1, 0.5, 9.8, 0.05
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (force + pole * turn**2 * sine) / mass
        spin = (gravity * sine - cosine * push) / (length * (4 / 3 - 0.1 * cosine**2 / mass))
        slide = push - pole * spin * cosine / mass
        self.state = self.state + 0.02 * np.stack([speed, slide, turn, spin], axis=1)
        self.steps += 1
        is_over = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095) | (self.steps >= STEPS)
        self.state[is_over], self.steps[is_over] = self.draw(is_over.sum()), 0
        return is_over


def mean_length(policy, episodes=100, seed=1):
    """Returns the mean length of new episodes, in each of which `policy(states)` chooses the actions."""
    carts = Carts(episodes, np.random.default_rng(seed))
    going, length = np.ones(episodes, bool), np.zeros(episodes, int)
    while going.any():
        over = carts.step(policy(carts.state))
        length += going
        going &= ~over
    return length.mean()


def main():
    rng = np.random.default_rng(0)
    print(f"Random pushes: {mean_length(lambda states: rng.integers(0, 2, len(states))):.1f} steps")
    print(f"Pushes to the side of the pole: {mean_length(lambda states: states[:, 2] > 0):.1f} steps")


if __name__ == "__main__":
    main()
