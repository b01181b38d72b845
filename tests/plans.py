"""Small plans for prediction and training, with valid arguments that tests make invalid."""

import numpy as np

from minidl_c.kernels.dense import DenseOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.training_call import TrainingCall

N, IN, OUT = 40, 4, 3
SIZE = (IN + 1) * OUT  # of the flat parameters


def dense_plan():
    return Plan([DenseOp((IN,), OUT)], [0])


def loss_plan():
    return Plan([DenseOp((IN,), OUT), SoftmaxCrossEntropyOp((OUT,))], [0, 0], has_loss=True)


def regression_plan():
    return Plan([DenseOp((IN,), OUT), ElementwiseLossOp((OUT,), "huber")], [0, 0], has_loss=True)


def predicting():
    x, param = np.ones((N, IN), "f4"), np.ones(SIZE, "f4")
    return {"x": x, "rows": np.arange(N), "param": param, "y": np.zeros((N, OUT), "f4"), "num_threads": 2}


def training(batch=8):
    steps = N // batch
    return {
        "x": np.ones((N, IN), "f4"), "rows": np.arange(N), "batch": batch, "targets": np.arange(N) % OUT,
        "weights": np.ones(N, "f4"), "losses": np.zeros(N, "f4"), "scores": np.zeros((N, OUT), "f4"),
        "divisors": np.full(steps, 8.0), "lrs": np.full(steps, 0.1), "param": np.zeros(SIZE, "f4"),
        "grad": np.zeros(SIZE, "f4"), "update": SGDUpdate(SIZE, "float32", 0.9), "num_threads": 2, "seed": 0,
        "step_counter": np.zeros(1, "i8"), "example_ids": np.arange(N),
    }  # fmt: skip


def train(plan, *arguments, **named):
    return plan.train(TrainingCall(*arguments, **named))


def regression(batch=8):
    return training(batch) | {"targets": np.ones((N, OUT), "f4")}


def kept():
    plan, given = dense_plan(), predicting()
    return plan, plan.forward(given["x"], given["param"], given["y"], 2), given


def back(plan, p, given, **changes):
    arguments = {"dy": np.ones((N, OUT), "f4"), "dx": np.zeros((N, IN), "f4"), "grad": np.zeros(SIZE, "f4")} | changes
    return plan.backward(p, arguments["dy"], arguments["dx"], arguments.get("param", given["param"]), arguments["grad"])
