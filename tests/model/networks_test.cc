// The networks of the tiny checkpoint: ranks, ragged batches, arenas. What they compute is compared
// with the reference in tests/parity.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <list>

#include "model/memory_plan.h"
#include "model/qwen_image.h"
#include "model/rank_group.h"
#include "runtime/noise.h"

namespace segue::model {
namespace {

std::vector<float> Noise(uint64_t seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  runtime::FillGaussian(seed, values);
  return values;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(double{got[i]} - wanted[i], 2);
    norm += std::pow(double{wanted[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

class NetworksTest : public testing::Test {
 protected:
  void SetUp() override { OpenModel("/tests/goldens/tiny/model"); }

  void OpenModel(const std::string& path) {
    auto checkpoint = Checkpoint::Open(SEGUE_SOURCE_DIR + path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*checkpoint));
    config_ = {.dit = checkpoint_->dit_config(),
               .text_encoder = checkpoint_->text_encoder_config(),
               .vae = checkpoint_->vae_config()};
  }

  ForwardContext Context(ThreadPool& pool, const comm::Communicator& communicator) const {
    return {.kernels = {.stream = Stream::Cpu(pool)}, .communicator = &communicator};
  }

  // Velocities of sequences with noise for latents and text, packed; empty on error.
  std::vector<float> Velocity(const comm::Communicator& communicator,
                              const std::vector<DitSequence>& sequences,
                              const std::vector<float>& timesteps,
                              kernels::KernelLog* log = nullptr) const {
    WeightStore store = WeightStore::Host();
    WeightReader reader(checkpoint_->transformer(), store);
    const Dit dit(config_.dit, reader, communicator);
    EXPECT_TRUE(reader.Finish().ok());
    ThreadPool pool(1);
    const auto batch = DitBatch::Create(config_.dit, sequences);
    EXPECT_TRUE(batch.ok());
    const int64_t channels = config_.dit.in_channels;
    const int64_t hidden = config_.dit.hidden();
    std::vector<std::vector<float>> values;
    std::vector<DitSequenceInput> inputs;
    for (size_t i = 0; i < sequences.size(); ++i) {
      auto& latents = values.emplace_back(Noise(2 * i, sequences[i].image_rows() * channels));
      MatrixView view = ContiguousMatrix(latents.data(), sequences[i].image_rows(), channels);
      auto& text = values.emplace_back(Noise(2 * i + 1, sequences[i].text_rows * hidden));
      inputs.push_back(
          {.latents = view, .text = ContiguousMatrix(text.data(), sequences[i].text_rows, hidden)});
    }
    std::vector<float> velocity(static_cast<size_t>(batch->image_rows() * channels));
    auto arena =
        Arena::Create(HostMemory(), DenoiseBytes(config_, communicator.size(), batch->image_rows(),
                                                 batch->text_rows(), batch->timesteps()));
    EXPECT_TRUE(arena.ok());
    ForwardContext context = Context(pool, communicator);
    context.kernels.log = log;
    const Status status =
        dit.Forward(*batch,
                    {.sequences = inputs,
                     .timesteps = timesteps,
                     .velocity = ContiguousMatrix(velocity.data(), batch->image_rows(), channels)},
                    *arena, context);
    EXPECT_TRUE(status.ok()) << status.error().Message();
    return velocity;
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
};

const std::vector<DitSequence> kRagged = {
    {.text_rows = 7, .grid_height = 3, .grid_width = 5, .timestep = 0},
    {.text_rows = 1, .grid_height = 3, .grid_width = 5, .timestep = 0},
    {.text_rows = 19, .grid_height = 1, .grid_width = 1, .timestep = 1}};

TEST_F(NetworksTest, TransformerOnThreeRanksIsTheSameFunction) {
  const std::vector<float> timesteps = {0.75f, 0.25f};
  const auto one = Velocity(comm::SingleRank(), kRagged, timesteps);
  RankGroup group(3);
  std::vector<std::vector<float>> ranks(3);
  group.Run([&](const comm::Communicator& rank) {
    ranks[static_cast<size_t>(rank.rank())] = Velocity(rank, kRagged, timesteps);
  });
  EXPECT_EQ(ranks[1], ranks[0]);
  EXPECT_EQ(ranks[2], ranks[0]);
  EXPECT_LT(RelativeError(ranks[0], one), 1e-5);
}

// A block has two sums of both streams; the last one's text stream is not computed. On two ranks
// text's feed-forward network is whole, and the sum behind it has the image's alone.
TEST_F(NetworksTest, SumsOfBothStreamsTravelTogether) {
  OpenModel("/models/emoji");
  for (const int size : {2, 3}) {
    RankGroup group(size);
    std::vector<kernels::KernelLog> logs(static_cast<size_t>(size));
    group.Run([&](const comm::Communicator& rank) {
      Velocity(rank, kRagged, {0.75f, 0.25f}, &logs[static_cast<size_t>(rank.rank())]);
    });
    for (const kernels::KernelLog& log : logs) {
      const auto ops = log.Snapshot();
      ASSERT_TRUE(ops.contains("all_reduce"));
      EXPECT_EQ(ops.at("all_reduce")[0].calls, 2 * config_.dit.num_layers);
    }
  }
}

// One rank's part of the sums in place of the sums: nobody is waited for, and nothing is right.
TEST_F(NetworksTest, ARankRehearsesAlone) {
  OpenModel("/models/emoji");
  const std::vector<float> timesteps = {0.75f, 0.25f};
  const auto one = Velocity(comm::SingleRank(), kRagged, timesteps);
  for (const int size : {2, 3}) {
    const auto alone = Velocity(comm::Rehearsal(size - 1, size), kRagged, timesteps);
    EXPECT_GT(RelativeError(alone, one), 1e-3);
  }
}

// Every number of ranks that divides the heads gives one result on all of its ranks, which differs
// from the others' by the order of the products' sums alone; and again the same bytes.
TEST_F(NetworksTest, TheEmojiTransformerOnAnyNumberOfRanksIsTheSameFunction) {
  OpenModel("/models/emoji");
  const std::vector<float> timesteps = {0.75f, 0.25f};
  const auto one = Velocity(comm::SingleRank(), kRagged, timesteps);
  for (const int size : {2, 3, 6}) {
    SCOPED_TRACE(size);
    std::vector<std::vector<float>> runs;
    for (int run = 0; run < 2; ++run) {
      RankGroup group(size);
      std::vector<std::vector<float>> ranks(static_cast<size_t>(size));
      group.Run([&](const comm::Communicator& rank) {
        ranks[static_cast<size_t>(rank.rank())] = Velocity(rank, kRagged, timesteps);
      });
      runs.insert(runs.end(), ranks.begin(), ranks.end());
    }
    for (const auto& velocity : runs) EXPECT_EQ(velocity, runs[0]);
    EXPECT_NE(runs[0], one);
    EXPECT_LT(RelativeError(runs[0], one), 1e-5);
  }
}

TEST_F(NetworksTest, SizesThatRanksDoNotDivideAreRefused) {
  RankGroup group(2);
  group.Run([&](const comm::Communicator& rank) {
    WeightStore store = WeightStore::Host();
    const auto model = QwenImage::Load(*checkpoint_, rank, store);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(model.error().Message().find("num_attention_heads"), std::string::npos);
  });
}

TEST_F(NetworksTest, ASequenceWithoutTextRowsRuns) {
  const auto velocity =
      Velocity(comm::SingleRank(), {{.text_rows = 0, .grid_height = 2, .grid_width = 2}}, {0.5f});
  for (const float value : velocity) EXPECT_TRUE(std::isfinite(value));
  // Beside another sequence it is the same.
  const auto both = Velocity(comm::SingleRank(),
                             {{.text_rows = 0, .grid_height = 2, .grid_width = 2},
                              {.text_rows = 9, .grid_height = 1, .grid_width = 3}},
                             {0.5f});
  EXPECT_TRUE(std::equal(velocity.begin(), velocity.end(), both.begin()));
}

TEST_F(NetworksTest, AnArenaThatIsTooSmallIsAnError) {
  WeightReader reader(checkpoint_->transformer());
  const comm::SingleRank single;
  const Dit dit(config_.dit, reader, single);
  ThreadPool pool(1);
  const auto batch = DitBatch::Create(config_.dit, {kRagged[2]});
  ASSERT_TRUE(batch.ok());
  std::vector<float> latents(20), text(19 * 42), velocity(20);
  const std::vector<DitSequenceInput> inputs = {{.latents = ContiguousMatrix(latents.data(), 1, 20),
                                                 .text = ContiguousMatrix(text.data(), 19, 42)}};
  const DitInputs good = {.sequences = inputs,
                          .timesteps = Span<const float>(latents).first(2),
                          .velocity = ContiguousMatrix(velocity.data(), 1, 20)};
  auto arena = Arena::Create(HostMemory(), DenoiseBytes(config_, 1, 1, 19, 2) / 2);
  ASSERT_TRUE(arena.ok());
  Status status = dit.Forward(*batch, good, *arena, Context(pool, single));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);

  DitInputs bad = good;
  bad.timesteps = bad.timesteps.first(1);
  status = dit.Forward(*batch, bad, *arena, Context(pool, single));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().argument, "timesteps");
}

TEST_F(NetworksTest, IdsOutsideTheVocabularyAreErrors) {
  WeightReader reader(checkpoint_->text_encoder());
  const comm::SingleRank single;
  const TextEncoder encoder(config_.text_encoder, reader,
                            {checkpoint_->text_prefix(), checkpoint_->text_embedding_name()},
                            single);
  ThreadPool pool(1);
  Arena arena;
  for (const int32_t id : {-1, static_cast<int32_t>(config_.text_encoder.vocab_size)}) {
    const std::vector<int32_t> ids = {1, id};
    const TextSequence sequence = {.ids = ids};
    const Status status =
        encoder.Forward(Span<const TextSequence>(&sequence, 1), arena, Context(pool, single));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().argument, "token id");
    EXPECT_EQ(status.error().got, std::to_string(id));
  }
}

// A text encoder of sizes that two ranks divide, in a file of its own.
class TextEncoderRanks : public testing::Test {
 protected:
  void SetUp() override {
    config_.hidden_size = 24;
    config_.intermediate_size = 10;
    config_.num_hidden_layers = 2;
    config_.num_attention_heads = 4;
    config_.num_key_value_heads = 2;
    config_.vocab_size = 50;
    config_.max_position_embeddings = 64;
    Add("embed_tokens.weight", {50, 24});
    Add("norm.weight", {24});
    for (const std::string layer : {"layers.0.", "layers.1."}) {
      Add(layer + "input_layernorm.weight", {24});
      Add(layer + "post_attention_layernorm.weight", {24});
      for (const std::string name : {"q_proj", "k_proj", "v_proj"}) {
        const int64_t rows = name == "q_proj" ? 24 : 12;
        Add(layer + "self_attn." + name + ".weight", {rows, 24});
        Add(layer + "self_attn." + name + ".bias", {rows});
      }
      Add(layer + "self_attn.o_proj.weight", {24, 24});
      Add(layer + "mlp.gate_proj.weight", {10, 24});
      Add(layer + "mlp.up_proj.weight", {10, 24});
      Add(layer + "mlp.down_proj.weight", {24, 10});
    }
    const std::string directory = testing::TempDir() + "segue_text_ranks_test";
    std::filesystem::create_directories(directory);
    ASSERT_TRUE(WriteTensorFile(directory + "/model.safetensors", tensors_).ok());
    auto table = TensorTable::Open(directory, "model", "text_encoder");
    ASSERT_TRUE(table.ok()) << table.error().Message();
    table_ = std::make_unique<TensorTable>(std::move(*table));
  }

  void Add(const std::string& name, const Shape& shape) {
    values_.push_back(Noise(values_.size(), shape.NumElements()));
    for (float& value : values_.back()) value *= 0.3f;
    tensors_.push_back(
        {name, {.data = values_.back().data(), .dtype = DType::kF32, .shape = shape}});
  }

  // Embeddings of two prompts, packed.
  std::vector<float> Embeddings(const comm::Communicator& communicator) const {
    WeightStore store = WeightStore::Host();
    WeightReader reader(*table_, store);
    const TextEncoder encoder(config_, reader, {"", "embed_tokens.weight"}, communicator);
    EXPECT_TRUE(reader.Finish().ok());
    ThreadPool pool(1);
    const std::vector<int32_t> first = {5, 49, 17, 2, 2}, second = {1, 2, 3};
    std::vector<float> values(6 * 24);
    const MatrixView output = ContiguousMatrix(values.data(), 6, 24);
    const std::vector<TextSequence> sequences = {
        {.ids = first, .dropped = 2, .output = output.Rows(0, 3)},
        {.ids = second, .dropped = 0, .output = output.Rows(3, 3)}};
    auto arena = Arena::Create(HostMemory(), int64_t{1} << 20);
    EXPECT_TRUE(arena.ok());
    const Status status =
        encoder.Forward(sequences, *arena,
                        {.kernels = {.stream = Stream::Cpu(pool)}, .communicator = &communicator});
    EXPECT_TRUE(status.ok()) << status.error().Message();
    return values;
  }

  TextEncoderConfig config_;
  std::list<std::vector<float>> values_;
  std::vector<NamedTensor> tensors_;
  std::unique_ptr<TensorTable> table_;
};

TEST_F(TextEncoderRanks, TwoRanksAreTheSameFunction) {
  const auto one = Embeddings(comm::SingleRank());
  RankGroup group(2);
  std::vector<std::vector<float>> ranks(2);
  group.Run([&](const comm::Communicator& rank) {
    ranks[static_cast<size_t>(rank.rank())] = Embeddings(rank);
  });
  EXPECT_EQ(ranks[1], ranks[0]);
  EXPECT_LT(RelativeError(ranks[0], one), 1e-5);
}

}  // namespace
}  // namespace segue::model
