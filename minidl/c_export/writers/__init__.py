"""The C of minidl's layers: write functions, one file for each kind of layer.

write_*(writer, x) adds the statements that compute a layer from the tensor x, and returns its output.
"""

from minidl.c_export.code_writer import WriteFunction
from minidl.c_export.writers import activations, convolutions, dense, identities, norms, pools, recurrent, shapes
from minidl.layers.base import Layer

WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    **activations.WRITE,
    **convolutions.WRITE,
    **dense.WRITE,
    **identities.WRITE,
    **norms.WRITE,
    **pools.WRITE,
    **recurrent.WRITE,
    **shapes.WRITE,
}
