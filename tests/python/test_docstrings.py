"""Every public name says what it does, names each of its parameters and says what it raises."""

import inspect
import re

import pytest

import quadrants as qd

CONTAINERS = re.compile(
    r"qd\.((Scalar|Matrix|Vector|Struct)?(Field|Ndarray|Tensor)|FieldsBuilder|BufferView|SNode|Struct|dataclass|tensor|wrap)\b"
)


def public(obj):
    return [n for n in dir(obj) if n.isidentifier() and n[0] != "_"]


def is_swizzle(cls, name):
    return len(name) <= 4 and isinstance(inspect.getattr_static(cls, name), property)


def found():
    """Dotted name -> object, of all modules, classes, functions and methods a program sees."""
    out, seen = {"qd": qd}, set()

    def visit(path, obj):
        module = obj.__name__ if inspect.ismodule(obj) else getattr(obj, "__module__", None)
        ours = isinstance(module, str) and module.startswith("quadrants")
        if id(obj) in seen or not ours or module.startswith("quadrants._lib."):
            return
        seen.add(id(obj))
        if inspect.ismodule(obj):
            out[path] = obj
            for name in () if path in ("qd.lang", "qd.simt") else public(obj):
                visit(f"{path}.{name}", getattr(obj, name))
        elif inspect.isclass(obj):
            out[path] = obj
            for name in public(obj):
                member = inspect.getattr_static(obj, name)
                if isinstance(member, property) and not is_swizzle(obj, name):
                    out[f"{path}.{name}"] = member
                else:
                    visit(f"{path}.{name}", getattr(obj, name))
        elif inspect.isroutine(obj) or hasattr(obj, "__wrapped__"):
            out[path] = obj

    visit("qd", qd)
    return {k: v for k, v in out.items() if not CONTAINERS.match(k)}


NAMES = found()


def parameters(obj):
    if not (inspect.isroutine(obj) or hasattr(obj, "__wrapped__")):
        return []
    try:
        names = list(inspect.signature(obj).parameters)
    except ValueError:  # native, without one
        return []
    return [n for n in names if n not in ("self", "cls")]


def raises(obj):
    if not inspect.isroutine(obj) and not hasattr(obj, "__wrapped__"):
        return False
    try:
        text = inspect.getsource(inspect.unwrap(obj))
    except (TypeError, OSError):
        return False
    return re.search(r"^\s+raise \w", text, re.M) is not None


@pytest.mark.oracle_differs("documentation is our own")
@pytest.mark.parametrize("name", NAMES)
def test_docstrings(name):
    obj = NAMES[name]
    text = inspect.getdoc(obj)
    assert text, "no docstring"
    missing = set(parameters(obj)) - set(re.findall(r"\w+", text))
    assert not missing, f"parameters that are not explained: {sorted(missing)}"
    assert not raises(obj) or "aise" in text, "does not say what it raises"


def test_the_walk_finds_them():
    for name in "qd.init qd.Matrix.cross qd.math.clamp qd.svd qd.atomic_add".split():
        assert name in NAMES
