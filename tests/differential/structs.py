"""Structs in random programs: a part of the generator.

Struct types and fields of them are declared beside the fields. A variable of a struct type is known
here as a whole; its members enter the generator's scopes as variables with a dot in their name, so
whatever a program does to variables it does to members.
"""

from dataclasses import dataclass


@dataclass
class StructType:
    """`members`: name and dtype with shape, or name and another struct type."""

    name: str
    members: list
    method: bool = False  # a class with a method that writes its first member

    def leaves(self, prefix=""):
        for name, kind in self.members:
            if isinstance(kind, StructType):
                yield from kind.leaves(f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", *kind

    def declaration(self):
        def text(kind):
            if isinstance(kind, StructType):
                return kind.name
            t, shape = kind
            if not shape:
                return f"qd.{t}"
            word = "vector" if len(shape) == 1 else "matrix"
            return f"qd.types.{word}({', '.join(map(str, shape))}, qd.{t})"

        if not self.method:
            inner = ", ".join(f"{name}={text(kind)}" for name, kind in self.members)
            return [f"{self.name} = qd.types.struct({inner})"]
        lines = ["@qd.dataclass", f"class {self.name}:"]
        lines += [f"    {name}: {text(kind)}" for name, kind in self.members]
        return [*lines, *(f"    {l}" for l in self.method_source())]

    def method_source(self):
        first = self.members[0][0]
        return [
            "@qd.func",
            "def bump(self, by):",
            f"    self.{first} += by",
            f"    return self.{first}",
        ]


class Structs:
    """What the generator knows of structs."""

    def struct_types(self):
        self.types, self.struct_scopes, self.struct_fields = [], [[]], []
        if self.plain or not self.chance(0.5):
            return
        for k in range(self.r.randrange(1, 3)):
            members = [("m0", (self.a_type(), ()))]
            for j in range(1, self.r.randrange(2, 4)):
                shape = () if self.chance(0.6) else self.a_shape()
                members.append((f"m{j}", (self.a_type(), shape)))
            if self.types and self.chance(0.6):
                members.append(("inner", self.types[0]))
            kind = StructType(f"{self.name}_S{k}", members, self.chance(0.4))
            self.types.append(kind)

    def struct_data(self, make):
        """Fields of structs: their members, made by `make(name, t, shape, elem)`."""
        for kind in self.types:
            if self.chance(0.5):
                root = f"{self.name}_F{len(self.struct_fields)}"
                shape = (self.n,)
                self.struct_fields.append((root, kind, shape))
                for path, t, elem in kind.leaves():
                    make(f"{root}.{path}", t, shape, elem)

    def structs(self, kind=None):
        return [v for s in self.struct_scopes for v in s if kind is None or v[1] is kind]

    def declare_struct(self, name, kind):
        self.struct_scopes[-1].append((name, kind))
        top = self.where == "serial" and len(self.scopes) == 1
        for path, t, shape in kind.leaves():
            self.add_variable(f"{name}.{path}", t, shape, top)

    def struct_value(self, kind, depth=1):
        """Text of a value: another variable, a cell or a constructor's call."""
        found = self.structs(kind)
        if found and self.chance(0.4):
            return self.pick(found)[0]
        cells = [f for f in self.struct_fields if f[1] is kind]
        if cells and self.where == "serial" and self.chance(0.4):
            return f"{cells[0][0]}[{self.bounded(self.n)}]"
        parts = []
        for name, member in kind.members:
            if isinstance(member, StructType):
                e = self.struct_value(member, 0)
            elif member[1] and self.chance(0.7):
                e = self.vector(depth, member[1])[0]
            else:  # a scalar fills a vector
                e = self.scalar(depth)[0]
            parts.append(f"{name}={e}")
        keep = parts if self.chance(0.8) else self.r.sample(parts, len(parts) - 1)
        return f"{kind.name}({', '.join(keep)})"

    def do_struct(self):
        if not self.types:
            return self.do_local()
        kind = self.pick(self.types)
        how = self.r.randrange(5)
        found = [v for v in self.structs(kind) if self.where != "parallel" or not self.is_top(v)]
        if found and how == 0:
            return self.emit(f"{self.pick(found)[0]} = {self.struct_value(kind)}")
        if found and how == 1 and kind.method:
            name, t = self.fresh(), kind.members[0][1][0]
            by = self.operand(1, "float" if t[0] == "f" else "int")[0]
            self.emit(f"{name} = {self.pick(found)[0]}.bump({by})")
            return self.add_variable(name, t, (), self.where == "serial" and len(self.scopes) == 1)
        cells = [f for f in self.struct_fields if f[1] is kind]
        if cells and how == 2 and self.where != "func":
            at = self.own[0] if self.where == "parallel" else self.bounded(self.n)
            if self.where == "serial" or self.own[1] == cells[0][2]:
                return self.emit(f"{cells[0][0]}[{at}] = {self.struct_value(kind)}")
        name = self.fresh("st")
        self.emit(f"{name} = {self.struct_value(kind)}")
        self.declare_struct(name, kind)

    def is_top(self, struct):
        return struct in self.struct_scopes[0]

    def do_tuple(self):
        """Values taken early: what happens to their variables afterwards does not matter."""
        name = self.fresh("t")
        able = [f for f in self.funcs if f["returns"] == 2]
        if able and self.chance(0.5):
            f = self.pick(able)
            types = f["out"]
            self.emit(f"{name} = {f['name']}({', '.join(self.arguments(f, 1))})")
        else:
            items = [self.scalar(2) for _ in range(self.r.choice([2, 2, 3]))]
            types = [t for _, t in items]
            self.emit(f"{name} = ({', '.join(e for e, _ in items)})")
        for k, t in enumerate(types):
            self.add_variable(f"{name}[{k}]", t, (), False, mutable=False)
