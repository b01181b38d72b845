"""Errors of Winograd's convolutions in trained nets: each layer with its real inputs, weights and gradients."""

import numpy as np
from nets import NETS, leaves, make_model
from winograd_errors import RESULTS, Convolution, columns, find_sides, format_row, measure_errors, ratio
from winograd_training import augmented, first_images, load_shapes, train

from minidl import Layer
from minidl.layers import Block, Conv2D, Residual

EPOCHS, BATCH = 4, 64


class Recorder(Layer):
    """Returns its input, and keeps it and its gradient."""

    def forward(self, x, training):
        self.x = x
        return x

    def backward(self, dy):
        self.dy = dy
        return dy


def recorded(layers):
    """Returns the layers with every convolution between two recorders."""
    found = []
    for layer in layers:
        if isinstance(layer, Residual):
            body, shortcut = (recorded(branch) for branch in layer.named_branches().values())
            layer = Residual(*body, shortcut=shortcut or None)
        found.append(Block(Recorder(), layer, Recorder()) if isinstance(layer, Conv2D) else layer)
    return found


def record_step(net, model, data):
    """Returns (name, Convolution) of all convolutions of a trained net in a step on one batch that suit Winograd's."""
    copy = make_model(augmented(recorded(net.layers()), data), data.X_train.shape[1:])
    copy.load_state_dict(dict(zip(copy.state_dict(), model.state_dict().values(), strict=True)))
    X, y = data.X_train[:BATCH], data.y_train[:BATCH]
    scores = copy.forward(X, training=True)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    copy.backward((weights / weights.sum(axis=1, keepdims=True) - np.eye(scores.shape[1])[y]) / len(X))
    found = leaves(copy)
    places = [i for i, layer in enumerate(found) if isinstance(layer, Conv2D)]
    for number, i in enumerate(places, 1):
        before, layer, after = found[i - 1 : i + 2]
        if layer.kernel_size == 3 and layer.stride == 1:
            bias = layer.bias.value if layer.use_bias else np.zeros(layer.filters, "f4")
            arrays = before.x, layer.weight.value, bias, after.dy
            conv = Convolution(*(np.ascontiguousarray(a, "f4") for a in arrays), (layer.padding,) * 4)
            if conv.suits_winograd:
                yield f"{number}: {'x'.join(map(str, layer.in_shape))} to {layer.filters}", conv


def measure_nets(args):
    """Trains each net, then prints the errors of its median and its worst layer, by root mean square."""
    sides, results = find_sides(), {}
    data = first_images(load_shapes(), args.images)
    for name in args.nets:
        net = NETS[name]
        trainer = train(augmented(net.layers(), data), data, EPOCHS, 0, args.threads)
        accuracy = 100 * trainer.evaluate(data.X_test, data.y_test)["accuracy"]
        layers = {}
        for layer, conv in record_step(net, trainer.model, data):
            layers[layer] = measure_errors(conv, sides, args.threads)
            layers[layer]["nonzero"] = float(np.count_nonzero(conv.x) / conv.x.size)
        results[name] = {"accuracy": accuracy, "layers": layers}
        trained = f"{EPOCHS} epochs of {len(data.X_train):,} shapes, test accuracy {accuracy:.1f}%"
        print(f"\n{net.title}, after {trained}: {len(layers)} convolutions, a batch of {BATCH}")
        print("errors in 1e-7 of the exact result's root mean square\n")
        print_layers(layers, sides)
    return results


def print_layers(layers, sides):
    """Prints the median and the worst layer of each result."""
    print(columns(sides, "RMS", "largest"))
    for result in RESULTS:
        ordered = sorted(layers, key=lambda name: ratio(layers[name][result]))
        for which, name in {"median": ordered[(len(ordered) - 1) // 2], "worst": ordered[-1]}.items():
            errors = layers[name][result]
            row = format_row(f"{result} {which}", errors, ratio(errors), ratio(errors, 1))
            print(f"{row}   convolution {name}", flush=True)
