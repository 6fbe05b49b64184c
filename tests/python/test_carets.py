"""What an error underlines: the expression that is wrong, or the statement where that is a whole."""

import pytest

from helpers import module_at

HEAD = """
import quadrants as qd

x = qd.field(qd.i32, (2, 3))
v = qd.Vector.field(2, qd.f32, 4)

@qd.func
def twice(a):
    return 2 * a

@qd.kernel
def wrong(n: qd.i32):
"""

# The statement, what is underlined in it, and a part of the message.
ROWS = """
for i in range(1, 2, 3, 4): pass      | for i in range(1, 2, 3, 4):       | Range should have
for i, j in range(3): pass            | for i, j in range(3):             | 1 loop target, found 2
for i in qd.grouped(): pass           | for i in qd.grouped():            | one argument
for i, j, k in qd.ndrange(3, 4): pass | for i, j, k in qd.ndrange(3, 4):  | number of the loop variables
for i in qd.static(3): pass           | for i in qd.static(3):            | not iterable
for i in len(3): pass                 | len(3)                            | has no len
a = n + missing                       | missing                           | missing
a = twice(n) + twice(n, n)            | twice(n, n)                       | twice
a = twice(n) + x[n]                   | x[n]                              | indices of dim 1
a = (n + 1) * qd.floor(n)             | qd.floor(n)                       | real
v[n] = qd.Vector([1.0, 2.0, 3.0])     | v[n] = qd.Vector([1.0, 2.0, 3.0]) |
x[0, 0] = n.missing                   | n.missing                         | missing
while v[0]: pass                      | while v[0]:                       | conditions must be an integer
n = 3                                 | n = 3                             | immutable
a = n ** "2"                          | n ** "2"                          |
a = qd.static(n or 3)                 | n or 3                            | known
b: qd.i32 = unknown(n)                | unknown                           | unknown
assert n > missing                    | missing                           | missing
"""


def rows():
    for row in ROWS.strip().splitlines():
        statement, underlined, message = (part.strip() for part in row.split("|"))
        yield pytest.param(statement, underlined, message, id=statement)


@pytest.mark.oracle_differs("other carets and texts")
@pytest.mark.parametrize("statement, underlined, message", rows())
def test_underlined(backend, tmp_path, statement, underlined, message):
    path = tmp_path / "program.py"
    path.write_text(HEAD + f"    {statement}\n")
    program = module_at(path, "program")
    with pytest.raises(Exception) as info:
        program.wrong(1)
    lines = str(info.value).splitlines()
    below = max(k for k, line in enumerate(lines) if line.strip() and set(line.strip()) == {"^"})
    begin, end = lines[below].index("^"), len(lines[below].rstrip())
    assert lines[below - 1][begin:end] == underlined, str(info.value)
    assert message in str(info.value)
    assert f"line {HEAD.count(chr(10)) + 1}, in wrong" in str(info.value)
