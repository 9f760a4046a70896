"""Drivers behind control's ports: embedded nodes and their supervision."""
