// Parts of large kernels' code, so that after an edit of one function the others are not compiled
// again: native/parts/<hash>, by what the compiler says they were made from, and the build.

#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "cache/store.h"
#include "support/abi.h"

namespace qd::cache {

class PartFolder {
  public:
    // Of the option offline_cache_file_path.
    PartFolder(const std::string& path, std::string build);

    // For the compiler, while this lives. Any thread.
    const abi::PartStore* face() const { return &face_; }
    PartFolder(const PartFolder&) = delete;

    std::atomic<uint32_t> made{0}, reused{0};
    // By this process.
    static std::atomic<uint64_t> all_made, all_reused;

  private:
    std::string name_of(const uint8_t* key) const;

    Store store_;
    std::string build_;
    abi::PartStore face_;
};

}  // namespace qd::cache
