"""The messaging core, pure: messages, deliveries, credit and the address types."""
