"""Kept as a module of its own: clients switch argument checks through its `__builtins__`."""

globals()["__builtins__"] = dict(
    __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
)


def __getattr__(name: str) -> object:
    if name == "TemplateMapper":
        from quadrants._compat.template_mapper import TemplateMapper

        return TemplateMapper
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
