"""The nodes of an installation, and the homes of spaces."""
