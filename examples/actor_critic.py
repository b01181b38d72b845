"""An actor and a critic
=====================

Proximal policy optimization (PPO, Schulman et al. 2017): a net with two outputs learns to balance a pole on a cart.

Run it with: `python examples/actor_critic.py`

The outputs share their first layers. The policy, two scores, chooses a push to the left or to the right; the value, a
single number, predicts the rewards that follow. Each has a loss: that of the policy is a function in NumPy, the clipped
surrogate, that of the value the squared error. The cart and the pole are the differential equations of Barto, Sutton
and Anderson (1983), for many carts at a time, with the limits of CartPole-v1: an episode ends when the pole falls or
the cart leaves the track, and after 500 steps.

The program prints the mean return of 100 new episodes (500 is the most) before and after the training, and a hash of
the weights, which does not depend on the number of threads.
"""

import argparse
import hashlib

import numpy as np

from minidl import Sequential, Trainer
from minidl.layers import Dense, Outputs, Tanh
from minidl.optimizers import Adam

CARTS, HORIZON, EPOCHS, BATCH = 16, 64, 4, 128
DISCOUNT, TRACE = 0.99, 0.95  # of rewards, and of generalized advantage estimation
CLIP, ENTROPY = 0.2, 0.01
STEPS = 500  # of an episode, at most
REWARD = 0.1  # of a step, so that values are about 1


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
        push = (force + pole * turn**2 * np.sin(angle)) / mass
        swing = gravity * np.sin(angle) - np.cos(angle) * push
        spin = swing / (length * (4 / 3 - 0.1 * np.cos(angle) ** 2 / mass))
        slide = push - pole * spin * np.cos(angle) / mass
        self.state = self.state + 0.02 * np.stack([speed, slide, turn, spin], axis=1)
        self.steps += 1
        is_over = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095) | (self.steps >= STEPS)
        self.state[is_over], self.steps[is_over] = self.draw(is_over.sum()), 0
        return is_over


def log_softmax(scores):
    shifted = scores - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def clipped_surrogate(scores, y):
    """The loss of the policy. y (n, 3): the action, its advantage, and the logarithm of its probability when taken."""
    rows, action, advantage, before = np.arange(len(y)), y[:, 0].astype(int), y[:, 1], y[:, 2]
    logs = log_softmax(scores)
    p, ratio = np.exp(logs), np.exp(logs[rows, action] - before)
    gain, clipped = ratio * advantage, np.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage
    entropy = -(p * logs).sum(axis=1)
    slope = np.where(gain <= clipped, -gain, 0)[:, np.newaxis]  # of the logarithm of the action's probability
    dscores = slope * (np.eye(p.shape[1])[action] - p) + ENTROPY * p * (logs + entropy[:, np.newaxis])
    return -np.minimum(gain, clipped) - ENTROPY * entropy, dscores


def collect(model, carts, threads):
    """Returns states, actions, log-probabilities, values and ends of episodes: (HORIZON, CARTS, ...) each."""
    seen = []
    for _ in range(HORIZON):
        state = carts.state
        scores = model.predict(state, num_threads=threads)
        logs = log_softmax(scores["policy"].astype(np.float64))
        action = (carts.rng.random(carts.count) < np.exp(logs[:, 1])).astype(int)
        seen.append((state, action, logs[np.arange(carts.count), action], scores["value"][:, 0], carts.step(action)))
    return [np.stack(parts) for parts in zip(*seen, strict=True)]


def advantages(values, last, is_over):
    """Returns generalized advantage estimates (Schulman et al. 2016); last: the values after the last step.

    An episode that is cut off after STEPS is treated as one that ended.
    """
    found, ahead, following = np.zeros_like(values), np.zeros_like(last), last
    for t in reversed(range(len(values))):
        goes_on = ~is_over[t]
        error = REWARD + DISCOUNT * following * goes_on - values[t]
        found[t] = ahead = error + DISCOUNT * TRACE * goes_on * ahead
        following = values[t]
    return found


def train(trainer, carts, iterations):
    """Improves the policy with what the carts do under it; prints how many episodes end."""
    model, threads = trainer.model, trainer.num_threads
    for iteration in range(iterations):
        states, actions, logs, values, is_over = collect(model, carts, threads)
        last = model.predict(carts.state, num_threads=threads)["value"][:, 0]
        found = advantages(values, last, is_over)
        X, returns = states.reshape(-1, 4), (found + values).reshape(-1, 1)
        scaled = (found - found.mean()) / (found.std() + 1e-8)
        policy = np.stack([actions.ravel(), scaled.ravel(), logs.ravel()], axis=1)
        for _ in range(EPOCHS):
            order = carts.rng.permutation(len(X))
            for rows in order.reshape(-1, BATCH):
                trainer.train_batch(X[rows], {"policy": policy[rows], "value": returns[rows]})
        if iteration % 10 == 9:
            print(f"iteration {iteration + 1}: {is_over.sum()} episodes of {CARTS} carts ended in {HORIZON} steps")


def mean_return(model, rng, episodes=100):
    """Returns the mean length of episodes in which the action of the higher score is taken."""
    carts, going, length = Carts(episodes, rng), np.ones(episodes, bool), np.zeros(episodes, int)
    while going.any():
        action = model.predict(carts.state)["policy"].argmax(axis=1)
        length += going
        going &= ~carts.step(action)
    return length.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    outputs = Outputs(policy=Dense(2), value=Dense(1))
    model = Sequential([Dense(64), Tanh(), Dense(64), Tanh(), outputs], input_shape=(4,), seed=0)
    losses = {"policy": clipped_surrogate, "value": "mean_squared_error"}
    trainer = Trainer(
        model, losses, Adam(0.002), loss_weights={"value": 0.5}, clip_norm=0.5, num_threads=arguments.threads
    )
    print(f"Mean return before the training: {mean_return(model, np.random.default_rng(1)):.1f}")
    train(trainer, Carts(CARTS, np.random.default_rng(0)), arguments.iterations)
    print(f"Mean return of 100 episodes: {mean_return(model, np.random.default_rng(1)):.1f}")
    weights = b"".join(array.tobytes() for array in model.state_dict().values())
    print(f"SHA-256 of the weights: {hashlib.sha256(weights).hexdigest()}")


if __name__ == "__main__":
    main()
