"""Back-propagation of a batch through max-pooling
==================================================

Nine claims, each one computed: which pixels get a gradient, why each example has winners of its own, and where the
gradients of a batch are summed.

Run it with: `python examples/max_pool_batch.py [--plot routing.png]`

A small net reads 100 of the embedded digits, in float64, so that gradients can be compared with finite differences. The
program stops at the first claim that does not hold. `docs/explanation/how-a-batch-is-backpropagated.md` derives the
claims.
"""

import argparse
import copy
from importlib.util import find_spec

import batch_and_step
import numpy as np
from batch_and_step import N, check, check_equal, flatten, relative_error, train_net, walk

import minidl
from minidl import Sequential, plots
from minidl.layers import MaxPool2D
from minidl.losses import softmax_cross_entropy


def prepare():
    """Returns the net, and the activations of 100 digits inside it."""
    b = batch_and_step.prepare()
    b.first, b.pool, b.last = b.model[:3], b.model[3:4], b.model[4:]
    b.convolved = b.model[:2].predict(b.X)  # (100, 8, 8, 8): x of the ReLU
    b.maps = b.first.predict(b.X)  # (100, 8, 8, 8): x of the pool
    b.pooled = b.pool.predict(b.maps)  # (100, 8, 4, 4): its y
    _, b.dscores = softmax_cross_entropy(b.last.predict(b.pooled), b.y)  # (100, 10), of each example's own loss
    b.dpooled, _ = backpropagate(b.last, b.pooled, b.dscores)  # (100, 8, 4, 4): dy of the pool
    b.slopes = finite_differences(b)  # (80,): the expected gradient of the convolution
    b.alone = [backpropagate(b.model, b.X[i : i + 1], b.dscores[i : i + 1]) for i in range(N)]  # N batches of one
    return b


# ---- the claims: one function each, stated by its docstring


def forward_keeps_every_example(b):
    """(a) Forward keeps the activations of every example: in a window, each has a winner of its own."""
    winners = split_windows(b.maps).argmax(axis=-1)
    disagree = (winners != winners[0]).any(axis=0)
    every = sum((winners == cell).any(axis=0) for cell in range(4)) == 4
    lists = len(np.unique(winners.reshape(N, -1), axis=0))
    check(disagree.mean() > 0.5, f"in {disagree.sum()} of {disagree.size} windows the {N} examples disagree")
    check(every.mean() > 0.5, f"in {every.sum()} of them each of the four pixels wins in some example")
    check(lists == N, f"{N} examples leave {lists} different lists of {disagree.size} winners")


def backward_goes_to_the_winner(b):
    """(b) Backward is done for each example: the winner gets the whole gradient of its window, all others
    exactly zero. The other examples of the batch make no difference. (This is the pool alone, without the ReLU.)
    """
    dmaps, _ = backpropagate(b.pool, b.maps, b.dpooled)
    receive = (split_windows(dmaps) != 0).sum(axis=-1)
    check(np.array_equal(dmaps, route_gradient(b)), "the same bits as a plain loop over all windows")
    check((receive == 1).all(), f"{receive.size:,} windows, {dmaps.size:,} pixels: {receive.sum():,} get a gradient")
    dX, _ = backpropagate(b.model, b.X, b.dscores)
    same = sum(np.array_equal(dx[0], dX[i]) for i, (dx, _) in enumerate(b.alone))
    check(same == N, f"{same} of {N} examples have the same bits alone as among the others")


def ties_and_overlaps(b):
    """(c) Of equal maxima the first in row-major order takes all. Where windows overlap, a pixel gets the sum
    of what it won.
    """
    image = np.ones((4, 4))
    dx = route_in_image(MaxPool2D(2), image)
    check(dx == "1 0 2 0 / 0 0 0 0 / 3 0 4 0 / 0 0 0 0", f"1, 2, 3, 4 to the windows of a constant image: {dx}")
    cells = split_windows(b.maps)
    tied = cells == cells.max(axis=-1, keepdims=True)
    ties, dark = tied.sum(axis=-1) > 1, cells.max(axis=-1) == 0
    last = np.eye(4)[3 - tied[..., ::-1].argmax(axis=-1)]
    check(ties.mean() > 0.1, f"{ties.sum():,} of {ties.size:,} windows of the digits have a tie")
    dmaps, _ = backpropagate(b.pool, b.maps, b.dpooled)
    before, _ = backpropagate(b.model[2:3], b.convolved, dmaps)
    together, _ = backpropagate(b.model[2:4], b.convolved, b.dpooled)
    stopped = split_windows(dmaps)[dark].any(axis=-1).all() and not split_windows(before)[dark].any()
    check(stopped, f"{(ties & dark).sum():,} of them are all zeros: the first zero takes all, and the ReLU stops it")
    check(np.array_equal(together, before), "ReLU and pool in one kernel, which skips that detour: the same bits")
    to_last, to_all = convolution_gradient(b, last), convolution_gradient(b, tied)
    check_equal(f"in the other {(ties & ~dark).sum()} the last would do as well", to_last, b.slopes, 1e-8)
    check_differs("all of it for each of the equals", to_all, b.slopes)
    image[1, 1] = 2
    dx = route_in_image(MaxPool2D(3, stride=1), image)
    check(dx == "0 0 0 0 / 0 10 0 0 / 0 0 0 0 / 0 0 0 0", f"1, 2, 3, 4 to four windows that one pixel won: {dx}")


