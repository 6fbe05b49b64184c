"""Single steps of the established compiler that its own suite asks for (spec 10 and 20, last sections)."""

import ast
import dataclasses
import types

import pytest

import quadrants as qd
from helpers import raises
from quadrants._lib import core
from quadrants.lang import _func_base, _metal_interop, impl
from quadrants.lang import _kernel_impl_dataclass as struct_steps
from quadrants.lang._func_base import FuncBase
from quadrants.lang._pruning import Pruning
from quadrants.lang.ast.ast_transformer_utils import (
    ASTTransformerFuncContext,
    ASTTransformerGlobalContext,
)
from quadrants.lang.ast.ast_transformers import graph_api
from quadrants.lang.ast.ast_transformers.call_transformer import CallTransformer
from quadrants.lang.ast.ast_transformers.function_def_transformer import FunctionDefTransformer
from quadrants.lang.kernel_arguments import ArgMetadata


@dataclasses.dataclass
class Inner:
    x: qd.types.ndarray()
    t: qd.template()
    n: qd.i32


@dataclasses.dataclass
class Outer:
    a: qd.types.ndarray(qd.f32, 1)
    i: Inner
    b: qd.f32


LEAVES = "a i__qd_x i__qd_t i__qd_n b".split()


class Func(FuncBase):
    def __init__(self):
        self.func_id = 7


class Global(ASTTransformerGlobalContext):
    def __init__(self):
        self.pruning = Pruning(kernel_used_parameters=None)


class Context(ASTTransformerFuncContext):
    def __init__(self):
        self.global_context = Global()
        self.func = Func()
        self.used_py_dataclass_parameters_enforcing = None


def name(text, annotation=3):
    node = ast.parse(text, mode="eval").body
    node.ptr = annotation
    return node


def test_expanded_call_arguments():
    nodes = (name("o", Outer), name("z"), name("__qd_w", Inner))
    added, all_ = CallTransformer._expand_Call_dataclass_args(Context(), nodes)
    outer = ["__qd_o__qd_" + leaf for leaf in LEAVES]
    inner = ["__qd_w__qd_" + leaf for leaf in "xtn"]
    assert [n.id for n in added] == outer + inner
    assert [n.id for n in all_] == outer + ["z"] + inner
    assert CallTransformer._expand_Call_dataclass_args(Context(), ()) == ((), ())


def test_only_members_that_are_read_stay():
    context = Context()
    context.global_context.pruning = Pruning(["__qd_o__qd_b", "__qd_o__qd_a"])
    added, _ = CallTransformer._expand_Call_dataclass_args(context, (name("o", Outer),))
    assert [n.id for n in added] == ["__qd_o__qd_a", "__qd_o__qd_b"]
    context.used_py_dataclass_parameters_enforcing = {"__qd_o__qd_b", "__qd_o__qd_i__qd_x"}
    added, _ = CallTransformer._expand_Call_dataclass_args(context, (name("o", Outer),))
    assert [n.id for n in added] == ["__qd_o__qd_b"]


def test_declared_function_arguments():
    made = []
    context = type("Context", (), {"create_variable": lambda self, n, v: made.append((n, v))})()
    context.fn_param_names = set()
    FunctionDefTransformer._transform_func_arg(context, "t", qd.template(), "value")
    assert made == [("t", "value")]


EXPRESSIONS = """
o.a.shape[0]            -> __qd_o__qd_a.shape[0]
o.i.x[3] = o.b + o.c    -> __qd_o__qd_i__qd_x[3] = o.b + o.c
f(o.a, o.i, q.a)        -> f(__qd_o__qd_a, o.i, q.a)
o.i.x.shape             -> __qd_o__qd_i__qd_x.shape
"""


@pytest.mark.parametrize("row", EXPRESSIONS.strip().splitlines())
def test_unpacked_expressions(row):
    before, _, after = (part.strip() for part in row.partition("->"))
    names = {"__qd_o__qd_a", "__qd_o__qd_i__qd_x"}
    tree = struct_steps.unpack_ast_struct_expressions(ast.parse(before), names)
    assert ast.unparse(tree) == after
    tree = struct_steps.unpack_ast_struct_expressions(ast.parse(before), set())
    assert ast.unparse(tree) == ast.unparse(ast.parse(before))


def test_expanded_parameters():
    metas = [ArgMetadata(Outer, "o"), ArgMetadata(qd.i32, "n")]
    flat = struct_steps.expand_func_arguments(None, metas)
    assert [m.name for m in flat] == ["__qd_o__qd_" + leaf for leaf in LEAVES] + ["n"]
    assert flat[3].annotation is qd.i32 and flat[0].annotation.ndim == 1


def test_template_members(backend):
    array = qd.ndarray(qd.f32, 3)
    found = {}
    value = Outer(array, Inner(array, 5, 4), 1.0)
    struct_steps.populate_global_vars_from_dataclass("o", Outer, value, found)
    assert found == {"__qd_o__qd_i__qd_t": 5}


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: qd.types.ndarray()
    y: qd.types.ndarray()


@qd.kernel
def bump(s: Frozen):
    for i in s.x:
        s.x[i] += 1


