// Places relocatable ELF objects in memory and resolves them.
//
// What: x86-64 and AArch64 objects as our code generator writes them: position independent, no TLS,
// no unwinding, no symbols but functions of the objects beside them and a short list of helper
// routines.
// Why: 10 us a kernel instead of the milliseconds of a general JIT linker (measurements).
// Safety: an object may come from a damaged cache file, so every offset is checked against the
// input or the mapping; anything unknown is an error, never a guess.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace qd::runtime {

class LoadedObject {
  public:
    // Objects that call each other's global functions, or a single one. Throws support::Error.
    // `name` is for profilers.
    explicit LoadedObject(std::span<const std::span<const uint8_t>> files,
                          std::string_view name = {});
    explicit LoadedObject(std::span<const uint8_t> file, std::string_view name = {});
    ~LoadedObject();
    LoadedObject(const LoadedObject&) = delete;
    LoadedObject& operator=(const LoadedObject&) = delete;

    // Address of a defined global symbol in code; null if there is none.
    void* find(std::string_view symbol) const;
    size_t bytes() const { return size_; }

  private:
    char* memory_ = nullptr;
    size_t size_ = 0;
    std::unordered_map<std::string, void*> symbols_;
};

// Address of a helper routine that generated code may call (memcpy, half conversions, ...), or
// null.
void* helper_routine(std::string_view name);

}  // namespace qd::runtime
