"""Pictures of what a model has learned and where it is wrong, drawn with matplotlib: pip install "minidl[plot]".

Each function returns a Figure that pyplot does not know: a notebook shows it as the last line of a cell, `savefig`
writes it, and nobody has to close it. For a window, draw into one of pyplot's: `filters(model, figure=plt.figure())`.
Curves of a training are drawn by the history that `fit` returns: `history.plot()`.
"""

from minidl.plots.activations import feature_maps
from minidl.plots.predictions import confusion_matrix, misclassified
from minidl.plots.routing import pool_routing
from minidl.plots.weights import filters

__all__ = ["confusion_matrix", "feature_maps", "filters", "misclassified", "pool_routing"]
