// Other programs, run and waited for.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qd::support {

struct Ended {
    bool well = false;  // it was started, was let run, and ended with 0
    std::string said;   // on its standard output and error
};

// Any thread. arguments[0] is a path. The program has `files`, under their numbers (/dev/fd/N), and
// gets no signals of the terminal's. It is killed once *unwanted, which may be null, is not 0.
Ended run_program(const std::vector<std::string>& arguments, std::span<const int> files,
                  const int32_t* unwanted);

// A file without a name; its descriptor is closed at the end. -1: there can be none.
class MemoryFile {
  public:
    explicit MemoryFile(std::span<const uint8_t> content);
    ~MemoryFile();
    MemoryFile(const MemoryFile&) = delete;
    int descriptor() const { return descriptor_; }
    std::string path() const { return "/dev/fd/" + std::to_string(descriptor_); }
    std::vector<uint8_t> content() const;

  private:
    int descriptor_;
};

}  // namespace qd::support
