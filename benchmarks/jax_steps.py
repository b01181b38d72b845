"""The training step in JAX, compiled with jit. JAX chooses its own number of threads."""

import itertools

import jax
import jax.numpy as jnp
from jax import lax
from nets import LR, MOMENTUM

from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale


def scores_of(model, params, x):
    """Returns the scores of a minidl model's layers for scaled images, with these parameters."""
    for i, layer in enumerate(model.layers):
        match layer:
            case Conv2D():
                pad = layer.padding if isinstance(layer.padding, int) else 0
                x = lax.conv_general_dilated(x, params[f"{i}.weight"], (1, 1), ((pad, pad), (pad, pad)))
                x += params[f"{i}.bias"][:, None, None]
            case Dense():
                x = x @ params[f"{i}.weight"].T + params[f"{i}.bias"]
            case MaxPool2D():
                size = (1, 1, layer.pool_size, layer.pool_size)
                x = lax.reduce_window(x, -jnp.inf, lax.max, size, size, "VALID")
            case ReLU():
                x = jnp.maximum(x, 0)
            case Flatten():
                x = x.reshape(len(x), -1)
            case Rescale():
                pass
            case _:
                raise NotImplementedError(f"not written in JAX here: {type(layer).__name__}")
    return x


class JaxSteps:
    """Training steps on batches that are already in memory, scaled, in float32."""

    def __init__(self, task):
        model = task.model()
        self.params = {name: jnp.array(value) for name, value in model.state_dict().items()}
        self.velocity = {name: jnp.zeros_like(value) for name, value in self.params.items()}
        self.batches = [(jnp.array(x), jnp.array(y)) for x, y in task.cut(task.scaled, task.y)]

        def loss_of(params, x, y):
            log_p = jax.nn.log_softmax(scores_of(model, params, x))
            return -jnp.take_along_axis(log_p, y[:, None], axis=1).mean()

        def step(params, velocity, x, y):
            loss, grads = jax.value_and_grad(loss_of)(params, x, y)
            velocity = {name: MOMENTUM * velocity[name] + grads[name] for name in grads}
            return loss, {name: params[name] - LR * velocity[name] for name in grads}, velocity

        self.step = jax.jit(step, donate_argnums=(0, 1))

    def step_loss(self):
        loss, self.params, self.velocity = self.step(self.params, self.velocity, *self.batches[0])
        return float(loss)

    def run(self, steps):
        """Runs `steps` training steps, cycling through the batches."""
        for x, y in itertools.islice(itertools.cycle(self.batches), steps):
            loss, self.params, self.velocity = self.step(self.params, self.velocity, x, y)
        loss.block_until_ready()
