"""Resource kinds: fields, defaults, validation, conditions, quota arithmetic; pure."""
