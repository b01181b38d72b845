"""Plots of what a model has learned and where it is wrong, with matplotlib: pip install "minidl[plot]".

Each function returns a Figure that is not registered with pyplot: a notebook displays it as the last line of a cell,
`savefig` writes it, and it need not be closed. For a window, pass one of pyplot's figures:
`filters(model, figure=plt.figure())`. Learning curves are drawn by the history that `fit` returns: `history.plot()`.
"""

from minidl.plots.activations import feature_maps
from minidl.plots.calibration import calibration_curve
from minidl.plots.masks import masks
from minidl.plots.predictions import confusion_matrix, misclassified
from minidl.plots.routing import pool_routing
from minidl.plots.saliency import grad_cam, saliency
from minidl.plots.weights import filters

__all__ = ["calibration_curve", "confusion_matrix", "feature_maps", "filters", "grad_cam", "masks", "misclassified"]
__all__ += ["pool_routing", "saliency"]
