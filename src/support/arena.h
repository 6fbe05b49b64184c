// Bump allocator: objects live until the arena dies, destructors are not run.
// One thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace qd::support {

class Arena {
  public:
    void* allocate(size_t bytes, size_t align = 8) {
        size_t at = (used_ + align - 1) & ~(align - 1);
        if (at + bytes > capacity_) {
            grow(bytes + align);
            at = (used_ + align - 1) & ~(align - 1);
        }
        used_ = at + bytes;
        return current_ + at;
    }
    template <class T, class... A>
    T* make(A&&... args) {
        return new (allocate(sizeof(T), alignof(T))) T(std::forward<A>(args)...);
    }
    template <class T>
    T* array(size_t n) {
        static_assert(std::is_trivially_destructible_v<T>);
        return n ? new (allocate(sizeof(T) * n, alignof(T))) T[n]() : nullptr;
    }

  private:
    void grow(size_t least) {
        size_t size = blocks_.empty() ? 4096 : 1 << 16;
        if (size < least) size = least;
        blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
        current_ = blocks_.back().get();
        capacity_ = size;
        used_ = reinterpret_cast<uintptr_t>(current_) & 15
                    ? 16 - (reinterpret_cast<uintptr_t>(current_) & 15)
                    : 0;
    }
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
    std::byte* current_ = nullptr;
    size_t used_ = 0, capacity_ = 0;
};

}  // namespace qd::support
