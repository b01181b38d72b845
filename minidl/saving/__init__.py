"""Files of models and checkpoints: what is in them, as JSON and tensors, and how they come to the disk whole."""
