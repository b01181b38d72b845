"""History: what training was measured by, epoch after epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from minidl.utils.foreign_words import HISTORY
from minidl.utils.hints import answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


@answers(HISTORY)
class History(dict[str, list[float]]):
    """A dict of lists with an entry for each epoch: epoch, loss, metrics, `val_*`, lr, images_per_second.

    Then follow the names of numbers that callbacks have added.

    Epochs are numbers from 0 here, in files of loggers and in hooks; what is shown counts from 1: lines and plots.
    """

    def copy(self) -> History:
        """Returns another History with the same lists, as `dict.copy`."""
        return History(self)

    def append_epoch(self, logs: Mapping[str, float]) -> None:
        """Appends an epoch; every list has an entry for every epoch, NaN where a name is missing.

        Parameters
        ----------
        logs : dict of str to float
            The values of the epoch by name.
        """
        missing = [float("nan")] * max(map(len, self.values()), default=0)
        for name in [*self, *(name for name in logs if name not in self)]:
            self.setdefault(name, list(missing)).append(logs.get(name, float("nan")))

    def extend_epoch(self, logs: Mapping[str, float]) -> None:
        """Adds numbers to the last epoch; in earlier ones, names that are new have NaN. Without an epoch, begins one.

        Parameters
        ----------
        logs : dict of str to float
            The numbers by name.
        """
        missing = [float("nan")] * max(map(len, self.values()), default=1)
        for name, value in logs.items():
            self.setdefault(name, list(missing))[-1] = value

    def plot(
        self,
        names: Sequence[str] | None = None,
        figure: Figure | SubFigure | None = None,
        monitor: str | None = None,
        lower_is_better: bool | None = None,
    ) -> Figure:
        """Draws curves over the epochs, counted from 1: a panel for the loss and for each metric; returns the figure.

        A panel has training and validation. A ring marks the epoch of the panel's best validation, of the loss and
        minidl's metrics: of others it is not known which values are better. With a `monitor`, the rings of all panels
        mark the same epoch, its best one. Values that are not finite are gaps.

        Parameters
        ----------
        names : list of str or None, default None
            The panels, such as `["loss", "lr"]`; None: the loss, all metrics, and the learning rate if it varies, on a
            logarithmic scale if it does so tenfold.
        figure : Figure, SubFigure or None, default None
            An empty one to draw into; None: a new one, which pyplot does not know.
        monitor : str or None, default None
            A name in the history, such as "val_iou", whose best epoch the rings mark; None: each panel's own best
            validation.
        lower_is_better : bool or None, default None
            The direction of `monitor`; None: that of the loss, or of minidl's metric of that name.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        TypeError, ValueError
            Before the first epoch, for a name that is not here, for lists of different lengths, for a `monitor` whose
            direction is not known, and for `lower_is_better` without one.
        ImportError
            Without Matplotlib: pip install "minidl[plot]".

        Examples
        --------
        >>> from minidl.training.history import History
        >>> figure = History(epoch=[0, 1], loss=[0.5, 0.2], val_loss=[0.6, 0.4]).plot()
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['loss']
        """
        from minidl.plots.curves import curves  # not before it is needed

        return curves(self, names, figure, monitor, lower_is_better)
