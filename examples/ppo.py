"""Proximal policy optimization
===============================

An actor and a critic (PPO, Schulman et al. 2017): a net with two outputs learns to balance a pole on a cart.

Run it with: `python examples/ppo.py`

The outputs share their first layers. The policy, two scores, chooses a push to the left or to the right; the value, a
single number, predicts the rewards that follow. The objective is none of minidl's losses: its gradient in the scores is
a function in NumPy, and `Trainer.backward_step` makes a step of it. The carts are those of `cartpole.py`.

The program trains until the mean length of 100 new episodes is 475 (500 is the most). It prints this mean, steps and
seconds, and a hash of the weights, which does not depend on the number of threads.
"""

import argparse
import hashlib
import time

import numpy as np
from cartpole import Carts, mean_length

import minidl
from minidl import Sequential, Trainer
from minidl.layers import Dense, Outputs, Tanh
from minidl.optimizers import Adam

CARTS, HORIZON, EPOCHS, BATCH = 16, 64, 4, 128
DISCOUNT, TRACE = 0.99, 0.95  # of rewards, and of generalized advantage estimation
CLIP, ENTROPY, VALUE = 0.2, 0.01, 0.5  # the bound of the ratio, and the factors of entropy and squared error
REWARD = 0.1  # of a step, so that values are about 1
GOAL = 475


class Agent:
    """The net, and its steps."""

    def __init__(self, seed):
        outputs = Outputs(policy=Dense(2), value=Dense(1))
        self.model = Sequential([Dense(64), Tanh(), Dense(64), Tanh(), outputs], input_shape=(4,), seed=seed)
        losses = {"policy": "mean_squared_error", "value": "mean_squared_error"}  # a trainer has some; not used here
        self.trainer = Trainer(self.model, losses, Adam(0.002), clip_norm=0.5)

    def predict(self, states):
        """Returns the scores of both outputs."""
        return self.model.predict(states)

    def learn(self, states, actions, logs, advantages, returns):
        """Makes a step on a batch."""
        scores = self.model.forward(states, training=True)
        self.trainer.backward_step(gradient(scores, actions, logs, advantages, returns))


def log_softmax(scores):
    shifted = scores - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def gradient(scores, actions, logs_before, advantages, returns):
    """Returns the gradient of the objective, a mean over the batch, with respect to the scores.

    With the ratio r of an action's probability to that when it was taken, and its advantage a, the objective is
    `-min(r a, clip(r, 1 - CLIP, 1 + CLIP) a) - ENTROPY * entropy + VALUE * (value - returns)^2`.
    """
    n, logs = len(actions), log_softmax(scores["policy"])
    p, taken = np.exp(logs), np.eye(2)[actions]
    ratio = np.exp((logs * taken).sum(axis=1) - logs_before)
    is_clipped = np.where(advantages > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
    slope = np.where(is_clipped, 0, -ratio * advantages)[:, np.newaxis]  # in the logarithm of the action's probability
    entropy = -(p * logs).sum(axis=1, keepdims=True)
    policy = slope * (taken - p) + ENTROPY * p * (logs + entropy)
    value = 2 * VALUE * (scores["value"] - returns[:, np.newaxis])
    return {"policy": policy / n, "value": value / n}


def collect(agent, carts):
    """Returns states, actions, their log-probabilities, values and ends of episodes: (HORIZON, CARTS, ...) each."""
    seen = []
    for _ in range(HORIZON):
        state, scores = carts.state, agent.predict(carts.state)
        logs = log_softmax(scores["policy"])
        action = (carts.rng.random(carts.count) < np.exp(logs[:, 1])).astype(int)
        seen.append((state, action, logs[np.arange(carts.count), action], scores["value"][:, 0], carts.step(action)))
    return [np.stack(parts) for parts in zip(*seen, strict=True)]


def estimate(values, last, is_over):
    """Returns generalized advantage estimates (Schulman et al. 2016); last: the values after the last step.

    An episode that is cut off at its 500th step is treated as one that ended.
    """
    found, ahead, following = np.zeros_like(values), np.zeros_like(last), last
    for t in reversed(range(len(values))):
        goes_on = ~is_over[t]
        error = REWARD + DISCOUNT * following * goes_on - values[t]
        found[t] = ahead = error + DISCOUNT * TRACE * goes_on * ahead
        following = values[t]
    return found


def improve(agent, carts):
    """Improves the policy with what the carts do under it."""
    states, actions, logs, values, is_over = collect(agent, carts)
    found = estimate(values, agent.predict(carts.state)["value"][:, 0], is_over)
    advantages, returns = (found - found.mean()) / (found.std() + 1e-8), found + values
    seen = states.reshape(-1, 4), actions.ravel(), logs.ravel(), advantages.ravel(), returns.ravel()
    for _ in range(EPOCHS):
        for rows in carts.rng.permutation(actions.size).reshape(-1, BATCH):
            agent.learn(*(part[rows] for part in seen))


def train(agent, seed, most, say=print):
    """Trains until the goal is reached, for at most `most` iterations; returns their number and the seconds in them."""
    carts, seconds = Carts(CARTS, np.random.default_rng(seed)), 0.0
    for iteration in range(1, most + 1):
        start = time.perf_counter()
        improve(agent, carts)
        seconds += time.perf_counter() - start
        if iteration % 5 == 0 or iteration == most:
            mean = mean_length(lambda states: agent.predict(states)["policy"].argmax(axis=1))
            say(f"Mean length of 100 episodes after {iteration} iterations: {mean:.1f}")
            if mean >= GOAL:
                break
    return iteration, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=100, help="the most iterations")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    minidl.set_num_threads(arguments.threads)
    agent = Agent(arguments.seed)
    done, seconds = train(agent, arguments.seed, arguments.iterations)
    steps = done * CARTS * HORIZON
    print(f"{steps} steps of carts in {seconds:.2f} s, {steps / seconds:.0f} a second")
    weights = b"".join(array.tobytes() for array in agent.model.state_dict().values())
    print(f"SHA-256 of the weights: {hashlib.sha256(weights).hexdigest()}")


if __name__ == "__main__":
    main()
