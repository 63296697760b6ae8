// The networks at Qwen-Image's full size, over weights that are counted and never made.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "model/dit/dit.h"
#include "model/text_encoder/text_encoder.h"
#include "model/weights/checkpoint.h"
#include "model/weights/weight_store.h"

namespace segue::model {
namespace {

// What the published checkpoint's transformer holds, in 1,933 tensors.
constexpr int64_t kTransformerParameters = 20'430'401'088;
// 28 layers of 233,057,792, the final norm and the embedding of 152,064 tokens.
constexpr int64_t kTextParameters = 28 * int64_t{233'057'792} + 3584 + int64_t{152064} * 3584;

int64_t BytesOf(const WeightStore& store) {
  return store.bytes(WeightGroup::kResident) + store.bytes(WeightGroup::kModulation);
}

class FullSizeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto checkpoint =
        Checkpoint::OpenRandom(std::string(SEGUE_SOURCE_DIR) + "/models/qwen_image", 1);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*checkpoint));
  }

  // bfloat16, each tensor rounded up to WeightStore::kAlignment.
  static void ExpectBytes(const WeightStore& store, int64_t parameters) {
    EXPECT_TRUE(store.counting());
    EXPECT_GE(BytesOf(store), 2 * parameters);
    EXPECT_LE(BytesOf(store), 2 * parameters + 4000 * WeightStore::kAlignment);
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  const comm::SingleRank communicator_;
  WeightStore store_ = WeightStore::Device(HostMemory(), {.kind = DeviceKind::kCpu});
};

TEST_F(FullSizeTest, TransformerTakesAllItsParameters) {
  WeightReader reader(checkpoint_->transformer(), store_);
  const Dit dit(checkpoint_->dit_config(), reader, communicator_);
  ASSERT_TRUE(reader.Finish().ok());
  ExpectBytes(store_, kTransformerParameters);
}

TEST_F(FullSizeTest, TextEncoderTakesItsLanguagePart) {
  WeightReader reader(checkpoint_->text_encoder(), store_);
  const TextEncoder encoder(checkpoint_->text_encoder_config(), reader,
                            {checkpoint_->text_prefix(), checkpoint_->text_embedding_name()},
                            communicator_);
  ASSERT_TRUE(reader.Finish().ok());
  ExpectBytes(store_, kTextParameters);
}

}  // namespace
}  // namespace segue::model
