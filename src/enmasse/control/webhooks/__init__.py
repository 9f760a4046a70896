"""Webhooks: messages of addresses are posted to URLs."""
