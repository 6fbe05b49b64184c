// Slots and the queue behind them, without a compiler: publishing, and an idle queue.

#include "runtime/compile_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace qd::runtime {
namespace {

std::unique_ptr<KernelImage> image(uint32_t tier) {
    auto i = std::make_unique<KernelImage>();
    i->tier = tier;
    return i;
}

TEST(compile_queue, the_last_published_image_is_current) {
    ImageSlot slot;
    EXPECT_EQ(slot.current(), nullptr);
    slot.publish(image(0));
    const KernelImage* quick = slot.current();
    slot.publish(image(1));
    EXPECT_EQ(slot.current()->tier, 1u);
    EXPECT_EQ(quick->tier, 0u);  // a launch may still be running it
}

TEST(compile_queue, readers_see_whole_images) {
    ImageSlot slot;
    slot.publish(image(0));
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread reader([&] {
        uint32_t last = 0;
        while (!stop) {
            const uint32_t now = slot.current()->tier;
            wrong += now < last;
            last = now;
        }
    });
    for (uint32_t k = 1; k < 2000; ++k) slot.publish(image(k));
    stop = true;
    reader.join();
    EXPECT_EQ(wrong, 0);
}

TEST(compile_queue, idle) {
    EXPECT_EQ(pending_optimisations(), 0u);
    drop_optimisations();
    finish_optimisations();
}

int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Quick code with a module that is none: optimising it fails, which settles the slot.
std::shared_ptr<ImageSlot> quick_slot(uint32_t optimise_us) {
    auto i = image(0);
    i->ir = {1, 2, 3};
    i->optimise_us = optimise_us;
    return std::make_shared<ImageSlot>(std::move(i), Target{"k", "", {}});
}

bool settles(const std::shared_ptr<ImageSlot>& slot) {
    for (int k = 0; k < 2000; ++k) {
        if (slot->settled()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

TEST(compile_queue, short_launches_are_not_optimised) {
    const auto slot = quick_slot(1'000'000);
    for (int k = 0; k < 10; ++k) {
        quick_run_begins(slot, now_ns());
        quick_run_ends(slot, 1000);
    }
    EXPECT_EQ(pending_optimisations(), 0u);
    EXPECT_FALSE(slot->settled());
    drop_optimisations();
}

TEST(compile_queue, launches_are_optimised_when_they_add_up) {
    const auto slot = quick_slot(1'000'000);
    quick_run_begins(slot, now_ns());
    for (int k = 0; k < 10; ++k) quick_run_ends(slot, 10'000'000);
    finish_optimisations();
    EXPECT_TRUE(slot->settled());
    EXPECT_EQ(slot->current()->tier, 0u);  // a failure leaves the code as it is
}

TEST(compile_queue, a_long_launch_is_optimised_before_it_ends) {
    const auto slot = quick_slot(1000);
    quick_run_begins(slot, now_ns());
    EXPECT_TRUE(settles(slot));
    quick_run_ends(slot, 1);
}

TEST(compile_queue, what_was_dropped_waits_for_its_next_launch) {
    const auto slot = quick_slot(1'000'000);
    quick_run_begins(slot, now_ns());
    drop_optimisations();
    EXPECT_FALSE(slot->settled());
    quick_run_ends(slot, 100'000'000);
    EXPECT_TRUE(settles(slot));
}

TEST(compile_queue, code_without_a_module_stays) {
    const auto slot = std::make_shared<ImageSlot>(image(0), Target{});
    EXPECT_TRUE(slot->settled());
    optimise(slot);
    EXPECT_EQ(pending_optimisations(), 0u);
}

// Dropping wakes who waits for the queue to be empty.
TEST(compile_queue, a_waiting_finish_ends_when_all_is_dropped) {
    for (int k = 0; k < 50; ++k) {
        std::vector<std::shared_ptr<ImageSlot>> slots;
        for (int j = 0; j < 20; ++j) optimise(slots.emplace_back(quick_slot(1000)));
        std::thread waiting([] { finish_optimisations(); });
        drop_optimisations();
        waiting.join();
    }
}

}  // namespace
}  // namespace qd::runtime
