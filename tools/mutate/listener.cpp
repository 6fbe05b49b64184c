// Which changes each C++ test comes past: a line per test in the file QD_MUTANT_LOG.

#include <gtest/gtest.h>

#include <cstdio>

#include "qd_mutant.h"

namespace {

class Listener : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo&) override {
        for (int i = sizeof(int); i < qd_mutation::kPage; ++i) qd_mutation::page()[i] = 0;
    }

    void OnTestEnd(const testing::TestInfo& test) override {
        const char* path = std::getenv("QD_MUTANT_LOG");
        std::FILE* out = path ? std::fopen(path, "a") : nullptr;
        if (!out) return;
        std::fprintf(out, "%s.%s %.3f %d", test.test_suite_name(), test.name(),
                     double(test.result()->elapsed_time()) / 1e3, test.result()->Passed());
        for (int i = 0; i < qd_mutation::kPage - int(sizeof(int)); ++i)
            if (qd_mutation::page()[sizeof(int) + i]) std::fprintf(out, " %d", i);
        std::fputc('\n', out);
        std::fclose(out);
    }
};

const bool installed = [] {
    testing::UnitTest::GetInstance()->listeners().Append(new Listener);
    return true;
}();

}  // namespace