def test_plans(backend):
    fields = Outer.__dataclass_fields__
    plan = _func_base._get_frozen_dc_plan({"__qd_o__qd_i"}, Outer, "__qd_o", fields)
    assert [row[:2] for row in plan] == [("i", "__qd_o__qd_i")]
    assert _func_base._get_frozen_dc_plan(set(), Outer, "__qd_o", fields) == ()
    backend.init()
    assert not _func_base._frozen_dc_plans
    array = qd.ndarray(qd.i32, 3)
    bump(Frozen(array, array))
    assert _func_base._frozen_dc_plans
    qd.reset()
    assert not _func_base._frozen_dc_plans


@qd.kernel
def nothing() -> qd.i32:
    return impl.call_internal("do_nothing")


@qd.kernel
def weighted(a: qd.f32, c: qd.i32) -> qd.i32:
    return impl.call_internal("test_internal_func_args", a, 2.0, c)


@qd.kernel
def wrong_type() -> qd.i32:
    return impl.call_internal("test_internal_func_args", 1, 2.0, 3)


@qd.kernel
def too_few() -> qd.i32:
    return impl.call_internal("test_internal_func_args", 1.0)


@qd.kernel
def unknown() -> qd.i32:
    return impl.call_internal("no_such_operation")


SELF_TESTS = [
    "test_list_manager",
    "test_node_allocator",
    "test_node_allocator_gc_cpu",
    "test_stack",
]


@qd.kernel
def self_test(name: qd.template()) -> qd.i32:
    return impl.call_internal(name)


@pytest.mark.oracle_differs("it has no such module")
@pytest.mark.filterwarnings("ignore:Calling non-quadrants function")
def test_self_tests_run(backend, monkeypatch):
    from quadrants._compat import internal_ops

    for name in SELF_TESTS:
        assert self_test(name) == 0
    broken = types.SimpleNamespace(
        cast=internal_ops.ops.cast, atomic_add=lambda length, one: length
    )
    monkeypatch.setattr(internal_ops, "ops", broken)
    backend.init(offline_cache=False)
    assert self_test("test_list_manager") > 0


def test_internal_operations(backend):
    assert nothing() == 0 and weighted(1.5, 3) == 10
    with raises(qd.QuadrantsTypeError, "expected f32 for argument #1, but got i32"):
        wrong_type()
    with raises(qd.QuadrantsTypeError, "1 arguments were passed in but expected 3"):
        too_few()
    with raises(qd.QuadrantsCompilationError, "no_such_operation"):
        unknown()
    with pytest.raises(AssertionError):
        impl.call_internal("do_nothing")


def test_expressions_by_hand(backend):
    a, b = core.make_const_expr_int(qd.i32, 3), core.make_const_expr_int(qd.i32, 4)
    assert a.dtype == qd.i32
    assert type(core.make_binary_op_expr(core.BinaryOpType.add, a, b)) is type(a)
    assert core.make_global_store_stmt(None, None) is not None
    assert (core.BinaryOpType.add.name, int(core.BinaryOpType.add)) == ("add", 1)
    for bad in ((3, 3), (qd.i32, 3.5)):
        with pytest.raises(TypeError):
            core.make_const_expr_int(*bad)
    with pytest.raises(TypeError):
        core.make_binary_op_expr(core.BinaryOpType.add, a, 4)


CONSTRUCTS = ("do_while", "parallel", "parallel_context")


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_spellings_of_graph_constructs(name, recwarn):
    def called(text):
        return ast.parse(text, mode="eval").body

    for text in ("qd.graph.{}", "graph.{}", "a[0].graph.{}", "quadrants.graph.{}"):
        func = called(text.format(name))
        assert graph_api.matches(func, name) and not graph_api.is_deprecated_spelling(func, name)
        graph_api.warn_if_deprecated(func, name)
    for text in ("{}", "qd.{}", "f().{}", "graph.x.{}", "qd.graph.other", "f()", "graph"):
        func = called(text.format(name))
        assert not graph_api.matches(func, name)
        graph_api.warn_if_deprecated(func, name)
    assert not recwarn.list
    for text in ("qd.graph_{}", "graph_{}", "anything.graph_{}"):
        func = called(text.format(name))
        assert graph_api.matches(func, name) and graph_api.is_deprecated_spelling(func, name)
        with pytest.warns(DeprecationWarning, match=rf"use qd\.graph\.{name}\(\) instead"):
            graph_api.warn_if_deprecated(func, name)
    assert graph_api.matches(called("qd.graph.checkpoint"), "checkpoint")  # only the syntax counts
    for ask in (graph_api.matches, graph_api.is_deprecated_spelling, graph_api.warn_if_deprecated):
        with raises(KeyError, "checkpoint"):
            ask(called("checkpoint"), "checkpoint")


def test_torch_is_not_waited_for_without_metal(backend):
    assert _metal_interop.mps_sync_if_metal() is None
    qd.reset()
    with pytest.raises(RuntimeError, match=r"qd\.init\(\)"):
        _metal_interop.mps_sync_if_metal()
