"""The error family of the native layer.

Each class derives from its builtin namesake only. The public classes of `quadrants.lang.exception`
derive from these, so code that catches either family sees what the package raises.
"""


class QuadrantsAssertionError(AssertionError):
    pass


class QuadrantsRuntimeError(RuntimeError):
    pass


class QuadrantsTypeError(TypeError):
    pass


class QuadrantsSyntaxError(SyntaxError):
    pass


class QuadrantsIndexError(IndexError):
    pass


class QuadrantsNameError(NameError):
    pass
