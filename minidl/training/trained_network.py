"""TrainedNetwork: the network that a trainer's steps train, which leaves out outputs without a loss."""

from __future__ import annotations

from minidl.engine.network import Network
from minidl.losses import Loss
from minidl.losses.output_losses import OutputLosses
from minidl.sequential import Sequential


class TrainedNetwork:
    """Keeps the network that was made last, since steps belong to it."""

    def __init__(self) -> None:
        self._made: tuple[Network, tuple[str, ...], Network] | None = None

    def of(self, model: Sequential, loss: Loss) -> Network:
        """Returns the network of a built model, or of those of its several outputs that have a loss, with its settings.

        The gradients of the others are zero.
        """
        network = model.network
        assert network is not None
        network.refresh()
        outputs = network.outputs
        if not isinstance(loss, OutputLosses) or outputs is None or len(loss.losses) == len(outputs.shapes):
            return network
        names = tuple(loss.losses)
        if self._made is None or self._made[0] is not network or self._made[1] != names:
            self._made = network, names, network.keeping(names)
        trained = self._made[2]
        trained.lr_mult = network.lr_mult
        trained.refresh()
        for leaf in network.leaves:
            if id(leaf) not in trained.trained:
                network.parameters.clear(leaf)
        return trained
