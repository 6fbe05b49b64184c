"""Kept as a module of its own: clients switch argument checks through its `__builtins__`."""

__builtins__ = dict(__builtins__) if isinstance(__builtins__, dict) else dict(vars(__builtins__))
