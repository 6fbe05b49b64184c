// Regions, loops, calls and the frame of a function.
//
// Loops are made in the rotated form that LLVM's loop passes want: a guard, then a body that ends
// in the test. A for_ counts in i64 whatever its index type, so that addresses need no extension;
// the index itself is a truncation known not to wrap.

#include "codegen/llvm/lower.h"

namespace qd::codegen {

using llvm::BasicBlock;
using llvm::PHINode;
using llvm::Value;

namespace {

// Of a block that nothing jumps to.
void drop_phis(const std::vector<PHINode*>& phis) {
    for (PHINode* p : phis) {
        p->replaceAllUsesWith(llvm::PoisonValue::get(p->getType()));
        p->eraseFromParent();
    }
}

}  // namespace

FunctionLowering::FunctionLowering(ModuleLowering& module, ir::Function& function,
                                   llvm::Function* to, bool is_task)
    : m(module),
      f(function),
      fn(to),
      b(module.context, IntegerFolder()),
      scalar{module, b},
      is_task_(is_task) {}

BasicBlock* FunctionLowering::new_block() { return BasicBlock::Create(m.context, "", fn); }

void FunctionLowering::start(BasicBlock* block) {
    block->moveAfter(&fn->back());
    b.SetInsertPoint(block);
}

Value* FunctionLowering::get(ir::Value* v, int k) {
    Value*& x = values_[v->id + k];
    if (x) return x;
    const Inst* d = v->def;
    if (d && d->op == Op::constant) return x = m.constant(v->type.prim, d->imm);
    if (v->owner == f.body) {
        if (is_task_) return x = parameter(v, k);
        if (const ir::Value* p = m.kernel_array(v)) return x = parameter(p, 0);
    }
    throw support::Error("value used before its definition in " + f.name);
}

std::vector<PHINode*> FunctionLowering::make_phis(std::span<ir::Value> like) {
    std::vector<PHINode*> phis;
    for (ir::Value& v : like)
        for (int k = 0; k < v.type.count(); ++k) phis.push_back(b.CreatePHI(m.reg(v.type.prim), 2));
    return phis;
}

// Hands a terminator's operands to the phis of the block that it goes to.
void FunctionLowering::hand_over(Inst& i, const std::vector<PHINode*>& phis) {
    size_t at = 0;
    for (int k = 0; k < i.operand_count; ++k) {
        ir::Value* v = operand(i, k);
        for (int c = 0; c < v->type.count(); ++c)
            phis[at++]->addIncoming(get(v, c), b.GetInsertBlock());
    }
}

void FunctionLowering::jump(Inst& i, BasicBlock* to, const std::vector<PHINode*>& phis) {
    hand_over(i, phis);
    b.CreateBr(to);
}

void FunctionLowering::lower_return(Inst& i) {
    std::vector<Value*> values;
    for (int k = 0; k < i.operand_count; ++k) {
        ir::Value* v = operand(i, k);
        for (int c = 0; c < v->type.count(); ++c) values.push_back(get(v, c));
    }
    if (values.empty() || is_task_) {
        say_done();
        b.CreateRetVoid();
    } else if (result_out_) {
        for (size_t k = 0; k < values.size(); ++k)
            b.CreateAlignedStore(to_memory(result_prims_[k], values[k]),
                                 b.CreateConstInBoundsGEP1_64(m.i8, result_out_, 8 * k),
                                 llvm::Align(8));
        b.CreateRetVoid();
    } else if (values.size() == 1) {
        b.CreateRet(values[0]);
    } else {
        b.CreateAggregateRet(values.data(), unsigned(values.size()));
    }
}

void FunctionLowering::lower_call(Inst& i) {
    llvm::Function* callee = m.functions[i.callee()->id];
    std::vector<Value*> args{m.gpu ? thread_record() : fn->getArg(0)};
    for (int k = 0; k < i.operand_count; ++k) {
        ir::Value* v = operand(i, k);
        if (m.kernel_array(i.callee()->body->params[uint32_t(k)])) continue;
        if (v->type.is_array()) {
            args.push_back(b.CreateAddrSpaceCast(get(v), m.ptr));
        } else if (v->type.count() > kMaxFlatTensor) {
            args.push_back(spill(v, k));
        } else {
            for (int c = 0; c < v->type.count(); ++c) args.push_back(get(v, c));
        }
    }
    int count = 0;
    for (ir::Value& r : i.result_values()) count += r.type.count();
    Value* out = nullptr;
    if (returns_in_memory(*i.callee()))
        args.push_back(out = scratch(m.i64, uint64_t(count), 8, -1));
    const auto site = m.prepared.call_sites.find(&i);
    const bool told = site != m.prepared.call_sites.end();
    Value *calls = nullptr, *outer = nullptr;  // see abi::OpenCall
    if (told) {
        calls = open_calls();
        outer = b.CreateAlignedLoad(m.ptr, calls, llvm::Align(8));
        Value* open = scratch(m.i64, 2, 8, -2);
        b.CreateAlignedStore(outer, open, llvm::Align(8));
        b.CreateAlignedStore(b.getInt64(site->second), b.CreateConstInBoundsGEP1_64(m.i64, open, 1),
                             llvm::Align(8));
        b.CreateAlignedStore(open, calls, llvm::Align(8));
    }
    Value* call = b.CreateCall(callee, args);
    if (told) b.CreateAlignedStore(outer, calls, llvm::Align(8));
    int at = 0;
    for (ir::Value& r : i.result_values())
        for (int c = 0; c < r.type.count(); ++c, ++at) {
            const Prim p = r.type.prim;
            Value* v = call;
            if (out)
                v = from_memory(
                    p, b.CreateAlignedLoad(
                           m.mem(p), b.CreateConstInBoundsGEP1_64(m.i8, out, uint64_t(8 * at)),
                           llvm::Align(8)));
            else if (count > 1)
                v = b.CreateExtractValue(call, unsigned(at));
            values_[r.id + c] = v;
        }
}

void FunctionLowering::lower_if(Inst& i) {
    Value* condition = get(operand(i, 0));
    auto* join = new_block();
    const std::vector<PHINode*> phis = make_phis_at(join, i.result_values());
    // Where a side does nothing but leave, the branch goes there itself.
    BasicBlock* sides[2] = {};
    bool leaves = false;
    for (int k = 0; k < 2; ++k) {
        Inst& last = *i.regions[k]->terminator();
        if (i.regions[k]->first != &last) continue;
        if (last.op == Op::yield && phis.empty()) {
            sides[k] = join;
        } else if (last.op == Op::break_ && !leaves) {
            leaves = true;
            sides[k] = frames_.back().break_to;
            hand_over(last, frames_.back().break_phis);
        }
    }
    bool joined = sides[0] == join || sides[1] == join;
    const bool made[2] = {!sides[0], !sides[1]};
    for (int k = 0; k < 2; ++k)
        if (made[k]) sides[k] = new_block();
    b.CreateCondBr(condition, sides[0], sides[1]);
    for (int k = 0; k < 2; ++k) {
        if (!made[k]) continue;
        start(sides[k]);
        lower_region(*i.regions[k]);
        Inst& last = *i.regions[k]->terminator();
        if (last.op == Op::yield) {
            jump(last, join, phis);
            joined = true;
        }
    }
    start(join);
    if (!joined) {  // what follows cannot be reached
        drop_phis(phis);
        for (ir::Value& r : i.result_values())
            for (int c = 0; c < r.type.count(); ++c)
                values_[r.id + c] = llvm::PoisonValue::get(m.reg(r.type.prim));
        return;
    }
    size_t at = 0;
    for (ir::Value& r : i.result_values())
        for (int c = 0; c < r.type.count(); ++c) values_[r.id + c] = phis[at++];
}

std::vector<PHINode*> FunctionLowering::make_phis_at(BasicBlock* block, std::span<ir::Value> like) {
    const auto insertion = b.saveIP();
    b.SetInsertPoint(block);
    auto phis = make_phis(like);
    b.restoreIP(insertion);
    return phis;
}

// The guard and the header. `carried` is what flows in; behind, it is what the header has.
void FunctionLowering::open_level(Level& l, std::span<ir::Value> results,
                                  std::vector<Value*>& carried) {
    l.header = new_block();
    l.latch = new_block();
    l.after = new_block();
    l.after_carried = make_phis_at(l.after, results);
    auto* before = b.GetInsertBlock();
    Value* some = b.CreateICmpSLT(l.begin, l.end);
    for (size_t k = 0; k < carried.size(); ++k) l.after_carried[k]->addIncoming(carried[k], before);
    b.CreateCondBr(some, l.header, l.after);
    start(l.header);
    l.index = b.CreatePHI(l.begin->getType(), 2);
    l.index->addIncoming(l.begin, before);
    l.carried = make_phis(results);
    for (size_t k = 0; k < carried.size(); ++k) {
        l.carried[k]->addIncoming(carried[k], before);
        carried[k] = l.carried[k];
    }
}

// The latch, from where the level is repeated or left for its after-block.
void FunctionLowering::close_level(Level& l) {
    start(l.latch);
    Value* next =
        b.CreateAdd(l.index, llvm::ConstantInt::get(l.index->getType(), 1), "", false, true);
    l.index->addIncoming(next, l.latch);
    Value* more = b.CreateICmpSLT(next, l.end);
    for (size_t k = 0; k < l.carried.size(); ++k) {
        Value* v = k < l.latch_carried.size() ? static_cast<Value*>(l.latch_carried[k])
                                              : llvm::PoisonValue::get(l.carried[k]->getType());
        l.carried[k]->addIncoming(v, l.latch);
        l.after_carried[k]->addIncoming(v, l.latch);
    }
    b.CreateCondBr(more, l.header, l.after);
    start(l.after);
}

void FunctionLowering::lower_body(Inst& i, const std::vector<Level>& levels,
                                  const std::vector<Value*>& carried, const Frame& frame) {
    Region& body = i.body();
    const uint32_t dims = uint32_t(levels.size());
    for (uint32_t d = 0; d < dims; ++d) values_[body.params[d]->id] = levels[d].index;
    size_t at = 0;
    for (uint32_t k = dims; k < body.params.size(); ++k)
        for (int c = 0; c < body.params[k]->type.count(); ++c)
            values_[body.params[k]->id + c] = carried[at++];
    frames_.push_back(frame);
    lower_region(body);
    frames_.pop_back();
}

void FunctionLowering::lower_for(Inst& i) {
    const int dims = int(i.imm);
    std::vector<Level> levels(dims);
    for (int d = 0; d < dims; ++d) {
        levels[d].begin = get(operand(i, 2 * d));
        levels[d].end = get(operand(i, 2 * d + 1));
    }
    std::vector<Value*> carried;
    for (int k = 2 * dims; k < i.operand_count; ++k)
        for (int c = 0; c < operand(i, k)->type.count(); ++c)
            carried.push_back(get(operand(i, k), c));

    auto results = i.result_values();
    auto* exit = new_block();
    const std::vector<PHINode*> exit_phis = make_phis_at(exit, results);
    for (Level& l : levels) open_level(l, results, carried);
    Level& inner = levels[dims - 1];
    inner.latch_carried = make_phis_at(inner.latch, results);
    lower_body(i, levels, carried, {inner.latch, exit, inner.latch_carried, exit_phis});
    if (llvm::pred_empty(inner.latch)) {  // every path breaks: the latch is dead
        drop_phis(inner.latch_carried);
        inner.latch_carried.clear();
    }
    // The after-block of a level is the latch of the level around it.
    for (int d = dims; d-- > 0;) {
        Level& l = levels[d];
        close_level(l);
        BasicBlock* to = d > 0 ? levels[d - 1].latch : exit;
        if (d > 0) levels[d - 1].latch_carried = make_phis_at(to, results);
        const std::vector<PHINode*>& phis = d > 0 ? levels[d - 1].latch_carried : exit_phis;
        for (size_t k = 0; k < carried.size(); ++k)
            phis[k]->addIncoming(l.after_carried[k], l.after);
        b.CreateBr(to);
    }
    start(exit);
    size_t at = 0;
    for (ir::Value& r : results)
        for (int c = 0; c < r.type.count(); ++c) values_[r.id + c] = exit_phis[at++];
}

void FunctionLowering::lower_loop(Inst& i) {
    auto* before = b.GetInsertBlock();
    auto* header = new_block();
    auto* exit = new_block();
    b.SetInsertPoint(exit);
    auto exit_phis = make_phis(i.result_values());
    b.SetInsertPoint(before);
    b.CreateBr(header);
    start(header);
    Region& body = i.body();
    std::vector<PHINode*> phis;
    for (uint32_t k = 0; k < body.params.size(); ++k) {
        ir::Value* v = body.params[k];
        for (int c = 0; c < v->type.count(); ++c) {
            auto* phi = b.CreatePHI(m.reg(v->type.prim), 2);
            phi->addIncoming(get(operand(i, int(k)), c), before);
            values_[v->id + c] = phi;
            phis.push_back(phi);
        }
    }
    frames_.push_back({header, exit, phis, exit_phis});
    lower_region(body);
    frames_.pop_back();
    start(exit);
    size_t at = 0;
    if (llvm::pred_empty(exit)) {  // an endless loop
        for (PHINode* p : exit_phis) p->eraseFromParent();
        for (ir::Value& r : i.result_values())
            for (int c = 0; c < r.type.count(); ++c)
                values_[r.id + c] = llvm::PoisonValue::get(m.reg(r.type.prim));
        return;
    }
    const bool one_way = llvm::pred_size(exit) == 1;
    for (ir::Value& r : i.result_values())
        for (int c = 0; c < r.type.count(); ++c, ++at) {
            values_[r.id + c] = one_way ? exit_phis[at]->getIncomingValue(0) : exit_phis[at];
            if (one_way) exit_phis[at]->eraseFromParent();
        }
}

void FunctionLowering::lower(Inst& i) {
    switch (ir::info(i.op).kind) {
        case ir::Kind::constant:
            return;  // made where it is used
        case ir::Kind::tensor:
            return lower_tensor(i);
        case ir::Kind::elementwise:
            return lower_elementwise(i);
        case ir::Kind::place:
            return lower_place(i);
        case ir::Kind::memory:
            return lower_memory(i);
        case ir::Kind::atomic:
            return lower_atomic(i);
        case ir::Kind::control:
            return lower_control(i);
        case ir::Kind::threads:
            return lower_threads(i);
        case ir::Kind::outside:
            return i.op == Op::prefetch ? lower_prefetch(i) : lower_text(i);
    }
}

void FunctionLowering::lower_control(Inst& i) {
    switch (i.op) {
        case Op::if_:
            return lower_if(i);
        case Op::for_:
            return lower_for(i);
        case Op::loop:
            return lower_loop(i);
        case Op::call:
            return lower_call(i);
        case Op::return_:
            return lower_return(i);
        case Op::yield:
            return;  // lower_if
        case Op::continue_:
            return jump(i, frames_.back().continue_to, frames_.back().continue_phis);
        case Op::break_:
            return jump(i, frames_.back().break_to, frames_.back().break_phis);
        default:
            throw support::Error(std::string("no lowering of ") + ir::info(i.op).name);
    }
}

void FunctionLowering::lower_region(Region& r) {
    for (Inst* i = r.first; i; i = i->next) lower(*i);
}

void FunctionLowering::run() {
    entry_ = new_block();
    auto* first = new_block();
    b.SetInsertPoint(entry_);
    entry_end_ = b.CreateBr(first);
    b.SetInsertPoint(first);
    values_.assign(m.prepared.value_counts[f.id], nullptr);
    if (!is_task_) {
        unsigned at = 1;
        for (ir::Value* v : f.body->params) {
            if (m.kernel_array(v)) continue;
            if (v->type.is_array()) {
                values_[v->id] = fn->getArg(at++);
            } else if (v->type.count() > kMaxFlatTensor) {
                Value* memory = fn->getArg(at++);
                for (int k = 0; k < v->type.count(); ++k)
                    values_[v->id + k] = reload(memory, v->type.prim, k);
            } else {
                for (int k = 0; k < v->type.count(); ++k) values_[v->id + k] = fn->getArg(at++);
            }
        }
        for (Type t : f.result_types)
            for (int k = 0; k < t.count(); ++k) result_prims_.push_back(t.prim);
        if (returns_in_memory(f)) result_out_ = fn->getArg(at);
    }
    if (m.gpu && is_task_) leave_if_failed();
    if (m.gpu && is_task_) leave_behind_loop(f);
    lower_region(*f.body);
    if (!b.GetInsertBlock()->getTerminator()) {
        if (f.result_types.empty() || is_task_) {
            say_done();
            b.CreateRetVoid();
        } else {
            b.CreateUnreachable();
        }
    }
    if (m.gpu && is_task_) wait_for_task_before();
    // Blocks behind a jump that nothing reaches still need an end.
    for (BasicBlock& block : *fn)
        if (!block.getTerminator()) new llvm::UnreachableInst(m.context, &block);
}

}  // namespace qd::codegen
