"""Direct addresses: anycast and multicast, whose producers get the consumer's own outcome."""
