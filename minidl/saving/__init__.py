"""Files: objects as JSON, and JSON and tensors written atomically and verified when they are read."""
