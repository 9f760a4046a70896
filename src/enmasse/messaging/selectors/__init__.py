"""Selectors: conditions over messages, in the language of JMS, compiled to closures."""
