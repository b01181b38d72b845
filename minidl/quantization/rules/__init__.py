"""The layers that integers can compute: translations into the graph, one file for each kind of layer.

translate_*(site) appends a layer to its input, and returns its output.
"""

from minidl.layers.base import Layer
from minidl.quantization.rules import copies, functions, identities, pools, products
from minidl.quantization.site import Translate

TRANSLATIONS: dict[type[Layer], Translate] = {
    **copies.TRANSLATIONS,
    **functions.TRANSLATIONS,
    **identities.TRANSLATIONS,
    **pools.TRANSLATIONS,
    **products.TRANSLATIONS,
}
