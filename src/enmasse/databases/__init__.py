"""Databases in SQLite that notice what a disk has changed in them."""
