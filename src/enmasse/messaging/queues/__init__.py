"""Queues, topics and subscriptions: messages that are stored until each is settled."""
