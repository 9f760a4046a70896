"""The enmasse command, one file per command."""
