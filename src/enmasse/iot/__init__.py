"""The device registry: tenants, their devices, and the credentials of these, as Eclipse Hono has them."""
