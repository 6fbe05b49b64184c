// Files as text, for the tools of this folder.

#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

inline std::string contents(const char* path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot be read");
    return {std::istreambuf_iterator<char>(in), {}};
}
