"""The connections of clients, whatever their protocol: their life, bounds, log lines and waiting messages."""
