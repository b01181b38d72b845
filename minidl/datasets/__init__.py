"""Image data sets as uint8 NCHW arrays: known ones, through scikit-learn, and folders of image files.

Pixels are the unscaled integers of the source; use a `Rescale` layer to scale them.
"""

from minidl.datasets.cache import Bunch
from minidl.datasets.images import load_image, load_images
from minidl.datasets.openml import DatasetUnavailable, load_cifar10, load_digits, load_fashion_mnist, load_mnist

__all__ = [
    "Bunch",
    "DatasetUnavailable",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_image",
    "load_images",
    "load_mnist",
]
