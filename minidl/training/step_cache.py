"""StepCache: the steps of a trainer, made again when something that they depend on was exchanged or frozen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from minidl.engine.network import Network
from minidl.engine.segments import ParamGroups
from minidl.engine.sizes import KEPT
from minidl.layers.base import Layer
from minidl.losses import Loss
from minidl.sequential import Sequential
from minidl.training.per_example_steps import ClippedSteps
from minidl.training.steps import Steps, make_steps
from minidl.utils.validation import check_count
from minidl_c.optimizers.update import Update


@dataclass(frozen=True, eq=False)
class StepKey:
    """What steps are made of. Two keys are the same if all their parts are the same objects."""

    network: Network
    of_model: Network  # that of the model, of which `network` may be without some outputs
    optimizer: Any
    loss: Loss
    groups: ParamGroups
    in_parts: bool  # whether steps see their micro-batches one by one
    per_example_clip_norm: float | None

    def is_same(self, other: StepKey | None) -> bool:
        """Whether steps made of this key serve the other."""
        return other is not None and all(a is b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))

    def has_same_state(self, other: StepKey | None) -> bool:
        """Whether the optimizer's state carries over."""
        if other is None or self.optimizer is not other.optimizer:
            return False
        return self.of_model.parameters.values is other.of_model.parameters.values  # also of another size

    def skips(self, leaf: Layer) -> bool:
        """Whether steps leave a layer of the model alone."""
        group = self.groups.get(id(leaf))
        return group is None or group.frozen


class StepCache:
    """Keeps the steps made last, and counts for each layer the optimizer steps that were made while it was frozen.

    Of a model of images of any size, the steps of several sizes have one state of the optimizer.
    """

    def __init__(self) -> None:
        self.steps: Steps | ClippedSteps | None = None
        self._key: StepKey | None = None
        self._made: list[tuple[StepKey, list[int], Steps | ClippedSteps]] = []  # the latest ones, with skipped steps
        self._skipped: dict[int, int] = {}  # the number of skipped steps by the index of a layer
        self._counted = 0  # the number of optimizer steps that `_skipped` accounts for

    def get(self, model: Sequential, key: StepKey, seed: int) -> Steps | ClippedSteps:
        """Returns the steps of this key."""
        if self.steps is None or not key.is_same(self._key):
            update = None
            if self.steps is not None and key.has_same_state(self._key):
                self._count_skipped()
                update = self.steps.update
            else:
                self._skipped, self._counted, self._made = {}, 0, []
            skipped = self._skipped_by_trained(key)
            known = next((made for other, has, made in self._made if key.is_same(other) and has == skipped), None)
            if known is None:
                self._make(model, key, seed, update)
            else:
                self.steps, self._key = known, key
        assert self.steps is not None
        self.steps.seed = seed
        return self.steps

    def skipped_steps(self) -> list[int]:
        """Returns for each layer of the model the number of optimizer steps that were made while it was frozen."""
        assert self._key is not None
        self._count_skipped()
        return [self._skipped.get(i, 0) for i in range(len(self._key.of_model.leaves))]

    def set_skipped_steps(self, model: Sequential, seed: int, skipped: list[int]) -> None:
        """Sets what `skipped_steps` returned elsewhere; raises TypeError or ValueError for other lists."""
        assert self.steps is not None and self._key is not None
        name, update, leaves = "skipped_steps", self.steps.update, self._key.of_model.leaves
        done = 0 if update is None else update.steps
        is_list = isinstance(skipped, list) and len(skipped) == len(leaves)
        if not is_list or any(check_count(name, n) > done for n in skipped):
            expected = f"expected for each of {len(leaves)} layers at most {done} steps"
            raise ValueError(f"{name}: {expected}, got {skipped!r:.100}")
        self._skipped, self._counted, self._made = dict(enumerate(skipped)), done, []
        self._make(model, self._key, seed, update)

    def _make(self, model: Sequential, key: StepKey, seed: int, update: Update | None) -> None:
        """Makes the steps. update: the optimizer's state, which covers frozen layers as well."""
        skipped = {id(leaf): self._skipped.get(i, 0) for i, leaf in enumerate(key.of_model.leaves)}
        groups = {i: replace(group, skipped_steps=skipped.get(i, 0)) for i, group in key.groups.items()}
        steps: Any = make_steps(model, key.network, key.loss, key.optimizer, seed, update, key.in_parts, groups)
        if key.per_example_clip_norm is not None:
            steps = ClippedSteps(steps, key.network, key.loss, key.per_example_clip_norm)
        self.steps, self._key = steps, key
        self._made = [*self._made, (key, self._skipped_by_trained(key), steps)][-KEPT:]

    def _count_skipped(self) -> None:
        """Counts steps for layers that were frozen: the optimizer's formulas do not know them."""
        if self.steps is None or self._key is None or (update := self.steps.update) is None:
            return
        for i, leaf in enumerate(self._key.of_model.leaves):
            if self._key.skips(leaf):
                self._skipped[i] = self._skipped.get(i, 0) + update.steps - self._counted
        self._counted = update.steps

    def _skipped_by_trained(self, key: StepKey) -> list[int]:
        """Returns the skipped steps of the layers that steps of this key train."""
        leaves = enumerate(key.of_model.leaves)
        return [self._skipped.get(i, 0) for i, leaf in leaves if not key.skips(leaf)]
