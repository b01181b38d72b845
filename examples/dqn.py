"""A deep Q-network
=================

Double DQN (van Hasselt et al. 2016): a net learns the value of each push of a cart from a memory of what happened.

Run it with: `python examples/dqn.py`

Two nets of the same layers: one is trained; the target network, which estimates what follows a push, moves slowly
towards it by `soft_update`. Only the value of the push that was chosen has a gradient, that of a Huber loss;
`Trainer.backward_step` makes a step of it. The carts are those of `cartpole.py`.

The program trains until the mean length of 100 new episodes is 475 (500 is the most). It prints this mean, steps and
seconds, and a hash of the weights, which does not depend on the number of threads.
"""

import argparse
import copy
import hashlib
import time

import numpy as np
from cartpole import Carts, mean_length

import minidl
from minidl import Sequential, Trainer
from minidl.layers import Dense, Normalize, ReLU
from minidl.optimizers import Adam

CARTS, BATCH, MEMORY = 16, 128, 100_000
DISCOUNT, TAU, REWARD = 0.98, 0.1, 0.1  # TAU: the part of the way that the target network goes after each step
RANDOM, DECAY = 0.04, 500  # the part of random pushes in the end, and the steps in which it falls by a factor e
USUAL = [1.0, 1.0, 0.1, 1.0]  # size of the numbers in a state
GOAL, EVERY = 475, 250  # EVERY: steps between two evaluations


class Memory:
    """What happened last: states, actions, the states that followed, and whether the episode ended there.

    Its 500th step counts as an end.
    """

    def __init__(self, size):
        self.states, self.following = np.zeros((2, size, 4), np.float32)
        self.actions, self.is_over = np.zeros(size, int), np.zeros(size, bool)
        self.size, self.added = size, 0

    def add(self, states, actions, following, is_over):
        """Overwrites the oldest entries."""
        rows = (self.added + np.arange(len(states))) % self.size
        self.states[rows], self.actions[rows] = states, actions
        self.following[rows], self.is_over[rows] = following, is_over
        self.added += len(states)

    def draw(self, rng):
        """Returns a batch of random entries."""
        rows = rng.integers(0, min(self.added, self.size), BATCH)
        return self.states[rows], self.actions[rows], self.following[rows], self.is_over[rows]


class Agent:
    """The net that is trained, and its target network."""

    def __init__(self, seed):
        layers = [Normalize(np.zeros(4), USUAL), Dense(64), ReLU(), Dense(64), ReLU(), Dense(2)]
        self.model = Sequential(layers, input_shape=(4,), seed=seed)
        self.target = copy.deepcopy(self.model)
        self.trainer = Trainer(self.model, "mean_squared_error", Adam(0.0023))  # a trainer has a loss; not used here

    def choose(self, states):
        """Returns the actions of the highest values."""
        return self.model.predict(states).argmax(axis=1)

    def learn(self, states, actions, following, is_over):
        """Makes a step on a batch; the target network follows."""
        rows = np.arange(len(states))
        ahead = self.target.predict(following)[rows, self.choose(following)]  # chosen by one net, valued by the other
        aims = REWARD + DISCOUNT * ahead * ~is_over
        scores = self.model.forward(states, training=True)
        dscores = np.zeros_like(scores)
        dscores[rows, actions] = np.clip(scores[rows, actions] - aims, -1, 1) / len(states)  # of the mean Huber loss
        self.trainer.backward_step(dscores)
        self.target.soft_update(self.model, TAU)


def train(agent, seed, most):
    """Trains until the goal is reached, for at most `most` steps; returns their number and the seconds in them."""
    rng = np.random.default_rng(seed)
    carts, memory, seconds = Carts(CARTS, rng), Memory(MEMORY), 0.0
    for step in range(1, most + 1):
        start = time.perf_counter()
        states, exploring = carts.state, RANDOM + (1 - RANDOM) * np.exp(-step / DECAY)
        actions = np.where(rng.random(CARTS) < exploring, rng.integers(0, 2, CARTS), agent.choose(states))
        is_over = carts.step(actions)
        memory.add(states, actions, carts.state, is_over)
        if memory.added >= BATCH:
            agent.learn(*memory.draw(rng))
        seconds += time.perf_counter() - start
        if step % EVERY == 0 or step == most:
            mean = mean_length(agent.choose)
            print(f"Mean length of 100 episodes after {step} steps: {mean:.1f}")
            if mean >= GOAL:
                break
    return step, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000, help="the most steps")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    minidl.set_num_threads(arguments.threads)
    agent = Agent(arguments.seed)
    done, seconds = train(agent, arguments.seed, arguments.steps)
    print(f"{done} steps of the net in {seconds:.2f} s, {done / seconds:.0f} a second")
    weights = b"".join(array.tobytes() for array in agent.model.state_dict().values())
    print(f"SHA-256 of the weights: {hashlib.sha256(weights).hexdigest()}")


if __name__ == "__main__":
    main()
