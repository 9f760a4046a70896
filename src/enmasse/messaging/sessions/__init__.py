"""Sessions of MQTT clients: named sets of durable subscriptions, with what is in flight and their wills."""
