"""Reference recurrent layers: cells, and loops over time, in NumPy and float64, written for clarity.

A cell maps the sums of all gates of x and of h, each (n, gates * units), to the next state. Parameters have PyTorch's
shapes: weight_ih (gates * units, inputs), weight_hh (gates * units, units), bias_ih and bias_hh, or None.
"""

import numpy as np

GATES = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3, "gru_reset_before": 3}


def sigmoid(a):
    return 0.5 * (1 + np.tanh(a / 2))


class Layer:
    """One direction of a layer over sequences x (n, inputs, length)."""

    def __init__(self, cell, weight_ih, weight_hh, bias_ih=None, bias_hh=None):
        self.cell, self.gates, self.units = cell, GATES[cell], weight_hh.shape[1]
        zeros = np.zeros(len(weight_ih))
        given = weight_ih, weight_hh, zeros if bias_ih is None else bias_ih, zeros if bias_hh is None else bias_hh
        self.w, self.v, self.b, self.d = (a.astype(np.float64) for a in given)

    def parts(self, a):
        """Returns the columns, or rows, of each gate."""
        return np.split(a, self.gates, axis=-1)

    def step(self, x, h, c):
        """Returns the state after a step, (h, c); c is that of an LSTM."""
        of_x, of_h = self.parts(x @ self.w.T + self.b), self.parts(h @ self.v.T + self.d)
        if self.cell == "lstm":
            i, f, g, o = (a + b for a, b in zip(of_x, of_h, strict=True))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            return sigmoid(o) * np.tanh(c), c
        if self.gates == 1:
            a = of_x[0] + of_h[0]
            return (np.tanh(a) if self.cell == "tanh" else np.maximum(a, 0)), c
        r, z = (sigmoid(of_x[k] + of_h[k]) for k in (0, 1))
        if self.cell == "gru":
            n = np.tanh(of_x[2] + r * of_h[2])
        else:
            n = np.tanh(of_x[2] + (r * h) @ self.v[2 * self.units :].T + self.d[2 * self.units :])
        return (1 - z) * n + z * h, c

    def step_back(self, x, h, c, dh, dc):
        """Returns the gradients of the sums of x and of h, and of the states h and c before the step.

        dh, dc: those of the states after it.
        """
        of_x, of_h = self.parts(x @ self.w.T + self.b), self.parts(h @ self.v.T + self.d)
        if self.cell == "lstm":
            i, f, g, o = (a + b for a, b in zip(of_x, of_h, strict=True))
            i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
            tanh_c = np.tanh(f * c + i * g)
            do, dc = dh * tanh_c, dc + dh * o * (1 - tanh_c**2)
            slopes = dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g**2), do * o * (1 - o)
            sums = np.concatenate(slopes, axis=1)
            return sums, sums, sums @ self.v, dc * f
        if self.gates == 1:
            a = of_x[0] + of_h[0]
            sums = dh * ((1 - np.tanh(a) ** 2) if self.cell == "tanh" else a > 0)
            return sums, sums, sums @ self.v, dc
        r, z = (sigmoid(of_x[k] + of_h[k]) for k in (0, 1))
        last = self.v[2 * self.units :]
        n = np.tanh(of_x[2] + (r * of_h[2] if self.cell == "gru" else (r * h) @ last.T + self.d[2 * self.units :]))
        dn, dz = dh * (1 - z) * (1 - n**2), dh * (h - n) * z * (1 - z)
        if self.cell == "gru":
            dr, of_n = dn * of_h[2] * r * (1 - r), dn * r
            sums_h = np.concatenate([dr, dz, of_n], axis=1)
            return np.concatenate([dr, dz, dn], axis=1), sums_h, sums_h @ self.v + dh * z, dc
        d_reset = dn @ last
        dr = d_reset * h * r * (1 - r)
        sums = np.concatenate([dr, dz, dn], axis=1)
        before = sums[:, : 2 * self.units] @ self.v[: 2 * self.units] + d_reset * r + dh * z
        return sums, sums, before, dc

    def states(self, x):
        """Returns the states before each step, and after the last one."""
        result = [(np.zeros((len(x), self.units)),) * 2]
        for t in range(x.shape[2]):
            result.append(self.step(x[:, :, t].astype(np.float64), *result[-1]))
        return result

    def forward(self, x, sequences, reverse):
        """Returns y, (n, units, length) or (n, units)."""
        x = x[:, :, ::-1] if reverse else x
        outputs = np.stack([h for h, _ in self.states(x)[1:]], axis=2)
        return (outputs[:, :, ::-1] if reverse else outputs) if sequences else outputs[:, :, -1]

    def backward(self, dy, x, sequences, reverse):
        """Returns dx and the gradients of weight_ih, weight_hh, bias_ih and bias_hh."""
        x = x[:, :, ::-1].astype(np.float64) if reverse else x.astype(np.float64)
        dx, states = np.zeros(x.shape), self.states(x)
        dw, dv, db, dd = (np.zeros(a.shape) for a in (self.w, self.v, self.b, self.d))
        dh = dc = np.zeros((len(x), self.units))
        for t in reversed(range(x.shape[2])):
            h, c = states[t]
            if sequences:
                dh = dh + dy[:, :, -1 - t if reverse else t]
            elif t == x.shape[2] - 1:
                dh = dh + dy
            of_x, of_h, dh, dc = self.step_back(x[:, :, t], h, c, dh, dc)
            dx[:, :, t] = of_x @ self.w
            dw += of_x.T @ x[:, :, t]
            if self.cell == "gru_reset_before":
                r = sigmoid(x[:, :, t] @ self.w[: self.units].T + self.b[: self.units]
                            + h @ self.v[: self.units].T + self.d[: self.units])  # fmt: skip
                rows = 2 * self.units
                dv += np.concatenate([of_h[:, :rows].T @ h, of_h[:, rows:].T @ (r * h)])
            else:
                dv += of_h.T @ h
            db, dd = db + of_x.sum(axis=0), dd + of_h.sum(axis=0)
        return dx[:, :, ::-1] if reverse else dx, dw, dv, db, dd
