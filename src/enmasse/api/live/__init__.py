"""Live answers of the API, which can be watched: rows of tables, series of the last hour, an overview."""
