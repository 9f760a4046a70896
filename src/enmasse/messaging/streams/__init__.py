"""Streams: partitions of messages that are kept and read by offset."""
