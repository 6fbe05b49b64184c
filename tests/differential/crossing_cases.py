"""Crossed cases: how parts make a kernel, which combinations the language has, and choices among them."""

import itertools
import random
import re
from dataclasses import dataclass, field

import crossing_parts as parts

DTYPES = parts.EVERY
BATCH = 120  # cases to a module


@dataclass
class Value:
    e: str  # the text
    i: str  # as an integer
    c: str  # as a condition
    s: str = ""  # as a compile-time number


@dataclass
class Place:
    t: str
    i: str
    o: str


@dataclass
class Case:
    id: str
    name: str
    text: str
    helpers: list
    params: list  # names, in order
    method: bool
    prints: bool
    touched: list = field(default_factory=list)


# --- composing -------------------------------------------------------------------------------------


def legal(source, use, place, t):
    """Whether the language has this combination."""
    if t not in use.types:
        return False
    if use.static and not (source.static and t not in ("f16", "f32", "f64")):
        return False
    if use.needs == "writable" and not source.writable:
        return False
    if place.where == "real" and any(p.real is None for p in source.params):
        return False
    return True


def indent(lines, depth):
    return ["    " * depth + line for line in lines]


def depth_after(lines):
    """How deep the line after these is."""
    if not lines:
        return 0
    last = lines[-1]
    return (len(last) - len(last.lstrip())) // 4 + last.rstrip().endswith(":")


def place_depth(place):
    """The depth of what is placed: inside the last opened block that holds it."""
    before = place.before
    if not before:
        return 0
    d = depth_after(before)
    if place.name.startswith("after"):  # past the branch that left
        return (
            d - 1
            if not before[-1].endswith(":") and before[-1].strip() in ("continue", "break")
            else d
        )
    return d


def compose(name, source, use, place, t):
    depth = place_depth(place)
    sub = lambda text: (
        text.replace("{I}", place.i)
        .replace("{O}", place.o)
        .replace("{o}", "self" if place.method else "o")
    )  # noqa: E731
    e = sub(source.expr)
    whole = e if t not in parts.FLOATS else f"qd.cast({e}, qd.i32)"
    value = Value(e, whole, e if t not in parts.FLOATS else f"({e} > 2)", sub(source.static))
    c = Place(t, place.i, place.o)
    near, top, bottom = [sub(l) for l in source.near], [sub(l) for l in source.top], []
    body = use.lines(value, c)
    inside = place.where != "kernel"
    params = [parts.array("out"), parts.Param("n", "qd.i32", "", "qd.i32"), *source.params]
    if source.name.startswith("object's") and place.method:
        params = params[:2]
    given = params + ([source.passed] if source.passed else [])
    if place.where == "real":  # whose array parameters the established package confuses
        text = "\n".join([*near, *body, e])
        given = [p for p in given if re.search(rf"\b{p.name}\b", text)]
    result = returned = ""
    local = use.needs == "local" or use.needs == "return" and not inside
    first = f"loc = qd.cast(1, qd.{t})"
    if use.needs == "return":
        if inside:
            body, returned = [f"return {e}"], f" -> qd.{t}"
        else:
            body, result = [f"loc += {e}"], f" -> qd.{t}"
    if (
        use.needs == "inner"
        and (place.name.endswith("at top") and "if" not in place.before[:1])
        or use.needs == "inner"
        and place.name == "top"
    ):
        at = next(k for k, line in enumerate(body) if line.startswith("for "))
        body.insert(at, "qd.loop_config(serialize=True)")
    if local and inside and place.local == "func":
        body = [first, *body, f"most[{place.o}] = loc"]
    elif local:
        top.append(first)
        bottom.append("out[14] = loc")
        if inside:
            given = [*given, parts.Param("loc", "", parts.TEMPLATE)]
    body = near + body
    funcs = []
    if inside:
        real = place.where == "real"
        note = (lambda p: p.real) if real else (lambda p: p.func)
        head = ["self"] if place.method else []
        sign = ", ".join(
            [
                *head,
                "i: qd.i32" if real else "i",
                *(parts.annotated(p.name, note(p)) for p in given),
            ]
        )
        mark = "@qd.real_func" if real else "@qd.func"
        f, args = f"f{name}", ", ".join(p.name for p in given)
        funcs = [mark, f"def {f}({sign}){returned if real else ''}:", *indent(body, 1), ""]
        if place.where == "func2":
            funcs += [
                "@qd.func",
                f"def g{name}({sign}):",
                f"    {'return ' if returned else ''}{f}(i, {args})",
                "",
            ]
            f = f"g{name}"
        call = place.call.replace("{f}", f).replace("{a}", args)
        own = re.search(r"\((\w+),", call)[1]
        body = [f"own[{own}] = {call}" if returned else call]
    if result:
        bottom.append("return loc")
    lines = top + place.before + indent(body, depth) + bottom
    if "out6" in "".join(lines):
        params.append(parts.array("out6"))
    sign = ", ".join(
        [*(["self"] if place.method else []), *(f"{p.name}: {p.kernel}" for p in params)]
    )
    kernel = ["@qd.kernel", f"def k{name}({sign}){result}:", *indent(lines, 1)]
    if place.method:
        text = [f"class C{name}(O):", *indent([*funcs, *kernel], 1)]
    else:
        text = [*funcs, *kernel]
    case = Case(
        "", f"k{name}", "\n".join(text) + "\n",
        ["\n".join(h).replace("{t}", t) for h in (use.helpers, source.helpers) if h],
        [p.name for p in params], place.method, use.needs == "print",
    )  # fmt: skip
    case.touched = [f for f in OUTPUTS if re.search(rf"\b{f}\b", case.text + "".join(case.helpers))]
    return case


