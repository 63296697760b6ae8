// What a caller asks for and what comes back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "segue/image.h"
#include "segue/quality.h"

namespace segue {

// One picture. Absent fields take the model's defaults (segue.json), and the result echoes what
// was used.
struct Request {
  std::string prompt;                          // UTF-8; may be empty
  std::optional<std::string> negative_prompt;  // absent with guidance > 1: " ", said in the result
  std::optional<int> width;                    // pixels, a multiple of 16
  std::optional<int> height;
  std::optional<int> steps;        // denoising steps, 1..1000
  std::optional<double> guidance;  // true CFG scale; 1 (within 1e-6) or less: no second branch
  uint64_t seed = 0;               // of the initial noise
  // Initial noise in place of the seed's: packed latents [rows, channels], row-major; empty: none.
  std::vector<float> latents;
  bool keep_stages = false;  // return the tensors of every stage
  Quality quality = Quality::kLossless;
  // Of QualityGates, by name: these and no others are mounted, to judge gates by. Empty: all of the
  // tier. Only with a tier that mounts any.
  std::vector<std::string> gates;
};

// A named tensor of one stage, for `--dump`. In order: "prompt.ids" and "prompt.embeddings", with
// guidance "negative.ids" and "negative.embeddings"; "sigmas", "timesteps"; "noise" (packed, like
// all latents); of every step, three digits for its number, "step.000.velocity.prompt", with
// guidance "step.000.velocity.negative", "step.000.velocity" (after guidance) and
// "step.000.latents" (after the step); "final_latents"; "image" ([height, width, 3] in -1..1).
struct StageTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct StageTimes {
  double encode_s = 0;
  double denoise_s = 0;
  double decode_s = 0;
};

// Which implementation of an operation ran, and why those preferred to it did not.
struct KernelUse {
  std::string op;
  std::string kernel;
  int64_t calls = 0;
  std::vector<std::string> passed_over;
};

// Whether a picture's steps were replayed from graphs (a hit) or not.
struct GraphReport {
  int replayed = 0;    // steps that a recorded graph ran
  int recorded = 0;    // steps for which one was recorded
  int eager = 0;       // steps that ran launch by launch: all of them on the CPU
  std::string reason;  // why the last of those did; "" for a shape's first step, and on the CPU
};

struct Picture {
  Image image;
  int steps = 0;
  double guidance = 1;
  bool guided = false;  // whether the second (negative) branch ran
  std::string negative_prompt;
  uint64_t seed = 0;
  int prompt_tokens = 0;           // text rows the transformer saw
  int negative_prompt_tokens = 0;  // 0 without guidance
  StageTimes times;
  std::vector<std::string> warnings;  // e.g. a truncated prompt
  std::vector<KernelUse> kernels;
  std::string device;  // "cpu" or the GPU's name
  QualityReport quality;
  std::string attention_backend;  // the transformer's
  GraphReport graph;
  std::vector<StageTensor> stages;  // when keep_stages was set
};

}  // namespace segue
