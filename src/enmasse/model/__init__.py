"""Resource kinds: fields, defaults, validation, conditions, quota arithmetic; pure.

``objects.decode`` is the door: what comes through it is valid. Whether what an
object refers to exists is not decided here but waited for by the controllers.
"""
