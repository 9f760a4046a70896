"""What steps of a pipeline do besides SQL: functions of Python, state by key, models, expectations, late rows."""
