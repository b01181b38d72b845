"""The parts of Trainer: steps, the fit loop and its state, checkpoints, signals, diagnosis and report."""
