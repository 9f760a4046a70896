"""Spark finds the `enmasse` data source here, without registration."""