OUTPUTS = ["acc", "el", "own", "most", "vo", "so", "num", "wide", "va2"]


def head(t):
    """The module's types and fields; `crossing_child.py` fills them."""
    return f"""import dataclasses
import enum

import quadrants as qd

G = {"True" if t == "u1" else "2.5" if t in parts.FLOATS else "3"}
GV = qd.Vector([1, 3, 2]) if {t not in parts.FLOATS} else qd.Vector([1.5, 2.5, 0.5])


class E(enum.IntEnum):
    two = 2


@qd.dataclass
class S:
    a: qd.{t}
    b: qd.i32

    @qd.func
    def grow(self, by):
        self.a += by


@dataclasses.dataclass
class D:
    k: qd.{t}
    arr: qd.types.ndarray()


z = qd.field(qd.{t}, ())
x = qd.field(qd.{t}, 12)
vs = qd.Vector.field(3, qd.{t}, 12)
ms = qd.Matrix.field(2, 2, qd.{t}, 12)
ss = S.field(shape=12)
x6 = qd.field(qd.{t}, 6)
x23 = qd.field(qd.{t}, (2, 3))
perm = qd.field(qd.i32, 16)
count = qd.field(qd.i32, ())
acc = qd.field(qd.{t}, ())
el = qd.field(qd.{t}, 16)
own = qd.field(qd.{t}, 16)
most = qd.field(qd.{t}, 16)
vo = qd.Vector.field(2, qd.{t}, 16)
so = S.field(shape=16)
num = qd.field(qd.i32, 16)
wide = qd.field(qd.f64, 16)
va2 = qd.Vector.field(2, qd.{t}, ())
xb = qd.field(qd.{t})
qd.root.dense(qd.i, 3).dense(qd.i, 4).place(xb)
xbb = qd.field(qd.{t})
qd.root.dense(qd.ij, (2, 1)).dense(qd.ij, (2, 3)).place(xbb)
xp = qd.field(qd.{t}, (3, 2), order="ji")
xo = qd.field(qd.{t}, 12, offset=-4)
vsoa = qd.Vector.field(3, qd.{t}, 12, layout=qd.Layout.SOA)
SN = qd.types.struct(n=qd.f32, s=S)
sn = SN.field(shape=12)


@qd.data_oriented
class O:
    def __init__(self):
        self.k = G
        self.f = x
        self.nd = qd.ndarray(qd.{t}, 12)


"""


