"""The Open Service Broker API."""