def no_share_for_the_winners_of_others(b):
    """(d) To split a window's gradient over the pixels that won in any example is wrong: in this example the others
    lost, and making them a little smaller changes no loss. Finite differences of the loss agree.
    """
    winners = np.eye(4)[split_windows(b.maps).argmax(axis=-1)]  # (100, 8, 4, 4, 4), 1 for the winner
    less = b.maps - 0.01 * merge_windows(1 - winners)
    same = np.array_equal(b.pool.predict(less), b.pooled)
    check(same, f"{less.size - b.pooled.size:,} pixels lost; making them smaller does not change what the pool returns")
    often = winners.mean(axis=0)
    alike = (often > 0) / (often > 0).sum(axis=-1, keepdims=True)
    own = flatten(backpropagate(b.model, b.X, b.dscores)[1])[: b.slopes.size] / N
    check_equal("the convolution, all of it for the example's own winner", own, b.slopes, 1e-8)
    check_differs("equal shares for all that won in some example", convolution_gradient(b, alike), b.slopes)
    check_differs("shares by how often they won", convolution_gradient(b, often), b.slopes)


def gradients_are_summed_at_the_end(b):
    """(e) Only the gradients of parameters are summed over the examples, at the very end, and divided once.
    (Dense weights agree to rounding: their kernel fuses product and sum.)
    """
    each = b.trainer.per_example_gradients(b.X, b.y)
    same = sum(all(np.array_equal(each[name][i], grads[name]) for name in each) for i, (_, grads) in enumerate(b.alone))
    check(same == N, f"{same} of {N} rows of per_example_gradients have the bits of a batch of that example alone")
    _, whole = backpropagate(b.model, b.X, b.dscores)
    for name, total in minidl.batch_sum(each).items():
        error = relative_error(total, whole[name])
        holds = error < 1e-13 if name == "5.weight" else error == 0
        check(holds, f"batch_sum of {name}, {each[name].shape}: off the batch's gradient by {error:.1g}")
    trainer = copy.deepcopy(b.trainer)
    trainer.train_batch(b.X, b.y)
    same = sum(np.array_equal(p.grad, whole[name] / N) for name, p in trainer.model.params.items())
    check(same == len(whole), f"{same} of {len(whole)} gradients of a step: the batch's sum over {N}, to the bit")


def the_mean_error_is_not_enough(b):
    """(f) To average the error first and go back once is wrong. The gradient of a linear layer's weights is a
    mean of products, error times input, not a product of means. Before the first nonlinearity all is wrong.
    """
    true = backpropagate(b.last, b.pooled, b.dscores)[1]["1.weight"] / N
    products = b.dscores[:, :, np.newaxis] * b.pooled.reshape(N, 1, -1)
    check_equal("dense weights, the mean of the products", products.mean(axis=0), true)
    dpooled, once = backpropagate(b.last, mean_example(b.pooled), mean_example(b.dscores))
    check_differs("dense weights, the product of the means", once["1.weight"], true)
    check_equal("dx of the dense layer, which is linear", dpooled, mean_example(b.dpooled))
    dmaps, _ = backpropagate(b.pool, mean_example(b.maps), dpooled)
    check_differs("dx of the max-pool", dmaps, mean_example(route_gradient(b)))
    _, once = backpropagate(b.first, mean_example(b.X), dmaps)
    check_differs("weights of the convolution before it", flatten(once), b.slopes)


def a_batch_may_come_in_parts(b):
    """(g) What is a sum can be summed in parts (Caffe's iter_size). minidl adds 16 examples in a fixed order,
    and these sums in pairs: parts of 16 give the same bits as the batch, others the same numbers.
    """
    whole, sixteens, twenties = (sum_in_parts(b, size) for size in (N, 16, 20))
    check(
        np.array_equal(sixteens, whole), f"{len(range(0, N, 16))} parts of at most 16, by hand: the bits of the batch"
    )
    check(not np.array_equal(twenties, whole), f"{len(range(0, N, 20))} parts of 20, by hand: other bits,")
    check_equal("but the same numbers", twenties, whole)
    weights, sizes = [], ((N, 1), (16, 7), (20, 5))
    for batch_size, accumulate in sizes:
        trainer = copy.deepcopy(b.trainer)
        trainer.fit(b.X, b.y, epochs=3, batch_size=batch_size, gradient_accumulation_steps=accumulate, verbose=0)
        weights.append(flatten(trainer.model.state_dict()))
    same = all(np.array_equal(weights[0], others) for others in weights)
    micro = f"batch_size, gradient_accumulation_steps = {sizes[1:]}"
    check(same, f"fit with {micro}, which adds by 16 in any case: the bits of the batch")


