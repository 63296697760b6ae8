// Looking at a checkpoint without running it: what `segue inspect` and `segue verify` print.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue {

struct TensorSummary {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string file;  // relative to the model directory
};

struct ComponentSummary {
  std::string name;        // "transformer", "text_encoder", "vae", ...
  std::string class_name;  // from model_index.json
  int64_t parameters = 0;  // of all tensors in its files
  int64_t bytes = 0;
  int64_t unused_tensors = 0;  // in the files, not read by the engine (a vision tower, say)
  std::vector<std::string> files;
  std::vector<TensorSummary> tensors;
};

// Memory one request of a size needs, by part; bytes.
struct MemoryPlan {
  int width = 0;
  int height = 0;
  int sequences = 0;  // 2 with guidance
  int text_rows = 0;  // per sequence, the bound the plan was made for
  int64_t weights = 0;
  int64_t modulation = 0;  // GPU: what is kept of the steps' modulation
  int64_t libraries = 0;   // GPU: workspaces of products and convolutions, reordered filters
  int64_t choosing = 0;    // GPU: algorithms of products are tried in as much of the workspace
  int64_t text_encoder_activations = 0;
  int64_t transformer_activations = 0;
  int64_t vae_activations = 0;
  int64_t peak = 0;  // weights plus the largest stage plus what lives throughout
  // GPU: the peak with this size's schedule of the model's steps named at load
  // (EngineOptions::schedules), so that modulation weights are not kept.
  int64_t peak_one_schedule = 0;
  int64_t available = 0;
  bool fits = false;
};

struct CheckpointSummary {
  std::string directory;
  std::vector<ComponentSummary> components;
  std::vector<MemoryPlan> plans;  // one per size asked for
};

struct PictureSize {
  int width = 0;
  int height = 0;
};

// Reads headers and configurations only. Sizes empty: the model's default size. `device`: where the
// memory is planned, as EngineOptions has it; a GPU need not be there. `random_weights`: whatever
// weights the directory holds, its components have none, and the memory is that of
// EngineOptions::random_weights.
Result<CheckpointSummary> InspectCheckpoint(const std::string& directory,
                                            const std::vector<PictureSize>& sizes,
                                            const std::string& device = "cpu",
                                            bool random_weights = false);

struct VerifyReport {
  std::vector<std::string> checks;    // passed, one line each
  std::vector<std::string> problems;  // failed, one line each; empty: the checkpoint is sound
};

// Everything InspectCheckpoint checks, and every weight (non-finite values are named), the
// tokenizer's template (34 ids before the prompt, 5 after) and a forward's shapes.
Result<VerifyReport> VerifyCheckpoint(const std::string& directory);

}  // namespace segue
