// Checks of the global data access rule (chapter 60, 10): the kernel itself, which marks the cells
// of fields with gradients that it loads, and fails before it overwrites one that is marked.
//
// The marks lie in the fields' companions, of type u8, and stay for the kernels that follow.
// Cost: O(instructions).

#include "autodiff/parts.h"

namespace qd::autodiff {
namespace {

struct Marks {
    Module& m;
    Storage storage;

    void after_load(Inst& i) {
        Builder b{i.parent->function, i.parent, i.next, i.loc};
        Value* place = mark_of(b, i.operand(0));
        b.store(place, b.constant(place->type.value(), 1));
    }

    void before_write(Inst& i) {
        Builder b{i.parent->function, i.parent, &i, i.loc};
        Value* place = mark_of(b, i.operand(0));
        Value* mark = b.load(place);
        Value* ok[] = {b.op(Op::eq, {mark, b.constant(mark->type, 0)})};
        m.owned_formats.push_back(std::make_unique<Format>());
        Format* text = m.owned_formats.back().get();
        const Inst* d = root_of_place(i.operand(0))->def;
        text->pieces.push_back({"(kernel=" + m.name +
                                    ") Breaks the global data access rule: field '" +
                                    d->field()->name +
                                    "' is overwritten where it was read before, and its gradient "
                                    "needs what was there. Use another field, or a time axis",
                                0});
        b.emit(Op::assert_, ok, {})->ref = text;
    }

    // One mark for all components of a cell.
    Value* mark_of(Builder& b, Value* place) {
        return storage.companion(b, root_of_place(place), [](Value* v) { return resolve(v); });
    }

    void run() {
        for (const Param& p : m.params)
            if (p.type.is_array())
                throw Refused{
                    {"the global data access rule is checked of fields alone, and "
                     "parameter '" +
                         p.name + "' is an ndarray",
                     nullptr}};
        std::vector<Inst*> loads, writes;
        for (Function* f : m.functions)
            walk(*f->body, [&](Inst& i) {
                if (!i.operand_count || !i.operand(0)->type.is_place()) return;
                const bool access =
                    i.op == Op::load || i.op == Op::store || i.effect() == Effect::atomic;
                if (!access || !storage.has(i.operand(0))) return;
                (i.op == Op::load || i.op == Op::volatile_load ? loads : writes).push_back(&i);
            });
        for (Inst* i : loads) after_load(*i);
        for (Inst* i : writes) before_write(*i);
    }
};

}  // namespace

void validate(Module& m, const Request& request) { Marks{m, Storage(m, request)}.run(); }

}  // namespace qd::autodiff
