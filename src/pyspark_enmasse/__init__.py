"""Spark finds the `enmasse` data source here, without registration."""

from enmasse.pipeline.source.data_source import EnmasseDataSource as DefaultSource

__all__ = ["DefaultSource"]
