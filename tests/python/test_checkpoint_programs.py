"""Random graph kernels with nested loops of tasks and checkpoints, launched and resumed, against a
model of chapter 41, section 9.4, in plain Python."""

import random

import pytest

from helpers import flag, module_at, zeros

HEAD = """
import quadrants as qd
F = qd.types.ndarray(qd.i32, 0)
V = qd.types.ndarray(qd.i32, 1)

@qd.kernel(graph=True, checkpoints=True)
"""


class Program:
    """A tree of ("for", slot), ("bare", slot), ("checkpoint", slot, label) and
    ("loop", level, body); each adds 1 to its slot of an array, a loop counts its flag in a circle.
    """

    def __init__(self, r):
        self.levels = self.slots = self.labels = 0
        self.tree = self.draw(r, 0)

    def draw(self, r, depth):
        body = []
        for _ in range(r.randint(1, 4)):
            kind = r.choices(("for", "bare", "checkpoint", "loop"), (6, 3, 6, 5))[0]
            if kind == "loop":
                if depth == 3 or self.levels == 4:
                    continue
                self.levels += 1
                body.append(("loop", self.levels - 1, self.draw(r, depth + 1)))
                continue
            body.append((kind, self.slots, self.labels))
            self.slots += 1
            self.labels += kind == "checkpoint"
        if not body:
            body.append(("bare", self.slots))
            self.slots += 1
        return body

    def source(self):
        names = [f"c{k}: F" for k in range(self.levels)] + [f"f{k}: F" for k in range(self.labels)]
        return HEAD + f"def k(a: V, {', '.join(names)}):\n" + "".join(self.lines(self.tree, "    "))

    def lines(self, body, pad):
        for kind, number, *rest in body:
            if kind == "loop":
                yield f"{pad}while qd.graph.do_while(c{number}):\n"
                yield from self.lines(rest[0], pad + "    ")
                yield f"{pad}    c{number}[()] = (c{number}[()] + 1) % {number + 2}\n"
                continue
            inner = pad
            if kind == "checkpoint":
                yield f"{pad}with qd.checkpoint({rest[0]}, yield_on=f{rest[0]}):\n"
                inner += "    "
            if kind != "bare":
                yield f"{inner}for i in range(1):\n"
                inner += "    "
            yield f"{inner}a[{number}] += 1\n"


class Run:
    """What a launch does; the attributes are what it leaves."""

    def __init__(self, program, turns, yields, label):
        self.a, self.turns, self.yields = [0] * program.slots, list(turns), yields
        self.label, self.yielded = label, None
        self.skips = label is not None
        self.go(program.tree, False)

    def go(self, body, later_turn):
        for kind, number, *rest in body:
            if kind == "loop":
                self.loop(number, rest[0], later_turn)
                continue
            if kind == "checkpoint" and rest[0] == self.label:
                self.skips = False
            if kind == "bare":
                self.a[number] += 1
            elif self.yielded is None and (later_turn or not self.skips):
                self.a[number] += 1
                if kind == "checkpoint" and self.yields[rest[0]]:
                    self.yielded = rest[0]

    def loop(self, level, body, later_turn):
        had_ended = self.turns[level] == 0
        while True:
            self.go(body, later_turn)
            self.turns[level] = (self.turns[level] + 1) % (level + 2)
            if self.yielded is not None or self.turns[level] == 0:
                return
            if self.skips and not later_turn:  # the label lies behind this loop
                if had_ended:
                    return
                later_turn = True


@pytest.mark.parametrize("batch", range(4))
def test_launches_and_resumes_do_what_the_chapter_says(backend, tmp_path, batch):
    seen = 0
    for seed in range(20 * batch, 20 * (batch + 1)):
        r = random.Random(seed)
        p = Program(r)
        path = tmp_path / f"program{seed}.py"
        path.write_text(p.source())
        module = module_at(path)
        for _ in range(6 if p.labels else 0):
            turns = [r.randint(0, 2) for _ in range(p.levels)]
            turns = [t % (k + 2) for k, t in enumerate(turns)]
            yields = [int(r.random() < 0.25) for _ in range(p.labels)]
            label = r.choice([None, *range(p.labels)])
            want = Run(p, turns, yields, label)
            a, flags = zeros(p.slots), [flag(t) for t in turns]
            args = a, *flags, *(flag(y) for y in yields)
            status = (
                module.k(*args) if label is None else module.k.resume(*args, from_checkpoint=label)
            )
            got = a.to_numpy().tolist(), [c[()] for c in flags], status.checkpoint
            assert got == (want.a, want.turns, want.yielded), (seed, turns, yields, label)
            seen += label is not None and p.levels > 0
    assert seen > 10


def test_a_hundred_loops_in_a_row_have_a_word_each(backend, tmp_path):
    """The words of a launch lie in its own block, and a debug build checks their bounds."""
    backend.init(debug=True)
    names = [f"c{k}" for k in range(100)]
    source = HEAD + f"def k(a: V, f: F, {', '.join(f'{n}: F' for n in names)}) -> None:\n"
    for k, name in enumerate(names):
        source += f"    while qd.graph.do_while({name}):\n        for i in range(1):\n"
        source += f"            a[{k}] += 1\n        {name}[()] -= 1\n"
    source += "    with qd.checkpoint(1, yield_on=f):\n        for i in range(1):\n            a[100] += 1\n"
    path = tmp_path / "hundred.py"
    path.write_text(source)
    k = module_at(path).k
    a, f, flags = zeros(101), flag(), [flag(1 + n % 3) for n in range(100)]
    assert k(a, f, *flags).yielded is False
    assert a.to_numpy().tolist() == [1 + n % 3 for n in range(100)] + [1]
    for n, c in enumerate(flags):
        c.fill(1 + n % 3)
    a.fill(0)
    k.resume(a, f, *flags, from_checkpoint=1)
    assert a.to_numpy().tolist() == [n % 3 for n in range(100)] + [1]
