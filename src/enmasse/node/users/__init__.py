"""Authentication of clients, the choice of their space, and their permissions."""