# ---- helpers


def split_windows(maps):
    """(n, c, h, w) -> (n, c, h / 2, w / 2, 4): the pixels of each 2x2 window in row-major order."""
    n, c, h, w = maps.shape
    return maps.reshape(n, c, h // 2, 2, w // 2, 2).swapaxes(3, 4).reshape(n, c, h // 2, w // 2, 4)


def merge_windows(cells):
    """Inverts `split_windows`."""
    n, c, h, w, _ = cells.shape
    return cells.reshape(n, c, h, w, 2, 2).swapaxes(3, 4).reshape(n, c, 2 * h, 2 * w)


def route_gradient(b):
    """Returns the pool's gradient, computed in plain Python: window by window, all of it to the first maximum."""
    dmaps = np.zeros_like(b.maps)
    for i, c, h, w in np.ndindex(b.pooled.shape):
        window = np.s_[i, c, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2]
        first = b.maps[window].argmax()
        dmaps[window][first // 2, first % 2] += b.dpooled[i, c, h, w]
    return dmaps


def backpropagate(part, x, dy):
    """Returns the gradient of x through a part of the model, and the summed gradients of its parameters by name."""
    part.forward(x, training=True)
    dx = part.backward(dy)
    return dx, {name: p.grad.copy() for name, p in part.params.items()}


def convolution_gradient(b, shares):
    """Returns the convolution's gradient if each pixel gets a fraction, shares (..., 4), of its window's gradient."""
    return flatten(backpropagate(b.first, b.X, merge_windows(b.dpooled[..., np.newaxis] * shares))[1]) / N


def sum_in_parts(b, size):
    """Returns the gradients of all parameters, computed in parts of the batch and added pairwise."""
    parts = [slice(i, i + size) for i in range(0, N, size)]
    sums = [flatten(backpropagate(b.model, b.X[part], b.dscores[part])[1]) for part in parts]
    while len(sums) > 1:
        sums = [sum(sums[k + 1 : k + 2], sums[k]) for k in range(0, len(sums), 2)]
    return sums[0]


def route_in_image(layer, image):
    """Returns dx of a small image, as text, for a layer with four outputs whose gradients are 1, 2, 3, 4."""
    model = Sequential([layer], input_shape=(1, *image.shape))
    dx, _ = backpropagate(model, image[np.newaxis, np.newaxis], [[[[1, 2], [3, 4]]]])
    return " / ".join(" ".join(f"{pixel:.0f}" for pixel in row) for row in dx[0, 0])


def finite_differences(b, step=1e-5):
    """Returns the gradient of the mean loss for the convolution's parameters, from losses alone."""
    slopes = []
    for value in (b.model.params["1.weight"].value, b.model.params["1.bias"].value):
        for index in np.ndindex(value.shape):
            original, losses = value[index], []
            for moved in (original + step, original - step):
                value[index] = moved
                losses.append(softmax_cross_entropy(b.model.predict(b.X), b.y)[0].mean())
            value[index] = original
            slopes.append((losses[0] - losses[1]) / (2 * step))
    return np.array(slopes)


def mean_example(values):
    """Returns the mean over the examples, as a batch of one."""
    return values.mean(axis=0, keepdims=True)


def check_differs(what, found, true):
    """Checks that `found` is far from `true`; the cosine of their angle is 1 for the same direction."""
    cosine = (found * true).sum() / np.linalg.norm(found) / np.linalg.norm(true)
    check(relative_error(found, true) > 0.2, f"{what}: wrong by {relative_error(found, true):.0%}, cosine {cosine:.2f}")


def main():
    """Checks the claims (a) to (i)."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plot", metavar="FILE", help="draw a pool whose windows overlap: winners and gradients")
    path = parser.parse_args().plot
    if path and find_spec("matplotlib") is None:
        raise SystemExit('matplotlib is not installed: pip install "minidl[plot]"')
    claims = [
        forward_keeps_every_example,
        backward_goes_to_the_winner,
        ties_and_overlaps,
        no_share_for_the_winners_of_others,
        gradients_are_summed_at_the_end,
        the_mean_error_is_not_enough,
        a_batch_may_come_in_parts,
        batch_and_step.the_step_takes_the_mean,
        batch_and_step.a_batch_is_a_better_guess,
    ]
    walk(claims, prepare())
    if path:
        trainer, data = train_net(MaxPool2D(3, stride=2))
        brightest = int(trainer.model.params["1.bias"].value.argmax())  # its background is not 0, which makes ties
        figure = plots.pool_routing(trainer.model, data.X_test[:N], data.y_test[:N], layer=3, channel=brightest)
        figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
