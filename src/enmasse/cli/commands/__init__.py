"""The commands, a module for each or for a few that belong together; loaded by the table in `enmasse.cli.app`."""
