"""What a Trainer is made of: single steps, a fit and its position, checkpoints, hooks, signals, diagnosis."""
