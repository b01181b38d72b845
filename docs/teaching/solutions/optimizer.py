"""A solution of the exercise SGD."""


class SGD:
    """v = momentum * v + g, w = w - lr * v, for each parameter w with gradient g."""

    def __init__(self, lr, momentum=0.9):
        self.lr = lr
        self.momentum = momentum
        self.velocity = {}

    def step(self, params, lr):
        for name, p in params.items():
            self.velocity[name] = self.momentum * self.velocity.get(name, 0) + p.grad
            p.value -= lr * self.velocity[name]
