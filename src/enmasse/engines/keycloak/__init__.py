"""A Keycloak as the place where spaces keep their users."""
