"""examples/ppo.py beside the same program in PyTorch: steps of carts a second, and seconds to a mean length of 475.

Both sides start from the same weights, with the same carts, batches and numbers; PyTorch computes the gradient of the
objective by autograd, and steps by its fused Adam. They run in turn, once for each seed, with one thread.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import ppo
import torch
from torch import nn

import minidl


class TorchAgent:
    """The net of `ppo.Agent` in PyTorch, with its weights."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.net = nn.ModuleDict({"body": body, "policy": nn.Linear(64, 2), "value": nn.Linear(64, 1)})
        places = {"0": "body.0", "2": "body.2", "4.policy.0": "policy", "4.value.0": "value"}
        state = {name.rpartition(".")[::2]: array for name, array in ppo.Agent(seed).model.state_dict().items()}
        weights = {f"{places[place]}.{name}": torch.tensor(array) for (place, name), array in state.items()}
        self.net.load_state_dict(weights)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 0.002, fused=True)

    def forward(self, states):
        hidden = self.net["body"](torch.as_tensor(states, dtype=torch.float32))
        return self.net["policy"](hidden), self.net["value"](hidden)

    def predict(self, states):
        with torch.inference_mode():
            policy, value = self.forward(states)
        return {"policy": policy.numpy(), "value": value.numpy()}

    def learn(self, states, actions, logs_before, advantages, returns):
        policy, value = self.forward(states)
        given = logs_before, advantages, returns
        before, gain, aims = (torch.as_tensor(array, dtype=torch.float32) for array in given)
        logs = torch.log_softmax(policy, 1)
        ratio = (logs.gather(1, torch.as_tensor(actions)[:, None])[:, 0] - before).exp()
        surrogate = torch.minimum(ratio * gain, ratio.clip(1 - ppo.CLIP, 1 + ppo.CLIP) * gain).mean()
        entropy = -(logs.exp() * logs).sum(1).mean()
        loss = -surrogate - ppo.ENTROPY * entropy + ppo.VALUE * ((value[:, 0] - aims) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=100, help="the most iterations")
    arguments = parser.parse_args()
    minidl.set_num_threads(1)
    torch.set_num_threads(1)
    sides = {"minidl": ppo.Agent, "PyTorch": TorchAgent}
    found = {name: [] for name in sides}
    for seed in range(arguments.seeds):
        for name, agent in sides.items():
            found[name].append(ppo.train(agent(seed), seed, arguments.iterations, say=lambda line: None))
    for name, runs in found.items():
        steps, seconds = [done * ppo.CARTS * ppo.HORIZON for done, _ in runs], [time for _, time in runs]
        print(
            f"{name:8} {sum(steps) / sum(seconds):8.0f} steps/s   {mean(seconds):6.2f} s to {ppo.GOAL} on average "
            f"({min(seconds):.2f} to {max(seconds):.2f}), in {mean(steps):.0f} steps"
        )


if __name__ == "__main__":
    main()
