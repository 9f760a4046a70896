"""The kind Pipeline: its fields, what may stand in them, and its status."""
