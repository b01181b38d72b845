"""What a Trainer is made of: single steps, a fit and its position, hooks, signals, what went wrong in a step."""
