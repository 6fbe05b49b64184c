// The store: a reader sees a whole, trusted entry or nothing; no failure of the file system is more
// than a miss.

#include "cache/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

namespace qd::cache {
namespace {

namespace fs = std::filesystem;

class cache_store : public testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "qd_store_XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        root = pattern;
        (void)take_messages();
    }
    void TearDown() override {
        for (const auto& e : fs::recursive_directory_iterator(root)) {
            std::error_code ignored;
            if (e.is_directory() && !e.is_symlink())
                fs::permissions(e.path(), fs::perms::owner_all, ignored);
        }
        fs::remove_all(root);
    }
    Store store() const { return Store((root / "native").string()); }
    fs::path file(const char* name = "code/a") const { return root / "native" / name; }

    fs::path root;
    const Bytes content = {1, 2, 3, 4, 5, 6, 7, 8, 9};
};

Bytes pattern(size_t n, uint8_t salt) {
    Bytes b(n);
    for (size_t k = 0; k < n; ++k) b[k] = static_cast<uint8_t>(k * 7 + salt);
    return b;
}

TEST_F(cache_store, round_trip) {
    EXPECT_EQ(store().read("code/a"), std::nullopt);
    EXPECT_TRUE(store().list("code").empty());
    for (const size_t n : {size_t(0), size_t(1), size_t(100000)}) {
        ASSERT_TRUE(store().write("code/a", pattern(n, 3)));
        EXPECT_EQ(store().read("code/a"), pattern(n, 3));
    }
    ASSERT_TRUE(store().write("code/b", content));
    EXPECT_EQ(store().list("code"), (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(take_messages().empty());
}

TEST_F(cache_store, every_flipped_byte_is_a_miss) {
    ASSERT_TRUE(store().write("code/a", content));
    std::ifstream in(file(), std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(in), {}};
    for (size_t k = 0; k < good.size(); ++k) {
        std::string bad = good;
        bad[k] = static_cast<char>(bad[k] ^ 0x41);
        std::ofstream(file(), std::ios::binary) << bad;
        EXPECT_EQ(store().read("code/a"), std::nullopt) << "byte " << k;
    }
    for (size_t n = 0; n < good.size(); ++n) {
        std::ofstream(file(), std::ios::binary) << good.substr(0, n);
        EXPECT_EQ(store().read("code/a"), std::nullopt) << "length " << n;
    }
    std::ofstream(file(), std::ios::binary) << good + "x";
    EXPECT_EQ(store().read("code/a"), std::nullopt);
    ASSERT_TRUE(store().write("code/a", content));  // a damaged entry is replaced
    EXPECT_EQ(store().read("code/a"), content);
}

TEST_F(cache_store, an_entry_under_another_name_is_a_miss) {
    ASSERT_TRUE(store().write("code/a", content));
    ASSERT_TRUE(store().write("code/b", {content.data(), 3}));
    fs::rename(file("code/a"), file("code/c"));
    fs::rename(file("code/b"), file("code/a"));
    fs::rename(file("code/c"), file("code/b"));
    EXPECT_FALSE(store().read("code/a"));
    EXPECT_FALSE(store().read("code/b"));
    ASSERT_TRUE(store().write("code/a", content));
    EXPECT_EQ(store().read("code/a"), content);
}

TEST_F(cache_store, trimming_keeps_every_second_one_and_the_newest) {
    for (char name = '0'; name < '7'; ++name) {
        const std::string path = std::string("kernels/k/") + name;
        ASSERT_TRUE(store().write(path, content));
        const utimbuf when{1000 - name, 1000 - name};
        ASSERT_EQ(utime(file(path.c_str()).c_str(), &when), 0);
    }
    store().trim("kernels/k", 7);
    EXPECT_EQ(store().list("kernels/k").size(), 7u);
    store().trim("kernels/k", 6);
    EXPECT_EQ(store().list("kernels/k"), (std::vector<std::string>{"0", "1", "3", "5"}));
}

TEST_F(cache_store, what_others_may_write_is_ignored_with_one_warning) {
    ASSERT_TRUE(store().write("code/a", content));
    for (const char* path : {"native/code/a", "native/code", "native", "."}) {
        const fs::path p = root / path;
        ASSERT_EQ(chmod(p.c_str(), 0777), 0);
        EXPECT_EQ(store().read("code/a"), std::nullopt) << path;
        EXPECT_EQ(store().write("code/b", content), !fs::is_directory(p)) << path;
        const auto warnings = take_messages();
        ASSERT_EQ(warnings.size(), 1u) << path;
        EXPECT_NE(
            warnings[0].text.find(fs::path(p).lexically_normal().filename().string().substr(0, 3)),
            std::string::npos);
        EXPECT_EQ(store().read("code/a"), std::nullopt);
        EXPECT_TRUE(take_messages().empty());
        ASSERT_EQ(chmod(p.c_str(), 0700), 0);
        EXPECT_EQ(store().read("code/a"), content) << path;
    }
}

TEST_F(cache_store, foreign_owner) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to give files away";
    ASSERT_TRUE(store().write("code/a", content));
    for (const char* path : {"native/code/a", "native/code", "native", "."}) {
        ASSERT_EQ(chown((root / path).c_str(), 12345, 12345), 0);
        EXPECT_EQ(store().read("code/a"), std::nullopt) << path;
        EXPECT_EQ(take_messages().size(), 1u) << path;
        ASSERT_EQ(chown((root / path).c_str(), geteuid(), getegid()), 0);
        EXPECT_EQ(store().read("code/a"), content) << path;
    }
}

// Whoever may write into /tmp may not replace what is in it.
TEST_F(cache_store, a_sticky_folder_may_hold_the_store) {
    ASSERT_EQ(chmod(root.c_str(), 01777), 0);
    ASSERT_TRUE(store().write("code/a", content));
    EXPECT_EQ(store().read("code/a"), content);
    EXPECT_TRUE(take_messages().empty());
}

TEST_F(cache_store, links_pipes_and_folders_are_no_entries) {
    ASSERT_TRUE(store().write("code/real", content));
    fs::create_symlink(file("code/real"), file("code/link"));
    ASSERT_EQ(mkfifo(file("code/pipe").c_str(), 0600), 0);
    fs::create_directory(file("code/folder"));
    for (const char* name : {"code/link", "code/pipe", "code/folder", "code"})
        EXPECT_EQ(store().read(name), std::nullopt) << name;
    EXPECT_TRUE(store().write("code/link", content));  // replaced, not followed
    EXPECT_FALSE(fs::is_symlink(file("code/link")));
    EXPECT_FALSE(store().write("code/folder", content));
    fs::create_directory(root / "elsewhere");
    fs::create_directory_symlink(root / "elsewhere", root / "native" / "linked");
    EXPECT_FALSE(store().write("linked/a", content));
    EXPECT_TRUE(fs::is_empty(root / "elsewhere"));
}

TEST_F(cache_store, a_huge_sparse_file_is_a_miss) {
    ASSERT_TRUE(store().write("code/a", content));
    ASSERT_EQ(truncate(file().c_str(), off_t(1) << 40), 0);
    EXPECT_EQ(store().read("code/a"), std::nullopt);
}

// In a child without privileges, where root would be allowed everything.
template <class Body>
int in_child(Body body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + status;
}

TEST_F(cache_store, read_only_folder) {
    const auto body = [&]() -> int {
        const Store s = store();
        if (!s.write("code/a", content)) return 1;
        fs::permissions(root / "native" / "code", fs::perms::owner_read | fs::perms::owner_exec);
        fs::permissions(root / "native", fs::perms::owner_read | fs::perms::owner_exec);
        if (s.write("code/b", content) || s.write("other/b", content)) return 2;
        if (s.read("code/a") != content) return 3;
        s.clean({"lru", 1, 1.0});
        return s.read("code/a") == content ? 0 : 4;
    };
    EXPECT_EQ(in_child([&] {
                  if (geteuid() == 0 && (chown(root.c_str(), 12345, 12345) != 0 ||
                                         setgid(12345) != 0 || setuid(12345) != 0))
                      return 9;
                  return body();
              }),
              0);
}

TEST_F(cache_store, full_disk) {
    EXPECT_EQ(in_child([&] {
                  signal(SIGXFSZ, SIG_IGN);
                  const Store s = store();
                  if (!s.write("code/a", content)) return 1;
                  const rlimit limit{4096, 4096};
                  setrlimit(RLIMIT_FSIZE, &limit);
                  if (s.write("code/a", pattern(100000, 1))) return 2;  // fails half-way
                  if (s.read("code/a") != content) return 3;            // and the old entry stays
                  if (s.write("code/b", pattern(100000, 1)) || s.read("code/b")) return 4;
                  for (const auto& e : fs::directory_iterator(root / "native" / "code"))
                      if (e.path().filename() != "a") return 5;  // nothing is left behind
                  return 0;
              }),
              0);
}

TEST_F(cache_store, a_program_without_standard_input) {
    EXPECT_EQ(in_child([&] {
                  close(0);  // the store's files have this number then
                  const Store s = store();
                  return s.write("code/a", content) && s.read("code/a") == content ? 0 : 1;
              }),
              0);
}

TEST_F(cache_store, an_unusable_path) {
    std::ofstream(root / "native") << "a file where the folder should be";
    EXPECT_FALSE(store().write("code/a", content));
    EXPECT_EQ(store().read("code/a"), std::nullopt);
    EXPECT_TRUE(store().list("code").empty());
    store().clean({"lru", 0, 1.0});
    EXPECT_EQ(Store("").read("a"), std::nullopt);
    EXPECT_EQ(Store("/proc/none").read("a"), std::nullopt);
    EXPECT_FALSE(Store("/proc/none").write("a", content));
}

TEST_F(cache_store, writers_at_once) {
    ASSERT_TRUE(store().write("code/a", pattern(20000, 0)));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    std::vector<pid_t> children;
    for (uint8_t p = 10; p < 12; ++p) {
        const pid_t child = fork();
        if (child == 0) {
            for (int k = 0; k < 100; ++k) (void)store().write("code/a", pattern(20000, p));
            _exit(0);
        }
        children.push_back(child);
    }
    for (uint8_t t = 1; t < 3; ++t)
        threads.emplace_back([&, t] {
            for (int k = 0; k < 100; ++k) wrong += !store().write("code/a", pattern(20000, t));
        });
    threads.emplace_back([&] {
        for (int k = 0; k < 400; ++k) {
            const auto now = store().read("code/a");
            wrong += !now || now->size() != 20000 || *now != pattern(20000, (*now)[0]);
        }
    });
    for (std::thread& t : threads) t.join();
    for (const pid_t c : children) waitpid(c, nullptr, 0);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(store().list("code").size(), 1u);
    EXPECT_EQ(
        std::distance(fs::directory_iterator(root / "native" / "code"), fs::directory_iterator()),
        1);
}

TEST_F(cache_store, cleaning_removes_the_oldest_and_what_crashes_left) {
    for (int k = 0; k < 8; ++k) {
        const std::string name = "code/" + std::to_string(k);
        ASSERT_TRUE(store().write(name, pattern(1000, 0)));
        const utimbuf old{1000000 + k, 1000000 + k};
        ASSERT_EQ(utime(file(name.c_str()).c_str(), &old), 0);
    }
    std::ofstream(file("code/x.1.2.tmp")) << "left";
    std::ofstream(file("code/y.1.2.tmp")) << "being written";
    const utimbuf old{1000, 1000};
    ASSERT_EQ(utime(file("code/x.1.2.tmp").c_str(), &old), 0);
    const auto total = static_cast<int64_t>(8 * fs::file_size(file("code/0")));
    store().clean({"lru", total + 1, 0.25});
    EXPECT_EQ(store().list("code").size(), 8u);
    EXPECT_FALSE(fs::exists(file("code/x.1.2.tmp")));
    EXPECT_TRUE(fs::exists(file("code/y.1.2.tmp")));
    store().clean({"lru", total, 0.25});
    EXPECT_EQ(store().list("code"), (std::vector<std::string>{"2", "3", "4", "5", "6", "7"}));
}

TEST_F(cache_store, cleaning_takes_nothing_else) {
    ASSERT_TRUE(store().write("code/0", pattern(1000, 0)));
    for (const char* name :
         {"mine.c", "code/mine", "code/mine.tmp", "code/1.tmp", "code/x..1.tmp"}) {
        std::ofstream(file(name)) << "QDCACH";
        const utimbuf old{1000, 1000};
        ASSERT_EQ(utime(file(name).c_str(), &old), 0);
    }
    EXPECT_EQ(store().clean({"lru", 1, 1.0}), 1040);
    EXPECT_FALSE(fs::exists(file("code/0")));
    for (const char* name : {"mine.c", "code/mine", "code/mine.tmp", "code/1.tmp", "code/x..1.tmp"})
        EXPECT_TRUE(fs::exists(file(name))) << name;
}

TEST_F(cache_store, looks_at_the_entries_only_when_it_is_time) {
    store().keep_within({"lru", 1, 1.0});  // of what others wrote
    const std::vector<uint8_t> content = pattern(1000, 0);
    const auto add = [&](int k) {
        ASSERT_TRUE(store().write("code/" + std::to_string(k), content));
        store().keep_within({"lru", 5000, 0.5});
    };
    const auto left = [&](const char* name) {
        std::ofstream(file(name)) << "left";
        const utimbuf old{1000, 1000};
        ASSERT_EQ(utime(file(name).c_str(), &old), 0);
    };
    add(0);
    left("code/x.1.2.tmp");
    add(1);
    add(2);
    store().keep_within({"lru", 1, 1.0});  // nothing was written
    EXPECT_TRUE(fs::exists(file("code/x.1.2.tmp"))) << "looked";
    EXPECT_EQ(store().list("code").size(), 3u);
    add(3);
    EXPECT_TRUE(fs::exists(file("code/x.1.2.tmp")));
    add(4);  // 5 x 1040 reach the limit: half of them and of the entry that says so
    EXPECT_FALSE(fs::exists(file("code/x.1.2.tmp")));
    EXPECT_LE(store().list("code").size(), 3u);
    // A total from the future, or a damaged one, is counted anew.
    left("code/y.1.2.tmp");
    ASSERT_TRUE(store().write("total", std::vector<uint8_t>(16, 0x7f)));
    store().keep_within({"lru", 50000, 0.5});
    EXPECT_FALSE(fs::exists(file("code/y.1.2.tmp")));
}

TEST_F(cache_store, policies_choose_what_goes) {
    const auto fill = [&] {
        for (int k = 0; k < 4; ++k) {
            const std::string name = "code/" + std::to_string(k);
            ASSERT_TRUE(store().write(name, pattern(1000, 0)));
            const utimbuf old{1000000 + k, 1000000 + k};
            ASSERT_EQ(utime(file(name.c_str()).c_str(), &old), 0);
        }
        EXPECT_TRUE(store().read("code/0"));  // which is use
    };
    const auto rest = [&](const char* policy) {
        fill();
        store().clean({policy, 1, 0.5});
        return store().list("code");
    };
    using Names = std::vector<std::string>;
    EXPECT_EQ(rest("lru"), (Names{"0", "3"}));
    EXPECT_EQ(rest("fifo"), (Names{"2", "3"}));
    for (const char* policy : {"never", "version", "nonsense"})
        EXPECT_EQ(rest(policy), (Names{"0", "1", "2", "3"})) << policy;
    fill();
    store().clean({"lru", 1, 0.2});  // less than one of four
    EXPECT_EQ(store().list("code").size(), 4u);
}

}  // namespace
}  // namespace qd::cache
