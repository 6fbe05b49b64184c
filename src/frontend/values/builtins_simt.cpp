// What the threads of a block do together (qd.simt). The operations of the kernel language are
// Python functions (lang/simt) that check their arguments and ask for these by name; which of a
// family one is they say by a word.

#include <algorithm>
#include <utility>

#include "frontend/specialise.h"
#include "frontend/values/builtins.h"

namespace qd::frontend {
namespace {

template <class E>
struct Word {
    std::string_view text;
    E means;
};
constexpr Word<ir::ThreadNumber> kNumbers[] = {{"in_block", ir::ThreadNumber::in_block},
                                               {"in_grid", ir::ThreadNumber::thread},
                                               {"lane", ir::ThreadNumber::lane}};
constexpr Word<ir::Vote> kVotes[] = {{"all", ir::Vote::all},
                                     {"any", ir::Vote::any},
                                     {"same", ir::Vote::same},
                                     {"bits", ir::Vote::bits},
                                     {"number", ir::Vote::number},
                                     {"equal", ir::Vote::equal},
                                     {"all_equal", ir::Vote::all_equal}};
constexpr Word<ir::Shuffle> kShuffles[] = {{"lane", ir::Shuffle::lane},
                                           {"up", ir::Shuffle::up},
                                           {"down", ir::Shuffle::down},
                                           {"flip", ir::Shuffle::flip}};
constexpr Word<ir::Fence> kFences[] = {
    {"subgroup", ir::Fence::subgroup}, {"block", ir::Fence::block}, {"device", ir::Fence::device}};

template <class E, size_t N>
E chosen(const CallArgs& a, const Word<E> (&words)[N]) {
    const std::string word = a.positional.empty() ? "" : text_of(a.positional[0].get());
    const auto found = std::ranges::find(words, std::string_view(word), &Word<E>::text);
    if (found == std::end(words))
        raise(Kind::compilation, "internal error: no operation of threads is called " + word);
    return found->means;
}

// Operand k behind the word; vectors and matrices are no operands of these.
Value* scalar(const CallArgs& a, size_t k, const char* what) {
    if (k >= a.positional.size())
        raise(Kind::compilation, std::string("internal error: no ") + what);
    Value* v = to_value(a.positional[k].get());
    if (!v->type.is_scalar())
        raise(Kind::type, std::string("the ") + what + " must be a scalar, got " +
                              type::to_user_string(v->type));
    return v;
}

Value* lanes(const CallArgs& a, size_t k, const char* what) {  // a u32
    Value* v = scalar(a, k, what);
    if (type::is_float(v->type.prim))
        raise(Kind::type, std::string("the ") + what + " must be an integer, got " +
                              type::info(v->type.prim).name);
    return builder().cast(v, Prim::u32);
}

Value* predicate(const CallArgs& a, size_t k) {
    Value* v = scalar(a, k, "predicate");
    if (type::is_float(v->type.prim))
        raise(Kind::type, std::string("the predicate must be an integer, got ") +
                              type::info(v->type.prim).name);
    return builder().cast(v, Prim::u1);
}

Ref nothing(Op op, std::initializer_list<Value*> operands, uint64_t imm = 0) {
    builder().emit(op, operands, {})->imm = imm;
    return Ref::borrow(Py_None);
}

Value* emit(Op op, Type type, std::initializer_list<Value*> operands, uint64_t imm = 0) {
    return builder().typed(op, type, operands, imm);
}

// --- the operations -----------------------------------------------------------------------------
Ref thread_number(Lowering&, const CallArgs& a) {
    return make_value(emit(Op::thread_index, type::kI32, {}, uint64_t(chosen(a, kNumbers))));
}
Ref block_sync(Lowering&, const CallArgs&) { return nothing(Op::block_sync, {}); }
Ref block_vote(Lowering&, const CallArgs& a) {
    const ir::Vote which = chosen(a, kVotes);
    return make_value(emit(Op::block_vote, type::kI32, {predicate(a, 1)}, uint64_t(which)));
}
Ref fence(Lowering&, const CallArgs& a) {
    return nothing(Op::fence, {}, uint64_t(chosen(a, kFences)));
}
Ref subgroup_sync(Lowering&, const CallArgs& a) {
    return nothing(Op::subgroup_sync, {lanes(a, 0, "mask")});
}
Ref active_mask(Lowering&, const CallArgs&) {
    return make_value(emit(Op::active_mask, type::kU32, {}));
}

// word, value, lane or distance, mask
Ref shuffle(Lowering&, const CallArgs& a) {
    const ir::Shuffle how = chosen(a, kShuffles);
    Value* v = scalar(a, 1, "value");
    Value *lane = lanes(a, 2, "lane"), *mask = lanes(a, 3, "mask");
    return make_value(builder().op(Op::shuffle, {v, lane, mask}, uint64_t(how)));
}

// word, value or predicate, mask
Ref vote(Lowering&, const CallArgs& a) {
    const ir::Vote which = chosen(a, kVotes);
    const bool of_values = which == ir::Vote::equal || which == ir::Vote::all_equal;
    Value* v = of_values ? scalar(a, 1, "value") : predicate(a, 1);
    Value* found = emit(Op::vote, type::kU32, {v, lanes(a, 2, "mask")}, uint64_t(which));
    const bool is_mask = of_values || which == ir::Vote::bits;
    return make_value(is_mask ? found : builder().cast(found, Prim::i32));
}

// A number for a shared array of the kernel. Each place in the source has arrays of its own, so a
// body that makes one is expanded where it is called.
Ref shared_array(Lowering& low, const CallArgs&) {
    for (const Lowering* l = &low; l; l = l->caller)
        if (l->kind == FunctionKind::real_func)
            raise(Kind::compilation, "a SharedArray cannot be made in a @qd.real_func",
                  "make it in the kernel or a @qd.func");
    if (!callers_are_known()) throw HoldsTask{};
    return Ref::steal(PyLong_FromUnsignedLong(low.kernel->shared_arrays++));
}

const Builtin kRows[] = {
    {"simt.thread_number", thread_number},
    {"simt.block_sync", block_sync},
    {"simt.block_vote", block_vote},
    {"simt.fence", fence},
    {"simt.subgroup_sync", subgroup_sync},
    {"simt.active_mask", active_mask},
    {"simt.shuffle", shuffle},
    {"simt.vote", vote},
    {"simt.shared_array", shared_array},
};

// In debug mode a launch ends at the first index outside.
void check_shared_index(Value* index, long long extent, int axis) {
    if (!current()->kernel->options.check_indices()) return;
    ir::Builder& b = builder();
    Value* low = b.op(Op::ge, {index, b.int_const(Prim::i32, 0)});
    Value* high = b.op(Op::lt, {index, b.int_const(Prim::i32, extent)});
    ir::Format f;
    f.pieces = {
        {"Out of bound access to a shared array: index ", 0},
        {"", '*'},
        {" of axis " + std::to_string(axis) + ", which has " + std::to_string(extent) + " elements",
         0}};
    Value* operands[] = {b.op(Op::bit_and, {low, high}), index};
    b.emit(Op::assert_, operands, {})->ref = own_format(std::move(f));
}

long long number_in(PyObject* o) {
    const auto n = static_int(o);
    if (!n) raise(Kind::type, "internal error: a shared array without extents");
    return *n;
}

}  // namespace

std::span<const Builtin> simt_builtins() { return kRows; }

// --- shared arrays
bool is_shared_array(PyObject* o) {
    static PyTypeObject* cache;
    return is_instance(o, "quadrants.lang.simt.block", "SharedArray", cache);
}

Ref shared_element(PyObject* array, std::span<const Ref> indices) {
    const Ref shape = attribute_of(array, "shape"), dtype = attribute_of(array, "dtype");
    const auto ndim = static_cast<size_t>(PyTuple_GET_SIZE(shape.get()));
    if (indices.size() != ndim)
        raise(Kind::index, "Shared array with dim " + std::to_string(ndim) +
                               " accessed with indices of dim " + std::to_string(indices.size()));
    const auto prim = prim_of_dtype(dtype.get());
    const Type element = prim ? Type::scalar(*prim) : tensor_type_of_object(dtype.get());
    ir::Builder& b = builder();
    Value* flat = nullptr;
    uint64_t count = 1;
    for (size_t k = 0; k < ndim; ++k) {
        const long long extent = number_in(PyTuple_GET_ITEM(shape.get(), Py_ssize_t(k)));
        const auto known = static_int(indices[k].get());
        if (known && (*known < 0 || *known >= extent))
            raise(Kind::index, "index " + std::to_string(*known) + " of a shared array's axis " +
                                   std::to_string(k) + ", which has " + std::to_string(extent) +
                                   " elements");
        Value* own = b.cast(index_value(indices[k].get(), int(k)), Prim::i32);
        check_shared_index(own, extent, int(k));
        flat = flat ? b.op(Op::add, {b.op(Op::mul, {flat, b.int_const(Prim::i32, extent)}), own})
                    : own;
        count *= uint64_t(extent);
    }
    const ir::SharedArray which{uint32_t(number_in(attribute_of(array, "_number").get())),
                                uint32_t(count)};
    if (!flat) flat = b.int_const(Prim::i32, 0);
    return make_place(b.typed(Op::shared_place, element.place(), {{flat}}, which.pack()),
                      ExprKind::element, true);
}

}  // namespace qd::frontend
