"""Steps of a pipeline besides SQL: functions of Python, state by key, models, expectations, late rows."""
