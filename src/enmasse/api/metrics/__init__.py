"""Metrics for Prometheus: their catalogue, and the figures they are made from."""
