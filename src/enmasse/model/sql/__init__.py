"""Checks of what pipelines say in SQL, of columns and of message schemas."""
