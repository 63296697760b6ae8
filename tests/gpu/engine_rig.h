// Engines with the emoji model, and pictures of theirs, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "gpu/emoji_model.h"
#include "gpu/gpu_rig.h"
#include "segue/engine.h"

namespace segue {

inline Request Wish(const std::string& prompt, int width, int height, int steps, double guidance) {
  Request request;
  request.prompt = prompt;
  request.width = width;
  request.height = height;
  request.steps = steps;
  request.guidance = guidance;
  request.seed = 11;
  return request;
}

// Skipped without a GPU.
class EmojiEngine : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  // Null, and a failure of the test, where it does not load.
  static std::unique_ptr<Engine> Load(EngineOptions options) {
    options.model_directory = EmojiModel();
    auto engine = Engine::Load(options);
    if (engine.ok()) return std::move(*engine);
    ADD_FAILURE() << engine.error().Message();
    return nullptr;
  }
  static std::unique_ptr<Engine> LoadOnGpu(EngineOptions options) {
    options.device = "cuda";
    return Load(std::move(options));
  }
  static Picture Draw(Engine& engine, const Request& request) {
    auto picture = engine.Generate(request);
    if (picture.ok()) return std::move(*picture);
    ADD_FAILURE() << picture.error().Message();
    return {};
  }
};

}  // namespace segue
