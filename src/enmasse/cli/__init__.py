"""The `enmasse` command: what starts it, and what its commands share; the commands are in `commands`."""
