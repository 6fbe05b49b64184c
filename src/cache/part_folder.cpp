// See part_folder.h.

#include "cache/part_folder.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace qd::cache {

std::atomic<uint64_t> PartFolder::all_made{0}, PartFolder::all_reused{0};

PartFolder::PartFolder(const std::string& path, std::string build)
    : store_(path + "/native"), build_(std::move(build)) {
    // The compiler calls these: nothing may be thrown into it.
    const auto find = [](void* data, const uint8_t* key, abi::Blob* part) -> int {
        auto& self = *static_cast<PartFolder*>(data);
        try {
            const auto content = self.store_.read(self.name_of(key));
            if (!content || content->empty()) return 0;
            part->data = static_cast<uint8_t*>(std::malloc(content->size()));
            if (!part->data) return 0;
            std::memcpy(part->data, content->data(), content->size());
            part->bytes = content->size();
        } catch (const std::bad_alloc&) {
            return 0;
        }
        ++self.reused, ++all_reused;
        return 1;
    };
    const auto keep = [](void* data, const uint8_t* key, const uint8_t* part, size_t bytes) {
        auto& self = *static_cast<PartFolder*>(data);
        ++self.made, ++all_made;
        try {
            (void)self.store_.write(self.name_of(key), {part, bytes});
        } catch (const std::bad_alloc&) {
        }
    };
    face_ = {this, find, keep};
}

std::string PartFolder::name_of(const uint8_t* key) const {
    const std::string all = build_ + std::string(reinterpret_cast<const char*>(key), 16);
    const XXH128_hash_t h = XXH3_128bits(all.data(), all.size());
    uint8_t bytes[sizeof h];
    std::memcpy(bytes, &h, sizeof h);
    return "parts/" + hex(bytes);
}

}  // namespace qd::cache
