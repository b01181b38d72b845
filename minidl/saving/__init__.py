"""Files: how objects become JSON, and JSON and tensors come to the disk whole and back unharmed."""
