"""Names of parameters, as programs write them in calls."""

import inspect
import linecache
import re

import numpy as np
import pytest

import quadrants as qd

EXPRESSIONS = """
qd.atan2(x1=x, x2=2.0)                     -> 0.7853981852531433
qd.pow(base=x, exponent=3.0)               -> 8.0
qd.raw_div(x1=x, x2=4.0)                   -> 0.5
qd.raw_mod(x1=7, x2=4)                     -> 3.0
qd.select(cond=x > 1, x1=1.0, x2=2.0)      -> 1.0
qd.cast(obj=x, dtype=qd.f32)               -> 2.0
qd.bit_cast(obj=x, dtype=qd.f32)           -> 2.0
qd.math.popcnt(x=7)                        -> 3.0
qd.floor(x=x, dtype=qd.f32)                -> 2.0
qd.math.clamp(x=x, xmin=0.0, xmax=1.0)     -> 1.0
qd.math.mix(x=x, y=1.0, a=0.5)             -> 1.5
qd.math.pow(base=x, exponent=2.0)          -> 4.0
qd.math.smoothstep(edge0=0.0, edge1=1.0, x=x)                  -> 1.0
qd.math.cmul(z1=qd.Vector([x, x]), z2=qd.Vector([1.0, 0.0])).sum()    -> 4.0
qd.math.cdiv(z1=qd.Vector([x, x]), z2=qd.Vector([1.0, 0.0])).sum()    -> 4.0
qd.math.inverse(mat=qd.Matrix([[x, 0.0], [0.0, x]])).sum()     -> 1.0
qd.Vector(arr=[x, x], dt=qd.f32).norm_sqr()                    -> 8.0
qd.Vector.zero(dt=qd.f32, n=3).sum()       -> 0.0
qd.Matrix.identity(dt=qd.f32, n=3).sum()   -> 3.0
"""


def define_named(text, globals_):
    name = f"<keywords {len(linecache.cache)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), space := {"qd": qd, **globals_})
    return space


@pytest.mark.parametrize("row", EXPRESSIONS.strip().splitlines())
def test_keywords_in_kernels(backend, row):
    expression, _, expected = (part.strip() for part in row.partition("->"))
    text = f"@qd.kernel\ndef k() -> qd.f32:\n    x = 2.0\n    return {expression}\n"
    k = define_named(text, {"f": qd.field(qd.f32, 2)})["k"]
    assert k() == pytest.approx(float(expected))


def test_keywords_of_containers(backend):
    x, y, z = qd.field(qd.i32), qd.field(qd.i32), qd.field(qd.i32)
    qd.root.dense(indices=qd.i, dimensions=4).place(x)
    qd.root.dense(qd.i, 2).dense(axes=qd.j, dimensions=4).place(y)
    builder = qd.FieldsBuilder()
    builder.dense(indices=qd.i, dimensions=5).place(z, offset=1)
    builder.finalize(raise_warning=True)
    assert (x.shape, y.shape, z.shape) == ((4,), (2, 4), (5,))
    x.fill(val=3)
    t = qd.tensor(qd.i32, (3,))
    t.fill(value=2)
    assert x[1] == 3 and t[2] == 2
    s = qd.Struct.field({"a": qd.i32}, shape=2)
    s.from_numpy(array_dict={"a": np.array([1, 2], np.int32)})
    assert s.a.to_numpy().tolist() == [1, 2]


def test_names_of_parameters():
    def names(o):
        return list(inspect.signature(o).parameters)

    assert names(qd.root.dense) == names(qd.root.pointer) == ["indices", "dimensions"]
    assert names(qd.SNode.dense) == ["self", "axes", "dimensions"]
    assert names(qd.SNode.dynamic) == ["self", "axis", "dimension", "chunk_size"]
    assert names(qd.func)[0] == names(qd.pure)[0] == "fn"
    assert names(qd.experimental.real_func) == ["func"]
    assert names(qd.template) == ["element_type", "ndim"]


HOST_CALLS = """
qd.atan2(x1=1.0, x2=1.0)              -> 0.7853981633974483
qd.pow(base=2.0, exponent=3.0)        -> 8.0
qd.raw_div(x1=7, x2=2)                -> 3
qd.raw_mod(x2=4, x1=-7)               -> -3
qd.sin(x=0.0)                         -> 0.0
qd.floor(x=1.5)                       -> 1
qd.select(cond=0, x1=1, x2=2)         -> 2
qd.lang.ops.add(a=1, b=2)             -> 3
qd.lang.ops.mod(x1=-1, x2=3)          -> 2
qd.lang.ops.bit_not(a=5)              -> -6
qd.Matrix.diag(dim=2, val=3).sum()    -> 6
qd.Matrix.rows(rows=[[1, 2], [3, 4]]).trace()    -> 5
"""


@pytest.mark.parametrize("row", HOST_CALLS.strip().splitlines())
def test_keywords_on_the_host(backend, row):
    expression, _, expected = (part.strip() for part in row.partition("->"))
    assert eval(expression, {"qd": qd}) == pytest.approx(float(expected))


SIGNATURES = """
qd.sin(x) qd.abs(x) qd.atan2(x1,x2) qd.pow(base,exponent) qd.raw_mod(x1,x2) qd.floor(x,dtype=None)
qd.select(cond,x1,x2) qd.max(*args) qd.cast(obj,dtype) qd.bit_shr(x1,x2) qd.frexp(x)
qd.math.popcnt(x) qd.math.clz(x) qd.math.ffs(x) qd.math.clamp(x,xmin,xmax)
qd.atomic_add(x,y) qd.atomic_exchange(x,y) qd.atomic_cas(x,expected,desired) qd.volatile_load(target)
qd.activate(node,indices) qd.append(node,indices,val) qd.length(node,indices) qd.get_addr(f,indices)
qd.assume_in_range(val,base,low,high) qd.rescale_index(a,b,I) qd.block_local(*args) qd.stop_grad(x)
qd.static(x,*xs) qd.static_assert(cond,msg=None) qd.grouped(x) qd.zero(x) qd.axes(*x)
qd.Matrix.zero(dt,n,m=None) qd.Matrix.one(dt,n,m=None) qd.Matrix.identity(dt,n)
qd.Matrix.unit(n,i,dt=None) qd.Matrix.diag(dim,val) qd.Matrix.rows(rows) qd.Matrix.cols(cols)
qd.Matrix.norm(self,eps=0) qd.Matrix.cross(self,other) qd.Matrix.cast(self,dtype)
qd.svd(A,dt=None) qd.solve(A,b,dt=None) qd.randn(dt=None)
"""


@pytest.mark.parametrize("row", SIGNATURES.split())
def test_signatures(row):
    name, _, parameters = row.partition("(")
    signature = inspect.signature(eval(name, {"qd": qd}))
    found = ",".join(str(p).replace(" ", "").split(":")[0] for p in signature.parameters.values())
    defaults = [p for p in signature.parameters.values() if p.default is not p.empty]
    for p in defaults:
        found = re.sub(rf"\b{p.name}\b(=[^,]*)?", f"{p.name}={p.default}", found)
    assert found + ")" == parameters


@pytest.mark.parametrize("call", ["qd.atan2(1.0)", "qd.sin()", "qd.pow(1, 2, 3)", "qd.sin(y=1.0)"])
def test_wrong_arguments_on_the_host(backend, call):
    with pytest.raises(TypeError):
        eval(call, {"qd": qd})
