"""Rows of Spark become messages of addresses."""
