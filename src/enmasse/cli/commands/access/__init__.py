"""Commands of who may use the API."""