def module(t, cases):
    helpers = dict.fromkeys(h for c in cases for h in c.helpers)
    return head(t) + "\n\n".join([*helpers, *(c.text for c in cases)])


def triples():
    """(source, use, place) names, in a fixed order."""
    return itertools.product(parts.sources("i32"), parts.uses(), parts.places())


def everything(seed=0):
    """Every legal triple, its dtype drawn evenly."""
    tables = {t: parts.sources(t) for t in DTYPES}
    uses, places = parts.uses(), parts.places()
    used = {t: 0 for t in DTYPES}
    r = random.Random(seed)
    for a, b, c in triples():
        possible = [t for t in DTYPES if legal(tables[t][a], uses[b], places[c], t)]
        if not possible:
            continue
        least = min(used[t] for t in possible)
        t = r.choice([t for t in possible if used[t] <= least + 3])
        used[t] += 1
        yield a, b, c, t


PAIRS = list(itertools.combinations(range(4), 2))


def cover(classes, seed, groups):
    """Few cases that contain every part and, for groups of positions, all legal choices of classes.

    `classes`: for sources, uses, places and dtypes, the class of each part. Greedily, from drawn cases.
    """
    r = random.Random(seed)
    tables = {t: parts.sources(t) for t in DTYPES}
    uses, places = parts.uses(), parts.places()
    names = [list(tables["i32"]), list(uses), list(places), DTYPES]
    members = [{} for _ in names]
    for k, ns in enumerate(names):
        for n in ns:
            members[k].setdefault(classes[k][n], []).append(n)

    def fine(a, b, c, t):
        return legal(tables[t][a], uses[b], places[c], t)

    def covers(case):
        kinds = [classes[k][part] for k, part in enumerate(case)]
        return [(g, *(kinds[k] for k in g)) for g in groups] + [
            ((k,), part) for k, part in enumerate(case)
        ]

    missing = dict.fromkeys(
        (g, *p) for g in groups for p in itertools.product(*(members[k] for k in g))
    )
    missing |= dict.fromkeys(((k,), n) for k, ns in enumerate(names) for n in ns)

    def choices(where, *what):
        """The parts that each position may take to reach a goal."""
        out = list(names)
        for k, kind in zip(where, what):
            out[k] = members[k].get(kind, [kind])
        return out

    chosen = []
    while missing:
        goal = next(iter(missing))
        allowed = choices(*goal)
        drawn = (tuple(r.choice(a) for a in allowed) for _ in range(30))
        best = max(
            (c for c in drawn if fine(*c)),
            key=lambda c: sum(x in missing for x in covers(c)),
            default=None,
        )
        best = best or next((c for c in itertools.product(*allowed) if fine(*c)), None)
        missing.pop(goal)
        if best:  # else the language has no such case
            chosen.append(best)
            for x in covers(best):
                missing.pop(x, None)
    return chosen


def pairs(seed=0):
    """Cases that contain every legal pair of parts."""
    same = [
        {n: n for n in ns} for ns in (parts.sources("i32"), parts.uses(), parts.places(), DTYPES)
    ]
    return cover(same, seed, PAIRS)


def sample(seed=0):
    """Cases that contain every part, every triple of kinds of source, use and place, and each kind with each dtype."""
    kinds = [
        {n: kind for kind, ns in table.items() for n in ns}
        for table in (parts.SOURCE_KINDS, parts.PLACE_KINDS)
    ]
    use_kinds = {n: parts.use_kind(u) for n, u in parts.uses().items()}
    return cover([kinds[0], use_kinds, kinds[1], {t: t for t in DTYPES}], seed, [(0, 1, 2), *PAIRS])


def batches(names):
    """Modules: (dtype, cases)."""
    uses, places = parts.uses(), parts.places()
    by = {}
    for k, (a, b, c, t) in enumerate(names):
        case = compose(str(k), parts.sources(t)[a], uses[b], places[c], t)
        case.id = f"{a}/{b}/{c}/{t}"
        by.setdefault(t, []).append(case)
    for t, cases in by.items():
        for k in range(0, len(cases), BATCH):
            yield t, cases[k : k + BATCH]
