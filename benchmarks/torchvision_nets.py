"""The classification CNNs of torchvision, with random weights and exported by PyTorch."""

import copy
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision.ops import StochasticDepth

SIZES = {  # height and width of the images: for most nets the smallest that their strides allow
    "alexnet": 224, "vgg11_bn": 224, "vgg16": 224,
    "resnet18": 64, "resnet50": 64, "resnext50_32x4d": 64, "wide_resnet50_2": 64, "densenet121": 64,
    "squeezenet1_0": 64, "squeezenet1_1": 64, "googlenet": 64, "inception_v3": 96,
    "mobilenet_v2": 64, "mobilenet_v3_small": 64, "mobilenet_v3_large": 64,
    "shufflenet_v2_x0_5": 64, "shufflenet_v2_x1_0": 64, "mnasnet0_5": 64, "mnasnet1_0": 64,
    "efficientnet_b0": 64, "efficientnet_v2_s": 64, "regnet_x_400mf": 64, "regnet_y_400mf": 64, "convnext_tiny": 64,
}  # fmt: skip
WITH_AUXILIARY_SCORES = ("googlenet", "inception_v3")
DIMS = {"input": {0: "batch"}, "output": {0: "batch"}}


def draw(name, size, seed=0):
    """Returns a net in eval mode whose statistics and learned scales are those of a trained one: none is 0 or 1."""
    torch.manual_seed(seed)
    arguments = {"aux_logits": False, "init_weights": True} if name in WITH_AUXILIARY_SCORES else {}
    net = getattr(torchvision.models, name)(weights=None, **arguments)
    norms = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad():
        for key, param in net.named_parameters():
            if key.endswith("layer_scale"):  # ConvNeXt: 1e-6 hides its branches
                param.uniform_(0.2, 0.6)
            elif param.dim() == 1:
                param.add_(0.1 * torch.randn_like(param))
        for norm in norms:
            norm.momentum = None
        net.train()(torch.randn(16, 3, size, size))  # scores of the net's own statistics stay in range
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.running_mean.add_(0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean))
            norm.running_var.mul_(torch.empty_like(norm.running_var).uniform_(0.7, 1.4))
    return net.eval()


def without_randomness(net):
    """Returns a copy whose dropout and stochastic depth keep everything."""
    net = copy.deepcopy(net)
    for module in net.modules():
        if isinstance(module, nn.Dropout | StochasticDepth):
            module.p = 0.0
    return net


def export(net, example, path: Path, exporter, opset=None, **options):
    """Writes an ONNX file with any batch. exporter: "dynamo" or "torchscript"; opset: None: the exporter's default."""
    if exporter == "dynamo":
        options |= {"dynamic_shapes": ({0: torch.export.Dim("batch", max=4096)},), "external_data": False}
    else:
        options |= {"dynamic_axes": DIMS}
    if opset is not None:
        options["opset_version"] = opset
    names = {"input_names": ["input"], "output_names": ["output"], "verbose": False}
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (example,), str(path), dynamo=exporter == "dynamo", **names, **options)


def scores(net, images):
    """Returns the scores of a net in its own dtype."""
    dtype = next(net.parameters()).dtype
    with torch.no_grad():
        return net(torch.from_numpy(images).to(dtype)).numpy().astype(np.float64)
