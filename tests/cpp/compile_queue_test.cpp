// Slots and the queue behind them, without a compiler: publishing, and an idle queue.

#include "runtime/compile_queue.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace qd::runtime
