"""What the API tells of the present, and goes on telling: rows of tables, series of the last hour, an overview."""
