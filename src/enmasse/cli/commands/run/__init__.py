"""Commands that run an installation, and show how it is."""
