"""The device registry over HTTP, in the formats of Eclipse Hono's registry management."""
