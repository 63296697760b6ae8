// All that changes while a request runs. The model never does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/stream.h"
#include "kernels/registry.h"
#include "model/qwen_image.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/noise_schedule.h"
#include "runtime/settings.h"
#include "segue/engine.h"
#include "segue/request.h"
#include "segue/status.h"

namespace segue::runtime {

using KernelCounts = std::map<std::string, std::vector<kernels::KernelLog::Entry>>;

struct RequestState {
  RequestId id = 0;
  Settings settings;
  std::vector<model::PromptIds> prompts;  // the prompt's, then the negative prompt's if guided
  std::vector<float> given_latents;       // packed, or empty: noise from the seed
  bool keep_stages = false;

  NoiseSchedule schedule;
  int step = 0;  // steps done
  Arena memory;  // holds the blocks
  model::RequestBlocks blocks;

  quality::Mounting quality;  // of every step
  std::string attention_backend;
  GraphReport graph;

  Status status;  // the first thing that went wrong
  StageTimes times;
  std::vector<StageTensor> stages;
  KernelCounts kernels_before;  // the engine's counts at submission
  Image image;                  // once decoded

  bool done() const { return step == schedule.steps(); }
};

// Copies a matrix out of the stream's memory as a named stage.
Status KeepStage(RequestState& request, std::string name, const MatrixView& matrix,
                 const Stream& stream);

}  // namespace segue::runtime
