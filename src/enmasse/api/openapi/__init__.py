"""The description of the API in OpenAPI, as kubectl reads it."""
