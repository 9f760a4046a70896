"""Addresses as Spark tables: streaming source, sinks and built-in jobs."""
